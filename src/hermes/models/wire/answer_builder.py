"""Assemble tool calls from streamed pieces, tolerating the quirks of providers."""

from enum import Enum, auto
from typing import Any, TypeAlias

import msgspec
from msgspec import Raw, Struct

from hermes.kit.ids import new_id
from hermes.models.json_repair import is_json, repair_json
from hermes.models.wire.stream import MAX_ANSWER, DeltaBuffer, StreamDelta
from hermes.schema.messages import Assistant, Reasoning, Stop, Text, ToolCall, Usage

EMPTY_ARGUMENTS = Raw(b"{}")

MAX_CALLS = 128
MAX_ARGUMENTS = 4_000_000
"""Characters of arguments in one answer, for all its calls together."""
MAX_PARSED = 16 * MAX_ARGUMENTS
"""Characters parsed to check whether a call is complete, when every piece has a name."""


class FunctionDelta(Struct):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class CallDelta(Struct):
    index: int | None = None
    id: str | None = None
    function: FunctionDelta | None = None


class _PartialCall:
    __slots__ = ("id", "index", "name", "pieces")

    def __init__(self, index: int | None) -> None:
        self.index = index
        self.id = ""
        self.name = ""
        self.pieces: list[str] = []

    @property
    def arguments(self) -> str:
        return "".join(self.pieces)


class CallBuilder:
    """Collects pieces by index, by id, or by order if the provider gives neither.

    Content beyond the limits is dropped, and `overflow` says so.
    """

    def __init__(self) -> None:
        self._slots: list[_PartialCall] = []
        self._size = 0
        self._parsed = 0
        self.overflow = ""

    @property
    def size(self) -> int:
        """Grows with every piece that adds content."""
        return self._size + len(self._slots)

    def add(self, piece: CallDelta) -> None:
        if self.overflow:
            return
        function = piece.function or FunctionDelta()
        slot = self._slot_for(piece, function.name or "")
        if slot is None:
            self.overflow = f"more than {MAX_CALLS} calls"
            return
        slot.id = slot.id or piece.id or ""
        slot.name = slot.name or function.name or ""
        match function.arguments:
            case None | "":
                return
            case str():
                self._take(slot, function.arguments)
            case _:
                self._take(slot, msgspec.json.encode(function.arguments).decode())

    def _take(self, slot: _PartialCall, arguments: str) -> None:
        if self._size + len(arguments) > MAX_ARGUMENTS:
            self.overflow = f"more than {MAX_ARGUMENTS:,} characters of arguments"
            return
        self._size += len(arguments)
        slot.pieces.append(arguments)

    def _slot_for(self, piece: CallDelta, name: str) -> _PartialCall | None:
        found = self._find_slot(piece, name)
        if found is not None and not (name and self._starts_new_call(found, piece)):
            return found
        if len(self._slots) >= MAX_CALLS:
            return None
        slot = _PartialCall(piece.index)
        self._slots.append(slot)
        return slot

    def _find_slot(self, piece: CallDelta, name: str) -> _PartialCall | None:
        newest_first = reversed(self._slots)
        if piece.index is not None:
            return next((slot for slot in newest_first if slot.index == piece.index), None)
        if piece.id:
            return next((slot for slot in newest_first if slot.id == piece.id), None)
        return None if name else next(newest_first, None)

    def _starts_new_call(self, slot: _PartialCall, piece: CallDelta) -> bool:
        """Some providers send every complete call under the same index."""
        if piece.id and slot.id and piece.id != slot.id:
            return True
        if piece.id or not (slot.name and slot.pieces) or self._parsed > MAX_PARSED:
            return False
        arguments = slot.arguments
        self._parsed += len(arguments)
        return is_json(arguments)

    def finish(self, *, cut: bool) -> list[ToolCall]:
        """Return the calls in order. With `cut` the answer hit its limit: no repairs then."""
        calls: list[ToolCall] = []
        taken: set[str] = set()
        for slot in self._slots:
            if not slot.name and not slot.pieces:
                continue
            identity = slot.id if slot.id and slot.id not in taken else new_id("call")
            taken.add(identity)
            args, broken = parse_call_arguments(slot.arguments.strip(), cut=cut)
            calls.append(ToolCall(identity, slot.name or "unnamed", args, broken))
        return calls


def parse_call_arguments(text: str, *, cut: bool) -> tuple[Raw, str]:
    """Return the model's own bytes if they are an object, else a repaired version."""
    if not text or text == "null":
        return EMPTY_ARGUMENTS, ""
    repaired = (text if is_json(text) else None) if cut else repair_json(text)
    if repaired is None:
        return EMPTY_ARGUMENTS, text
    if repaired.startswith("{"):
        return Raw(repaired.encode()), ""
    return _unwrapped(repaired, text)


def _unwrapped(repaired: str, text: str) -> tuple[Raw, str]:
    """Some providers encode the arguments twice."""
    inner = msgspec.json.decode(repaired)
    if isinstance(inner, str) and inner.lstrip().startswith("{") and is_json(inner):
        return Raw(inner.strip().encode()), ""
    return EMPTY_ARGUMENTS, text


_LAST_POSITION = 1 << 62

AnswerPart: TypeAlias = Text | Reasoning | ToolCall


class BlockKind(Enum):
    TEXT = auto()
    REASONING = auto()
    CALL = auto()


