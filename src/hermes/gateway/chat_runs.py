"""The runs of a chat session: rules, queued messages, batches and the idle timeout."""

from collections.abc import Awaitable, Callable, Sequence
from enum import Enum, auto

import anyio
from msgspec import Struct, field

from hermes.gateway.messages import BusyMode, InboxKind, InboxMessage
from hermes.gateway.progress_message import ProgressMessage
from hermes.kit.clock import Clock
from hermes.kit.retry import Backoff
from hermes.kit.text import plural

IDLE_WARNING = (
    "Nothing has happened in this turn for {quiet}. I will end it after {left} more without "
    "activity; /stop ends it now."
)
STILL_WORKING = "Still working after {time}."


class ActorRules(Struct, frozen=True, kw_only=True):
    """Timing rules of session actors, in seconds; 0 disables a rule.

    `debounce`: wait for more messages of a burst, at most `burst`; `missed`: the same after a
    message that was missed, because those that follow it are on their way. `resumes`: how often a
    crashing session is resumed within ten minutes. `idle`: end a turn without activity;
    `idle_warning`: warn before that. `notify`: interval of "still working" notices. `fresh`: a
    turn interrupted longer ago than this is not resumed automatically.
    """

    busy: BusyMode = BusyMode.INTERRUPT
    debounce: float = 0.0
    burst: float = 5.0
    missed: float = 0.5
    backoff: Backoff = Backoff(base=2.0, cap=60.0)
    resumes: int = 2
    idle: float = 0.0
    idle_warning: float = 0.0
    notify: float = 0.0
    fresh: float = 0.0


class QueuedMessage(Struct, frozen=True):
    """A decoded inbox row."""

    key: str
    message: InboxMessage


class CancelCause(Enum):
    """Why a run was cancelled; None means the process is shutting down."""

    STOPPED = auto()
    INTERRUPTED = auto()
    IDLE = auto()


class ActiveRun(Struct, kw_only=True):
    """One run; signals that arrive after its end have no effect.

    `keys`: those of the messages it answers, with steering ones. `ended`: the final event was
    emitted. `finished`: everything belonging to the run has finished.
    """

    id: str
    batch: Sequence[QueuedMessage]
    keys: set[str]
    scope: anyio.CancelScope
    started: float
    last_active: float
    open_questions: set[str] = set()
    progress: ProgressMessage | None = None
    to_steer: list[QueuedMessage] = []
    steered: list[QueuedMessage] = []
    seen: set[str] = set()
    cause: CancelCause | None = None
    ended: bool = False
    finished: anyio.Event = field(default_factory=anyio.Event)
    reply_text: str = ""

    @property
    def principal(self) -> str:
        return self.batch[-1].message.principal

    def cancel(self, cause: CancelCause) -> None:
        if self.cause is None and not self.ended:
            self.cause = cause
            self.scope.cancel()


def same_conversation(first: InboxMessage, other: InboxMessage) -> bool:
    """Whether both come from the same person, in the same chat, with the same reply targets."""
    one, two = (
        (message.principal, message.role, message.address, message.answer_at)
        for message in (first, other)
    )
    return one == two


def next_batch(waiting: Sequence[QueuedMessage], rules: ActorRules) -> list[QueuedMessage]:
    """Choose the messages that one turn answers: usually all from one person in one chat.

    Context is added to messages of the same conversation and never starts a turn.
    """
    if len(waiting) == 1:
        return list(waiting)
    context = [
        queued_message
        for queued_message in waiting
        if queued_message.message.kind is InboxKind.CONTEXT
    ]
    if context:
        batch = next_batch(
            [queued_message for queued_message in waiting if queued_message not in context], rules
        )
        near = [
            queued_message
            for queued_message in context
            if same_conversation(queued_message.message, batch[0].message)
        ]
        return [*near, *batch]
    first = _first_message(waiting, rules)
    if rules.busy is BusyMode.QUEUE or first.message.busy_mode is BusyMode.QUEUE:
        return [first]
    batch: list[QueuedMessage] = []
    for queued in waiting[waiting.index(first) :]:
        message = queued.message
        if not same_conversation(message, first.message) or message.busy_mode is BusyMode.QUEUE:
            break
        batch.append(queued)
    return batch


def _first_message(waiting: Sequence[QueuedMessage], rules: ActorRules) -> QueuedMessage:
    """An interrupting message precedes queued ones of the same conversation."""
    head = waiting[0]
    for queued in waiting:
        if not same_conversation(queued.message, head.message):
            break
        if (queued.message.busy_mode or rules.busy) is BusyMode.INTERRUPT:
            return queued
    return head


async def end_when_idle(
    run: ActiveRun, rules: ActorRules, clock: Clock, warn: Callable[[str], Awaitable[None]]
) -> None:
    """Cancel the run once it is idle for too long; warn once per idle period."""
    warned_since: float | None = None
    while True:
        # Waiting for a person is not idle; questions have their own timeout.
        quiet = 0.0 if run.open_questions else clock.monotonic() - run.last_active
        warns = 0 < rules.idle_warning < rules.idle and warned_since != run.last_active
        limit = rules.idle_warning if warns else rules.idle
        if quiet < limit:
            await clock.sleep(limit - quiet)
        elif warns:
            warned_since = run.last_active
            left = format_duration(rules.idle - rules.idle_warning)
            await warn(IDLE_WARNING.format(quiet=format_duration(rules.idle_warning), left=left))
        else:
            run.cancel(CancelCause.IDLE)
            return


async def show_still_working(run: ActiveRun, rules: ActorRules, clock: Clock) -> None:
    """Show a notice in the progress message periodically, unless a question is open."""
    while run.progress is not None:
        await clock.sleep(rules.notify)
        if not run.open_questions:
            time = format_duration(clock.monotonic() - run.started)
            run.progress.show_still_working(STILL_WORKING.format(time=time))


def format_duration(seconds: float) -> str:
    if seconds < 120:
        return plural(round(seconds), "second")
    if seconds < 2 * 3600:
        return plural(round(seconds / 60), "minute")
    return plural(round(seconds / 3600), "hour")
