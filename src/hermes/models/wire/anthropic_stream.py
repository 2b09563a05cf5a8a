"""Decode Anthropic's message events into deltas and an answer."""

import msgspec
from msgspec import Raw, Struct

from hermes.models.wire.answer_builder import Block, BlockKind, BlockStream
from hermes.models.wire.codec import StreamDelta, StreamError, clamp_tokens
from hermes.schema.messages import Assistant, Stop, Usage

THINKING = "thinking"
REDACTED = "redacted_thinking"

_STOPS = {
    "max_tokens": Stop.LENGTH,
    "model_context_window_exceeded": Stop.LENGTH,
    "refusal": Stop.REFUSED,
}
_KNOWN_EVENTS = frozenset(
    {"message_start", "message_delta", "message_stop", "content_block_start",
     "content_block_delta", "content_block_stop", "message", "error"}
)  # fmt: skip


class Details(Struct):
    thinking_tokens: int | None = None


class WireUsage(Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    output_tokens_details: Details | None = None


class WireBlock(Struct):
    type: str = ""
    text: str = ""
    thinking: str = ""
    signature: str = ""
    data: str = ""
    id: str = ""
    name: str = ""
    input: Raw = Raw(b"{}")


class WireDelta(Struct):
    """The delta of a block or of the whole message, depending on the event type."""

    text: str | None = None
    thinking: str | None = None
    partial_json: str | None = None
    signature: str | None = None
    stop_reason: str | None = None


class WireMessage(Struct):
    usage: WireUsage | None = None


class StreamEvent(Struct):
    """Any event, or a whole message from a server that does not stream."""

    type: str = ""
    index: int = 0
    delta: WireDelta | None = None
    content_block: WireBlock | None = None
    message: WireMessage | None = None
    usage: WireUsage | None = None
    content: list[WireBlock] | None = None
    stop_reason: str | None = None


class ReasoningSignature(Struct, omit_defaults=True):
    """What is sent back with reasoning: its signature, or all of it if redacted."""

    type: str
    signature: str = ""
    data: str = ""


_DECODER = msgspec.json.Decoder(StreamEvent, strict=False)


class AnthropicStream(BlockStream[StreamEvent]):
    """Implements `wire.codec.WireStream`."""

    def __init__(self) -> None:
        super().__init__(_DECODER, _STOPS, _KNOWN_EVENTS)
        self._open: dict[int, Block] = {}
        self._signatures: dict[int, str] = {}
        self._totals = WireUsage()

    def _take(self, event: StreamEvent, data: bytes) -> None:
        match event.type:
            case "content_block_delta":
                if event.delta is not None:
                    self._add_delta(event.index, event.delta)
            case "content_block_start":
                self._open_block(event.index, event.content_block or WireBlock())
            case "content_block_stop":
                self._close_block(event.index)
            case "message_start":
                self._count(event.message and event.message.usage)
            case "message_delta":
                self._count(event.usage)
                self.finish_reason = (event.delta and event.delta.stop_reason) or self.finish_reason
            case "message_stop":
                self.finish_reason = self.finish_reason or "end_turn"
                self.ended = True
            case "message":
                self._message(event)
            case "error":
                raise StreamError(data)
            case _:
                return

    def _open_block(self, index: int, started: WireBlock) -> None:
        self._close_block(index)
        match started.type:
            case "text":
                block = self._begin(BlockKind.TEXT)
                self._append(block, started.text)
            case "thinking":
                block = self._begin(BlockKind.REASONING)
                self._append(block, started.thinking)
                self._signatures[index] = started.signature
            case "redacted_thinking":
                block = self._begin(BlockKind.REASONING)
                self._sign(block, _encoded(ReasoningSignature(REDACTED, data=started.data)))
            case "tool_use":
                block = self._begin(BlockKind.CALL, started.id, started.name)
                # In a stream the arguments begin empty and follow in pieces.
                arguments = bytes(started.input).decode()
                self._append(block, "" if arguments in {"{}", "null"} else arguments)
            case _:
                return
        self._open[index] = block

    def _add_delta(self, index: int, delta: WireDelta) -> None:
        if delta.text is not None:
            self._append(self._block(index, BlockKind.TEXT), delta.text)
        elif delta.partial_json is not None:
            self._append(self._block(index, BlockKind.CALL), delta.partial_json)
        elif delta.thinking is not None:
            self._append(self._block(index, BlockKind.REASONING), delta.thinking)
        elif delta.signature is not None:
            self._block(index, BlockKind.REASONING)
            self._signatures[index] = self._signatures.get(index, "") + delta.signature

    def _block(self, index: int, kind: BlockKind) -> Block:
        """Return the open block, or begin one if it is missing or of another kind."""
        block = self._open.get(index)
        if block is None or block.kind is not kind:
            block = self._open[index] = self._begin(kind)
        return block

    def _close_block(self, index: int) -> None:
        block = self._open.pop(index, None)
        signature = self._signatures.pop(index, "")
        if block is not None and signature:
            self._sign(block, _encoded(ReasoningSignature(THINKING, signature=signature)))

    def _count(self, usage: WireUsage | None) -> None:
        """Update the totals; missing counts stay unchanged."""
        for name in WireUsage.__struct_fields__ if usage else ():
            count = getattr(usage, name)
            if count is not None:
                setattr(self._totals, name, count)
        self._usage = usage_of(self._totals)

    def _message(self, event: StreamEvent) -> None:
        for index, block in enumerate(event.content or ()):
            self._open_block(index, block)
            self._close_block(index)
        self._count(event.usage)
        self.finish_reason = event.stop_reason or "end_turn"
        self.ended = True

    def finish(self, model: str, provider: str) -> tuple[list[StreamDelta], Assistant]:
        for index in list(self._open):
            self._close_block(index)
        return super().finish(model, provider)


def usage_of(wire: WireUsage) -> Usage:
    """Anthropic counts cached tokens separately from the input."""
    read = clamp_tokens(wire.cache_read_input_tokens)
    written = clamp_tokens(wire.cache_creation_input_tokens)
    return Usage(
        input=clamp_tokens(wire.input_tokens) + read + written,
        output=clamp_tokens(wire.output_tokens),
        cache_read=read,
        cache_write=written,
        reasoning=clamp_tokens((wire.output_tokens_details or Details()).thinking_tokens),
    )


def _encoded(signature: ReasoningSignature) -> str:
    return msgspec.json.encode(signature).decode()