class Block:
    """`signature` is the provider's signature for reasoning, which must be sent back unchanged."""

    __slots__ = ("id", "kind", "name", "pieces", "signature")

    def __init__(self, kind: BlockKind, identity: str = "", name: str = "") -> None:
        self.kind = kind
        self.id = identity
        self.name = name
        self.pieces: list[str] = []
        self.signature = ""

    @property
    def text(self) -> str:
        return "".join(self.pieces)


class AnswerBuilder:
    """The blocks of one answer. Content beyond the limits is dropped, and `runaway` says so."""

    def __init__(self) -> None:
        self._blocks: list[Block] = []
        self._deltas = DeltaBuffer()
        self._argument_size = 0
        self._overflow = ""
        self._length = 0

    @property
    def size(self) -> int:
        return self._length + self._argument_size + len(self._blocks)

    @property
    def runaway(self) -> str:
        if self._length > MAX_ANSWER:
            return f"more than {MAX_ANSWER:,} characters"
        return self._overflow

    def begin(self, kind: BlockKind, identity: str = "", name: str = "") -> Block:
        block = Block(kind, identity, name)
        if len(self._blocks) >= MAX_CALLS * 8:
            self._overflow = f"more than {MAX_CALLS * 8} blocks"
        elif kind is BlockKind.CALL and self.calls >= MAX_CALLS:
            self._overflow = f"more than {MAX_CALLS} calls"
        else:
            self._blocks.append(block)
        return block

    @property
    def calls(self) -> int:
        return sum(block.kind is BlockKind.CALL for block in self._blocks)

    @property
    def last(self) -> Block | None:
        return self._blocks[-1] if self._blocks else None

    def append(self, block: Block, text: str) -> None:
        """Append text to a block; text and reasoning are also emitted as deltas."""
        if not text:
            return
        if block.kind is BlockKind.CALL:
            self._add_arguments(block, text)
            return
        text = text[: max(MAX_ANSWER + 1 - self._length, 0)]
        self._length += len(text)
        block.pieces.append(text)
        self._deltas.add(text, reasoning=block.kind is BlockKind.REASONING)

    def _add_arguments(self, block: Block, text: str) -> None:
        if self._argument_size + len(text) > MAX_ARGUMENTS:
            self._overflow = f"more than {MAX_ARGUMENTS:,} characters of arguments"
            return
        self._argument_size += len(text)
        block.pieces.append(text)

    def sign(self, block: Block, signature: str) -> None:
        self._length += len(signature)
        if self._length <= MAX_ANSWER:
            block.signature = signature

    def set_text(self, block: Block, text: str) -> None:
        """Set the complete text of a block, emitting what was not streamed yet."""
        streamed = block.text
        if text.startswith(streamed):
            self.append(block, text[len(streamed) :])
        elif block.kind is BlockKind.CALL and text:
            self._argument_size -= len(streamed)
            block.pieces = []
            self._add_arguments(block, text)
        elif text:
            block.pieces = [text[:MAX_ANSWER]]

    def reorder(self, positions: dict[int, int]) -> None:
        """Sort by the positions the provider gives (by `id` of a block); the others come last."""
        self._blocks.sort(key=lambda block: positions.get(id(block), _LAST_POSITION))

    def take_deltas(self) -> list[StreamDelta]:
        return self._deltas.take()

    def finish(self, *, cut: bool) -> list[AnswerPart]:
        """Return the parts. With `cut` the answer hit its limit, so arguments are not repaired."""
        parts: list[AnswerPart] = []
        taken: set[str] = set()
        for block in self._blocks:
            text = block.text
            match block.kind:
                case BlockKind.TEXT if text:
                    parts.append(Text(text))
                case BlockKind.REASONING if text or block.signature:
                    parts.append(Reasoning(text, block.signature or None))
                case BlockKind.CALL if block.name or block.pieces:
                    parts.append(_call(block, text, taken, cut=cut))
                case _:
                    pass
        return parts


class BlockStream:
    """Base class of the decoders for streams of blocks."""

    def __init__(self) -> None:
        self._builder = AnswerBuilder()
        self.finish_reason = ""
        self.ended = False

    @property
    def size(self) -> int:
        return self._builder.size

    @property
    def runaway(self) -> str:
        return self._builder.runaway

    def close(self) -> list[StreamDelta]:
        return self._builder.take_deltas()


def _call(block: Block, text: str, taken: set[str], *, cut: bool) -> ToolCall:
    identity = block.id if block.id and block.id not in taken else new_id("call")
    taken.add(identity)
    args, broken = parse_call_arguments(text.strip(), cut=cut)
    return ToolCall(identity, block.name or "unnamed", args, broken)


def build_answer(
    builder: AnswerBuilder, stop_reason: Stop, usage: Usage, model: str, provider: str
) -> Assistant:
    """Build the answer; the calls in it decide between `END` and `TOOLS`."""
    cut = bool(builder.runaway) or stop_reason is Stop.LENGTH
    finished = builder.finish(cut=cut)
    stop = Stop.LENGTH if cut else stop_reason
    if stop in {Stop.END, Stop.TOOLS}:
        has_calls = any(isinstance(part, ToolCall) for part in finished)
        stop = Stop.TOOLS if has_calls else Stop.END
    return Assistant(new_id("msg"), tuple(finished), stop, usage, model, provider)
