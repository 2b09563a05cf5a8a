"""Request and response objects of chat completions, as in the OpenAI API."""

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType

from hermes.schema.messages import Usage

ContentParts: TypeAlias = Annotated[list[dict[str, Any]], Meta(max_length=1000)]
FunctionName: TypeAlias = Annotated[
    str, Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_-]+$")
]


class CallFunction(Struct, frozen=True):
    name: str
    arguments: str = "{}"


class HistoryCall(Struct, frozen=True):
    """A tool call in the request's message history."""

    id: str
    function: CallFunction
    type: Literal["function"] = "function"


class ChatMessage(Struct, frozen=True, kw_only=True):
    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | ContentParts | None = None
    name: str | None = None
    tool_calls: Annotated[list[HistoryCall], Meta(max_length=1000)] | None = None
    tool_call_id: str | None = None


class ToolFunction(Struct, frozen=True, kw_only=True):
    name: FunctionName
    description: str | None = None
    parameters: dict[str, Any] | None = None


class ChatTool(Struct, frozen=True, kw_only=True):
    type: Literal["function"] = "function"
    function: ToolFunction


class StreamOptions(Struct, frozen=True):
    include_usage: bool | None = None


class JsonSchema(Struct, frozen=True, kw_only=True):
    name: FunctionName
    schema: dict[str, Any] | None = None
    strict: bool | None = None


class ResponseFormat(Struct, frozen=True, kw_only=True):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None


class ChatRequest(Struct, frozen=True, kw_only=True):
    """A chat request; unknown fields such as temperature are ignored.

    The token limits apply only to side calls; the settings limit the length of a turn.
    """

    messages: Annotated[list[ChatMessage], Meta(min_length=1, max_length=10_000)]
    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    tools: Annotated[list[ChatTool], Meta(max_length=128)] | None = None
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
    def of(cls, usage: Usage) -> "ChatUsage":
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


class TurnStatus(Struct, frozen=True, kw_only=True):
    """How the turn ended, in more detail than `finish_reason`."""

    session_id: str
    completed: bool = True
    partial: bool = False
    failed: bool = False
    error: str | None = None
    error_code: str | None = None


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
