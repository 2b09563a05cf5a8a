"""What is asked of a far gateway of ours as a run, and what the run tells. No network here."""

from collections.abc import Sequence
from hashlib import sha256

import msgspec
from msgspec import Raw, Struct, structs

from hermes.kit.arguments import read_arguments
from hermes.kit.ids import new_id
from hermes.ports.runtime import Errand, Heard
from hermes.runtimes.proxy.luggage import Packed, Packer, Part, left_behind
from hermes.runtimes.proxy.wire import LONGEST, MODEL, PROVIDER, TooLong, asks, is_note
from hermes.schema.errors import UsageError
from hermes.schema.events import (
    Notice,
    ReasoningDelta,
    StreamReset,
    TextDelta,
    ToolProgress,
    ToolStarted,
)
from hermes.schema.messages import (
    Assistant,
    Message,
    Result,
    Stop,
    Text,
    ToolCall,
    Trust,
    Usage,
    User,
    text_of,
)
from hermes.schema.scope import Role
from hermes.schema.tools import Effect

MOST_PAST = 400
"""How many messages a session that is new to the far side begins with."""
LONGEST_PAST = 1_000_000
MOST_QUESTIONS = 100
"""How many questions of one run are heard at all."""

COMPLETED, FAILED, CANCELLED = "run.completed", "run.failed", "run.cancelled"
_ENDS = frozenset({COMPLETED, FAILED, CANCELLED})
_LEAVE = frozenset({"approval.required", "approval.request"})
_ANSWERED = frozenset({"approval.responded", "clarify.responded"})
_QUESTIONS = frozenset({"clarify.required", "clarify.request"})


class Item(Struct, frozen=True, omit_defaults=True):
    content: str | Sequence[Part]
    role: str = "user"


class Begin(Struct, frozen=True, omit_defaults=True):
    """The body of `POST /v1/runs`. The history counts only where the session is new.

    Where nobody follows the session after its turn, the far side is to promise nothing for later.
    It is told who asks, and whether the words are `brought`, nobody's own.
    """

    input: Sequence[Item]
    instructions: str = ""
    conversation_history: Sequence[Item] = ()
    later: bool = True
    role: Role = Role.OWNER
    brought: bool = False


class Begun(Struct, frozen=True):
    run_id: str
    session_id: str = ""


class State(Struct, frozen=True):
    """How a run stands; once it has ended, what it came to."""

    status: str
    created_at: float = 0.0
    output: str = ""
    error: str = ""
    error_code: str = ""
    partial: bool = False

    @property
    def end(self) -> str:
        """The name of the event that ended it; empty while it goes on."""
        name = f"run.{self.status}"
        return name if name in _ENDS else ""


class Tokens(Struct, frozen=True):
    input_tokens: int = 0
    output_tokens: int = 0


class Told(Struct, frozen=True):
    """One event of a run; of its fields only those are given that its name calls for."""

    event: str
    delta: str = ""
    text: str = ""
    tool: str = ""
    tool_call_id: str = ""
    preview: str | None = None
    output: str | None = None
    usage: Tokens | None = None
    error: str | bool | None = None
    error_code: str = ""
    partial: bool = False
    question_id: str = ""
    command: str = ""
    description: str = ""
    choices: tuple[str, ...] = ()


class Leave(Struct, frozen=True):
    """What the far side asks before it goes on: leave, or an `open` question for any words.

    `action` is what leave is asked for, and `reason` what the far side says about it.
    """

    question: str
    text: str
    choices: tuple[str, ...] = ()
    open: bool = False
    action: str = ""
    reason: str = ""


class Decision(Struct, frozen=True, omit_defaults=True):
    """The body of `POST /v1/runs/{id}/approval`."""

    choice: str
    question_id: str = ""


class Words(Struct, frozen=True, omit_defaults=True):
    """The body of `POST /v1/runs/{id}/clarify`."""

    answer: str
    question_id: str = ""


