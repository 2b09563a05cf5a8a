"""OpenAI's stream of response events to deltas and one answer."""

from collections.abc import Iterable

import msgspec
from msgspec import Raw, Struct

from hermes.models.wire.chat_usage import sane
from hermes.models.wire.parts import Block, BlockStream, Kind, whole
from hermes.models.wire.stream import ErrorInStream, NotAChunk, is_foreign
from hermes.models.wire.told import StreamDelta
from hermes.schema.messages import Assistant, Stop, Usage

REASONING = "reasoning"

_KINDS = {"message": Kind.TEXT, REASONING: Kind.THOUGHT, "function_call": Kind.CALL}
_STOPS = {
    "completed": Stop.END,
    "max_output_tokens": Stop.LENGTH,
    "max_tokens": Stop.LENGTH,
    "content_filter": Stop.REFUSED,
}
_GROWING = {
    "response.output_text.delta": Kind.TEXT,
    "response.refusal.delta": Kind.TEXT,
    "response.function_call_arguments.delta": Kind.CALL,
    "response.reasoning_summary_text.delta": Kind.THOUGHT,
    "response.reasoning_text.delta": Kind.THOUGHT,
}


_KNOWN = frozenset(
    {
        *_GROWING,
        "response.output_item.added",
        "response.output_item.done",
        "response.reasoning_summary_part.added",
        "response.completed",
        "response.incomplete",
        "response.done",
        "response.failed",
        "response.cancelled",
        "error",
    }
)


