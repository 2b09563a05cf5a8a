"""What waits for a chat session, what runs in it, and with which words a run ends."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from enum import Enum, auto
from itertools import takewhile

import anyio
from msgspec import Struct, field, structs

from hermes.agent.answers import AnswerKind, classify_answer, final_text
from hermes.agent.prompts import prompt_text
from hermes.gateway.failure_messages import failure_message, limit_message
from hermes.gateway.messages import BusyMode, InboxMessage, OutboxMessage, outbox_post
from hermes.gateway.progress_message import ProgressMessage
from hermes.kit.clock import Clock
from hermes.kit.retry import Backoff
from hermes.ports.store import Write
from hermes.schema.events import Event, Outcome, QuestionAnswered, QuestionAsked, RunEnded
from hermes.schema.messages import Assistant, Message, Stop, Trust, User, text_of
from hermes.schema.scope import Role
from hermes.schema.sessions import StoredMessage

ENDED_WHEN_IDLE = (
    "Nothing happened in this turn for too long, so it was ended. Ask again, or say how to go on."
)


class ActorRules(Struct, frozen=True, kw_only=True):
    """`debounce` is how long to wait for more of a burst, `burst` how long at most.

    A session that keeps taking the program down is taken up `resumes` times within ten minutes.
    A turn in which nothing happens is ended after `idle` seconds, and `idle_warning` seconds are
    when that is announced; 0 is never. Every `notify` seconds its post says that it goes on. A
    turn that an earlier process left more than `fresh` seconds ago is not taken up unasked.
    """

    busy: BusyMode = BusyMode.INTERRUPT
    debounce: float = 0.0
    burst: float = 5.0
    backoff: Backoff = Backoff(base=2.0, cap=60.0)
    resumes: int = 2
    idle: float = 0.0
    idle_warning: float = 0.0
    notify: float = 0.0
    fresh: float = 0.0


class QueuedMessage(Struct, frozen=True):
    """One row of the inbox, read."""

    key: str
    letter: InboxMessage


class CancelCause(Enum):
    """Why a run was cancelled; without one the program itself is ending."""

    STOPPED = auto()
    INTERRUPTED = auto()
    IDLE = auto()


class ActiveRun(Struct, kw_only=True):
    """One run. Signals are for it alone: whatever comes after its end changes nothing.

    `ended` says that it has said its last word, `over` that nothing of it goes on any more.
    """

    id: str
    batch: Sequence[QueuedMessage]
    scope: anyio.CancelScope
    begun: float
    active: float
    asking: set[str] = set()
    bubble: ProgressMessage | None = None
    to_steer: list[QueuedMessage] = []
    heard: list[QueuedMessage] = []
    passed: set[str] = set()
    cause: CancelCause | None = None
    ended: bool = False
    over: anyio.Event = field(default_factory=anyio.Event)
    last_words: str = ""

    @property
    def keys(self) -> set[str]:
        return {held.key for held in (*self.batch, *self.to_steer, *self.heard)}

    @property
    def principal(self) -> str:
        """In whose name it is done."""
        return self.batch[-1].letter.principal

    def note(self, event: Event, now: float) -> None:
        """Something happened in it."""
        self.active = now
        match event:
            case QuestionAsked(question=question):
                self.asking.add(question.id)
            case QuestionAnswered(question=question):
                self.asking.discard(question)
            case _:
                pass

    def cancel(self, cause: CancelCause) -> None:
        if self.cause is None and not self.ended:
            self.cause = cause
            self.scope.cancel()


class StartedTurn(Struct, frozen=True):
    """Messages that are in the transcript but not settled, and what came after them.

    `at` is when something happened last.
    """

    batch: Sequence[QueuedMessage]
    after: Sequence[StoredMessage]
    at: datetime

    @property
    def answered(self) -> bool:
        """By a whole answer: what was heard of one that was broken off is none."""
        last = self.after[-1].message if self.after else None
        if not isinstance(last, Assistant) or last.stop is Stop.CANCELLED:
            return False
        return classify_answer(last) is AnswerKind.FINAL

    def resumed_since(self, moment: datetime) -> int:
        note = prompt_text("resumed")
        recent = [row.message for row in self.after if row.at > moment]
        return sum(
            isinstance(message, User)
            and message.trust is Trust.PROGRAM
            and text_of(message) == note
            for message in recent
        )


def same_conversation(one: InboxMessage, other: InboxMessage) -> bool:
    """Whether both are of one person, in one place, for the same ears."""
    return (one.principal, one.role, one.address, one.answer_at) == (
        other.principal,
        other.role,
        other.address,
        other.answer_at,
    )


def next_batch(waiting: Sequence[QueuedMessage], rules: ActorRules) -> list[QueuedMessage]:
    """What one turn answers: as a rule all that waits, of one person in one place."""
    first = _first_message(waiting, rules)
    if rules.busy is BusyMode.QUEUE or first.letter.manner is BusyMode.QUEUE:
        return [first]
    batch: list[QueuedMessage] = []
    for held in waiting[waiting.index(first) :]:
        letter = held.letter
        if not same_conversation(letter, first.letter) or letter.manner is BusyMode.QUEUE:
            break
        batch.append(held)
    return batch


def _first_message(waiting: Sequence[QueuedMessage], rules: ActorRules) -> QueuedMessage:
    """Whoever interrupts is answered before what was queued on purpose, of the same talk."""
    head = waiting[0]
    talk = takewhile(lambda held: same_conversation(held.letter, head.letter), waiting)
    hasty = (held for held in talk if (held.letter.manner or rules.busy) is BusyMode.INTERRUPT)
    return next(hasty, head)


def outbox_posts(key: str, reply: OutboxMessage, batch: Sequence[QueuedMessage]) -> list[Write]:
    """The reply to a batch, for every place that is to hear it; progress was shown at the first."""
    first, *others = batch[-1].letter.answers
    copies = [
        outbox_post(f"{key}:{place}", structs.replace(reply, address=address, bubble=None))
        for place, address in enumerate(others, 2)
    ]
    return [outbox_post(key, structs.replace(reply, address=first)), *copies]


def final_reply_text(
    ended: RunEnded, said: Sequence[Message], cause: CancelCause | None, role: Role = Role.OWNER
) -> str:
    match ended.outcome:
        case Outcome.DONE:
            return final_text(said)
        case Outcome.EXHAUSTED:
            limit = limit_message(ended.code, ended.reason, role)
            return f"{final_text(said)}\n\n{limit}".strip()
        case Outcome.FAILED:
            return failure_message(ended.code, ended.reason, role)
        case Outcome.CANCELLED:
            return cancelled_text(cause)


def cancelled_text(cause: CancelCause | None) -> str:
    match cause:
        case CancelCause.STOPPED:
            return "Stopped."
        case CancelCause.IDLE:
            return ENDED_WHEN_IDLE
        case CancelCause.INTERRUPTED | None:
            return "Interrupted."


IDLE_WARNING = (
    "Nothing has happened in this turn for {quiet}. If nothing does for {left} more, I end it; "
    "/stop ends it now."
)
STILL_WORKING = "Still at it, after {time}."


async def end_when_idle(
    run: ActiveRun, rules: ActorRules, clock: Clock, warn: Callable[[str], Awaitable[None]]
) -> None:
    """Until the run is ended here, or cancelled. `warn` tells the person, once for each silence."""
    if rules.idle <= 0:
        return
    warned_since: float | None = None
    while True:
        # Whoever waits for a person is not idle; questions have a time limit of their own.
        quiet = 0.0 if run.asking else clock.monotonic() - run.active
        warns = 0 < rules.idle_warning < rules.idle and warned_since != run.active
        limit = rules.idle_warning if warns else rules.idle
        if quiet < limit:
            await clock.sleep(limit - quiet)
        elif warns:
            warned_since = run.active
            left = rules.idle - rules.idle_warning
            await warn(
                IDLE_WARNING.format(
                    quiet=format_duration(rules.idle_warning), left=format_duration(left)
                )
            )
        else:
            run.cancel(CancelCause.IDLE)
            return


async def show_still_working(run: ActiveRun, rules: ActorRules, clock: Clock) -> None:
    """Until cancelled: a line in its post now and then, unless it waits for a person."""
    if rules.notify <= 0 or run.bubble is None:
        return
    while True:
        await clock.sleep(rules.notify)
        if not run.asking:
            run.bubble.still(
                STILL_WORKING.format(time=format_duration(clock.monotonic() - run.begun))
            )


def format_duration(seconds: float) -> str:
    """Such as `15 minutes`."""
    if seconds < 120:
        count, unit = round(seconds), "second"
    elif seconds < 2 * 3600:
        count, unit = round(seconds / 60), "minute"
    else:
        count, unit = round(seconds / 3600), "hour"
    return f"{count} {unit}" if count == 1 else f"{count} {unit}s"
