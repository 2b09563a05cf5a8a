"""Encode runs for a remote Hermes gateway and decode their events. No network access here."""

from collections.abc import Sequence
from hashlib import sha256

import msgspec
from msgspec import Raw, Struct

from hermes.kit.call_arguments import parse_arguments
from hermes.kit.ids import new_id
from hermes.ports.runtime import RuntimeEvent, RuntimeRequest
from hermes.runtimes.proxy.attachments import (
    EncodedMessage,
    InputPart,
    MessageEncoder,
    part_text,
)
from hermes.runtimes.proxy.chat_runtime import (
    MODEL,
    PROVIDER,
    AnswerText,
    is_question,
    turn_messages,
)
from hermes.runtimes.proxy.errors import nothing_to_answer
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
"""Number of messages to send to a session that is new to the remote gateway."""
MAX_HISTORY_CHARACTERS = 1_000_000
MAX_QUESTIONS = 100
"""Number of questions of one run to handle."""

COMPLETED, FAILED, CANCELLED = "run.completed", "run.failed", "run.cancelled"
_END_EVENTS = frozenset({COMPLETED, FAILED, CANCELLED})
_APPROVAL_EVENTS = frozenset({"approval.required", "approval.request"})
_ANSWERED_EVENTS = frozenset({"approval.responded", "clarify.responded"})
_CLARIFY_EVENTS = frozenset({"clarify.required", "clarify.request"})


class InputMessage(Struct, frozen=True, omit_defaults=True):
    content: str | Sequence[InputPart]
    role: str = "user"


class RunBody(Struct, frozen=True, omit_defaults=True):
    """The body of `POST /v1/runs`. The history is used only if the session is new.

    If the session is not followed after its turn, `later` is false, so that the remote agent
    promises no later messages. `brought` marks content that is not from a user.
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
    """The state of a run, and its result once it has ended."""

    status: str
    created_at: float = 0.0
    output: str = ""
    error: str = ""
    error_code: str = ""
    partial: bool = False

    @property
    def end(self) -> str:
        """The name of the event that ended it; empty while it is running."""
        name = f"run.{self.status}"
        return name if name in _END_EVENTS else ""


class RunTokens(Struct, frozen=True):
    input_tokens: int = 0
    output_tokens: int = 0


class RemoteEvent(Struct, frozen=True):
    """An event of a run; only the fields of its type are set."""

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
    """A remote question: an approval request, or an `open` question for any text.

    `action` is what needs approval, and `reason` the remote explanation.
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
    runtime_request: RuntimeRequest, encoder: MessageEncoder, *, later: bool = False
) -> tuple[RunBody, Sequence[str]]:
    """Return the body, and the names of files that are not sent."""
    messages = turn_messages(runtime_request)
    answers = [index for index, message in enumerate(messages, 1) if isinstance(message, Assistant)]
    first = answers[-1] if answers else 0
    questions = [message for message in messages[first:] if isinstance(message, User)]
    packed = [await encoder.encode(message) for message in questions]
    if not any(message.parts for message in packed):
        raise nothing_to_answer()
    begin = RunBody(
        input=[input_message(message) for message in packed if message.parts],
        instructions=runtime_request.system,
        conversation_history=_history(messages[:first]),
        later=later,
        role=runtime_request.scope.role,
        brought=any(message.trust is Trust.DATA for message in questions),
    )
    return begin, [name for message in packed for name in message.omitted]


def input_message(packed: EncodedMessage) -> InputMessage:
    """Send text alone as a string."""
    parts = packed.parts
    if len(parts) == 1 and parts[0]["type"] == "input_text":
        return InputMessage(parts[0]["text"])
    return InputMessage(parts)


def run_key(runtime_request: RuntimeRequest, body: bytes) -> str:
    """Return a key that is stable for the same question, across processes of this gateway."""
    last = next(
        (message.id for message in reversed(runtime_request.messages) if is_question(message)), ""
    )
    return sha256(msgspec.json.encode((runtime_request.scope.session, last, body))).hexdigest()


def _history(messages: Sequence[Message]) -> Sequence[InputMessage]:
    """Return the newest messages of the history, as text."""
    past: list[InputMessage] = []
    size = 0
    for message in reversed(messages):
        if isinstance(message, Result) or not (text := _message_text(message)):
            continue
        size += len(text)
        if size > MAX_HISTORY_CHARACTERS or len(past) >= MAX_HISTORY:
            break
        role = "assistant" if isinstance(message, Assistant) else "user"
        past.append(InputMessage(text, role))
    return past[::-1]


def _message_text(message: User | Assistant) -> str:
    if isinstance(message, Assistant):
        return message.text.strip() and message.text
    return "\n".join(map(part_text, message.parts))


