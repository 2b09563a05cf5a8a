"""The events of a response stream: each item from its first sign to its last, numbered in order."""

from collections.abc import Iterator
from typing import assert_never

import msgspec
from msgspec import structs

from hermes.api.responses_wire import (
    CallItem,
    Item,
    MessageItem,
    OutputText,
    OwnCallItem,
    ResponseEvent,
    SummaryText,
    ThoughtItem,
)


class Frames:
    def __init__(self) -> None:
        self._number = 0

    def frame(self, kind: str, /, **fields: object) -> bytes:
        plain = ResponseEvent(type=kind, sequence_number=self._number)
        self._number += 1
        body = msgspec.json.encode(structs.replace(plain, **fields))
        return b"event: %b\ndata: %b\n\n" % (kind.encode(), body)

    def item(self, index: int, item: Item) -> Iterator[bytes]:
        """One that is there as a whole."""
        match item:
            case MessageItem():
                text = "".join(part.text for part in item.content)
                bare = structs.replace(item, status="in_progress", content=[])
                yield from self.begin_message(index, bare)
                yield from self.words(index, item.id, text)
                yield from self.end_message(index, item)
            case ThoughtItem():
                yield from self.begin_thought(index, structs.replace(item, summary=[]))
                yield from self.thought(index, item.id, item.text)
                yield from self.end_thought(index, item)
            case OwnCallItem():
                bare = structs.replace(item, status="in_progress", output=None, error=None)
                yield from self.begin_own(index, bare)
                yield from self.end_own(index, item)
            case CallItem():
                yield from self._call(index, item)
            case _:
                assert_never(item)

    def begin_message(self, index: int, item: MessageItem) -> Iterator[bytes]:
        where = {"item_id": item.id, "output_index": index, "content_index": 0}
        yield self._added(index, item)
        yield self.frame("response.content_part.added", **where, part=OutputText(text=""))

    def words(self, index: int, item: str, text: str) -> Iterator[bytes]:
        if text:
            where = {"item_id": item, "output_index": index, "content_index": 0}
            yield self.frame("response.output_text.delta", **where, delta=text, logprobs=[])

    def end_message(self, index: int, item: MessageItem) -> Iterator[bytes]:
        where = {"item_id": item.id, "output_index": index, "content_index": 0}
        text = "".join(part.text for part in item.content)
        yield self.frame("response.output_text.done", **where, text=text, logprobs=[])
        yield self.frame("response.content_part.done", **where, part=OutputText(text=text))
        yield self._done(index, item)

    def begin_thought(self, index: int, item: ThoughtItem) -> Iterator[bytes]:
        where = {"item_id": item.id, "output_index": index, "summary_index": 0}
        yield self._added(index, item)
        part = SummaryText(text="")
        yield self.frame("response.reasoning_summary_part.added", **where, part=part)

    def thought(self, index: int, item: str, text: str) -> Iterator[bytes]:
        if text:
            where = {"item_id": item, "output_index": index, "summary_index": 0}
            yield self.frame("response.reasoning_summary_text.delta", **where, delta=text)

    def end_thought(self, index: int, item: ThoughtItem) -> Iterator[bytes]:
        where = {"item_id": item.id, "output_index": index, "summary_index": 0}
        yield self.frame("response.reasoning_summary_text.done", **where, text=item.text)
        part = SummaryText(text=item.text)
        yield self.frame("response.reasoning_summary_part.done", **where, part=part)
        yield self._done(index, item)

    def begin_own(self, index: int, item: OwnCallItem) -> Iterator[bytes]:
        where = {"item_id": item.id, "output_index": index}
        yield self._added(index, structs.replace(item, arguments=""))
        yield self.frame("response.mcp_call.in_progress", **where)
        arguments = item.arguments
        yield self.frame("response.mcp_call_arguments.delta", **where, delta=arguments)
        yield self.frame("response.mcp_call_arguments.done", **where, arguments=arguments)

    def end_own(self, index: int, item: OwnCallItem) -> Iterator[bytes]:
        good = item.status == "completed"
        kind = "response.mcp_call.completed" if good else "response.mcp_call.failed"
        yield self.frame(kind, item_id=item.id, output_index=index)
        yield self._done(index, item)

    def _call(self, index: int, item: CallItem) -> Iterator[bytes]:
        where = {"output_index": index, "item_id": item.id}
        yield self._added(index, structs.replace(item, status="in_progress", arguments=""))
        kind, arguments = "response.function_call_arguments", item.arguments
        yield self.frame(f"{kind}.delta", **where, delta=arguments)
        yield self.frame(f"{kind}.done", **where, arguments=arguments, name=item.name)
        yield self._done(index, item)

    def _added(self, index: int, item: Item) -> bytes:
        return self.frame("response.output_item.added", output_index=index, item=item)

    def _done(self, index: int, item: Item) -> bytes:
        return self.frame("response.output_item.done", output_index=index, item=item)
