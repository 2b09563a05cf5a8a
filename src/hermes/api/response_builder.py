"""Build a response object from the events of a turn, and the stream events about its items."""

import copy
from collections.abc import Generator, Iterator, Mapping, Sequence

from msgspec import UNSET, structs

from hermes.api.answer_text import AnswerTextStream, reasoning_of
from hermes.api.chat_objects import ServedBy
from hermes.api.client_tools import ClientTool, custom_text
from hermes.api.errors import public_code
from hermes.api.response_objects import (
    CustomCallItem,
    FunctionCallItem,
    IncompleteDetails,
    MessageItem,
    OutputItem,
    OutputText,
    ReasoningItem,
    ResponseError,
    ResponseFrames,
    ResponseObject,
    ResponseStatus,
    ResponseUsage,
    ServerCallItem,
    SummaryText,
)
from hermes.schema.events import (
    Event,
    MessageAdded,
    Outcome,
    ReasoningDelta,
    RunEnded,
    RunStarted,
    StreamReset,
    TextDelta,
)
from hermes.schema.messages import Assistant, Message, Result, Stop, ToolCall, text_of

RESPONSE_ID_PREFIX = "resp_"
_END_EVENTS: dict[ResponseStatus, str] = {
    "completed": "response.completed",
    "incomplete": "response.incomplete",
    "failed": "response.failed",
}


class _OpenMessage:
    """A message being streamed: its position, and the text sent so far."""

    def __init__(self, identity: str, index: int) -> None:
        self.id = identity
        self.index = index
        self.stream = AnswerTextStream()
        self.sent: list[str] = []

    def copy(self) -> "_OpenMessage":
        """Copy without the text stream, for a builder that receives no more text."""
        twin = _OpenMessage(self.id, self.index)
        twin.sent = list(self.sent)
        return twin

    def item(self, text: str | None, status: ResponseStatus) -> MessageItem:
        content = [] if text is None else [OutputText(text=text)]
        return MessageItem(id=self.id, status=status, content=content)


class _NoFrames(ResponseFrames):
    """Produces no frames, for a response that is not streamed."""

    def frame(self, kind: str, /, **fields: object) -> bytes:
        return b""


