"""Assemble tool calls from streamed pieces, tolerating the quirks of providers."""

from typing import Any

import msgspec
from msgspec import Raw, Struct

from hermes.kit.ids import new_id
from hermes.models.json_repair import is_json, repair_json
from hermes.schema.messages import ToolCall

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
