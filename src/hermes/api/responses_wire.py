"""What a response is asked with and answered with, as the OpenAI API writes it."""

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType

from hermes.api.chat_wire import CachedTokens, Name, ReasonedTokens
from hermes.api.runs_talk import History, Identity, Input
from hermes.schema.messages import Usage

Status: TypeAlias = Literal["in_progress", "completed", "incomplete", "failed"]


class ResponseTool(Struct, frozen=True, kw_only=True):
    """A function that whoever asks runs."""

    type: Literal["function"]
    name: Name
    description: str | None = None
    parameters: dict[str, Any] | None = None


class NamedConversation(Struct, frozen=True):
    id: Identity


class TextFormat(Struct, frozen=True, kw_only=True):
    type: Literal["text", "json_object", "json_schema"] = "text"
    name: Name | UnsetType = UNSET
    schema: dict[str, Any] | UnsetType = UNSET
    strict: bool | UnsetType | None = UNSET


class TextOptions(Struct, frozen=True, kw_only=True):
    format: TextFormat | None = None


class ResponseRequest(Struct, frozen=True, kw_only=True):
    """What is not named here (a temperature, say) is the agent's own choice and is let pass."""

    input: Input
    model: Identity | None = None
    instructions: str | None = None
    previous_response_id: Identity | None = None
    conversation: Identity | NamedConversation | None = None
    conversation_history: History | None = None
    store: bool | None = None
    stream: bool | None = None
    truncation: Literal["auto", "disabled"] | None = None
    tools: Annotated[list[ResponseTool], Meta(max_length=128)] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    text: TextOptions | None = None
    background: bool | None = None
    metadata: Annotated[dict[str, str], Meta(max_length=16)] | None = None


class OutputText(Struct, frozen=True, kw_only=True):
    text: str
    type: str = "output_text"
    annotations: list[str] = []
    logprobs: list[str] = []


class MessageItem(Struct, frozen=True, kw_only=True, tag_field="type", tag="message"):
    id: str
    status: Status
    content: list[OutputText]
    role: str = "assistant"


class CallItem(Struct, frozen=True, kw_only=True, tag_field="type", tag="function_call"):
    id: str
    call_id: str
    name: str
    arguments: str
    status: Status = "completed"


class OwnCallItem(Struct, frozen=True, kw_only=True, tag_field="type", tag="mcp_call"):
    """A tool that ran here, with what came of it: nobody else is to run it."""

    id: str
    name: str
    arguments: str
    status: Status = "in_progress"
    output: str | None = None
    error: str | None = None
    server_label: str = "hermes"
    approval_request_id: str | None = None
    """Nobody is asked by way of such an item; the public API always writes the field."""


class SummaryText(Struct, frozen=True, kw_only=True):
    text: str
    type: str = "summary_text"


class ThoughtItem(Struct, frozen=True, kw_only=True, tag_field="type", tag="reasoning"):
    id: str
    summary: list[SummaryText] = []
    status: Status = "completed"

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.summary)


Item: TypeAlias = MessageItem | CallItem | OwnCallItem | ThoughtItem


class ResponseUsage(Struct, frozen=True, kw_only=True):
    input_tokens: int
    input_tokens_details: CachedTokens
    output_tokens: int
    output_tokens_details: ReasonedTokens
    total_tokens: int

    @classmethod
    def of(cls, usage: Usage) -> "ResponseUsage":
        return cls(
            input_tokens=usage.input,
            input_tokens_details=CachedTokens(usage.cache_read),
            output_tokens=usage.output,
            output_tokens_details=ReasonedTokens(usage.reasoning),
            total_tokens=usage.input + usage.output,
        )


class Failure(Struct, frozen=True):
    code: str
    message: str


class Incomplete(Struct, frozen=True):
    reason: str


class ResponseObject(Struct, frozen=True, kw_only=True):
    id: str
    created_at: int
    model: str
    status: Status = "in_progress"
    output: list[Item] = []
    usage: ResponseUsage | None = None
    error: Failure | None = None
    incomplete_details: Incomplete | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    conversation: NamedConversation | None = None
    session_id: str = ""
    store: bool = True
    truncation: str = "disabled"
    metadata: dict[str, str] = {}
    parallel_tool_calls: bool = True
    tool_choice: str | dict[str, Any] = "auto"
    tools: list[ResponseTool] = []
    text: TextOptions = TextOptions(format=TextFormat())
    background: bool = False
    temperature: float | None = None
    top_p: float | None = None
    """Like `temperature` nobody chooses it here; clients of the public API require both."""
    object: str = "response"


class ResponseEvent(Struct, frozen=True, kw_only=True):
    """Only those fields are there that the event's type calls for."""

    type: str
    sequence_number: int
    response: ResponseObject | UnsetType = UNSET
    output_index: int | UnsetType = UNSET
    item: Any = UNSET
    item_id: str | UnsetType = UNSET
    content_index: int | UnsetType = UNSET
    summary_index: int | UnsetType = UNSET
    part: OutputText | SummaryText | UnsetType = UNSET
    delta: str | UnsetType = UNSET
    text: str | UnsetType = UNSET
    arguments: str | UnsetType = UNSET
    name: str | UnsetType = UNSET
    logprobs: list[str] | UnsetType = UNSET


class ResponseDeleted(Struct, frozen=True, kw_only=True):
    id: str
    object: str = "response"
    deleted: bool = True