class RunEventMapper(AnswerText):
    """Decodes the events of one run, each only once, however often the link breaks."""

    def __init__(self) -> None:
        super().__init__()
        self._decoder = msgspec.json.Decoder(RemoteEvent)
        self.last_number = 0
        """The number of the last event, after which a reconnect continues."""
        self.end: RemoteEvent | None = None
        self.questions: list[RemoteQuestion] = []
        """Questions that are not handled yet."""
        self._seen_questions: set[str] = set()
        self._question_count = 0
        self.answered: list[str] = []
        """Questions that were answered, here or there."""
        self.applied: list[str] = []
        """Steering messages that the run has read."""

    def feed(self, number: int, data: bytes) -> Sequence[RuntimeEvent]:
        """Return the events; none if it is a repeat. Raises `msgspec.DecodeError`."""
        if number <= self.last_number or self.end is not None:
            return ()
        event = self._decoder.decode(data)
        self.last_number = number
        return self._take(event)

    def close(self, state: RemoteRunState) -> Sequence[RuntimeEvent]:
        """End a run whose events are gone, from its stored state."""
        end = RemoteEvent(
            event=state.end,
            output=state.output or None,
            error=state.error,
            error_code=state.error_code,
            partial=state.partial,
        )
        return self._ended(end)

    def message(self, stop: Stop) -> Assistant:
        """Return the text so far as a message."""
        tokens = (self.end.usage if self.end else None) or RunTokens()
        usage = Usage(tokens.input_tokens, tokens.output_tokens)
        return Assistant(new_id("msg"), (Text(self.text),), stop, usage, MODEL, PROVIDER)

    def _take(self, event: RemoteEvent) -> Sequence[RuntimeEvent]:
        match event.event:
            case "message.delta":
                self._add(event.delta)
            case "message.restarted":
                return self._restart(event.text)
            case "steer.applied":
                self.applied.append(event.text)
            case name if name in _APPROVAL_EVENTS or name in _CLARIFY_EVENTS:
                if not self._is_new(event.question_id):
                    return ()
                self.questions.append(_remote_question(event))
            case name if name in _ANSWERED_EVENTS:
                self.answered.append(event.question_id)
            case name if name in _END_EVENTS:
                return self._ended(event)
            case _:
                pass
        converted = _runtime_event(event)
        return () if converted is None else (converted,)

    def _is_new(self, question: str) -> bool:
        """Return whether a question is new and within the limit; some have no id."""
        if question in self._seen_questions or self._question_count >= MAX_QUESTIONS:
            return False
        self._question_count += 1
        if question:
            self._seen_questions.add(question)
        return True

    def _ended(self, event: RemoteEvent) -> Sequence[RuntimeEvent]:
        """The final output is authoritative, whatever was streamed before."""
        self.end = event
        streamed, output = self.text, event.output
        if not output or output == streamed:
            return ()
        self._texts = [output]
        if output.startswith(streamed):
            return [TextDelta(output[len(streamed) :])]
        return self._restart(output)

    def _restart(self, text: str) -> Sequence[RuntimeEvent]:
        """Replace the text so far."""
        self._texts = [text]
        reset = StreamReset("the remote gateway restarted its answer")
        return [reset, TextDelta(text)] if text else [reset]


class SteeringTracker:
    """Steering messages sent to a run that it has not read yet, in order."""

    def __init__(self) -> None:
        self._open: list[User] = []
        self.read: list[User] = []

    def add(self, message: User) -> None:
        self._open.append(message)

    def applied(self, texts: Sequence[str]) -> None:
        for text in texts:
            same = (user for user in self._open if text_of(user) == text)
            if (found := next(same, self._open[0] if self._open else None)) is not None:
                self._open.remove(found)
                self.read.append(found)

    @property
    def unread(self) -> tuple[User, ...]:
        return tuple(self._open)


def _runtime_event(event: RemoteEvent) -> RuntimeEvent | None:
    """Convert the event; unknown types of a newer gateway are ignored."""
    converted: RuntimeEvent | None = None
    match event.event:
        case "message.delta":
            converted = TextDelta(event.delta)
        case "reasoning.delta":
            converted = ReasoningDelta(event.delta)
        case "tool.started":
            # The effect is recorded where the tool runs.
            converted = ToolStarted(_preview_call(event), Effect.READ)
        case "tool.progress":
            converted = ToolProgress(event.tool_call_id, event.text)
        case "tool.completed" if event.error:
            converted = ToolProgress(event.tool_call_id, "failed")
        case name if name == "run.notice" or name in _APPROVAL_EVENTS or name in _CLARIFY_EVENTS:
            converted = Notice(_notice_text(event))
        case _:
            pass
    return converted


def _remote_question(event: RemoteEvent) -> RemoteQuestion:
    text = _notice_text(event)
    if event.event in _CLARIFY_EVENTS:
        return RemoteQuestion(event.question_id, text, event.choices, open=True)
    action = event.command or event.description or event.text
    reason = event.description if event.command else ""
    return RemoteQuestion(event.question_id, text, event.choices, action=action, reason=reason)


def _notice_text(event: RemoteEvent) -> str:
    detail = " - ".join(filter(None, [event.command, event.description])) or event.text
    if event.event in _APPROVAL_EVENTS:
        return f"The remote gateway asks for approval: {detail}"
    return f"The remote gateway asks: {detail}" if event.event in _CLARIFY_EVENTS else event.text


def _preview_call(event: RemoteEvent) -> ToolCall:
    """Build a call from the preview of its arguments, which need not be JSON."""
    args, broken = parse_arguments(Raw(msgspec.json.encode(event.preview or "")))
    if broken:
        args = Raw(msgspec.json.encode({"preview": event.preview}))
    return ToolCall(event.tool_call_id or new_id("call"), event.tool, args)
