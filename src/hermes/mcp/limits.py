"""Limit the size of a server's messages before they are parsed.

Parsing JSON blocks the interpreter, even in a thread, so messages that would take long are not
parsed at all.
"""

from typing import cast

import mcp_types as types

from hermes.schema.errors import ToolError

MAX_MESSAGE_BYTES = 16_000_000
"""Bytes of one message, such as an image or a document."""
MAX_VALUES = 100_000
"""JSON delimiters outside strings, each of which creates a value."""
MAX_ENTRIES = 10_000
"""Entries of lists and objects in a message that are processed one by one."""
WINDOW_SECONDS = 10.0
MAX_UNSOLICITED = 20_000
MAX_UNSOLICITED_BYTES = 4_000_000
"""Unsolicited messages within `WINDOW_SECONDS`."""
RESPONSE_HAS_TOO_MANY_VALUES = (
    f"its answer has more than {MAX_VALUES:,} values and was not read: request less"
)
RESPONSE_HAS_TOO_MANY_PARTS = "its answer has too many parts to process: request less"
MESSAGE_HAS_TOO_MANY_VALUES = f"it sent a message with more than {MAX_VALUES:,} values"
MESSAGE_TOO_LARGE = f"it sent a message of more than {MAX_MESSAGE_BYTES // 1_000_000} MB"
TOO_MUCH_UNSOLICITED = "it sent too many unsolicited messages"
_FREE_FORM_FIELDS = frozenset(
    {"structuredContent", "inputSchema", "outputSchema", "requestedSchema", "_meta"}
)
_JSON_TOKENS = (b"{", b"[", b",", b":")


class LimitExceeded(ToolError):
    """A server exceeded a limit."""


class MessageSize:
    """Counts the size and values of one message as it arrives."""

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
        # A remaining backslash escapes the character after it.
        data = data.replace(b"\\\\", b"")
        self._escaped = data.endswith(b"\\")
        pieces = data.replace(b'\\"', b"").split(b'"')
        outside = b"".join(pieces[1 if self._in_text else 0 :: 2])
        self.values += sum(map(outside.count, _JSON_TOKENS))
        self._in_text ^= not len(pieces) % 2

    def end_line(self) -> None:
        """End a line: JSON strings do not span lines, so a lone quote cannot hide anything."""
        self._in_text = self._escaped = False


class UnsolicitedLimit:
    """Limits unsolicited messages; a server that exceeds it is disconnected."""

    def __init__(self, max_bytes: int = MAX_UNSOLICITED_BYTES) -> None:
        self._max_bytes = max_bytes
        self._began = 0.0
        self._count = 0
        self._size = 0

    def count(self, size: int, now: float) -> None:
        """Count one message. Raises `LimitExceeded`."""
        if now - self._began > WINDOW_SECONDS:
            self._began, self._count, self._size = now, 0, 0
        self._count += 1
        self._size += size
        if self._count > MAX_UNSOLICITED or self._size > self._max_bytes:
            raise LimitExceeded(TOO_MUCH_UNSOLICITED)


def without_costly_parts(message: types.JSONRPCMessage) -> types.JSONRPCMessage:
    """Drop parts that are expensive to process and not needed.

    The SDK would match answers against patterns in `outputSchema`, which may never end. Raises
    `LimitExceeded` for oversized unsolicited messages.
    """
    match message:
        case types.JSONRPCResponse(id=id_, result=result):
            if _has_too_many_parts(result):
                return error_response(id_, RESPONSE_HAS_TOO_MANY_PARTS)
            _drop_output_schemas(result.get("tools"))
        case types.JSONRPCError(id=id_, error=error):
            if _has_too_many_parts(error.data):
                return types.JSONRPCError(
                    jsonrpc="2.0", id=id_, error=error.model_copy(update={"data": None})
                )
        case types.JSONRPCRequest(params=params) | types.JSONRPCNotification(params=params):
            if _has_too_many_parts(params):
                raise LimitExceeded(TOO_MUCH_UNSOLICITED)
    return message


def _has_too_many_parts(value: object) -> bool:
    """Free-form fields are not processed and may be longer."""
    count, left = 0, [value]
    while left and count <= MAX_ENTRIES:
        current = left.pop()
        entries = _entries_of(current)
        inside: list[object] = [entry for entry in entries if isinstance(entry, (dict, list))]
        count += len(inside) + (len(entries) if isinstance(current, list) else 0)
        left += inside
    return count > MAX_ENTRIES


def _entries_of(value: object) -> list[object]:
    if isinstance(value, list):
        return cast("list[object]", value)
    if isinstance(value, dict):
        fields = cast("dict[str, object]", value)
        return [field for name, field in fields.items() if name not in _FREE_FORM_FIELDS]
    return []


def _drop_output_schemas(tools: object) -> None:
    for tool in cast("list[object]", tools) if isinstance(tools, list) else []:
        if isinstance(tool, dict):
            cast("dict[str, object]", tool).pop("outputSchema", None)


def error_response(request: types.RequestId, reason: str) -> types.JSONRPCError:
    """Return an error in place of the answer to a pending request."""
    error = types.ErrorData(code=types.INTERNAL_ERROR, message=reason)
    return types.JSONRPCError(jsonrpc="2.0", id=request, error=error)
