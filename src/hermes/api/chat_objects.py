"""Chat completions as in the OpenAI API: request objects, and results as object or chunks."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from hermes.agent.turn import CLIENT_CALLS
from hermes.api.answer_text import ANSWER_SEPARATOR, assistant_text, reasoning_of
from hermes.api.client_tools import FunctionName, RequestTools, custom_arguments
from hermes.api.errors import ApiError, header_text, turn_error
from hermes.kit.sse import frame
from hermes.kit.text import one_line
from hermes.schema.events import Outcome, RunEnded, ToolStarted
from hermes.schema.messages import Assistant, Message, Result, Usage
from hermes.schema.tools import ToolSpec

DONE_FRAME = frame(b"[DONE]")
SERVED_HEADER = "X-Hermes-Model"
PROGRESS_EVENT = "hermes.tool.progress"
EMOJI = "🔧"
_PLACEHOLDER = "\x00here\x00"
_ESCAPED_PLACEHOLDER = msgspec.json.encode(_PLACEHOLDER)

ProviderName: TypeAlias = str | dict[str, Any] | None
"""One of our providers; some clients send another service's options here, which are ignored."""
ContentParts: TypeAlias = Annotated[list[dict[str, Any]], Meta(max_length=1000)]


def provider_name(provider: ProviderName) -> str:
    return provider if isinstance(provider, str) else ""


class CallFunction(Struct, frozen=True):
    name: str
    arguments: str = "{}"


class CallText(Struct, frozen=True):
    """The free text that a custom tool was called with."""

    name: str
    input: str = ""


class HistoryCall(Struct, frozen=True):
    """A tool call in the request's message history; custom ones come from other services."""

    id: str
    function: CallFunction | None = None
    type: Literal["function", "custom"] = "function"
    custom: CallText | None = None

    @property
    def called(self) -> CallFunction:
        """Return the call as a function call."""
        if self.custom is not None:
            return CallFunction(self.custom.name, custom_arguments(self.custom.input))
        return self.function or CallFunction("")


class ChatMessage(Struct, frozen=True, kw_only=True):
    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | ContentParts | None = None
    name: str | None = None
    tool_calls: Annotated[list[HistoryCall], Meta(max_length=1000)] | None = None
    tool_call_id: str | None = None


class StreamOptions(Struct, frozen=True):
    include_usage: bool | None = None


class JsonSchema(Struct, frozen=True, kw_only=True):
    name: FunctionName
    schema: dict[str, Any] | None = None
    strict: bool | None = None


class ResponseFormat(Struct, frozen=True, kw_only=True):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None


class TextFormat(Struct, frozen=True, kw_only=True):
    """The output format in the Responses API."""

    type: Literal["text", "json_object", "json_schema"] = "text"
    name: FunctionName | UnsetType = UNSET
    schema: dict[str, Any] | UnsetType = UNSET
    strict: bool | UnsetType | None = UNSET


class ChatRequest(Struct, frozen=True, kw_only=True):
    """A chat request; unknown fields such as temperature are ignored.

    With `provider`, `model` is a model of that provider.

    The token limits apply only to side calls; the settings limit the length of a turn.
    """

    messages: Annotated[list[ChatMessage], Meta(min_length=1, max_length=10_000)]
    model: str | None = None
    provider: ProviderName = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    tools: RequestTools | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    response_format: ResponseFormat | None = None
    n: int | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None


class CachedTokens(Struct, frozen=True):
    cached_tokens: int


class ReasoningTokens(Struct, frozen=True):
    reasoning_tokens: int


class ChatUsage(Struct, frozen=True, kw_only=True):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: CachedTokens
    completion_tokens_details: ReasoningTokens

    @classmethod
    def from_usage(cls, usage: Usage) -> "ChatUsage":
        return cls(
            prompt_tokens=usage.input,
            completion_tokens=usage.output,
            total_tokens=usage.input + usage.output,
            prompt_tokens_details=CachedTokens(usage.cache_read),
            completion_tokens_details=ReasoningTokens(usage.reasoning),
        )


class ClientCall(Struct, frozen=True, kw_only=True):
    """A tool call returned to the client; `index` is present only in streams."""

    id: str
    function: CallFunction
    type: str = "function"
    index: int | UnsetType = UNSET


class CompletionMessage(Struct, frozen=True, kw_only=True):
    content: str | None
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[ClientCall] | UnsetType = UNSET
    role: str = "assistant"
    refusal: str | None = None


class Choice(Struct, frozen=True, kw_only=True):
    message: CompletionMessage
    finish_reason: str
    index: int = 0
    logprobs: None = None


