"""Build an answer from streamed pieces, tolerating the quirks of providers."""

from collections.abc import Collection, Iterable, Mapping
from enum import Enum, auto
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Raw, Struct

from hermes.kit.ids import new_id
from hermes.models.json_repair import is_json, repair_json
from hermes.models.wire.codec import (
    MAX_ANSWER,
    TOO_LONG,
    InvalidChunk,
    StreamDelta,
    is_unknown_event,
    joined_deltas,
)
from hermes.schema.events import ReasoningDelta, TextDelta
from hermes.schema.messages import Assistant, Reasoning, Stop, Text, ToolCall, Usage

EMPTY_ARGUMENTS = Raw(b"{}")
MAX_CALLS = 128
MAX_ARGUMENTS = 4_000_000
"""Characters of arguments in one answer, for all its calls together."""
MAX_PARSED = 16 * MAX_ARGUMENTS
"""Characters parsed to check whether a call is complete, when every piece has a name."""

_Event = TypeVar("_Event")


class BlockKind(Enum):
    TEXT = auto()
    REASONING = auto()
    CALL = auto()


class Block:
    """`signature` is the provider's signature for reasoning, which must be sent back unchanged.

    `index` is the provider's number for a call, if it gives one.
    """

    __slots__ = ("id", "index", "kind", "name", "pieces", "signature")

    def __init__(
        self, kind: BlockKind, identity: str = "", name: str = "", index: int | None = None
    ) -> None:
        self.kind = kind
        self.id = identity
        self.name = name
        self.index = index
        self.pieces: list[str] = []
        self.signature = ""

    @property
    def text(self) -> str:
        return "".join(self.pieces)


class FunctionDelta(Struct):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class CallDelta(Struct):
    index: int | None = None
    id: str | None = None
    function: FunctionDelta | None = None


class CallBuilder(Struct):
    """Collects the pieces of calls by index, by id, or by order if the provider gives neither.

    Content beyond the limits is dropped, and `overflow` says so.
    """

    overflow: str = ""
    size: int = 0
    """Grows with every piece that adds content."""
    _calls: list[Block] = []
    _argument_size: int = 0
    _parsed: int = 0

    def add(self, piece: CallDelta) -> None:
        if self.overflow:
            return
        function = piece.function or FunctionDelta()
        call = self._call_for(piece, function.name or "")
        if call is None:
            self.overflow = f"more than {MAX_CALLS} calls"
            return
        call.id = call.id or piece.id or ""
        call.name = call.name or function.name or ""
        arguments = function.arguments
        if isinstance(arguments, dict):
            arguments = msgspec.json.encode(arguments).decode()
        if not arguments:
            return
        if self._argument_size + len(arguments) > MAX_ARGUMENTS:
            self.overflow = f"more than {MAX_ARGUMENTS:,} characters of arguments"
            return
        self._argument_size += len(arguments)
        self.size += len(arguments)
        call.pieces.append(arguments)

    def _call_for(self, piece: CallDelta, name: str) -> Block | None:
        found = self._find(piece, name)
        if found is not None and not (name and self._starts_new_call(found, piece)):
            return found
        if len(self._calls) >= MAX_CALLS:
            return None
        self._calls.append(Block(BlockKind.CALL, index=piece.index))
        self.size += 1
        return self._calls[-1]

    def _find(self, piece: CallDelta, name: str) -> Block | None:
        newest_first = reversed(self._calls)
        if piece.index is not None:
            return next((call for call in newest_first if call.index == piece.index), None)
        if piece.id:
            return next((call for call in newest_first if call.id == piece.id), None)
        return None if name else next(newest_first, None)

    def _starts_new_call(self, call: Block, piece: CallDelta) -> bool:
        """Some providers send every complete call under the same index."""
        if piece.id and call.id and piece.id != call.id:
            return True
        if piece.id or not (call.name and call.pieces) or self._parsed > MAX_PARSED:
            return False
        arguments = call.text
        self._parsed += len(arguments)
        return is_json(arguments)

    def finish(self, *, cut: bool) -> list[ToolCall]:
        """Return the calls in order. With `cut` the answer hit its limit: no repairs then."""
        taken: set[str] = set()
        return [
            _tool_call(call, taken, cut=cut) for call in self._calls if call.name or call.pieces
        ]


def _tool_call(block: Block, taken: set[str], *, cut: bool) -> ToolCall:
    identity = block.id if block.id and block.id not in taken else new_id("call")
    taken.add(identity)
    args, broken = parse_call_arguments(block.text.strip(), cut=cut)
    return ToolCall(identity, block.name or "unnamed", args, broken)


def parse_call_arguments(text: str, *, cut: bool) -> tuple[Raw, str]:
    """Return the model's own bytes if they are an object, or a repaired version."""
    if not text or text == "null":
        return EMPTY_ARGUMENTS, ""
    repaired = (text if is_json(text) else None) if cut else repair_json(text)
    if repaired is None:
        return EMPTY_ARGUMENTS, text
    if repaired.startswith("{"):
        return Raw(repaired.encode()), ""
    # Some providers encode the arguments twice.
    inner = msgspec.json.decode(repaired)
    if isinstance(inner, str) and inner.lstrip().startswith("{") and is_json(inner):
        return Raw(inner.strip().encode()), ""
    return EMPTY_ARGUMENTS, text