async def begin_of(
    errand: Errand, packer: Packer, *, later: bool = False
) -> tuple[Begin, Sequence[str]]:
    """The body, and the names of the files that stay behind."""
    said = [message for message in errand.messages if not is_note(message)]
    if not said or not isinstance(said[-1], User):
        # Nothing but a note of our own asks for an answer: then it is the question.
        said = list(errand.messages)
    first = _first_of_tail(said)
    packed = [await packer.pack(message) for message in said[first:] if isinstance(message, User)]
    if not any(one.parts for one in packed):
        raise UsageError("There is nothing to answer.", hint="Say something first.")
    begin = Begin(
        input=[item_of(one) for one in packed if one.parts],
        instructions=errand.system,
        conversation_history=_past(said[:first]),
        later=later,
        role=errand.scope.role,
        brought=any(isinstance(one, User) and one.trust is Trust.DATA for one in said[first:]),
    )
    return begin, [name for one in packed for name in one.behind]


def item_of(packed: Packed) -> Item:
    """Words alone go as they are."""
    parts = packed.parts
    if len(parts) == 1 and parts[0]["type"] == "input_text":
        return Item(parts[0]["text"])
    return Item(parts)


def name_of(errand: Errand, body: bytes) -> str:
    """The same for the same question put again, also by another process of this gateway."""
    last = next((one.id for one in reversed(errand.messages) if asks(one)), "")
    return sha256(msgspec.json.encode((errand.scope.session, last, body))).hexdigest()


def _first_of_tail(said: Sequence[Message]) -> int:
    place = len(said)
    while place and not isinstance(said[place - 1], Assistant):
        place -= 1
    return place


def _past(said: Sequence[Message]) -> Sequence[Item]:
    """The newest of what was said before, in words."""
    past: list[Item] = []
    size = 0
    for message in reversed(said):
        if isinstance(message, Result) or not (words := _in_words(message)):
            continue
        size += len(words)
        if size > LONGEST_PAST or len(past) >= MOST_PAST:
            break
        role = "assistant" if isinstance(message, Assistant) else "user"
        past.append(Item(words, role))
    return past[::-1]


def _in_words(message: User | Assistant) -> str:
    if isinstance(message, Assistant):
        return message.text.strip() and message.text
    words = [part.text if isinstance(part, Text) else left_behind(part) for part in message.parts]
    return "\n".join(words)


class RunHearing:
    """One run as it is told: each event counts once, however often the link was cut."""

    def __init__(self) -> None:
        self._decoder = msgspec.json.Decoder(Told)
        self._words: list[str] = []
        self._size = 0
        self.last = 0
        """The number of the last event; who comes back goes on after it."""
        self.end: Told | None = None
        self.leave: list[Leave] = []
        """What the far side asked, until somebody takes it from here."""
        self._questions: set[str] = set()
        self._asked = 0
        self.settled: list[str] = []
        """Questions that were answered, here or there."""
        self.applied: list[str] = []
        """Words of people that the run has taken in."""

    @property
    def text(self) -> str:
        return "".join(self._words)

    def feed(self, number: int, data: bytes) -> Sequence[Heard]:
        """What an event tells; nothing, when it was heard already. Raises `msgspec.DecodeError`."""
        if number <= self.last or self.end is not None:
            return ()
        told = self._decoder.decode(data)
        self.last = number
        return self._take(told)

    def close(self, state: State) -> Sequence[Heard]:
        """The end of a run whose events are gone, from what is kept of it."""
        return self._ended(
            Told(
                event=state.end,
                output=state.output or None,
                error=state.error,
                error_code=state.error_code,
                partial=state.partial,
            )
        )

    def said(self, stop: Stop) -> Assistant:
        """All words so far, as a message."""
        tokens = (self.end.usage if self.end else None) or Tokens()
        usage = Usage(tokens.input_tokens, tokens.output_tokens)
        return Assistant(new_id("msg"), (Text(self.text),), stop, usage, MODEL, PROVIDER)

    def _take(self, told: Told) -> Sequence[Heard]:
        match told.event:
            case "message.delta":
                self._add(told.delta)
            case "message.restarted":
                return self._anew(told.text)
            case "steer.applied":
                self.applied.append(told.text)
            case name if name in _LEAVE or name in _QUESTIONS:
                if not self._is_new(told.question_id):
                    return ()
                self.leave.append(_leave(told))
            case name if name in _ANSWERED:
                self.settled.append(told.question_id)
            case name if name in _ENDS:
                return self._ended(told)
            case _:
                pass
        heard = _passed_on(told)
        return () if heard is None else (heard,)

    def _is_new(self, question: str) -> bool:
        """Asked for the first time, by a run that has not asked too often; some give no name."""
        if question in self._questions or self._asked >= MOST_QUESTIONS:
            return False
        self._asked += 1
        if question:
            self._questions.add(question)
        return True

    def _ended(self, told: Told) -> Sequence[Heard]:
        """What it came to is the truth, whatever was told on the way."""
        self.end = told
        heard, output = self.text, told.output
        if not output or output == heard:
            return ()
        self._words = [output]
        if output.startswith(heard):
            return [TextDelta(output[len(heard) :])]
        return self._anew(output)

    def _anew(self, text: str) -> Sequence[Heard]:
        """What was told so far does not count: this does."""
        self._words = [text]
        again = StreamReset("the far gateway answered anew")
        return [again, TextDelta(text)] if text else [again]

    def _add(self, words: str) -> None:
        self._size += len(words)
        if self._size > LONGEST:
            raise TooLong(f"the answer is longer than {LONGEST:,} characters")
        self._words.append(words)