class ServedBy(Struct, frozen=True):
    """The model that answered; both are empty if none did."""

    model: str = ""
    provider: str = ""

    @classmethod
    def of(cls, messages: Sequence[Message]) -> "ServedBy":
        answers = (
            message
            for message in reversed(messages)
            if isinstance(message, Assistant) and message.model
        )
        last = next(answers, None)
        return cls(last.model, last.provider) if last else cls()


class TurnStatus(Struct, frozen=True, kw_only=True):
    """How the turn ended, in more detail than `finish_reason`.

    `ignored_tools` are types of tools in the request that are not supported.
    """

    session_id: str
    completed: bool = True
    partial: bool = False
    failed: bool = False
    error: str | None = None
    error_code: str | None = None
    model: str | None = None
    provider: str | None = None
    ignored_tools: tuple[str, ...] | UnsetType = UNSET


class ChatCompletion(Struct, frozen=True, kw_only=True):
    id: str
    created: int
    model: str
    choices: list[Choice]
    usage: ChatUsage
    hermes: TurnStatus
    object: str = "chat.completion"


class Delta(Struct, frozen=True, kw_only=True):
    role: str | UnsetType = UNSET
    content: str | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[ClientCall] | UnsetType = UNSET


class ChunkChoice(Struct, frozen=True, kw_only=True):
    delta: Delta
    finish_reason: str | None = None
    index: int = 0
    logprobs: None = None


class ChatChunk(Struct, frozen=True, kw_only=True):
    """A stream chunk; `tool` to `status` appear only in `hermes.tool.progress` events."""

    id: str
    created: int
    model: str
    choices: list[ChunkChoice]
    object: str = "chat.completion.chunk"
    usage: ChatUsage | UnsetType | None = UNSET
    hermes: TurnStatus | UnsetType = UNSET
    tool: str | UnsetType = UNSET
    emoji: str | UnsetType = UNSET
    label: str | UnsetType = UNSET
    toolCallId: str | UnsetType = UNSET  # noqa: N815 - the name that clients know
    status: str | UnsetType = UNSET


class CompletionLabel(Struct, frozen=True):
    """Fields common to all chunks of a completion; a side call has no session."""

    id: str
    created: int
    model: str
    session: str
    ignored_tools: tuple[str, ...] = ()


class FinishedCompletion(Struct, frozen=True, kw_only=True):
    """The result of a turn, as returned and as stored for idempotent replay."""

    label: CompletionLabel
    text: str
    calls: list[ClientCall]
    finish: str
    usage: ChatUsage
    standing: TurnStatus
    thought: str = ""
    retry_after: float | None = None

    @property
    def is_replayable(self) -> bool:
        """Whether a repeated request gets the same answer; failures may be retried."""
        return not self.standing.failed


def finish_completion(
    label: CompletionLabel,
    client_tools: Sequence[ToolSpec],
    ended: RunEnded,
    messages: Sequence[Message],
) -> FinishedCompletion:
    text, names = assistant_text(messages), {spec.name for spec in client_tools}
    calls = _client_calls(messages, names) if ended.code == CLIENT_CALLS else []
    answers = [message for message in messages if isinstance(message, Assistant)]
    done, served_by = ended.outcome is Outcome.DONE, ServedBy.of(messages)
    status = TurnStatus(
        session_id=label.session,
        model=served_by.model or None,
        provider=served_by.provider or None,
        ignored_tools=label.ignored_tools or UNSET,
        completed=done,
        partial=not done and bool(text),
        failed=ended.outcome in {Outcome.FAILED, Outcome.CANCELLED},
        error=None if done else ended.reason or None,
        error_code=None if done else ended.code or None,
    )
    return FinishedCompletion(
        label=label,
        text=text,
        calls=calls,
        finish=_finish_reason(ended),
        usage=ChatUsage.from_usage(ended.usage),
        standing=status,
        thought=ANSWER_SEPARATOR.join(filter(None, map(reasoning_of, answers))),
        retry_after=ended.retry_after,
    )


def completion_error(finished: FinishedCompletion, *, acted: bool) -> ApiError | None:
    """Return the error to answer with if the turn produced no text."""
    if finished.text or not finished.standing.failed:
        return None
    return turn_error(
        finished.standing.error_code or "",
        finished.standing.error or "The agent returned no answer.",
        retry_after=finished.retry_after,
        acted=acted,
        headers=completion_headers(finished),
    )


def completion_headers(finished: FinishedCompletion) -> dict[str, str]:
    status = finished.standing
    headers = {"X-Hermes-Session-Id": finished.label.session} if finished.label.session else {}
    headers |= served_headers(status.model, status.provider)
    if not status.completed:
        headers["X-Hermes-Completed"] = "false"
        headers["X-Hermes-Partial"] = str(status.partial).lower()
        headers["X-Hermes-Error"] = header_text(one_line(status.error or "", 200))
    return headers


