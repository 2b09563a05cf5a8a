"""How a turn becomes a response: its items one after the other, and the events about them."""

from collections.abc import Iterator, Sequence

import msgspec
from msgspec import structs

from hermes.api.responses_wire import (
    CallItem,
    Failure,
    Incomplete,
    Item,
    MessageItem,
    OutputText,
    ResponseEvent,
    ResponseObject,
    ResponseUsage,
    ResultItem,
    ResultText,
    Status,
)
from hermes.api.words import Stream
from hermes.kit.ids import new_id
from hermes.schema.events import (
    Event,
    Outcome,
    RunEnded,
    RunStarted,
    Said,
    StreamReset,
    TextDelta,
)
from hermes.schema.messages import Assistant, Message, Result, ToolCall, text_of

_LAST: dict[Status, str] = {
    "completed": "response.completed",
    "incomplete": "response.incomplete",
    "failed": "response.failed",
}


class _Open:
    """A message that is being said: where it stands, and what of it may be sent."""

    def __init__(self, index: int) -> None:
        self.id = new_id("msg")
        self.index = index
        self.stream = Stream()

    def item(self, text: str | None, status: Status) -> MessageItem:
        content = [] if text is None else [OutputText(text=text)]
        return MessageItem(id=self.id, status=status, content=content)


class Story:
    """Hears a turn's events; gives the response as it stands, and frames for a stream."""

    def __init__(self, response: ResponseObject) -> None:
        self.response = response
        self._items: list[Item] = []
        self._open: _Open | None = None
        self._coming: _Open | None = None
        self._told: set[str] = set()
        self._heard = ""
        self._number = 0

    def hear(self, event: Event) -> Iterator[bytes]:
        """The frames to send for it; the response grows also when nobody wants them."""
        match event:
            case RunStarted():
                yield self._frame("response.created", response=self.response)
                yield self._frame("response.in_progress", response=self.response)
            case TextDelta(text=text):
                yield from self._delta(text)
            case StreamReset():
                self._heard = ""
                if self._open is not None:
                    self._open.stream.reset()
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
        items = list(self._items)
        last = said[-1] if said else None
        if isinstance(last, Assistant) and last.text and last.id not in self._told:
            self._coming = self._open or _Open(len(items))
            items.append(self._coming.item(last.text, "completed"))
        elif self._open is not None:
            items.append(self._open.item(self._heard, "incomplete"))
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
        response = self.response
        begun = structs.replace(response, status="in_progress", output=[], usage=None)
        yield self._frame("response.created", response=begun)
        yield self._frame("response.in_progress", response=begun)
        for index, item in enumerate(response.output):
            if isinstance(item, MessageItem):
                text = "".join(part.text for part in item.content)
                bare = structs.replace(item, status="in_progress", content=[])
                yield from self._begin_message(index, bare)
                yield from self._piece(index, item.id, text)
                yield from self._end_message(index, item, text)
            else:
                yield from self._item(index, item)
        yield self._frame(_LAST[response.status], response=response)

    def _delta(self, text: str) -> Iterator[bytes]:
        if self._open is None:
            self._open = self._coming or _Open(len(self._items))
            self._heard = ""
            yield from self._begin_message(self._open.index, self._open.item(None, "in_progress"))
        self._heard += text
        yield from self._piece(self._open.index, self._open.id, self._open.stream.delta(text))

    def _said(self, message: Message) -> Iterator[bytes]:
        match message:
            case Assistant():
                self._told.add(message.id)
                if message.text or self._open is not None:
                    yield from self._message(message)
                for call in message.calls:
                    yield from self._add(_call(call))
            case Result(call=call):
                output = [ResultText(text=text_of(message))]
                yield from self._add(ResultItem(id=new_id("fco"), call_id=call, output=output))
            case _:
                pass

    def _message(self, message: Assistant) -> Iterator[bytes]:
        if self._open is None:
            self._open = self._coming or _Open(len(self._items))
            yield from self._begin_message(self._open.index, self._open.item(None, "in_progress"))
        now, self._open, self._heard = self._open, None, ""
        yield from self._piece(now.index, now.id, now.stream.said(message))
        item = now.item(message.text, "completed")
        self._items.append(item)
        yield from self._end_message(now.index, item, message.text)

    def _ended(self, ended: RunEnded) -> Iterator[bytes]:
        last = self.finish(ended)
        if self._open is not None:
            item = self._open.item(self._heard, "incomplete")
            yield from self._end_message(self._open.index, item, self._heard)
        yield self._frame(_LAST[last.status], response=last)

    def _add(self, item: CallItem | ResultItem) -> Iterator[bytes]:
        self._items.append(item)
        yield from self._item(len(self._items) - 1, item)

    def _item(self, index: int, item: CallItem | ResultItem) -> Iterator[bytes]:
        begun = structs.replace(item, status="in_progress")
        if not isinstance(begun, CallItem):
            yield self._frame("response.output_item.added", output_index=index, item=begun)
        else:
            call = structs.replace(begun, arguments="")
            where = {"output_index": index, "item_id": call.id}
            yield self._frame("response.output_item.added", output_index=index, item=call)
            arguments = begun.arguments
            yield self._frame("response.function_call_arguments.delta", **where, delta=arguments)
            yield self._frame(
                "response.function_call_arguments.done",
                **where,
                arguments=arguments,
                name=call.name,
            )
        yield self._frame("response.output_item.done", output_index=index, item=item)

    def _begin_message(self, index: int, item: MessageItem) -> Iterator[bytes]:
        yield self._frame("response.output_item.added", output_index=index, item=item)
        yield self._frame(
            "response.content_part.added",
            item_id=item.id,
            output_index=index,
            content_index=0,
            part=OutputText(text=""),
        )

    def _piece(self, index: int, item: str, text: str) -> Iterator[bytes]:
        if text:
            yield self._frame(
                "response.output_text.delta",
                item_id=item,
                output_index=index,
                content_index=0,
                delta=text,
                logprobs=[],
            )

    def _end_message(self, index: int, item: MessageItem, text: str) -> Iterator[bytes]:
        where = {"item_id": item.id, "output_index": index, "content_index": 0}
        yield self._frame("response.output_text.done", **where, text=text, logprobs=[])
        yield self._frame("response.content_part.done", **where, part=OutputText(text=text))
        yield self._frame("response.output_item.done", output_index=index, item=item)

    def _frame(self, kind: str, /, **fields: object) -> bytes:
        plain = ResponseEvent(type=kind, sequence_number=self._number)
        self._number += 1
        body = msgspec.json.encode(structs.replace(plain, **fields))
        return b"event: %b\ndata: %b\n\n" % (kind.encode(), body)


def said_something(response: ResponseObject) -> bool:
    return any(isinstance(item, MessageItem) and item.content for item in response.output)


def _call(call: ToolCall) -> CallItem:
    arguments = call.broken or bytes(call.args).decode("utf-8", "replace")
    return CallItem(id=new_id("fc"), call_id=call.id, name=call.name, arguments=arguments)


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
