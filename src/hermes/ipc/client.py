"""The client interface of a conversation with the agent, in this process or in a gateway."""

from collections.abc import Callable
from typing import Protocol, TypeAlias

from msgspec import Struct

from hermes.schema.errors import HermesError
from hermes.schema.events import Event, Outcome, RunEnded
from hermes.schema.messages import Media, Text
from hermes.schema.terminal import ConversationState, ErrorInfo, Greeting, LineReply, RecentHistory

SOCKET_NAME = "gateway.sock"
"""File name of the socket in a home."""

ShowEvent: TypeAlias = Callable[[Event], None]


class ConversationOptions(Struct, frozen=True, kw_only=True):
    """A client's options for opening a conversation.

    `moved`: `cwd` was given explicitly. `resume` names a session to continue, `latest` continues
    the last one. `person`: an interactive user can be greeted and asked; `attended`: someone can be
    asked; `screen`: their terminal can be cleared and has a clipboard. `yolo` skips approvals.
    `unheard` are ids of steering messages of an interrupted turn that the client will send again.
    `refresh`: the client reloads the session after a turn.
    """

    cwd: str
    moved: bool = False
    resume: str = ""
    latest: bool = False
    model: str = ""
    provider: str = ""
    source: str = "cli"
    toolsets: tuple[str, ...] | None = None
    max_steps: int | None = None
    person: bool = False
    attended: bool = False
    screen: bool = False
    yolo: bool = False
    unheard: tuple[str, ...] = ()
    refresh: bool = True

    @property
    def works_with_gateway(self) -> bool:
        """Whether a running gateway can serve this conversation."""
        return self.toolsets is None and self.max_steps is None and self.source == "cli"


class UserInput(Struct, frozen=True):
    """A message to the agent; `images` are absolute paths, as bytes."""

    parts: tuple[Text | Media, ...]
    images: tuple[bytes, ...] = ()


class UsageReport(Struct, kw_only=True):
    """Usage and cost of a run, with the field names programs know."""

    session_id: str
    model: str
    provider: str
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    total_tokens: int = 0
    api_calls: int = 0
    estimated_cost_usd: float | None = None
    cost_status: str = "unknown"
    cost_source: str = "catalog"
    completed: bool = False
    failed: bool = False
    service_tier: str = ""


class Interrupted(HermesError):
    """The user cancelled the request."""

    code = "cancelled"
    exit_code = 130


class InternalError(HermesError):
    """A bug in Hermes; the log has the details."""

    code = "internal"
    exit_code = 70


class GatewayGone(HermesError):
    """The gateway process ended or closed the connection."""

    code = "gateway"


class RequestNotReceived(GatewayGone):
    """The gateway was gone before it received the request, so it can safely be sent again."""


class AgentClient(Protocol):
    """A blocking conversation with the agent. Methods raise a `HermesError` on failure."""

    @property
    def greeting(self) -> Greeting: ...

    @property
    def state(self) -> ConversationState: ...

    @property
    def unfinished_jobs(self) -> int:
        """The number of background tasks that end with this client; those of a gateway go on."""
        ...

    def submit(self, user_input: UserInput, show: ShowEvent) -> Outcome:
        """Run one turn. An exception from `show` interrupts the turn and is raised when it has
        ended.

        `show` is called in the calling thread; the turn does not wait for it.
        """
        ...

    def answer(self, question: str, text: str) -> None:
        """Answer a question of the running turn; the outcome is shown."""
        ...

    def steer(self, message_id: str, text: str) -> None:
        """Send a message to the running turn, from another thread, with an id of the caller's.

        A `MessageAdded` event confirms it. Otherwise it came too late and must be sent again.
        """
        ...

    def has_news(self) -> bool:
        """Whether something arrived by itself; an empty question starts a turn about it."""
        ...

    def recent_history(self) -> RecentHistory:
        """Return the recent messages of this session."""
        ...

    def command(self, line: str) -> LineReply:
        """Run a slash command. Raises `Interrupted` if it was cancelled."""
        ...

    def usage_report(self, ended: RunEnded | None) -> UsageReport:
        """Return the usage of the run that ended with this event."""
        ...

    def interrupt(self) -> None:
        """Cancel what is running, if anything; safe in signal handlers and other threads."""
        ...


class EventDisplay(Struct):
    """Shows the events of a turn; after a failure it interrupts the turn and shows no more."""

    _show: ShowEvent
    _interrupt: Callable[[], None]
    error: Exception | None = None
    """The failure, to be raised when the turn has ended."""

    def on_event(self, event: Event) -> None:
        if self.error is not None:
            return
        try:
            self._show(event)
        except Exception as error:  # noqa: BLE001 - raised when the turn has ended
            self.error = error
            self._interrupt()


def error_info(error: HermesError) -> ErrorInfo:
    return ErrorInfo(error.code, _clean(str(error)), _clean(error.hint))


def error_from_info(info: ErrorInfo) -> HermesError:
    """Return an error of the class with this code; of several, the most general one."""
    kind = _errors_by_code(HermesError).get(info.code, HermesError)
    return kind(info.message, hint=info.hint)


def _errors_by_code(root: type[HermesError]) -> dict[str, type[HermesError]]:
    found: dict[str, type[HermesError]] = {}
    for kind in root.__subclasses__():
        found |= _errors_by_code(kind)
    return found | {root.code: root}


def _clean(text: str) -> str:
    """Replace bytes in file names that are not text, which JSON cannot carry."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
