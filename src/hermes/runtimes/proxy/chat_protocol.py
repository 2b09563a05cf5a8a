"""Encode chat requests to the remote gateway and decode its stream. No network access here."""

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from hermes.kit.ids import new_id
from hermes.kit.sse import SseReader
from hermes.ports.runtime import RuntimeRequest
from hermes.schema.errors import UsageError
from hermes.schema.messages import Assistant, Media, Message, Stop, Text, Trust, Usage, User
from hermes.schema.scope import Role, Scope

MODEL = "hermes-agent"
PROVIDER = "proxy"
MAX_EVENT_BYTES = 4 * 1024 * 1024
"""Bytes of one event, so that a stream without line breaks cannot fill the memory."""
MAX_ANSWER = 4_000_000
"""Characters after which an answer is cut off."""

_STOPS = {"length": Stop.LENGTH, "content_filter": Stop.REFUSED}
_FAILED_REASONS = frozenset({"error", "abort", "cancelled"})


class ChatMessage(Struct, frozen=True):
    role: str
    content: str


class ChatRequest(Struct, frozen=True):
    """The body of a request."""

    messages: Sequence[ChatMessage]
    model: str = MODEL
    stream: bool = True


def remote_session_id(scope: Scope) -> str:
    """Return the remote session id. A remote session has one role, a shared chat here several."""
    return scope.session if scope.role is Role.OWNER else f"{scope.session}.{scope.role.value}"


def chat_request(runtime_request: RuntimeRequest) -> ChatRequest:
    """Send the text of users and the agent only: tools run on the remote side."""
    messages = [message for message in runtime_request.messages if not is_program_note(message)]
    if not messages or not isinstance(messages[-1], User):
        # Only an internal note asks for an answer: it is the question then.
        messages = list(runtime_request.messages)
    spoken = [one for message in messages if (one := _chat_message(message)) is not None]
    if not spoken or spoken[-1].role != "user":
        raise UsageError("There is nothing to answer.", hint="Say something first.")
    opening = [ChatMessage("system", runtime_request.system)] if runtime_request.system else []
    return ChatRequest([*opening, *spoken])


def is_question(message: Message) -> bool:
    """Return whether this is a message that needs an answer."""
    return isinstance(message, User) and not is_program_note(message)


def is_program_note(message: Message) -> bool:
    """Return whether this is an internal note for our own agent loop."""
    return isinstance(message, User) and message.trust is Trust.PROGRAM


def _chat_message(message: Message) -> ChatMessage | None:
    if isinstance(message, User):
        text, role = "\n".join(map(_part_text, message.parts)), "user"
    elif isinstance(message, Assistant):
        text, role = message.text, "assistant"
    else:
        return None
    return ChatMessage(role, text) if text.strip() else None


def _part_text(part: Text | Media) -> str:
    if isinstance(part, Text):
        return part.text
    return f"[attached: {part.name or 'a file'} ({part.media_type}), which stayed behind]"


class _Delta(Struct):
    content: str | None = None


class _Choice(Struct):
    delta: _Delta | None = None
    finish_reason: str | None = None


class _Tokens(Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Chunk(Struct):
    choices: list[_Choice] | None = None
    usage: _Tokens | None = None
    error: object = None


class InvalidStream(ValueError):
    """The data is not a stream of chat completion chunks."""


class AnswerTooLong(ValueError):
    """The answer exceeds the size limit."""


class RemoteError(Exception):
    """The remote gateway sent an error instead of a chunk."""

    def __init__(self, body: bytes) -> None:
        super().__init__("error in the stream")
        self.body = body


class ChatStreamMapper:
    """Decodes one streamed answer, and keeps what has arrived so far."""

    def __init__(self, limit: int = MAX_EVENT_BYTES) -> None:
        self._reader = SseReader(limit)
        self._decoder = msgspec.json.Decoder(_Chunk)
        self._texts: list[str] = []
        self._size = 0
        self._finish = ""
        self._usage = Usage()
        self.done = False

    @property
    def is_complete(self) -> bool:
        """Whether the remote gateway marked the answer as complete."""
        return self.done or bool(self._finish)

    @property
    def has_failed(self) -> bool:
        """Whether the answer ended with an error."""
        return self._finish in _FAILED_REASONS

    @property
    def text(self) -> str:
        return "".join(self._texts)

    def feed(self, data: bytes) -> str:
        """Return the text completed by these bytes."""
        before = len(self._texts)
        for event in self._reader.feed(data):
            if event.event in {"", "message"} and event.data and not self.done:
                self._take(event.data)
        return "".join(self._texts[before:])

    def answer(self) -> Assistant:
        """Return the complete answer."""
        return self._message(_STOPS.get(self._finish, Stop.END))

    def partial(self) -> Assistant:
        """Return the partial answer of an interrupted stream."""
        return self._message(Stop.CANCELLED)

    def _message(self, stop: Stop) -> Assistant:
        return Assistant(new_id("msg"), (Text(self.text),), stop, self._usage, MODEL, PROVIDER)

    def _take(self, data: bytes) -> None:
        if data == b"[DONE]":
            self.done = True
            return
        try:
            chunk = self._decoder.decode(data)
        except (msgspec.DecodeError, RecursionError) as error:
            raise InvalidStream("an event is not a chat completion chunk") from error
        if chunk.error:
            raise RemoteError(data)
        if chunk.usage is not None:
            tokens = chunk.usage
            self._usage = Usage(tokens.prompt_tokens or 0, tokens.completion_tokens or 0)
        for choice in (chunk.choices or ())[:1]:
            self._finish = choice.finish_reason or self._finish
            if choice.delta is not None and choice.delta.content:
                self._add(choice.delta.content)

    def _add(self, text: str) -> None:
        self._size += len(text)
        if self._size > MAX_ANSWER:
            raise AnswerTooLong(f"the answer is longer than {MAX_ANSWER:,} characters")
        self._texts.append(text)