class InputDetails(Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class OutputDetails(Struct):
    reasoning_tokens: int | None = None


class WireUsage(Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: InputDetails | None = None
    output_tokens_details: OutputDetails | None = None


class WirePart(Struct):
    type: str = ""
    text: str = ""
    refusal: str = ""


class WireItem(Struct):
    type: str = ""
    id: str | None = None
    content: list[WirePart] | None = None
    summary: list[WirePart] | None = None
    encrypted_content: str | None = None
    call_id: str | None = None
    name: str = ""
    arguments: str = ""


class Incomplete(Struct):
    reason: str = ""


class WireResponse(Struct):
    id: str | None = None
    object: str = ""
    status: str | None = None
    output: list[WireItem] | None = None
    usage: WireUsage | None = None
    error: Raw = Raw(b"null")
    incomplete_details: Incomplete | None = None


class Event(Struct):
    type: str = ""
    output_index: int | None = None
    item_id: str | None = None
    summary_index: int | None = None
    delta: str | None = None
    item: WireItem | None = None
    response: WireResponse | None = None


class SealedText(Struct, tag="summary_text"):
    text: str


class SealedItem(Struct, tag="reasoning"):
    """A thought as it must go back: only whoever encrypted it can read it again."""

    id: str
    summary: list[SealedText]
    encrypted_content: str


class ResponsesStream(BlockStream):
    """Implements `wire.stream.AnswerStream`."""

    def __init__(self, decoder: msgspec.json.Decoder[Event]) -> None:
        super().__init__()
        self._decoder = decoder
        self._items: dict[int | str, Block] = {}
        self._places: dict[int, int] = {}
        self._usage = Usage()
        self._refused = False
        self.response = ""
        """What the server calls the whole of it, once it is whole."""

    def feed(self, batch: Iterable[bytes]) -> list[StreamDelta]:
        for data in batch:
            try:
                event = self._decoder.decode(data)
                if not event.type:
                    self._whole(data)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                if is_foreign(data, _KNOWN):
                    continue
                raise NotAChunk(str(error)) from error
            kind = _GROWING.get(event.type)
            if kind is not None:
                self._refused |= event.type == "response.refusal.delta"
                self._parts.grow(self._block(event, kind), event.delta or "")
            elif event.type:
                self._take(event, data)
        return self._parts.take()

    def _take(self, event: Event, data: bytes) -> None:
        match event.type:
            case "response.output_item.added":
                if event.item is not None and event.item.type in _KINDS:
                    self._name(self._block(event, _KINDS[event.item.type]), event.item)
            case "response.output_item.done":
                if event.item is not None and event.item.type in _KINDS:
                    self._done(self._block(event, _KINDS[event.item.type]), event.item)
            case "response.reasoning_summary_part.added":
                block = self._block(event, Kind.THOUGHT)
                self._parts.grow(block, "\n\n" if block.pieces else "")
            case "response.completed" | "response.incomplete" | "response.done":
                self._finish(event.response or WireResponse())
            case "response.failed":
                raise ErrorInStream(_failure(event.response))
            case "response.cancelled":
                self.finish_reason = "abort"
                self.ended = True
            case "error":
                raise ErrorInStream(data)
            case _:
                return

    def _block(self, event: Event, kind: Kind) -> Block:
        """By its place; by its id only where no place is told, as some change the ids."""
        key = event.output_index
        name = (event.item_id or (event.item and event.item.id) or "") if key is None else key
        block = self._items.get(name)
        if block is None or block.kind is not kind:
            block = self._items[name] = self._parts.begin(kind)
            if key is not None:
                self._places[id(block)] = key
        return block

    def _name(self, block: Block, item: WireItem) -> None:
        block.id = block.id or item.call_id or ""
        block.name = block.name or item.name

    def _done(self, block: Block, item: WireItem) -> None:
        """The item as a whole: this is what counts."""
        self._name(block, item)
        match block.kind:
            case Kind.CALL:
                self._parts.settle(block, item.arguments)
            case Kind.TEXT:
                self._refused |= any(part.refusal for part in item.content or ())
                self._parts.settle(block, _text(item))
            case Kind.THOUGHT:
                self._parts.settle(block, _thought(item))
                if item.encrypted_content and not block.seal:
                    self._parts.seal(block, _sealed(item, item.encrypted_content))

    def _finish(self, response: WireResponse) -> None:
        for place, item in enumerate(response.output or ()):
            if item.type in _KINDS and place not in self._items and not self._has(item):
                event = Event(output_index=place)
                self._done(self._block(event, _KINDS[item.type]), item)
        if response.usage is not None:
            self._usage = usage_of(response.usage)
        self.response = response.id or ""
        reason = response.incomplete_details and response.incomplete_details.reason
        self.finish_reason = reason or "completed"
        self.ended = True

    def _has(self, item: WireItem) -> bool:
        """Whether it came already, without a place."""
        return bool(item.id) and item.id in self._items

    def _whole(self, data: bytes) -> None:
        """From a server that does not stream."""
        response = msgspec.json.decode(data, type=WireResponse, strict=False)
        if bytes(response.error) != b"null":
            raise ErrorInStream(_failure(response))
        if response.object == "response":
            self._finish(response)

    def answer(self, model: str, provider: str) -> Assistant:
        self._parts.reorder(self._places)
        told = _STOPS.get(self.finish_reason, Stop.END)
        if self._refused and told is Stop.END:
            told = Stop.REFUSED
        return whole(self._parts, told, self._usage, model, provider)


def usage_of(wire: WireUsage) -> Usage:
    sent = wire.input_tokens_details or InputDetails()
    return Usage(
        input=sane(wire.input_tokens or 0),
        output=sane(wire.output_tokens or 0),
        cache_read=sane(sent.cached_tokens or 0),
        cache_write=sane(sent.cache_write_tokens or 0),
        reasoning=sane((wire.output_tokens_details or OutputDetails()).reasoning_tokens or 0),
    )


def _text(item: WireItem) -> str:
    return "".join(part.text or part.refusal for part in item.content or ())


def _thought(item: WireItem) -> str:
    """What it thought, where that is shown; else its summary."""
    if item.content:
        return "".join(part.text for part in item.content)
    return "\n\n".join(part.text for part in item.summary or ())


def _sealed(item: WireItem, encrypted: str) -> str:
    summary = [SealedText(part.text) for part in item.summary or ()]
    return msgspec.json.encode(SealedItem(item.id or "", summary, encrypted)).decode()


def _failure(response: WireResponse | None) -> bytes:
    error = bytes(response.error) if response else b"null"
    return b'{"error":%b}' % (error if error != b"null" else b'{"message":"the response failed"}')
