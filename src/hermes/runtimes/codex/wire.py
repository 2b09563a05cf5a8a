"""JSON lines as they go to the app-server and come from it; whatever comes, reading goes on."""

import logging
from collections.abc import Iterator
from typing import TypeAlias

import msgspec
from msgspec import Raw, Struct

log = logging.getLogger(__name__)

LONGEST = 32 * 1024 * 1024
"""Bytes of one line; what is longer is let pass."""

Json: TypeAlias = dict[str, object]
Id: TypeAlias = int | str


class RpcError(Struct, frozen=True):
    message: str = ""
    code: int = 0
    data: object = None


class _Place(Struct, rename="camel"):
    thread_id: str | None = None
    conversation_id: str | None = None


class Incoming(Struct):
    """An answer has an id and no method, a request has both, a note only a method."""

    id: Id | None = None
    method: str = ""
    params: Raw = Raw(b"{}")
    result: Raw = Raw(b"null")
    error: RpcError | None = None

    @property
    def thread(self) -> str:
        """The thread that it is about; empty when it is about none."""
        try:
            place = msgspec.json.decode(self.params, type=_Place)
        except (msgspec.DecodeError, RecursionError):
            return ""
        return place.thread_id or place.conversation_id or ""


class Lines:
    """Cuts bytes into lines and keeps no more of one than is allowed."""

    def __init__(self, longest: int = LONGEST) -> None:
        self._longest = longest
        self._line = bytearray()
        self._size = 0
        self.dropped = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        *ends, rest = data.split(b"\n")
        for end in ends:
            self._add(end)
            line = bytes(self._line)
            too_long = self._size > self._longest
            self._line.clear()
            self._size = 0
            if too_long:
                self.dropped += 1
                log.warning("codex wrote a line of more than %d bytes; it was let pass", LONGEST)
            elif line.strip():
                yield line
        self._add(rest)

    def _add(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > self._longest:
            self._line.clear()
        else:
            self._line += piece


_decoder = msgspec.json.Decoder(Incoming)


def read(line: bytes) -> Incoming | None:
    """None for a line that is no message of the protocol."""
    try:
        message = _decoder.decode(line)
    except (msgspec.DecodeError, RecursionError):
        return None
    return message if message.method or message.id is not None else None


def request(number: int, method: str, params: Json) -> bytes:
    return _line({"id": number, "method": method, "params": params})


def note(method: str) -> bytes:
    return _line({"method": method})


def reply(number: Id, result: object) -> bytes:
    return _line({"id": number, "result": result})


def refusal(number: Id, message: str, code: int = -32601) -> bytes:
    return _line({"id": number, "error": {"code": code, "message": message}})


def _line(message: Json) -> bytes:
    return msgspec.json.encode(message) + b"\n"
