"""How much a server may say: counted before anything is built of it, for that is what costs.

Whatever reads JSON holds the interpreter meanwhile, also in a thread: what would take long to read
is not read at all.
"""

from typing import cast

import mcp_types as types

from hermes.schema.errors import ToolError

MAX_MESSAGE_BYTES = 16_000_000
"""Bytes of one message: a picture, or a document."""
MAX_VALUES = 100_000
"""Signs of JSON between its texts, each of which makes a value."""
MAX_ENTRIES = 10_000
"""Of lists in a message, and what they hold, where each is looked at by itself."""
WINDOW_SECONDS = 10.0
MAX_UNSOLICITED = 20_000
MAX_UNSOLICITED_BYTES = 4_000_000
"""Of what nobody asked for, in `SPAN` seconds."""
RESPONSE_HAS_TOO_MANY_VALUES = (
    f"its answer has more than {MAX_VALUES:,} values and was not read: ask it for less"
)
RESPONSE_HAS_TOO_MANY_PARTS = "its answer has too many parts to be looked at: ask it for less"
MESSAGE_HAS_TOO_MANY_VALUES = f"it sent a message with more than {MAX_VALUES:,} values"
MESSAGE_TOO_LARGE = f"it sent a message of more than {MAX_MESSAGE_BYTES // 1_000_000} MB"
TOO_MUCH_UNSOLICITED = "it said too much that nobody had asked for"
_FREE_FORM_FIELDS = frozenset(
    {"structuredContent", "inputSchema", "outputSchema", "requestedSchema", "_meta"}
)
_JSON_SIGNS = (b"{", b"[", b",", b":")


class LimitExceeded(ToolError):
    """More than anybody can be made to listen to."""


class MessageSize:
    """Of one message, as it comes."""

    def __init__(self) -> None:
        self.size = 0
        self.values = 0
        self._in_text = False
        self._escaped = False

    @property
    def has_too_many_values(self) -> bool:
        return self.values > MAX_VALUES

    def add(self, data: bytes) -> None:
        self.size += len(data)
        if self.has_too_many_values or not data:
            return
        if self._escaped:
            data = data[1:]
        # What is left of a row of backslashes stands for the sign behind it.
        data = data.replace(b"\\\\", b"")
        self._escaped = data.endswith(b"\\")
        pieces = data.replace(b'\\"', b"").split(b'"')
        outside = b"".join(pieces[1 if self._in_text else 0 :: 2])
        self.values += sum(map(outside.count, _JSON_SIGNS))
        self._in_text ^= not len(pieces) % 2

    def end_line(self) -> None:
        """No text of JSON goes on in another line, so nothing can be hidden by a lone quote."""
        self._in_text = self._escaped = False


class UnsolicitedLimit:
    """What comes although nobody has asked; a server that talks without end is let go."""

    def __init__(self, most_bytes: int = MAX_UNSOLICITED_BYTES) -> None:
        self._most_bytes = most_bytes
        self._began = 0.0
        self._count = 0
        self._size = 0

    def hear(self, size: int, now: float) -> None:
        """Raises `TooMuch` beyond all reason."""
        if now - self._began > WINDOW_SECONDS:
            self._began, self._count, self._size = now, 0, 0
        self._count += 1
        self._size += size
        if self._count > MAX_UNSOLICITED or self._size > self._most_bytes:
            raise LimitExceeded(TOO_MUCH_UNSOLICITED)


def without_costly_parts(message: types.JSONRPCMessage) -> types.JSONRPCMessage:
    """Without what would take long to look at, and is of no use here.

    Answers would be compared with the patterns of `outputSchema`, which may never end. Raises
    `TooMuch` for what nobody waits for.
    """
    match message:
        case types.JSONRPCResponse(id=asked, result=result):
            if _has_too_many_parts(result):
                return error_response(asked, RESPONSE_HAS_TOO_MANY_PARTS)
            _drop_output_schemas(result.get("tools"))
        case types.JSONRPCError(id=asked, error=error):
            if _has_too_many_parts(error.data):
                return types.JSONRPCError(
                    jsonrpc="2.0", id=asked, error=error.model_copy(update={"data": None})
                )
        case types.JSONRPCRequest(params=params) | types.JSONRPCNotification(params=params):
            if _has_too_many_parts(params):
                raise LimitExceeded(TOO_MUCH_UNSOLICITED)
    return message


def _has_too_many_parts(value: object) -> bool:
    """Only what is free in form, and so is not looked at, may be longer."""
    count, left = 0, [value]
    while left and count <= MAX_ENTRIES:
        one = left.pop()
        held = _entries_of(one)
        inside: list[object] = [each for each in held if isinstance(each, (dict, list))]
        count += len(inside) + (len(held) if isinstance(one, list) else 0)
        left += inside
    return count > MAX_ENTRIES


def _entries_of(value: object) -> list[object]:
    if isinstance(value, list):
        return cast("list[object]", value)
    if isinstance(value, dict):
        fields = cast("dict[str, object]", value)
        return [one for name, one in fields.items() if name not in _FREE_FORM_FIELDS]
    return []


def _drop_output_schemas(tools: object) -> None:
    for tool in cast("list[object]", tools) if isinstance(tools, list) else []:
        if isinstance(tool, dict):
            cast("dict[str, object]", tool).pop("outputSchema", None)


def error_response(asked: types.RequestId, why: str) -> types.JSONRPCError:
    """For whoever waits, in place of the answer."""
    error = types.ErrorData(code=types.INTERNAL_ERROR, message=why)
    return types.JSONRPCError(jsonrpc="2.0", id=asked, error=error)
