"""A conversation that a command line has with the agent, wherever the agent runs."""

from collections.abc import Callable
from datetime import datetime
from typing import Protocol, TypeAlias

from msgspec import Struct

from hermes.kit.errors import HermesError
from hermes.schema.events import Event, Outcome, RunEnded
from hermes.schema.messages import Media, Text
from hermes.schema.sessions import StoredMessage

SOCKET = "gateway.sock"
"""The name of the door in a home."""

ShowEvent: TypeAlias = Callable[[Event], None]


class ConversationOptions(Struct, frozen=True, kw_only=True):
    """What somebody comes with. `moved` says that `cwd` was asked for by hand.

    `resume` names a session to go on with, `latest` means the last one. `person` says that
    somebody looks on, stays, wants to be greeted and can be asked, `screen` that it is a
    terminal which can be emptied and has a clipboard. With `yolo` nothing is asked. `unheard` are
    ids of words to a turn that was cut off, which whoever comes has kept, and says anew.
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
    screen: bool = False
    yolo: bool = False
    unheard: tuple[str, ...] = ()

    @property
    def anywhere(self) -> bool:
        """Whether an agent that runs already can do what is asked for."""
        return self.toolsets is None and self.max_steps is None and self.source == "cli"


class UserInput(Struct, frozen=True):
    """What is said to the agent; `images` are paths from the root, as bytes."""

    parts: tuple[Text | Media, ...]
    images: tuple[bytes, ...] = ()


class BusyMode(Struct):
    """What words do that are said while a turn runs; whoever says them may change it."""

    mode: str


class ErrorInfo(Struct, frozen=True):
    """An error as it is told: what kind it is, what happened, what to do next."""

    code: str
    message: str
    hint: str = ""


class ConversationState(Struct, frozen=True, omit_defaults=True):
    """Which session this is, and whether anything was said in it.

    The others are for a person: the model in use, the tokens it has room for, and the name of
    what holds commands back; what words do that are said while a turn runs; whether nothing is
    asked for; and how much work goes on in the background.
    """

    session: str
    started: bool = False
    model: str = ""
    window: int = 0
    wall: str = ""
    busy: str = ""
    yolo: bool = False
    behind: int = 0


class Greeting(Struct, frozen=True, kw_only=True):
    """What there is to know at the beginning; the last three only for a person."""

    model: str
    folder: str
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    trouble: ErrorInfo | None = None
    recap: tuple[tuple[str, str], ...] = ()


class TextReply(Struct, frozen=True, tag="told"):
    """Something to read; first the screen is emptied, or the clipboard filled, if it says so."""

    text: str
    clear: bool = False
    clip: str = ""
    undone: int = 0
    """How many turns count no more."""


class ResumedReply(Struct, frozen=True, tag="back"):
    """The talk goes on in another session: in which, and in short what was said there."""

    told: str
    recap: str = ""

    @property
    def text(self) -> str:
        return "\n".join(filter(None, (self.told, self.recap)))


class SubmitReply(Struct, frozen=True, tag="ask"):
    """Something to say to the agent in the person's name; `told` is for the person."""

    parts: tuple[Text | Media, ...]
    told: str = ""
    undone: int = 0


class QuitReply(Struct, frozen=True, tag="leave"):
    """The person wants to go."""


class NotACommand(Struct, frozen=True, tag="plain"):
    """The line is no command: it is to be said as it stands."""


class ScreenReply(Struct, frozen=True, tag="screen"):
    """The terminal is to do something with its screen; what, is in `commands.surface.Looks`."""

    what: str
    words: str = ""


CommandReply: TypeAlias = (
    TextReply | ResumedReply | SubmitReply | QuitReply | ScreenReply | NotACommand
)


class RecentHistory(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The last turns of a session as they are on disk; `more` messages stand before them.

    A turn that nobody ended has the place of its last message in `cut`; `asked` are the times
    at which a person had been asked something, which they took their time to answer.
    """

    rows: tuple[StoredMessage, ...] = ()
    cut: frozenset[int] = frozenset()
    asked: tuple[datetime, ...] = ()
    more: int = 0


class UsageReport(Struct, kw_only=True):
    """What a run used and cost, under the names that programs know."""

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
    """Whoever asked for it does not want it any more."""

    code = "cancelled"
    exit_code = 130


class InternalError(HermesError):
    """The program itself is wrong; what led to it is in the log."""

    code = "internal"
    exit_code = 70


class GatewayGone(HermesError):
    """The process that ran the agent ended or hung up."""

    code = "gateway"


class RequestNotReceived(GatewayGone):
    """It was gone before it could hear what it was asked: that may be asked of another."""


class AgentClient(Protocol):
    """Every method waits for its end, and raises a `HermesError` when it cannot be done."""

    @property
    def greeting(self) -> Greeting: ...

    @property
    def state(self) -> ConversationState: ...

    def say(self, question: UserInput, show: ShowEvent) -> Outcome:
        """One turn. What `show` raises ends it, and is raised here once it has ended.

        `show` is called by the thread that waits here; the turn does not wait for it.
        """
        ...

    def answer(self, question: str, words: str) -> None:
        """Say something to what the turn asks; what comes of it is shown."""
        ...

    def steer(self, word: str, text: str) -> None:
        """Say something to the turn that runs, from another thread, under an id of one's own.

        It is told as `Said` when it was heard. What was not by the end of the turn came too
        late, and is still to be said.
        """
        ...

    def news(self) -> bool:
        """Whether something came in by itself; a question without words asks about it."""
        ...

    def past(self) -> RecentHistory:
        """What was said and done in this session, as far as it is worth showing."""
        ...

    def command(self, line: str) -> CommandReply:
        """Run a slash command. Raises `Interrupted` when it was."""
        ...

    def report(self, ended: RunEnded | None) -> UsageReport:
        """What the session's model used in the run that ended so."""
        ...

    def interrupt(self) -> None:
        """End what is going on, if anything is; for signal handlers and other threads, too."""
        ...


class EventDisplay:
    """Those who are shown a turn; once showing failed, they are shown no more of it."""

    def __init__(self, show: ShowEvent, interrupt: Callable[[], None]) -> None:
        self._show = show
        self._interrupt = interrupt
        self._lost: Exception | None = None

    def hear(self, event: Event) -> None:
        if self._lost is not None:
            return
        try:
            self._show(event)
        except Exception as error:  # noqa: BLE001 - raised by `check`, when the turn has ended
            self._lost = error
            self._interrupt()

    def check(self) -> None:
        if self._lost is not None:
            raise self._lost
