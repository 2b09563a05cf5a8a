"""How a turn becomes a response: its items one after the other, and the events about them."""

import copy
from collections.abc import Collection, Generator, Iterator, Sequence

from msgspec import structs

from hermes.api.answer_text import AnswerTextStream, reasoning_of
from hermes.api.response_objects import (
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
    """A message that is being said: where it stands, and what of it is out."""

    def __init__(self, identity: str, index: int) -> None:
        self.id = identity
        self.index = index
        self.stream = AnswerTextStream()
        self.sent: list[str] = []

    def twin(self) -> "_OpenMessage":
        """For one that hears no further words, so that the stream of them is left out."""
        other = _OpenMessage(self.id, self.index)
        other.sent = list(self.sent)
        return other

    def item(self, text: str | None, status: ResponseStatus) -> MessageItem:
        content = [] if text is None else [OutputText(text=text)]
        return MessageItem(id=self.id, status=status, content=content)


class _NoFrames(ResponseFrames):
    """For a story that nobody is told."""

    def frame(self, kind: str, /, **fields: object) -> bytes:
        return b""


class ResponseBuilder:
    """Hears a turn's events; gives the response as it stands, and frames for a stream.

    `handed` are the tools that the asker runs: their calls are told as such, all others as what
    this server did. Without `streams` nobody is told on the way.
    """

    def __init__(
        self, response: ResponseObject, handed: Collection[str] = (), *, streams: bool = True
    ) -> None:
        self.response = response
        self._handed = handed
        self._streams = streams
        self._frames = ResponseFrames() if streams else _NoFrames()
        self._items: list[OutputItem] = []
        self._open: _OpenMessage | None = None
        self._thought: list[str] = []
        self._reasoning_sent = False
        self._own: dict[str, tuple[int, ServerCallItem]] = {}
        self._last = ""
        self._heard: list[str] = []

    def hear(self, event: Event) -> Iterator[bytes]:
        """The frames to send for it; the response grows also when nobody wants them."""
        match event:
            case RunStarted():
                yield self._frames.frame("response.created", response=self.response)
                yield self._frames.frame("response.in_progress", response=self.response)
            case TextDelta(text=text):
                yield from self._delta(text)
            case ReasoningDelta(text=text):
                yield from self._reasoning_delta(text)
            case StreamReset():
                yield from self._reset()
            case MessageAdded(message=message):
                yield from self._said(message)
            case RunEnded():
                yield from self._ended(event)
            case _:
                pass

    def ending(self, ended: RunEnded, said: Sequence[Message]) -> ResponseObject:
        """The response as it is if it ends so; nothing is told of it yet.

        The last of what was `said` may be on its way to us still.
        """
        twin = copy.copy(self)
        twin.part()
        last = said[-1] if said else None
        events: list[Event] = [ended]
        if isinstance(last, Assistant) and last.id != self._last:
            events.insert(0, MessageAdded(last))
        for event in events:
            for _ in twin.hear(event):
                pass
        return twin.response

    def part(self) -> None:
        """What this copy hears is its own from now on, and nobody is told."""
        self._frames = _NoFrames()
        self._items, self._own = list(self._items), dict(self._own)
        self._thought, self._heard = list(self._thought), list(self._heard)
        self._open = self._open and self._open.twin()

    def whole(self) -> Iterator[bytes]:
        """All events of a response that is there already."""
        response, frames = self.response, self._frames
        begun = structs.replace(response, status="in_progress", output=[], usage=None)
        yield frames.frame("response.created", response=begun)
        yield frames.frame("response.in_progress", response=begun)
        for index, item in enumerate(response.output):
            yield from frames.item(index, item)
        yield frames.frame(_END_EVENTS[response.status], response=response)

    def _delta(self, text: str) -> Iterator[bytes]:
        self._heard.append(text)
        if not self._streams:
            return
        yield from self._end_thought("completed")
        now = self._open or (yield from self._begin_message())
        yield from self._send(now, now.stream.delta(text))
        if now.stream.renewed():
            yield from self._end_incomplete(now)
            now = yield from self._begin_message()
            yield from self._send(now, now.stream.delta("".join(self._heard)))

    def _reset(self) -> Iterator[bytes]:
        self._heard = []
        if self._open is not None:
            self._open.stream.reset()
        yield from self._end_thought("incomplete")

    def _reasoning_delta(self, text: str) -> Iterator[bytes]:
        # What is thought again, after words are out, has no place before them any more.
        if not self._streams or self._open is not None or not text:
            return
        index, identity = len(self._items), self._identity("rs")
        if not self._thought:
            self._reasoning_sent = True
            yield from self._frames.begin_reasoning(index, ReasoningItem(id=identity))
        self._thought.append(text)
        yield from self._frames.thought(index, identity, text)

    def _end_thought(self, status: ResponseStatus) -> Iterator[bytes]:
        if not self._thought:
            return
        summary = [SummaryText(text="".join(self._thought))]
        item = ReasoningItem(id=self._identity("rs"), summary=summary, status=status)
        self._thought = []
        yield from self._frames.end_reasoning(len(self._items), item)
        self._items.append(item)

    def _said(self, message: Message) -> Iterator[bytes]:
        match message:
            case Assistant():
                yield from self._answered(message)
            case Result(call=call) if call in self._own:
                yield from self._settle(*self._own.pop(call), message)
            case _:
                pass

    def _answered(self, message: Assistant) -> Iterator[bytes]:
        self._last = message.id
        yield from self._end_thought("completed")
        thought = reasoning_of(message)
        if thought and not self._reasoning_sent and self._open is None:
            summary = [SummaryText(text=thought)]
            yield from self._add(ReasoningItem(id=self._identity("rs"), summary=summary))
        self._reasoning_sent = False
        if message.text or self._open is not None:
            yield from self._message(message)
        self._heard = []
        for call in message.calls:
            yield from self._called(call)

    def _message(self, message: Assistant) -> Iterator[bytes]:
        text, now = message.text, self._open
        out = "".join(now.sent) if now else ""
        if now is not None and not text.startswith(out):
            yield from self._end_incomplete(now)
            now, out = None, ""
            if not text:
                return
        now = now or (yield from self._begin_message())
        yield from self._send(now, text[len(out) :])
        self._open = None
        stopped = message.stop is Stop.CANCELLED
        item = now.item(text, "incomplete" if stopped else "completed")
        self._items.append(item)
        yield from self._frames.end_message(now.index, item)

    def _end_incomplete(self, now: _OpenMessage) -> Iterator[bytes]:
        """What is out is not the beginning of the answer: it stays as what was broken off."""
        item = now.item("".join(now.sent), "incomplete")
        self._open = None
        self._items.append(item)
        yield from self._frames.end_message(now.index, item)

    def _called(self, call: ToolCall) -> Iterator[bytes]:
        arguments = call.broken or bytes(call.args).decode("utf-8", "replace")
        name, index = call.name, len(self._items)
        if name in self._handed:
            identity = self._identity("fc")
            item = FunctionCallItem(id=identity, call_id=call.id, name=name, arguments=arguments)
            yield from self._add(item)
            return
        own = ServerCallItem(id=self._identity("mcp"), name=name, arguments=arguments)
        self._own[call.id] = index, own
        self._items.append(own)
        yield from self._frames.begin_server_call(index, own)

    def _settle(self, index: int, own: ServerCallItem, result: Result | None) -> Iterator[bytes]:
        own = self._items[index] = _finished_call(own, result)
        yield from self._frames.end_server_call(index, own)

    def _ended(self, ended: RunEnded) -> Iterator[bytes]:
        yield from self._end_thought("incomplete")
        if self._open is not None:
            yield from self._end_incomplete(self._open)
        elif self._heard:
            self._items.append(self._new_message().item("".join(self._heard), "incomplete"))
        for index, own in self._own.values():
            yield from self._settle(index, own, None)
        status, error, why = _end_status(ended)
        self.response = structs.replace(
            self.response,
            status=status,
            output=self._items,
            usage=ResponseUsage.of(ended.usage),
            error=error,
            incomplete_details=why,
        )
        yield self._frames.frame(_END_EVENTS[status], response=self.response)

    def _add(self, item: OutputItem) -> Iterator[bytes]:
        self._items.append(item)
        yield from self._frames.item(len(self._items) - 1, item)

    def _begin_message(self) -> Generator[bytes, None, _OpenMessage]:
        now = self._open = self._new_message()
        yield from self._frames.begin_message(now.index, now.item(None, "in_progress"))
        return now

    def _new_message(self) -> _OpenMessage:
        return _OpenMessage(self._identity("msg"), len(self._items))

    def _send(self, now: _OpenMessage, text: str) -> Iterator[bytes]:
        if text:
            now.sent.append(text)
            yield from self._frames.words(now.index, now.id, text)

    def _identity(self, kind: str) -> str:
        """By it the item is found again: it names its response, and its place there."""
        return f"{kind}_{self.response.id.removeprefix(RESPONSE_ID_PREFIX)}_{len(self._items)}"


def response_id_of_item(item: str) -> str:
    """The id of the response that an item is of; empty when it is none of ours."""
    _, _, rest = item.partition("_")
    stem, _, number = rest.rpartition("_")
    return f"{RESPONSE_ID_PREFIX}{stem}" if stem and number.isdecimal() else ""


def has_answer(response: ResponseObject) -> bool:
    return any(isinstance(item, MessageItem) and item.content for item in response.output)


def _finished_call(item: ServerCallItem, result: Result | None) -> ServerCallItem:
    """Without a result the end came before."""
    if result is None:
        return structs.replace(item, status="incomplete")
    text = text_of(result)
    if result.failed:
        return structs.replace(item, status="failed", error=text)
    return structs.replace(item, status="completed", output=text)


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
            return "failed", ResponseError(ended.code or "server_error", ended.reason), None
