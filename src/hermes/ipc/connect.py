"""Find somebody to talk to: the agent of a running gateway, else one of our own."""

from collections.abc import Callable, Generator
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING

from hermes.config.env import Env
from hermes.config.home import Home
from hermes.ipc.client import SOCKET, AgentClient, ConversationOptions, GatewayGone

if TYPE_CHECKING:
    from hermes.ipc.reconnect import OpenClient, Wait

GRACE = 3.0
"""Seconds in which a gateway that was ended may be started again."""
MAX_WAIT = 30.0
"""Seconds in which one that starts, or has not quite ended, opens its door."""
_FIRST, _MOST = 0.05, 0.5
"""Seconds between two looks: at first, and in the end."""


def _no_process() -> bool:
    return False


@contextmanager
def connect(
    home: Home, env: Env, start: ConversationOptions, lives: Callable[[], bool] = _no_process
) -> Generator[AgentClient]:
    """What is asked and answered is the same in both cases; only how long it takes is not.

    A person's chat goes on when the gateway does not. `lives` says whether there is a process
    that is the gateway of this home, whatever it is doing.
    """
    finder = _Connector(home, env, lives)
    with ExitStack() as opened:
        reasons: list[str] = []
        partner = finder.find_gateway(opened, start, reasons)
        if partner is None:
            yield finder.here(opened, start, reasons)
        elif not start.person:
            yield partner
        else:
            from hermes.ipc.reconnect import OpenClient, ReconnectingClient  # noqa: PLC0415 - as below

            met = OpenClient(opened.pop_all(), partner)
            yield opened.enter_context(closing(ReconnectingClient(met, start, finder.again)))


class _Connector:
    def __init__(self, home: Home, env: Env, lives: Callable[[], bool]) -> None:
        self._home = home
        self._env = env
        self._lives = lives

    def find_gateway(
        self, opened: ExitStack, start: ConversationOptions, reasons: list[str]
    ) -> AgentClient | None:
        """None when nobody is there; when somebody is who would not do the same, say why."""
        if not start.anywhere or not (self._home.path / SOCKET).exists():
            return None
        from hermes.ipc.socket_client import open_socket_client  # noqa: PLC0415 - of no use without a gateway

        try:
            found = open_socket_client(self._home.path, self._env, start, reasons.append)
            return opened.enter_context(found)
        except GatewayGone:
            # It took us in and ended: nothing was asked of it yet.
            return None

    def here(
        self, opened: ExitStack, start: ConversationOptions, reasons: list[str]
    ) -> AgentClient:
        from hermes.ipc.in_process import open_in_process  # noqa: PLC0415 - heavy, and often not needed

        notes = tuple(_refusal_note(reason) for reason in reasons) if start.person else ()
        return opened.enter_context(open_in_process(self._home, self._env, start, notes))

    def again(self, start: ConversationOptions, wait: "Wait", *, alone: bool) -> "OpenClient":
        """After the gateway was lost: the one that comes back, else one of our own."""
        from hermes.ipc.reconnect import GATEWAY_BACK, GATEWAY_GONE, OpenClient  # noqa: PLC0415 - as above

        with ExitStack() as opened:
            reasons: list[str] = []
            partner = None if alone else self._awaited(opened, start, wait, reasons)
            told = GATEWAY_GONE if partner is None else GATEWAY_BACK
            if partner is None:
                partner = self.here(opened, start, reasons)
            return OpenClient(opened.pop_all(), partner, (told, *partner.greeting.notes))

    def _awaited(
        self, opened: ExitStack, start: ConversationOptions, wait: "Wait", reasons: list[str]
    ) -> AgentClient | None:
        """Waits while a process is there that may open its door, or may follow soon."""
        waited, alone, pause = 0.0, 0.0, _FIRST
        while True:
            partner = self.find_gateway(opened, start, reasons)
            alone = 0.0 if self._lives() else alone + pause
            waited += pause
            found = partner is not None or bool(reasons)
            if found or waited > MAX_WAIT or alone > GRACE or not wait(pause):
                return partner
            pause = min(2 * pause, _MOST)


def _refusal_note(reason: str) -> str:
    return f"The running gateway is not used here. {reason} To use it: hermes gateway restart"
