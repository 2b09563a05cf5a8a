"""Connect to the agent of a running gateway, or start one in this process."""

from collections.abc import Callable, Generator
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING

from hermes.config.env import Env
from hermes.config.home import Home
from hermes.ipc.client import SOCKET, AgentClient, ConversationOptions, GatewayGone

if TYPE_CHECKING:
    from hermes.ipc.reconnect import OpenClient, Wait

GRACE = 3.0
"""Seconds to wait for a stopped gateway to be started again."""
MAX_WAIT = 30.0
"""Seconds to wait for a gateway that is starting or stopping to open its socket."""
_FIRST, _MOST = 0.05, 0.5
"""First and longest pause between attempts, in seconds."""


def _no_process() -> bool:
    return False


@contextmanager
def connect(
    home: Home, env: Env, start: ConversationOptions, is_running: Callable[[], bool] = _no_process
) -> Generator[AgentClient]:
    """Open a conversation, which behaves the same with and without a gateway.

    A person's chat survives the end of the gateway. `lives` tells whether a gateway process of this
    home is running.
    """
    connector = _Connector(home, env, is_running)
    with ExitStack() as opened:
        reasons: list[str] = []
        client = connector.find_gateway(opened, start, reasons)
        if client is None:
            yield connector.open_in_process(opened, start, reasons)
        elif not start.person:
            yield client
        else:
            from hermes.ipc.reconnect import OpenClient, ReconnectingClient  # noqa: PLC0415 - as below

            open_client = OpenClient(opened.pop_all(), client)
            yield opened.enter_context(
                closing(ReconnectingClient(open_client, start, connector.reconnect))
            )


class _Connector:
    def __init__(self, home: Home, env: Env, lives: Callable[[], bool]) -> None:
        self._home = home
        self._env = env
        self._lives = lives

    def find_gateway(
        self, opened: ExitStack, start: ConversationOptions, reasons: list[str]
    ) -> AgentClient | None:
        """Return None if no gateway is running; if it is not compatible, add the reason."""
        if not start.works_with_gateway or not (self._home.path / SOCKET).exists():
            return None
        from hermes.ipc.socket_client import open_socket_client  # noqa: PLC0415 - not needed without a gateway

        try:
            socket_client = open_socket_client(self._home.path, self._env, start, reasons.append)
            return opened.enter_context(socket_client)
        except GatewayGone:
            # It accepted the connection and ended; nothing was requested yet.
            return None

    def open_in_process(
        self, opened: ExitStack, start: ConversationOptions, reasons: list[str]
    ) -> AgentClient:
        from hermes.ipc.in_process import open_in_process  # noqa: PLC0415 - heavy, and often not needed

        notes = tuple(_refusal_note(reason) for reason in reasons) if start.person else ()
        return opened.enter_context(open_in_process(self._home, self._env, start, notes))

    def reconnect(self, start: ConversationOptions, wait: "Wait", *, alone: bool) -> "OpenClient":
        """After losing the gateway, connect to the restarted one or start an agent here."""
        from hermes.ipc.reconnect import GATEWAY_BACK, GATEWAY_GONE, OpenClient  # noqa: PLC0415 - as above

        with ExitStack() as opened:
            reasons: list[str] = []
            client = None if alone else self._wait_for_gateway(opened, start, wait, reasons)
            notice = GATEWAY_GONE if client is None else GATEWAY_BACK
            if client is None:
                client = self.open_in_process(opened, start, reasons)
            return OpenClient(opened.pop_all(), client, (notice, *client.greeting.notes))

    def _wait_for_gateway(
        self, opened: ExitStack, start: ConversationOptions, wait: "Wait", reasons: list[str]
    ) -> AgentClient | None:
        """Wait while a gateway process is running or may be started soon."""
        waited, alone, pause = 0.0, 0.0, _FIRST
        while True:
            client = self.find_gateway(opened, start, reasons)
            alone = 0.0 if self._lives() else alone + pause
            waited += pause
            found = client is not None or bool(reasons)
            if found or waited > MAX_WAIT or alone > GRACE or not wait(pause):
                return client
            pause = min(2 * pause, _MOST)


def _refusal_note(reason: str) -> str:
    return f"Not using the running gateway. {reason} To use it: hermes gateway restart"