def served_headers(model: str | None, provider: str | None) -> dict[str, str]:
    """Return the header that names the model that answered."""
    return {SERVED_HEADER: header_text(f"{provider}/{model}")} if model else {}


def completion_object(finished: FinishedCompletion) -> ChatCompletion:
    message = CompletionMessage(
        content=finished.text or (None if finished.calls else ""),
        reasoning_content=finished.thought or UNSET,
        tool_calls=finished.calls or UNSET,
    )
    return ChatCompletion(
        id=finished.label.id,
        created=finished.label.created,
        model=finished.label.model,
        choices=[Choice(message=message, finish_reason=finished.finish)],
        usage=finished.usage,
        hermes=finished.standing,
    )


class ChunkEncoder:
    """Encodes the frames of one stream."""

    def __init__(self, label: CompletionLabel) -> None:
        self._label = label
        whole = self._frame([ChunkChoice(delta=Delta(content=_PLACEHOLDER))])
        self._head, _, self._tail = whole.rpartition(_ESCAPED_PLACEHOLDER)

    def role(self) -> bytes:
        return self._frame([ChunkChoice(delta=Delta(role="assistant", content=""))])

    def content(self, text: str) -> bytes:
        return self._head + msgspec.json.encode(text) + self._tail

    def reasoning(self, text: str) -> bytes:
        return self._frame([ChunkChoice(delta=Delta(reasoning_content=text))])

    def tool_started(self, event: ToolStarted) -> bytes:
        call = event.call
        args = one_line(bytes(call.args).decode("utf-8", "replace"), 80)
        return self._progress(call.id, call.name, "running", label=f"{call.name} {args}")

    def tool_ended(self, result: Result, name: str) -> bytes:
        return self._progress(result.call, name, "failed" if result.failed else "completed")

    def end(self, finished: FinishedCompletion, *, usage_chunk: bool) -> Iterator[bytes]:
        if finished.calls:
            calls = [
                msgspec.structs.replace(call, index=number)
                for number, call in enumerate(finished.calls)
            ]
            yield self._frame([ChunkChoice(delta=Delta(tool_calls=calls))])
        choice = ChunkChoice(delta=Delta(), finish_reason=finished.finish)
        usage = None if usage_chunk else finished.usage
        yield self._frame([choice], usage=usage, hermes=finished.standing)
        if usage_chunk:
            yield self._frame([], usage=finished.usage)
        yield DONE_FRAME

    def replay(self, finished: FinishedCompletion, *, usage_chunk: bool) -> Iterator[bytes]:
        """Yield all frames of a stored completion, for a replay."""
        yield self.role()
        if finished.thought:
            yield self.reasoning(finished.thought)
        if finished.text:
            yield self.content(finished.text)
        yield from self.end(finished, usage_chunk=usage_chunk)

    def _progress(self, call: str, tool: str, status: str, label: str = "") -> bytes:
        # A complete chunk without text, so that clients unaware of this event can ignore it.
        name = self._label
        chunk = ChatChunk(
            id=name.id,
            created=name.created,
            model=name.model,
            choices=[ChunkChoice(delta=Delta())],
            tool=tool,
            emoji=EMOJI,
            label=label or tool,
            toolCallId=call,
            status=status,
        )
        return frame(msgspec.json.encode(chunk), event=PROGRESS_EVENT)

    def _frame(
        self,
        choices: list[ChunkChoice],
        *,
        usage: ChatUsage | UnsetType | None = UNSET,
        hermes: TurnStatus | UnsetType = UNSET,
    ) -> bytes:
        label = self._label
        chunk = ChatChunk(
            id=label.id,
            created=label.created,
            model=label.model,
            choices=choices,
            usage=usage,
            hermes=hermes,
        )
        return b"data: " + msgspec.json.encode(chunk) + b"\n\n"


def _client_calls(messages: Sequence[Message], names: set[str]) -> list[ClientCall]:
    answers = [message for message in messages if isinstance(message, Assistant)]
    return [
        ClientCall(id=call.id, function=CallFunction(call.name, bytes(call.args).decode()))
        for call in (answers[-1].calls if answers else ())
        if call.name in names and not call.broken
    ]


def _finish_reason(ended: RunEnded) -> str:
    match ended.outcome:
        case Outcome.DONE:
            return "tool_calls" if ended.code == CLIENT_CALLS else "stop"
        case Outcome.EXHAUSTED:
            return "length"
        case Outcome.FAILED | Outcome.CANCELLED:
            return "length" if ended.code == "truncated" else "error"