class ResponseBuilder:
    """Consumes the events of a turn; provides the current response and the frames to stream.

    Calls of the tools in `client_tools` are run by the client; all others are reported as server
    calls. Without `streams` no frames are produced.
    """

    def __init__(
        self,
        response: ResponseObject,
        client_tools: Mapping[str, ClientTool] = {},
        *,
        streams: bool = True,
    ) -> None:
        self.response = response
        self._client_tools = client_tools
        self._streams = streams
        self._frames = ResponseFrames() if streams else _NoFrames()
        self._items: list[OutputItem] = []
        self._open: _OpenMessage | None = None
        self._reasoning: list[str] = []
        self._reasoning_sent = False
        self._server_calls: dict[str, tuple[int, ServerCallItem]] = {}
        self._last_message_id = ""
        self._text_parts: list[str] = []
        self._served_by = ServedBy()
        self.ended: RunEnded | None = None

    def on_event(self, event: Event) -> Iterator[bytes]:
        """Update the response and yield the frames to send for the event."""
        match event:
            case RunStarted():
                yield self._frames.frame("response.created", response=self.response)
                yield self._frames.frame("response.in_progress", response=self.response)
            case TextDelta(text=text):
                yield from self._on_text(text)
            case ReasoningDelta(text=text):
                yield from self._reasoning_delta(text)
            case StreamReset():
                yield from self._on_reset()
            case MessageAdded(message=message):
                yield from self._on_message(message)
            case RunEnded():
                yield from self._on_end(event)
            case _:
                pass

    def response_if_ended(self, ended: RunEnded, messages: Sequence[Message]) -> ResponseObject:
        """Return the response as if the turn ended like this, without streaming anything.

        The last message need not have been passed to `on_event` yet.
        """
        copied = copy.copy(self)
        copied.detach()
        last = messages[-1] if messages else None
        events: list[Event] = [ended]
        if isinstance(last, Assistant) and last.id != self._last_message_id:
            events.insert(0, MessageAdded(last))
        for event in events:
            for _ in copied.on_event(event):
                pass
        return copied.response

    def detach(self) -> None:
        """Detach this copy from the original: it has its own state and produces no frames."""
        self._frames = _NoFrames()
        self._items, self._server_calls = list(self._items), dict(self._server_calls)
        self._reasoning, self._text_parts = list(self._reasoning), list(self._text_parts)
        self._open = self._open and self._open.copy()

    def replay(self) -> Iterator[bytes]:
        """Yield all events of a finished response."""
        response, frames = self.response, self._frames
        begun = structs.replace(response, status="in_progress", output=[], usage=None)
        yield frames.frame("response.created", response=begun)
        yield frames.frame("response.in_progress", response=begun)
        for index, item in enumerate(response.output):
            yield from frames.item(index, item)
        yield frames.frame(_END_EVENTS[response.status], response=response)

    def _on_text(self, text: str) -> Iterator[bytes]:
        self._text_parts.append(text)
        if not self._streams:
            return
        yield from self._end_reasoning("completed")
        current = self._open or (yield from self._begin_message())
        yield from self._send(current, current.stream.delta(text))
        if current.stream.take_divergence():
            yield from self._end_incomplete(current)
            current = yield from self._begin_message()
            yield from self._send(current, current.stream.delta("".join(self._text_parts)))

    def _on_reset(self) -> Iterator[bytes]:
        self._text_parts = []
        if self._open is not None:
            self._open.stream.reset()
        yield from self._end_reasoning("incomplete")

    def _reasoning_delta(self, text: str) -> Iterator[bytes]:
        # Reasoning repeated after text was sent cannot be placed before that text.
        if not self._streams or self._open is not None or not text:
            return
        index, item_id = len(self._items), self._item_id("rs")
        if not self._reasoning:
            self._reasoning_sent = True
            yield from self._frames.begin_reasoning(index, ReasoningItem(id=item_id))
        self._reasoning.append(text)
        yield from self._frames.reasoning_delta(index, item_id, text)

    def _end_reasoning(self, status: ResponseStatus) -> Iterator[bytes]:
        if not self._reasoning:
            return
        summary = [SummaryText(text="".join(self._reasoning))]
        item = ReasoningItem(id=self._item_id("rs"), summary=summary, status=status)
        self._reasoning = []
        yield from self._frames.end_reasoning(len(self._items), item)
        self._items.append(item)

    def _on_message(self, message: Message) -> Iterator[bytes]:
        match message:
            case Assistant():
                yield from self._on_answer(message)
            case Result(call=call) if call in self._server_calls:
                yield from self._end_call(*self._server_calls.pop(call), message)
            case _:
                pass

    def _on_answer(self, message: Assistant) -> Iterator[bytes]:
        self._last_message_id = message.id
        self._served_by = ServedBy(message.model, message.provider)
        yield from self._end_reasoning("completed")
        reasoning = reasoning_of(message)
        if reasoning and not self._reasoning_sent and self._open is None:
            summary = [SummaryText(text=reasoning)]
            yield from self._add(ReasoningItem(id=self._item_id("rs"), summary=summary))
        self._reasoning_sent = False
        if message.text or self._open is not None:
            yield from self._message(message)
        self._text_parts = []
        for call in message.calls:
            yield from self._on_call(call)

    def _message(self, message: Assistant) -> Iterator[bytes]:
        text, current = message.text, self._open
        sent = "".join(current.sent) if current else ""
        if current is not None and not text.startswith(sent):
            yield from self._end_incomplete(current)
            current, sent = None, ""
            if not text:
                return
        current = current or (yield from self._begin_message())
        yield from self._send(current, text[len(sent) :])
        self._open = None
        cancelled = message.stop is Stop.CANCELLED
        item = current.item(text, "incomplete" if cancelled else "completed")
        self._items.append(item)
        yield from self._frames.end_message(current.index, item)

    def _end_incomplete(self, current: _OpenMessage) -> Iterator[bytes]:
        """End the message as incomplete: the sent text is not the beginning of the final answer."""
        item = current.item("".join(current.sent), "incomplete")
        self._open = None
        self._items.append(item)
        yield from self._frames.end_message(current.index, item)

    def _on_call(self, call: ToolCall) -> Iterator[bytes]:
        arguments = call.broken or bytes(call.args).decode("utf-8", "replace")
        name, index = call.name, len(self._items)
        if (tool := self._client_tools.get(name)) is not None:
            yield from self._add(self._client_call(tool, call.id, arguments))
            return
        server_call = ServerCallItem(id=self._item_id("mcp"), name=name, arguments=arguments)
        self._server_calls[call.id] = index, server_call
        self._items.append(server_call)
        yield from self._frames.begin_server_call(index, server_call)

    def _client_call(self, tool: ClientTool, call: str, arguments: str) -> OutputItem:
        namespace = tool.namespace or UNSET
        if tool.kind == "custom":
            return CustomCallItem(
                id=self._item_id("ctc"),
                call_id=call,
                name=tool.name,
                input=custom_text(arguments),
                namespace=namespace,
            )
        return FunctionCallItem(
            id=self._item_id("fc"),
            call_id=call,
            name=tool.name,
            arguments=arguments,
            namespace=namespace,
        )

    def _end_call(
        self, index: int, server_call: ServerCallItem, result: Result | None
    ) -> Iterator[bytes]:
        server_call = self._items[index] = _finished_call(server_call, result)
        yield from self._frames.end_server_call(index, server_call)

    def _on_end(self, ended: RunEnded) -> Iterator[bytes]:
        self.ended = ended
        yield from self._end_reasoning("incomplete")
        if self._open is not None:
            yield from self._end_incomplete(self._open)
        elif self._text_parts:
            self._items.append(self._new_message().item("".join(self._text_parts), "incomplete"))
        for index, server_call in self._server_calls.values():
            yield from self._end_call(index, server_call, None)
        status, error, details = _end_status(ended)
        served = self._served_by
        self.response = structs.replace(
            self.response,
            hermes=structs.replace(
                self.response.hermes, model=served.model or None, provider=served.provider or None
            ),
            status=status,
            output=self._items,
            usage=ResponseUsage.from_usage(ended.usage),
            error=error,
            incomplete_details=details,
        )
        yield self._frames.frame(_END_EVENTS[status], response=self.response)

    def _add(self, item: OutputItem) -> Iterator[bytes]:
        self._items.append(item)
        yield from self._frames.item(len(self._items) - 1, item)

    def _begin_message(self) -> Generator[bytes, None, _OpenMessage]:
        current = self._open = self._new_message()
        yield from self._frames.begin_message(current.index, current.item(None, "in_progress"))
        return current

    def _new_message(self) -> _OpenMessage:
        return _OpenMessage(self._item_id("msg"), len(self._items))

    def _send(self, current: _OpenMessage, text: str) -> Iterator[bytes]:
        if text:
            current.sent.append(text)
            yield from self._frames.text_delta(current.index, current.id, text)

    def _item_id(self, kind: str) -> str:
        """Return an item id that encodes its response and position."""
        return f"{kind}_{self.response.id.removeprefix(RESPONSE_ID_PREFIX)}_{len(self._items)}"


