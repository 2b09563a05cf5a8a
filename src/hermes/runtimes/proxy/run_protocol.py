"""What is asked of a far gateway of ours as a run, and what the run tells. No network here."""

from collections.abc import Sequence
from hashlib import sha256

import msgspec
from msgspec import Raw, Struct, structs

from hermes.kit.call_arguments import parse_arguments
from hermes.kit.ids import new_id
from hermes.ports.runtime import RuntimeEvent, RuntimeRequest
from hermes.runtimes.proxy.attachments import (
    EncodedMessage,
    InputPart,
    MessageEncoder,
    omitted_note,
)
from hermes.runtimes.proxy.chat_protocol import (
    MAX_ANSWER,
    MODEL,
    PROVIDER,
    AnswerTooLong,
    is_program_note,
    is_question,
)
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

MAX_HISTORY = 400
"""How many messages a session that is new to the far side begins with."""
MAX_HISTORY_CHARACTERS = 1_000_000
MAX_QUESTIONS = 100
"""How many questions of one run are heard at all."""

COMPLETED, FAILED, CANCELLED = "run.completed", "run.failed", "run.cancelled"
_END_EVENTS = frozenset({COMPLETED, FAILED, CANCELLED})
_APPROVAL_EVENTS = frozenset({"approval.required", "approval.request"})
_ANSWERED_EVENTS = frozenset({"approval.responded", "clarify.responded"})
_CLARIFY_EVENTS = frozenset({"clarify.required", "clarify.request"})


class InputMessage(Struct, frozen=True, omit_defaults=True):
    content: str | Sequence[InputPart]
    role: str = "user"


class RunBody(Struct, frozen=True, omit_defaults=True):
    """The body of `POST /v1/runs`. The history counts only where the session is new.

    Where nobody follows the session after its turn, the far side is to promise nothing for later.
    It is told who asks, and whether the words are `brought`, nobody's own.
    """

    input: Sequence[InputMessage]
    instructions: str = ""
    conversation_history: Sequence[InputMessage] = ()
    later: bool = True
    role: Role = Role.OWNER
    brought: bool = False


class AcceptedRun(Struct, frozen=True):
    run_id: str
    session_id: str = ""


class RemoteRunState(Struct, frozen=True):
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
        return name if name in _END_EVENTS else ""


class RunTokens(Struct, frozen=True):
    input_tokens: int = 0
    output_tokens: int = 0


class RemoteEvent(Struct, frozen=True):
    """One event of a run; of its fields only those are given that its name calls for."""

    event: str
    delta: str = ""
    text: str = ""
    tool: str = ""
    tool_call_id: str = ""
    preview: str | None = None
    output: str | None = None
    usage: RunTokens | None = None
    error: str | bool | None = None
    error_code: str = ""
    partial: bool = False
    question_id: str = ""
    command: str = ""
    description: str = ""
    choices: tuple[str, ...] = ()


class RemoteQuestion(Struct, frozen=True):
    """What the far side asks before it goes on: leave, or an `open` question for any words.

    `action` is what leave is asked for, and `reason` what the far side says about it.
    """

    question: str
    text: str
    choices: tuple[str, ...] = ()
    open: bool = False
    action: str = ""
    reason: str = ""


class ApprovalBody(Struct, frozen=True, omit_defaults=True):
    """The body of `POST /v1/runs/{id}/approval`."""

    choice: str
    question_id: str = ""


class ClarifyBody(Struct, frozen=True, omit_defaults=True):
    """The body of `POST /v1/runs/{id}/clarify`."""

    answer: str
    question_id: str = ""


async def run_body(
    runtime_request: RuntimeRequest, packer: MessageEncoder, *, later: bool = False
) -> tuple[RunBody, Sequence[str]]:
    """The body, and the names of the files that stay behind."""
    said = [message for message in runtime_request.messages if not is_program_note(message)]
    if not said or not isinstance(said[-1], User):
        # Nothing but a note of our own asks for an answer: then it is the question.
        said = list(runtime_request.messages)
    first = _tail_start(said)
    packed = [await packer.pack(message) for message in said[first:] if isinstance(message, User)]
    if not any(one.parts for one in packed):
        raise UsageError("There is nothing to answer.", hint="Say something first.")
    begin = RunBody(
        input=[input_message(one) for one in packed if one.parts],
        instructions=runtime_request.system,
        conversation_history=_history(said[:first]),
        later=later,
        role=runtime_request.scope.role,
        brought=any(isinstance(one, User) and one.trust is Trust.DATA for one in said[first:]),
    )
    return begin, [name for one in packed for name in one.behind]


def input_message(packed: EncodedMessage) -> InputMessage:
    """Words alone go as they are."""
    parts = packed.parts
    if len(parts) == 1 and parts[0]["type"] == "input_text":
        return InputMessage(parts[0]["text"])
    return InputMessage(parts)


def run_key(runtime_request: RuntimeRequest, body: bytes) -> str:
    """The same for the same question put again, also by another process of this gateway."""
    last = next((one.id for one in reversed(runtime_request.messages) if is_question(one)), "")
    return sha256(msgspec.json.encode((runtime_request.scope.session, last, body))).hexdigest()


def _tail_start(said: Sequence[Message]) -> int:
    place = len(said)
    while place and not isinstance(said[place - 1], Assistant):
        place -= 1
    return place


def _history(said: Sequence[Message]) -> Sequence[InputMessage]:
    """The newest of what was said before, in words."""
    past: list[InputMessage] = []
    size = 0
    for message in reversed(said):
        if isinstance(message, Result) or not (words := _message_text(message)):
            continue
        size += len(words)
        if size > MAX_HISTORY_CHARACTERS or len(past) >= MAX_HISTORY:
            break
        role = "assistant" if isinstance(message, Assistant) else "user"
        past.append(InputMessage(words, role))
    return past[::-1]


