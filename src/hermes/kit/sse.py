"""Parse and write server-sent events."""

from msgspec import Struct

LIMIT = 32 * 1024 * 1024
"""Maximum size of one event."""

_BOM = b"\xef\xbb\xbf"


class SseEvent(Struct, frozen=True, gc=False):
    data: bytes
    event: str = ""
    id: str = ""


class SseTooLong(ValueError):
    """An event is larger than the limit."""


class SseReader(Struct):
    """Incremental parser; comments and empty blocks are dropped."""

    limit: int = LIMIT
    _rest: bytearray = bytearray()
    _held_cr: bool = False
    _begun: bool = False

    def feed(self, data: bytes) -> list[SseEvent]:
        if self._held_cr or b"\r" in data:
            data = self._plain_line_ends(data)
        blocks: list[bytes] = []
        if self._begun and not self._rest and data.endswith(b"\n\n"):
            # Most reads contain whole events.
            blocks = data[:-2].split(b"\n\n")
        else:
            # Search new bytes only, so that a large event in small chunks stays cheap.
            searched = max(len(self._rest) - 1, 0)
            self._rest += data
            if not self._begun and self._rest:
                if len(self._rest) < len(_BOM) and _BOM.startswith(self._rest):
                    return []
                self._begun = True
                searched = 0
                self._rest = self._rest.removeprefix(_BOM)
            if self._rest.find(b"\n\n", searched) >= 0:
                *blocks, rest = bytes(self._rest).split(b"\n\n")
                self._rest = bytearray(rest)
            if len(self._rest) > self.limit:
                raise SseTooLong(f"an event is larger than {self.limit:,} bytes")
        events: list[SseEvent] = []
        for block in blocks:
            if block.startswith(b"data: ") and b"\n" not in block:
                # Most events are one line.
                events.append(SseEvent(block[6:]))
            elif (event := _parse(block)) is not None:
                events.append(event)
        return events

    def close(self) -> list[SseEvent]:
        """The last event of a stream without a final blank line."""
        rest, self._rest = bytes(self._rest), bytearray()
        event = _parse(rest)
        return [] if event is None else [event]

    def _plain_line_ends(self, data: bytes) -> bytes:
        """Normalize CR and CRLF to LF, even when split between two reads."""
        if self._held_cr:
            data = b"\r" + data
        self._held_cr = data.endswith(b"\r")
        if self._held_cr:
            data = data[:-1]
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def _parse(block: bytes) -> SseEvent | None:
    data: list[bytes] = []
    event = identity = ""
    for line in block.split(b"\n"):
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            data.append(value)
        elif field == b"event":
            event = value.decode("utf-8", "replace")
        elif field == b"id":
            identity = value.decode("utf-8", "replace")
    return SseEvent(b"\n".join(data), event, identity) if data else None


def frame(data: bytes, *, event: str = "", id: str = "") -> bytes:  # noqa: A002 - its name there
    """Encode one event."""
    head = (f"event: {event}\n" if event else "") + (f"id: {id}\n" if id else "")
    body = b"data: " + data.replace(b"\n", b"\ndata: ")
    return head.encode() + body + b"\n\n"