class BlockStream(Generic[_Event]):
    """Builds an answer from blocks, in the order in which they began.

    It implements most of `wire.codec.WireStream`; a wire format adds `_take`. Content beyond the
    limits is dropped, and `runaway` says so. Events of unknown types are ignored if
    `known_events` are given. Finish reasons that are not in `stops` are a normal end.
    """

    def __init__(
        self,
        decoder: msgspec.json.Decoder[_Event],
        stops: Mapping[str, Stop],
        known_events: Collection[str] = (),
    ) -> None:
        self._decoder = decoder
        self._stops = stops
        self._known_events = known_events
        self._blocks: list[Block] = []
        self._deltas: list[StreamDelta] = []
        self._length = 0
        self._argument_size = 0
        self._usage = Usage()
        self._refused = False
        self.finish_reason = ""
        self.ended = False
        self.size = 0
        self.runaway = ""

    def feed(self, batch: Iterable[bytes]) -> list[StreamDelta]:
        for data in batch:
            try:
                self._take(self._decoder.decode(data), data)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                if self._known_events and is_unknown_event(data, self._known_events):
                    continue
                raise InvalidChunk(str(error)) from error
        self.size = self._length + self._argument_size + len(self._blocks)
        if self._length > MAX_ANSWER:
            self.runaway = TOO_LONG
        deltas, self._deltas = self._deltas, []
        return joined_deltas(deltas)

    def finish(self, model: str, provider: str) -> tuple[list[StreamDelta], Assistant]:
        stop = self._stops.get(self.finish_reason) or (Stop.REFUSED if self._refused else None)
        if self.runaway:
            stop = Stop.LENGTH
        parts = self._parts(cut=stop is Stop.LENGTH)
        has_calls = any(isinstance(part, ToolCall) for part in parts)
        stop = stop or (Stop.TOOLS if has_calls else Stop.END)
        answer = Assistant(new_id("msg"), tuple(parts), stop, self._usage, model, provider)
        return joined_deltas(self._deltas), answer

    def _take(self, event: _Event, data: bytes) -> None:
        """Process an event; `data` is its encoded form."""
        raise NotImplementedError

    def _begin(self, kind: BlockKind, identity: str = "", name: str = "") -> Block:
        block = Block(kind, identity, name)
        if len(self._blocks) >= MAX_CALLS * 8:
            self.runaway = f"more than {MAX_CALLS * 8} blocks"
        elif kind is BlockKind.CALL and [b.kind for b in self._blocks].count(kind) >= MAX_CALLS:
            self.runaway = f"more than {MAX_CALLS} calls"
        else:
            self._blocks.append(block)
        return block

    def _append(self, block: Block, text: str) -> None:
        """Append text to a block; text and reasoning are also emitted as deltas."""
        if not text:
            return
        if block.kind is not BlockKind.CALL:
            room = MAX_ANSWER + 1 - self._length
            if len(text) > room:
                text = text[: max(room, 0)]
            self._length += len(text)
            if text:
                is_reasoning = block.kind is BlockKind.REASONING
                self._deltas.append(ReasoningDelta(text) if is_reasoning else TextDelta(text))
        elif self._argument_size + len(text) > MAX_ARGUMENTS:
            self.runaway = f"more than {MAX_ARGUMENTS:,} characters of arguments"
            return
        else:
            self._argument_size += len(text)
        block.pieces.append(text)

    def _sign(self, block: Block, signature: str) -> None:
        self._length += len(signature)
        if self._length <= MAX_ANSWER:
            block.signature = signature
        else:
            self.runaway = TOO_LONG

    def _set_text(self, block: Block, text: str) -> None:
        """Set the complete text of a block, emitting what was not streamed yet."""
        streamed = block.text
        if text.startswith(streamed):
            self._append(block, text[len(streamed) :])
        elif block.kind is BlockKind.CALL and text:
            self._argument_size -= len(streamed)
            block.pieces = []
            self._append(block, text)
        elif text:
            block.pieces = [text[:MAX_ANSWER]]

    def _parts(self, *, cut: bool) -> list[Text | Reasoning | ToolCall]:
        """With `cut` the answer hit its limit, so arguments are not repaired."""
        parts: list[Text | Reasoning | ToolCall] = []
        taken: set[str] = set()
        for block in self._blocks:
            match block.kind:
                case BlockKind.TEXT if text := block.text:
                    parts.append(Text(text))
                case BlockKind.REASONING if block.text or block.signature:
                    parts.append(Reasoning(block.text, block.signature or None))
                case BlockKind.CALL if block.name or block.pieces:
                    parts.append(_tool_call(block, taken, cut=cut))
                case _:
                    pass
        return parts
