"""Decode OpenAI's response events into deltas and an answer."""

import msgspec
from msgspec import Raw, Struct

from hermes.models.wire.answer_builder import Block, BlockKind, BlockStream
from hermes.models.wire.codec import StreamDelta, StreamError, clamp_tokens
from hermes.schema.messages import Assistant, Stop, Usage

_ITEM_KINDS = {
    "message": BlockKind.TEXT,
    "reasoning": BlockKind.REASONING,
    "function_call": BlockKind.CALL,
}
_STOPS = {
    "max_output_tokens": Stop.LENGTH,
    "max_tokens": Stop.LENGTH,
    "content_filter": Stop.REFUSED,
}
_DELTA_KINDS = {
    "response.output_text.delta": BlockKind.TEXT,
    "response.refusal.delta": BlockKind.TEXT,
    "response.function_call_arguments.delta": BlockKind.CALL,
    "response.reasoning_summary_text.delta": BlockKind.REASONING,
    "response.reasoning_text.delta": BlockKind.REASONING,
}
_KNOWN_EVENTS = frozenset(
    {*_DELTA_KINDS, "response.output_item.added", "response.output_item.done",
     "response.reasoning_summary_part.added", "response.completed", "response.incomplete",
     "response.done", "response.failed", "response.cancelled", "error"}
)  # fmt: skip
_LAST_POSITION = 1 << 62


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


class StreamEvent(Struct):
    type: str = ""
    output_index: int | None = None
    item_id: str | None = None
    summary_index: int | None = None
    delta: str | None = None
    item: WireItem | None = None
    response: WireResponse | None = None


class ReasoningSummary(Struct, tag="summary_text"):
    text: str


class EncryptedReasoning(Struct, tag="reasoning"):
    """Reasoning as it is sent back: only the provider that encrypted it can read it."""

    id: str
    summary: list[ReasoningSummary]
    encrypted_content: str


_DECODER = msgspec.json.Decoder(StreamEvent, strict=False)


class ResponsesStream(BlockStream[StreamEvent]):
    """Implements `wire.codec.WireStream`."""

    def __init__(self) -> None:
        super().__init__(_DECODER, _STOPS, _KNOWN_EVENTS)
        self._items: dict[int | str, Block] = {}
        self._positions: dict[int, int] = {}
        self.response = ""
        """The id of the response, once it is complete."""

    def _take(self, event: StreamEvent, data: bytes) -> None:
        kind = _DELTA_KINDS.get(event.type)
        if kind is not None:
            self._refused |= event.type == "response.refusal.delta"
            self._append(self._block(event, kind), event.delta or "")
        elif event.item is not None:
            self._take_item(event, event.item)
        else:
            self._take_other(event, data)

    def _take_item(self, event: StreamEvent, item: WireItem) -> None:
        if event.type.startswith("response.output_item.") and item.type in _ITEM_KINDS:
            block = self._block(event, _ITEM_KINDS[item.type])
            if event.type == "response.output_item.done":
                self._complete(block, item)
            else:
                self._name(block, item)

    def _take_other(self, event: StreamEvent, data: bytes) -> None:
        match event.type:
            case "":
                self._read_whole(data)
            case "response.reasoning_summary_part.added":
                block = self._block(event, BlockKind.REASONING)
                self._append(block, "\n\n" if block.pieces else "")
            case "response.completed" | "response.incomplete" | "response.done":
                self._finish(event.response or WireResponse())
            case "response.failed":
                raise StreamError(_failure(event.response))
            case "response.cancelled":
                self.finish_reason = "abort"
                self.ended = True
            case "error":
                raise StreamError(data)
            case _:
                return

    def _block(self, event: StreamEvent, kind: BlockKind) -> Block:
        """Find a block by index, or by id without an index, since some servers change the ids."""
        key = event.output_index
        name = (event.item_id or (event.item and event.item.id) or "") if key is None else key
        block = self._items.get(name)
        if block is None or block.kind is not kind:
            block = self._items[name] = self._begin(kind)
            if key is not None:
                self._positions[id(block)] = key
        return block

    def _name(self, block: Block, item: WireItem) -> None:
        block.id = block.id or item.call_id or ""
        block.name = block.name or item.name

    def _complete(self, block: Block, item: WireItem) -> None:
        """Apply the complete item, which is authoritative."""
        self._name(block, item)
        match block.kind:
            case BlockKind.CALL:
                self._set_text(block, item.arguments)
            case BlockKind.TEXT:
                self._refused |= any(part.refusal for part in item.content or ())
                text = "".join(part.text or part.refusal for part in item.content or ())
                self._set_text(block, text)
            case BlockKind.REASONING:
                self._set_text(block, _reasoning_text(item))
                if item.encrypted_content and not block.signature:
                    self._sign(block, _encrypted_reasoning(item, item.encrypted_content))

    def _finish(self, response: WireResponse) -> None:
        for index, item in enumerate(response.output or ()):
            # Some servers send items without an index.
            is_known = index in self._items or (bool(item.id) and item.id in self._items)
            if item.type in _ITEM_KINDS and not is_known:
                event = StreamEvent(output_index=index)
                self._complete(self._block(event, _ITEM_KINDS[item.type]), item)
        if response.usage is not None:
            self._usage = usage_of(response.usage)
        self.response = response.id or ""
        reason = response.incomplete_details and response.incomplete_details.reason
        self.finish_reason = reason or "completed"
        self.ended = True

    def _read_whole(self, data: bytes) -> None:
        """Handle a whole response from a server that does not stream."""
        response = msgspec.json.decode(data, type=WireResponse, strict=False)
        if bytes(response.error) != b"null":
            raise StreamError(_failure(response))
        if response.object == "response":
            self._finish(response)

    def finish(self, model: str, provider: str) -> tuple[list[StreamDelta], Assistant]:
        """Sort the blocks by the provider's positions; those without one come last."""
        self._blocks.sort(key=lambda block: self._positions.get(id(block), _LAST_POSITION))
        return super().finish(model, provider)


def usage_of(wire: WireUsage) -> Usage:
    sent = wire.input_tokens_details or InputDetails()
    return Usage(
        input=clamp_tokens(wire.input_tokens),
        output=clamp_tokens(wire.output_tokens),
        cache_read=clamp_tokens(sent.cached_tokens),
        cache_write=clamp_tokens(sent.cache_write_tokens),
        reasoning=clamp_tokens((wire.output_tokens_details or OutputDetails()).reasoning_tokens),
    )


def _reasoning_text(item: WireItem) -> str:
    """Return the reasoning, or its summary if it is hidden."""
    if item.content:
        return "".join(part.text for part in item.content)
    return "\n\n".join(part.text for part in item.summary or ())


def _encrypted_reasoning(item: WireItem, encrypted: str) -> str:
    summary = [ReasoningSummary(part.text) for part in item.summary or ()]
    return msgspec.json.encode(EncryptedReasoning(item.id or "", summary, encrypted)).decode()


def _failure(response: WireResponse | None) -> bytes:
    error = bytes(response.error) if response else b"null"
    return b'{"error":%b}' % (error if error != b"null" else b'{"message":"the response failed"}')
