"""Connect to the agent of a running gateway or start one in this process; survive its end."""

from collections.abc import Callable, Collection, Generator
from contextlib import ExitStack, closing, contextmanager, suppress
from queue import Empty, SimpleQueue
from threading import Lock
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

from msgspec import Struct, structs

from hermes.config.env import Env
from hermes.config.home import Home
from hermes.ipc.client import (
    SOCKET_NAME,
    AgentClient,
    ConversationOptions,
    GatewayGone,
    RequestNotReceived,
    ShowEvent,
    UsageReport,
    UserInput,
)
from hermes.schema.errors import HermesError, SessionBusy
from hermes.schema.events import Event, MessageAdded, Notice, Outcome, RunEnded
from hermes.schema.terminal import ConversationState, Greeting, LineReply, RecentHistory

GATEWAY_BACK = "Reconnected to the gateway."
GATEWAY_GONE = "The gateway has stopped; this chat continues without it."
TURN_CUT_OFF = "The gateway stopped during this turn. Everything up to then is saved."
_TRIES = 2
"""Maximum attempts if a gateway ends before it starts the request."""

T = TypeVar("T")
Wait: TypeAlias = Callable[[float], bool]
"""Waits for the given seconds; returns False if cancelled."""
RESTART_GRACE = 3.0
"""Seconds to wait for a stopped gateway to be started again."""
MAX_WAIT = 30.0
"""Seconds to wait for a gateway that is starting or stopping to open its socket."""
_FIRST_PAUSE, _MAX_PAUSE = 0.05, 0.5
"""First and longest pause between attempts, in seconds."""


class OpenClient(NamedTuple):
    """A client that is usable until `stack` is closed; `notes` are for the person."""

    stack: ExitStack
    client: AgentClient
    notes: tuple[str, ...] = ()


class Reconnect(Protocol):
    """Finds a new client after the gateway is gone: the restarted gateway, or this process."""

    def __call__(
        self, start: ConversationOptions, wait: Wait, *, in_process: bool
    ) -> OpenClient: ...