def response_id_of_item(item: str) -> str:
    """Return the id of the item's response, or "" if it is not one of ours."""
    _, _, rest = item.partition("_")
    stem, _, number = rest.rpartition("_")
    return f"{RESPONSE_ID_PREFIX}{stem}" if stem and number.isdecimal() else ""


def answer_text(response: ResponseObject) -> str:
    messages = (item for item in response.output if isinstance(item, MessageItem))
    return "".join(part.text for item in messages for part in item.content)


def has_answer(response: ResponseObject) -> bool:
    return any(isinstance(item, MessageItem) and item.content for item in response.output)


def _finished_call(item: ServerCallItem, result: Result | None) -> ServerCallItem:
    """Return the call with its result; without one it is incomplete."""
    if result is None:
        return structs.replace(item, status="incomplete")
    text = text_of(result)
    if result.failed:
        return structs.replace(item, status="failed", error=text)
    return structs.replace(item, status="completed", output=text)


def _error(ended: RunEnded) -> ResponseError:
    return ResponseError(public_code(ended.code) or "server_error", ended.reason)


def _end_status(
    ended: RunEnded,
) -> tuple[ResponseStatus, ResponseError | None, IncompleteDetails | None]:
    match ended.outcome:
        case Outcome.DONE:
            return "completed", None, None
        case Outcome.EXHAUSTED:
            return "incomplete", None, IncompleteDetails(ended.code or "steps")
        case Outcome.CANCELLED:
            return "incomplete", None, IncompleteDetails("cancelled")
        case Outcome.FAILED:
            return "failed", _error(ended), None