def _message_text(message: User | Assistant) -> str:
    if isinstance(message, Assistant):
        return message.text.strip() and message.text
    words = [part.text if isinstance(part, Text) else omitted_note(part) for part in message.parts]
    return "\n".join(words)


class RunEventMapper:
    """One run as it is told: each event counts once, however often the link was cut."""

    def __init__(self) -> None:
        self._decoder = msgspec.json.Decoder(RemoteEvent)
        self._words: list[str] = []
        self._size = 0
        self.last = 0
        """The number of the last event; who comes back goes on after it."""
        self.end: RemoteEvent | None = None
        self.leave: list[RemoteQuestion] = []
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

    def feed(self, number: int, data: bytes) -> Sequence[RuntimeEvent]:
        """What an event tells; nothing, when it was heard already. Raises `msgspec.DecodeError`."""
        if number <= self.last or self.end is not None:
            return ()
        told = self._decoder.decode(data)
        self.last = number
        return self._take(told)

    def close(self, state: RemoteRunState) -> Sequence[RuntimeEvent]:
        """The end of a run whose events are gone, from what is kept of it."""
        return self._ended(
            RemoteEvent(
                event=state.end,
                output=state.output or None,
                error=state.error,
                error_code=state.error_code,
                partial=state.partial,
            )
        )

    def said(self, stop: Stop) -> Assistant:
        """All words so far, as a message."""
        tokens = (self.end.usage if self.end else None) or RunTokens()
        usage = Usage(tokens.input_tokens, tokens.output_tokens)
        return Assistant(new_id("msg"), (Text(self.text),), stop, usage, MODEL, PROVIDER)

    def _take(self, told: RemoteEvent) -> Sequence[RuntimeEvent]:
        match told.event:
            case "message.delta":
                self._add(told.delta)
            case "message.restarted":
                return self._anew(told.text)
            case "steer.applied":
                self.applied.append(told.text)
            case name if name in _APPROVAL_EVENTS or name in _CLARIFY_EVENTS:
                if not self._is_new(told.question_id):
                    return ()
                self.leave.append(_remote_question(told))
            case name if name in _ANSWERED_EVENTS:
                self.settled.append(told.question_id)
            case name if name in _END_EVENTS:
                return self._ended(told)
            case _:
                pass
        heard = _runtime_event(told)
        return () if heard is None else (heard,)

    def _is_new(self, question: str) -> bool:
        """Asked for the first time, by a run that has not asked too often; some give no name."""
        if question in self._questions or self._asked >= MAX_QUESTIONS:
            return False
        self._asked += 1
        if question:
            self._questions.add(question)
        return True

    def _ended(self, told: RemoteEvent) -> Sequence[RuntimeEvent]:
        """What it came to is the truth, whatever was told on the way."""
        self.end = told
        heard, output = self.text, told.output
        if not output or output == heard:
            return ()
        self._words = [output]
        if output.startswith(heard):
            return [TextDelta(output[len(heard) :])]
        return self._anew(output)

    def _anew(self, text: str) -> Sequence[RuntimeEvent]:
        """What was told so far does not count: this does."""
        self._words = [text]
        again = StreamReset("the far gateway answered anew")
        return [again, TextDelta(text)] if text else [again]

    def _add(self, words: str) -> None:
        self._size += len(words)
        if self._size > MAX_ANSWER:
            raise AnswerTooLong(f"the answer is longer than {MAX_ANSWER:,} characters")
        self._words.append(words)


class SteeringTracker:
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


def _runtime_event(told: RemoteEvent) -> RuntimeEvent | None:
    """The event as one of ours. A younger far side may tell more than we know of."""
    heard: RuntimeEvent | None = None
    match told.event:
        case "message.delta":
            heard = TextDelta(told.delta)
        case "reasoning.delta":
            heard = ReasoningDelta(told.delta)
        case "tool.started":
            # Its effect is written down where it happens.
            heard = ToolStarted(_preview_call(told), Effect.READ)
        case "tool.progress":
            heard = ToolProgress(told.tool_call_id, told.text)
        case "tool.completed" if told.error:
            heard = ToolProgress(told.tool_call_id, "failed")
        case name if name == "run.notice" or name in _APPROVAL_EVENTS or name in _CLARIFY_EVENTS:
            heard = Notice(_notice_text(told))
        case _:
            pass
    return heard


def _remote_question(told: RemoteEvent) -> RemoteQuestion:
    asked = RemoteQuestion(
        told.question_id, _notice_text(told), told.choices, told.event in _CLARIFY_EVENTS
    )
    if asked.open:
        return asked
    action = told.command or told.description or told.text
    reason = told.description if told.command else ""
    return structs.replace(asked, action=action, reason=reason)


def _notice_text(told: RemoteEvent) -> str:
    what = " - ".join(filter(None, [told.command, told.description])) or told.text
    if told.event in _APPROVAL_EVENTS:
        return f"The far gateway asks for leave: {what}"
    return f"The far gateway asks: {what}" if told.event in _CLARIFY_EVENTS else told.text


def _preview_call(told: RemoteEvent) -> ToolCall:
    """Its arguments are only a glimpse, which need not be JSON."""
    args, broken = parse_arguments(Raw(msgspec.json.encode(told.preview or "")))
    if broken:
        args = Raw(msgspec.json.encode({"preview": told.preview}))
    return ToolCall(told.tool_call_id or new_id("call"), told.tool, args)
