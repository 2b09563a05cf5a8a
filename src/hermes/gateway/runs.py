"""What waits for a chat session, what runs in it, and with which words a run ends."""

from collections.abc import Sequence
from datetime import datetime
from enum import Enum, auto
from itertools import takewhile

import anyio
from msgspec import Struct, field, structs

from hermes.agent.answers import Verdict, final_text, judge
from hermes.agent.prompts import prompt_text
from hermes.gateway.bubble import Bubble
from hermes.gateway.failures import limit_told_of, told_of
from hermes.gateway.letters import Busy, Letter, Reply, post_reply
from hermes.kit.retry import Backoff
from hermes.ports.store import Write
from hermes.schema.events import Answered, Asked, Event, Outcome, RunEnded
from hermes.schema.messages import Assistant, Message, Stop, Trust, User, text_of
from hermes.schema.scope import Role
from hermes.schema.sessions import Stored

IDLE = (
    "Nothing happened in this turn for too long, so it was ended. Ask again, or say how to go on."
)


class ActorRules(Struct, frozen=True, kw_only=True):
    """`debounce` is how long to wait for more of a burst, `burst` how long at most.

    A session that keeps taking the program down is taken up `resumes` times within ten minutes.
    A turn in which nothing happens is ended after `idle` seconds, and `idle_warning` seconds are
    when that is announced; 0 is never. Every `notify` seconds its post says that it goes on. A
    turn that an earlier process left more than `fresh` seconds ago is not taken up unasked.
    """

    busy: Busy = Busy.INTERRUPT
    debounce: float = 0.0
    burst: float = 5.0
    backoff: Backoff = Backoff(base=2.0, cap=60.0)
    resumes: int = 2
    idle: float = 0.0
    idle_warning: float = 0.0
    notify: float = 0.0
    fresh: float = 0.0


class Held(Struct, frozen=True):
    """One row of the inbox, read."""

    key: str
    letter: Letter


class Cause(Enum):
    """Why a run was cancelled; without one the program itself is ending."""

    STOPPED = auto()
    INTERRUPTED = auto()
    IDLE = auto()


class Running(Struct, kw_only=True):
    """One run. Signals are for it alone: whatever comes after its end changes nothing.

    `ended` says that it has said its last word, `over` that nothing of it goes on any more.
    """

    id: str
    batch: Sequence[Held]
    scope: anyio.CancelScope
    begun: float
    active: float
    asking: set[str] = set()
    bubble: Bubble | None = None
    to_steer: list[Held] = []
    heard: list[Held] = []
    passed: set[str] = set()
    cause: Cause | None = None
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
            case Asked(question=question):
                self.asking.add(question.id)
            case Answered(question=question):
                self.asking.discard(question)
            case _:
                pass

    def cancel(self, cause: Cause) -> None:
        if self.cause is None and not self.ended:
            self.cause = cause
            self.scope.cancel()


class Begun(Struct, frozen=True):
    """Messages that are in the transcript but not settled, and what came after them.

    `at` is when something happened last.
    """

    batch: Sequence[Held]
    after: Sequence[Stored]
    at: datetime

    @property
    def answered(self) -> bool:
        """By a whole answer: what was heard of one that was broken off is none."""
        last = self.after[-1].message if self.after else None
        if not isinstance(last, Assistant) or last.stop is Stop.CANCELLED:
            return False
        return judge(last) is Verdict.FINAL

    def resumed_since(self, moment: datetime) -> int:
        note = prompt_text("resumed")
        recent = [row.message for row in self.after if row.at > moment]
        return sum(
            isinstance(message, User) and message.trust is Trust.HOUSE and text_of(message) == note
            for message in recent
        )


def same_talk(one: Letter, other: Letter) -> bool:
    """Whether both are of one person, in one place, for the same ears."""
    return (one.principal, one.role, one.address, one.answer_at) == (
        other.principal,
        other.role,
        other.address,
        other.answer_at,
    )


def batch_of(waiting: Sequence[Held], rules: ActorRules) -> list[Held]:
    """What one turn answers: as a rule all that waits, of one person in one place."""
    first = _first(waiting, rules)
    if rules.busy is Busy.QUEUE or first.letter.manner is Busy.QUEUE:
        return [first]
    batch: list[Held] = []
    for held in waiting[waiting.index(first) :]:
        letter = held.letter
        if not same_talk(letter, first.letter) or letter.manner is Busy.QUEUE:
            break
        batch.append(held)
    return batch


def _first(waiting: Sequence[Held], rules: ActorRules) -> Held:
    """Whoever interrupts is answered before what was queued on purpose, of the same talk."""
    head = waiting[0]
    talk = takewhile(lambda held: same_talk(held.letter, head.letter), waiting)
    hasty = (held for held in talk if (held.letter.manner or rules.busy) is Busy.INTERRUPT)
    return next(hasty, head)


def posts(key: str, reply: Reply, batch: Sequence[Held]) -> list[Write]:
    """The reply to a batch, for every place that is to hear it; progress was shown at the first."""
    first, *others = batch[-1].letter.answers
    copies = [
        post_reply(f"{key}:{place}", structs.replace(reply, address=address, bubble=None))
        for place, address in enumerate(others, 2)
    ]
    return [post_reply(key, structs.replace(reply, address=first)), *copies]


def last_words(
    ended: RunEnded, said: Sequence[Message], cause: Cause | None, role: Role = Role.OWNER
) -> str:
    match ended.outcome:
        case Outcome.DONE:
            return final_text(said)
        case Outcome.EXHAUSTED:
            limit = limit_told_of(ended.code, ended.reason, role)
            return f"{final_text(said)}\n\n{limit}".strip()
        case Outcome.FAILED:
            return told_of(ended.code, ended.reason, role)
        case Outcome.CANCELLED:
            return last_word_for(cause)


def last_word_for(cause: Cause | None) -> str:
    match cause:
        case Cause.STOPPED:
            return "Stopped."
        case Cause.IDLE:
            return IDLE
        case Cause.INTERRUPTED | None:
            return "Interrupted."
