"""How a turn becomes a response: its items one after the other, and the events about them."""

from collections.abc import Collection, Iterator, Sequence

from msgspec import structs

from hermes.api.responses_frames import Frames
from hermes.api.responses_wire import (
    CallItem,
    Failure,
    Incomplete,
    Item,
    MessageItem,
    OutputText,
    OwnCallItem,
    ResponseObject,
    ResponseUsage,
    Status,
    SummaryText,
    ThoughtItem,
)
from hermes.api.words import Stream, thought_of
from hermes.schema.events import (
    Event,
    Outcome,
    ReasoningDelta,
    RunEnded,
    RunStarted,
    Said,
    StreamReset,
    TextDelta,
)
from hermes.schema.messages import Assistant, Message, Result, Stop, ToolCall, text_of

PREFIX = "resp_"
_LAST: dict[Status, str] = {
    "completed": "response.completed",
    "incomplete": "response.incomplete",
    "failed": "response.failed",
}


class _Open:
    """A message that is being said: where it stands, and what of it is out."""

    def __init__(self, identity: str, index: int) -> None:
        self.id = identity
        self.index = index
        self.stream = Stream()
        self.sent: list[str] = []

    def item(self, text: str | None, status: Status) -> MessageItem:
        content = [] if text is None else [OutputText(text=text)]
        return MessageItem(id=self.id, status=status, content=content)