class ReconnectingClient:
    """Handles one request at a time; while disconnected, requests wait for a new client."""

    def __init__(
        self,
        client: OpenClient,
        start: ConversationOptions,
        reconnect: Reconnect,
        *,
        busy_timeout: float = 65.0,
        busy_interval: float = 0.2,
    ) -> None:
        """Another process gets `busy_timeout` seconds to release the session."""
        self._open_client = client
        self._start = start
        self._reconnect = reconnect
        self._busy_timeout = busy_timeout
        self._busy_interval = busy_interval
        self._notices: list[str] = []
        self._steering: set[str] = set()
        """Ids of messages to the last turn that were not confirmed."""
        self._lost = False
        self._reconnected = False
        """A new client was found and not used yet."""
        self._failed = False
        """No client was found; the next request searches again."""
        self._closed = False
        self._open_lock = Lock()
        self._cancelled: SimpleQueue[None] = SimpleQueue()
        """Not empty once the current request was cancelled."""

    @property
    def greeting(self) -> Greeting:
        return self._open_client.client.greeting

    @property
    def state(self) -> ConversationState:
        return self._open_client.client.state

    @property
    def unfinished_jobs(self) -> int:
        return self._open_client.client.unfinished_jobs

    def submit(self, user_input: UserInput, show: ShowEvent) -> Outcome:
        self._cancelled = SimpleQueue()
        for attempt in range(1, _TRIES + 2):
            self._ensure_client(in_process=attempt > _TRIES)
            self._steering = set()
            turn = _Turn(show, self._steering)
            notified = self._show_notices(show)
            if not self._cancelled.empty():
                show(RunEnded("", Outcome.CANCELLED, "Interrupted.", "cancelled"))
                return Outcome.CANCELLED
            try:
                # The notices may already contain all the news that was asked for.
                is_empty = not (user_input.parts or user_input.images)
                if notified and is_empty and not self._open_client.client.has_news():
                    show(RunEnded("", Outcome.DONE))
                    return Outcome.DONE
                return self._begin(user_input, turn)
            except GatewayGone:
                self._lost = True
                if turn.started:
                    return self._end(turn, show)
        raise HermesError("No agent is reachable.", hint="Send the message again.")

    def answer(self, question: str, text: str) -> None:
        # The caller waiting for the turn learns that it has ended.
        with suppress(GatewayGone):
            self._open_client.client.answer(question, text)

    def steer(self, message_id: str, text: str) -> None:
        # A message the turn did not receive must be sent again; it is not lost with the gateway.
        self._steering.add(message_id)
        with suppress(GatewayGone):
            self._open_client.client.steer(message_id, text)

    def has_news(self) -> bool:
        """Only report that the gateway is gone, because a search would block typing."""
        if self._failed:
            return False
        if self._lost or self._notices:
            return True
        try:
            return self._open_client.client.has_news()
        except GatewayGone:
            self._lost = True
            return True

    def command(self, line: str) -> LineReply:
        self._cancelled = SimpleQueue()
        try:
            return self._request(lambda client: client.command(line), retry_on=RequestNotReceived)
        except GatewayGone as error:
            raise HermesError(
                "The gateway stopped during this command; it may or may not have been executed.",
                hint="Check the result, and repeat the command if necessary.",
            ) from error

    def usage_report(self, ended: RunEnded | None) -> UsageReport:
        return self._request(lambda client: client.usage_report(ended))

    def recent_history(self) -> RecentHistory:
        return self._request(lambda client: client.recent_history())

    def interrupt(self) -> None:
        """Cancel; waiting for the gateway ends, and the chat continues without it."""
        self._cancelled.put(None)
        self._open_client.client.interrupt()

    def close(self) -> None:
        """Close the client and cancel a search in progress."""
        self._closed = True
        self._cancelled.put(None)
        with self._open_lock:
            self._open_client.stack.close()

    def _request(
        self, work: Callable[[AgentClient], T], retry_on: type[GatewayGone] = GatewayGone
    ) -> T:
        """Run the request, and repeat it with another client where that is safe."""
        self._ensure_client()
        try:
            return work(self._open_client.client)
        except GatewayGone as error:
            self._lost = True
            if not isinstance(error, retry_on):
                raise
        self._ensure_client(in_process=True)
        return work(self._open_client.client)

    def _begin(self, question: UserInput, turn: "_Turn") -> Outcome:
        """Start the turn; the lease of a stopped gateway may take a while to expire."""
        remaining = self._busy_timeout if self._reconnected else 0.0
        self._reconnected = False
        while True:
            try:
                return self._open_client.client.submit(question, turn.on_event)
            except SessionBusy:
                if turn.started or remaining <= 0 or not self._wait(self._busy_interval):
                    raise
                remaining -= self._busy_interval

    def _end(self, turn: "_Turn", show: ShowEvent) -> Outcome:
        """End an interrupted turn, after looking for a new client."""
        if turn.ended is not None:
            return turn.ended
        try:
            self._ensure_client()
        finally:
            self._show_notices(show)
            show(RunEnded("", Outcome.CANCELLED, TURN_CUT_OFF, "cancelled"))
        return Outcome.CANCELLED

    def _show_notices(self, show: ShowEvent) -> bool:
        """Show pending notices; return whether there were any."""
        notices, self._notices = self._notices, []
        for notice in notices:
            show(Notice(notice))
        return bool(notices)

    def _ensure_client(self, *, in_process: bool = False) -> None:
        """Make sure there is a client. Raises if none can be found."""
        if not self._lost:
            return
        with self._open_lock:
            if self._closed:
                raise GatewayGone("This chat is closed.")
            start = _resume_options(self._start, self.state, self._steering)
            self._open_client.stack.close()
            self._failed = True
            self._open_client = open_client = self._reconnect(
                start, self._wait, in_process=in_process
            )
            self._lost = self._failed = False
            self._reconnected = True
        self._notices += open_client.notes

    def _wait(self, seconds: float) -> bool:
        try:
            self._cancelled.get(timeout=seconds)
        except Empty:
            return True
        # Put it back for the next check.
        self._cancelled.put(None)
        return False