class Steered:
    """What was passed on to a run and is not taken in yet, in the order of saying."""

    def __init__(self) -> None:
        self._open: list[User] = []
        self.heard: list[User] = []

    def gave(self, message: User) -> None:
        self._open.append(message)

    def applied(self, texts: Sequence[str]) -> None:
        for text in texts:
            same = (one for one in self._open if text_of(one) == text)
            if (found := next(same, self._open[0] if self._open else None)) is not None:
                self._open.remove(found)
                self.heard.append(found)

    @property
    def unheard(self) -> tuple[User, ...]:
        return tuple(self._open)


def _passed_on(told: Told) -> Heard | None:
    """The event as one of ours. A younger far side may tell more than we know of."""
    heard: Heard | None = None
    match told.event:
        case "message.delta":
            heard = TextDelta(told.delta)
        case "reasoning.delta":
            heard = ReasoningDelta(told.delta)
        case "tool.started":
            # Its effect is written down where it happens.
            heard = ToolStarted(_call(told), Effect.READ)
        case "tool.progress":
            heard = ToolProgress(told.tool_call_id, told.text)
        case "tool.completed" if told.error:
            heard = ToolProgress(told.tool_call_id, "failed")
        case name if name == "run.notice" or name in _LEAVE or name in _QUESTIONS:
            heard = Notice(_notice(told))
        case _:
            pass
    return heard


def _leave(told: Told) -> Leave:
    asked = Leave(told.question_id, _notice(told), told.choices, told.event in _QUESTIONS)
    if asked.open:
        return asked
    action = told.command or told.description or told.text
    reason = told.description if told.command else ""
    return structs.replace(asked, action=action, reason=reason)


def _notice(told: Told) -> str:
    what = " - ".join(filter(None, [told.command, told.description])) or told.text
    if told.event in _LEAVE:
        return f"The far gateway asks for leave: {what}"
    return f"The far gateway asks: {what}" if told.event in _QUESTIONS else told.text


def _call(told: Told) -> ToolCall:
    """Its arguments are only a glimpse, which need not be JSON."""
    args, broken = read_arguments(Raw(msgspec.json.encode(told.preview or "")))
    if broken:
        args = Raw(msgspec.json.encode({"preview": told.preview}))
    return ToolCall(told.tool_call_id or new_id("call"), told.tool, args)