class Story:
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
        self._frames = Frames()
        self._items: list[Item] = []
        self._open: _Open | None = None
        self._thought: list[str] = []
        self._thought_told = False
        self._own: dict[str, int] = {}
        self._told: set[str] = set()
        self._heard = ""
        self._late: tuple[list[Item], list[bytes]] | None = None

    def hear(self, event: Event) -> Iterator[bytes]:
        """The frames to send for it; the response grows also when nobody wants them."""
        match event:
            case RunStarted():
                yield self._frames.frame("response.created", response=self.response)
                yield self._frames.frame("response.in_progress", response=self.response)
            case TextDelta(text=text):
                yield from self._delta(text)
            case ReasoningDelta(text=text):
                yield from self._thinks(text)
            case StreamReset():
                yield from self._reset()
            case Said(message=message):
                yield from self._said(message)
            case RunEnded():
                yield from self._ended(event)
            case _:
                pass

    def finish(self, ended: RunEnded, said: Sequence[Message] = ()) -> ResponseObject:
        """The response with its end; what was being said and is not kept is left as it is.

        The last of what was `said` may be on its way to us still.
        """
        last = said[-1] if said else None
        if isinstance(last, Assistant) and last.id not in self._told:
            before = list(self._items)
            self._late = before, list(self._said(last))
        items = [_left(item) for item in self._items]
        if self._open is not None or self._heard:
            items.append(self._unfinished(self._open or self._new_message()))
        status, error, why = _standing(ended)
        self.response = structs.replace(
            self.response,
            status=status,
            output=items,
            usage=ResponseUsage.of(ended.usage),
            error=error,
            incomplete_details=why,
        )
        return self.response

    def whole(self) -> Iterator[bytes]:
        """All events of a response that is there already."""
        response, frames = self.response, self._frames
        begun = structs.replace(response, status="in_progress", output=[], usage=None)
        yield frames.frame("response.created", response=begun)
        yield frames.frame("response.in_progress", response=begun)
        for index, item in enumerate(response.output):
            yield from frames.item(index, item)
        yield frames.frame(_LAST[response.status], response=response)

    def _delta(self, text: str) -> Iterator[bytes]:
        self._heard += text
        if not self._streams:
            return
        yield from self._end_thought("completed")
        if self._open is None:
            yield from self._begin_message()
        yield from self._send(self._open, self._open.stream.delta(text) if self._open else "")
        if self._open is not None and self._open.stream.renewed():
            yield from self._break_off(self._open)
            yield from self._begin_message()
            more = self._open.stream.delta(self._heard)
            yield from self._send(self._open, more)

    def _reset(self) -> Iterator[bytes]:
        self._heard = ""
        if self._open is not None:
            self._open.stream.reset()
        yield from self._end_thought("incomplete")

    def _thinks(self, text: str) -> Iterator[bytes]:
        # What is thought again, after words are out, has no place before them any more.
        if not self._streams or self._open is not None or not text:
            return
        index, identity = len(self._items), self._identity("rs")
        if not self._thought:
            self._thought_told = True
            yield from self._frames.begin_thought(index, ThoughtItem(id=identity))
        self._thought.append(text)
        yield from self._frames.thought(index, identity, text)

    def _end_thought(self, status: Status) -> Iterator[bytes]:
        if not self._thought:
            return
        summary = [SummaryText(text="".join(self._thought))]
        item = ThoughtItem(id=self._identity("rs"), summary=summary, status=status)
        self._thought = []
        yield from self._frames.end_thought(len(self._items), item)
        self._items.append(item)

    def _said(self, message: Message) -> Iterator[bytes]:
        match message:
            case Assistant() if message.id in self._told:
                _, frames = self._late or ([], [])
                self._late = None
                yield from frames
            case Assistant():
                yield from self._answered(message)
            case Result(call=call) if call in self._own:
                index = self._own.pop(call)
                item = self._items[index]
                if isinstance(item, OwnCallItem):
                    item = _settled(item, message)
                    self._items[index] = item
                    yield from self._frames.end_own(index, item)
            case _:
                pass

    def _answered(self, message: Assistant) -> Iterator[bytes]:
        self._told.add(message.id)
        yield from self._end_thought("completed")
        thought = thought_of(message)
        if thought and not self._thought_told and self._open is None:
            summary = [SummaryText(text=thought)]
            yield from self._add(ThoughtItem(id=self._identity("rs"), summary=summary))
        self._thought_told = False
        if message.text or self._open is not None:
            yield from self._message(message)
        self._heard = ""
        for call in message.calls:
            yield from self._called(call)

    def _message(self, message: Assistant) -> Iterator[bytes]:
        if self._open is None:
            yield from self._begin_message()
        now = self._open or self._new_message()
        yield from self._send(now, now.stream.said(message))
        if now.stream.renewed():
            yield from self._break_off(now)
            if not message.text:
                return
            yield from self._begin_message()
            now = self._open or now
            yield from self._send(now, message.text)
        self._open = None
        stopped = message.stop is Stop.CANCELLED
        item = now.item(message.text, "incomplete" if stopped else "completed")
        self._items.append(item)
        yield from self._frames.end_message(now.index, item)

    def _unfinished(self, now: _Open) -> MessageItem:
        return now.item("".join(now.sent) or self._heard, "incomplete")

    def _break_off(self, now: _Open) -> Iterator[bytes]:
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
            item = CallItem(id=identity, call_id=call.id, name=name, arguments=arguments)
            yield from self._add(item)
            return
        own = OwnCallItem(id=self._identity("mcp"), name=name, arguments=arguments)
        self._own[call.id] = index
        self._items.append(own)
        yield from self._frames.begin_own(index, own)

    def _ended(self, ended: RunEnded) -> Iterator[bytes]:
        if self._late is not None:
            # It was to be written with the end, and was not.
            self._items, self._late = self._late[0], None
        yield from self._end_thought("incomplete")
        last = self.finish(ended)
        if self._open is not None:
            unfinished = self._unfinished(self._open)
            yield from self._frames.end_message(self._open.index, unfinished)
        yield self._frames.frame(_LAST[last.status], response=last)

    def _add(self, item: Item) -> Iterator[bytes]:
        self._items.append(item)
        yield from self._frames.item(len(self._items) - 1, item)

    def _begin_message(self) -> Iterator[bytes]:
        self._open = self._new_message()
        bare = self._open.item(None, "in_progress")
        yield from self._frames.begin_message(self._open.index, bare)

    def _new_message(self) -> _Open:
        return _Open(self._identity("msg"), len(self._items))

    def _send(self, now: _Open | None, text: str) -> Iterator[bytes]:
        if now is not None and text:
            now.sent.append(text)
            yield from self._frames.words(now.index, now.id, text)

    def _identity(self, kind: str) -> str:
        """By it the item is found again: it names its response, and its place there."""
        return f"{kind}_{self.response.id.removeprefix(PREFIX)}_{len(self._items)}"


def home_of(item: str) -> str:
    """The id of the response that an item is of; empty when it is none of ours."""
    _, _, rest = item.partition("_")
    stem, _, number = rest.rpartition("_")
    return f"{PREFIX}{stem}" if stem and number.isdecimal() else ""


def said_something(response: ResponseObject) -> bool:
    return any(isinstance(item, MessageItem) and item.content for item in response.output)


def _settled(item: OwnCallItem, result: Result) -> OwnCallItem:
    text = text_of(result)
    if result.failed:
        return structs.replace(item, status="failed", error=text)
    return structs.replace(item, status="completed", output=text)


def _left(item: Item) -> Item:
    """As it stands at the end."""
    if isinstance(item, OwnCallItem) and item.status == "in_progress":
        return structs.replace(item, status="incomplete")
    return item


def _standing(ended: RunEnded) -> tuple[Status, Failure | None, Incomplete | None]:
    match ended.outcome:
        case Outcome.DONE:
            return "completed", None, None
        case Outcome.EXHAUSTED:
            return "incomplete", None, Incomplete(ended.code or "steps")
        case Outcome.CANCELLED:
            return "incomplete", None, Incomplete("cancelled")
        case Outcome.FAILED:
            return "failed", Failure(ended.code or "server_error", ended.reason), None