class _Turn:
    """The events of a turn received so far."""

    def __init__(self, show: ShowEvent, steering: set[str]) -> None:
        self._show = show
        self._steering = steering
        self.started = False
        self.ended: Outcome | None = None

    def on_event(self, event: Event) -> None:
        self.started = True
        if isinstance(event, RunEnded):
            self.ended = event.outcome
        elif isinstance(event, MessageAdded):
            self._steering.discard(event.message.id)
        self._show(event)


def _resume_options(
    start: ConversationOptions, state: ConversationState, unheard: Collection[str]
) -> ConversationOptions:
    """Resume the session with its own model and working directory, if it has messages."""
    start = structs.replace(start, resume="", latest=False, unheard=tuple(sorted(unheard)))
    if not state.started:
        return start
    return structs.replace(start, resume=state.session, model="", provider="", moved=False)


@contextmanager
def connect(
    home: Home,
    env: Env,
    start: ConversationOptions,
    is_running: Callable[[], bool] = lambda: False,
) -> Generator[AgentClient]:
    """Open a conversation, which behaves the same with and without a gateway.

    A person's chat survives the end of the gateway. `is_running` tells whether a gateway process
    of this home is running.
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
            open_client = OpenClient(opened.pop_all(), client)
            yield opened.enter_context(
                closing(ReconnectingClient(open_client, start, connector.reconnect))
            )


class _Connector(Struct, frozen=True):
    home: Home
    env: Env
    is_running: Callable[[], bool]

    def find_gateway(
        self, opened: ExitStack, start: ConversationOptions, reasons: list[str]
    ) -> AgentClient | None:
        """Return None if no gateway is running; if it is not compatible, add the reason."""
        if not start.works_with_gateway or not (self.home.path / SOCKET_NAME).exists():
            return None
        from hermes.ipc.socket_client import open_socket_client  # noqa: PLC0415 - not needed without a gateway

        try:
            socket_client = open_socket_client(self.home.path, self.env, start, reasons.append)
            return opened.enter_context(socket_client)
        except GatewayGone:
            # It accepted the connection and ended; nothing was requested yet.
            return None

    def open_in_process(
        self, opened: ExitStack, start: ConversationOptions, reasons: list[str]
    ) -> AgentClient:
        from hermes.ipc.conversation_service import open_in_process  # noqa: PLC0415 - heavy, and often not needed

        notes = tuple(
            f"Not using the running gateway. {reason} To use it: hermes gateway restart"
            for reason in reasons
            if start.person
        )
        return opened.enter_context(open_in_process(self.home, self.env, start, notes))

    def reconnect(self, start: ConversationOptions, wait: Wait, *, in_process: bool) -> OpenClient:
        """After losing the gateway, connect to the restarted one or start an agent here."""
        with ExitStack() as opened:
            reasons: list[str] = []
            client = None if in_process else self._wait_for_gateway(opened, start, wait, reasons)
            notice = GATEWAY_GONE if client is None else GATEWAY_BACK
            if client is None:
                client = self.open_in_process(opened, start, reasons)
            return OpenClient(opened.pop_all(), client, (notice, *client.greeting.notes))

    def _wait_for_gateway(
        self, opened: ExitStack, start: ConversationOptions, wait: Wait, reasons: list[str]
    ) -> AgentClient | None:
        """Wait while a gateway process is running or may be started soon."""
        waited, absent, pause = 0.0, 0.0, _FIRST_PAUSE
        while True:
            client = self.find_gateway(opened, start, reasons)
            absent = 0.0 if self.is_running() else absent + pause
            waited += pause
            found = client is not None or bool(reasons)
            if found or waited > MAX_WAIT or absent > RESTART_GRACE or not wait(pause):
                return client
            pause = min(2 * pause, _MAX_PAUSE)
