"""Request and response objects of the Responses API, as in the OpenAI API."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal, TypeAlias, assert_never

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType, structs

from hermes.api.chat_objects import (
    CachedTokens,
    ProviderName,
    ReasoningTokens,
    TextFormat,
)
from hermes.api.client_tools import RequestTools
from hermes.api.run_input import History, Identifier, Input
from hermes.schema.messages import Usage

ResponseStatus: TypeAlias = Literal["in_progress", "completed", "incomplete", "failed"]


class ConversationRef(Struct, frozen=True):
    id: Identifier


class TextOptions(Struct, frozen=True, kw_only=True):
    format: TextFormat | None = None


class ResponseRequest(Struct, frozen=True, kw_only=True):
    """A response request; unknown fields such as temperature are ignored."""

    input: Input
    model: Identifier | None = None
    provider: ProviderName = None
    instructions: str | None = None
    previous_response_id: Identifier | None = None
    conversation: Identifier | ConversationRef | None = None
    conversation_history: History | None = None
    store: bool | None = None
    stream: bool | None = None
    truncation: Literal["auto", "disabled"] | None = None
    tools: RequestTools | None = None
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
    status: ResponseStatus
    content: list[OutputText]
    role: str = "assistant"


class FunctionCallItem(Struct, frozen=True, kw_only=True, tag_field="type", tag="function_call"):
    id: str
    call_id: str
    name: str
    arguments: str
    namespace: str | UnsetType = UNSET
    status: ResponseStatus = "completed"


class CustomCallItem(Struct, frozen=True, kw_only=True, tag_field="type", tag="custom_tool_call"):
    """A call of a client tool that takes free text."""

    id: str
    call_id: str
    name: str
    input: str
    namespace: str | UnsetType = UNSET
    status: ResponseStatus = "completed"


class ServerCallItem(Struct, frozen=True, kw_only=True, tag_field="type", tag="mcp_call"):
    """A tool that ran on the server, with its result."""

    id: str
    name: str
    arguments: str
    status: ResponseStatus = "in_progress"
    output: str | None = None
    error: str | None = None
    server_label: str = "hermes"
    approval_request_id: str | None = None
    """Always null: approvals do not use these items, but the public API has the field."""


class SummaryText(Struct, frozen=True, kw_only=True):
    text: str
    type: str = "summary_text"


class ReasoningItem(Struct, frozen=True, kw_only=True, tag_field="type", tag="reasoning"):
    id: str
    summary: list[SummaryText] = []
    status: ResponseStatus = "completed"

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.summary)


OutputItem: TypeAlias = (
    MessageItem | FunctionCallItem | CustomCallItem | ServerCallItem | ReasoningItem
)


class ResponseUsage(Struct, frozen=True, kw_only=True):
    input_tokens: int
    input_tokens_details: CachedTokens
    output_tokens: int
    output_tokens_details: ReasoningTokens
    total_tokens: int

    @classmethod
    def from_usage(cls, usage: Usage) -> "ResponseUsage":
        return cls(
            input_tokens=usage.input,
            input_tokens_details=CachedTokens(usage.cache_read),
            output_tokens=usage.output,
            output_tokens_details=ReasoningTokens(usage.reasoning),
            total_tokens=usage.input + usage.output,
        )


class ResponseError(Struct, frozen=True):
    code: str
    message: str


class IncompleteDetails(Struct, frozen=True):
    reason: str


class ServedResponse(Struct, frozen=True, kw_only=True):
    """The model that answered, and the types of tools that are not supported."""

    model: str | None = None
    provider: str | None = None
    ignored_tools: tuple[str, ...] = ()


class ResponseObject(Struct, frozen=True, kw_only=True):
    id: str
    created_at: int
    model: str
    status: ResponseStatus = "in_progress"
    output: list[OutputItem] = []
    usage: ResponseUsage | None = None
    error: ResponseError | None = None
    incomplete_details: IncompleteDetails | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    conversation: ConversationRef | None = None
    session_id: str = ""
    hermes: ServedResponse = ServedResponse()
    store: bool = True
    truncation: str = "disabled"
    metadata: dict[str, str] = {}
    parallel_tool_calls: bool = True
    tool_choice: str | dict[str, Any] = "auto"
    tools: Sequence[Raw] = ()
    text: TextOptions = TextOptions(format=TextFormat())
    background: bool = False
    temperature: float | None = None
    top_p: float | None = None
    """Always null, like `temperature`; clients of the public API require both fields."""
    object: str = "response"


class ResponseEvent(Struct, frozen=True, kw_only=True):
    """A stream event; which fields are present depends on its type."""

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
    input: str | UnsetType = UNSET
    name: str | UnsetType = UNSET
    logprobs: list[str] | UnsetType = UNSET


class ResponseDeleted(Struct, frozen=True, kw_only=True):
    id: str
    object: str = "response"
    deleted: bool = True


class ResponseFrames:
    def __init__(self) -> None:
        self._number = 0

    def frame(self, kind: str, /, **fields: object) -> bytes:
        event = ResponseEvent(type=kind, sequence_number=self._number)
        self._number += 1
        body = msgspec.json.encode(structs.replace(event, **fields))
        return b"event: %b\ndata: %b\n\n" % (kind.encode(), body)

    def item(self, index: int, item: OutputItem) -> Iterator[bytes]:
        """Yield the events of a complete item."""
        match item:
            case MessageItem():
                text = "".join(part.text for part in item.content)
                bare = structs.replace(item, status="in_progress", content=[])
                yield from self.begin_message(index, bare)
                yield from self.text_delta(index, item.id, text)
                yield from self.end_message(index, item)
            case ReasoningItem():
                yield from self.begin_reasoning(index, structs.replace(item, summary=[]))
                yield from self.reasoning_delta(index, item.id, item.text)
                yield from self.end_reasoning(index, item)
            case ServerCallItem():
                bare = structs.replace(item, status="in_progress", output=None, error=None)
                yield from self.begin_server_call(index, bare)
                yield from self.end_server_call(index, item)
            case FunctionCallItem():
                yield from self._call(index, item)
            case CustomCallItem():
                yield from self._custom_call(index, item)
            case _:
                assert_never(item)

    def begin_message(self, index: int, item: MessageItem) -> Iterator[bytes]:
        position = {"item_id": item.id, "output_index": index, "content_index": 0}
        yield self._added(index, item)
        yield self.frame("response.content_part.added", **position, part=OutputText(text=""))

    def text_delta(self, index: int, item: str, text: str) -> Iterator[bytes]:
        if text:
            position = {"item_id": item, "output_index": index, "content_index": 0}
            yield self.frame("response.output_text.delta", **position, delta=text, logprobs=[])

    def end_message(self, index: int, item: MessageItem) -> Iterator[bytes]:
        position = {"item_id": item.id, "output_index": index, "content_index": 0}
        text = "".join(part.text for part in item.content)
        yield self.frame("response.output_text.done", **position, text=text, logprobs=[])
        yield self.frame("response.content_part.done", **position, part=OutputText(text=text))
        yield self._done(index, item)

    def begin_reasoning(self, index: int, item: ReasoningItem) -> Iterator[bytes]:
        position = {"item_id": item.id, "output_index": index, "summary_index": 0}
        yield self._added(index, item)
        part = SummaryText(text="")
        yield self.frame("response.reasoning_summary_part.added", **position, part=part)

    def reasoning_delta(self, index: int, item: str, text: str) -> Iterator[bytes]:
        if text:
            position = {"item_id": item, "output_index": index, "summary_index": 0}
            yield self.frame("response.reasoning_summary_text.delta", **position, delta=text)

    def end_reasoning(self, index: int, item: ReasoningItem) -> Iterator[bytes]:
        position = {"item_id": item.id, "output_index": index, "summary_index": 0}
        yield self.frame("response.reasoning_summary_text.done", **position, text=item.text)
        part = SummaryText(text=item.text)
        yield self.frame("response.reasoning_summary_part.done", **position, part=part)
        yield self._done(index, item)

    def begin_server_call(self, index: int, item: ServerCallItem) -> Iterator[bytes]:
        position = {"item_id": item.id, "output_index": index}
        yield self._added(index, structs.replace(item, arguments=""))
        yield self.frame("response.mcp_call.in_progress", **position)
        arguments = item.arguments
        yield self.frame("response.mcp_call_arguments.delta", **position, delta=arguments)
        yield self.frame("response.mcp_call_arguments.done", **position, arguments=arguments)

    def end_server_call(self, index: int, item: ServerCallItem) -> Iterator[bytes]:
        succeeded = item.status == "completed"
        kind = "response.mcp_call.completed" if succeeded else "response.mcp_call.failed"
        yield self.frame(kind, item_id=item.id, output_index=index)
        yield self._done(index, item)

    def _call(self, index: int, item: FunctionCallItem) -> Iterator[bytes]:
        position = {"output_index": index, "item_id": item.id}
        yield self._added(index, structs.replace(item, status="in_progress", arguments=""))
        kind, arguments = "response.function_call_arguments", item.arguments
        yield self.frame(f"{kind}.delta", **position, delta=arguments)
        yield self.frame(f"{kind}.done", **position, arguments=arguments, name=item.name)
        yield self._done(index, item)

    def _custom_call(self, index: int, item: CustomCallItem) -> Iterator[bytes]:
        position = {"output_index": index, "item_id": item.id}
        yield self._added(index, structs.replace(item, status="in_progress", input=""))
        kind = "response.custom_tool_call_input"
        yield self.frame(f"{kind}.delta", **position, delta=item.input)
        yield self.frame(f"{kind}.done", **position, input=item.input)
        yield self._done(index, item)

    def _added(self, index: int, item: OutputItem) -> bytes:
        return self.frame("response.output_item.added", output_index=index, item=item)

    def _done(self, index: int, item: OutputItem) -> bytes:
        return self.frame("response.output_item.done", output_index=index, item=item)
