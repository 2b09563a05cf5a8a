"""Calls that a channel receives over HTTP, their responses and rejections."""

from collections.abc import Mapping

from msgspec import Struct


class HttpCall(Struct, frozen=True, kw_only=True):
    """One request as received; header names are in lower case, `body` is unchanged."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes


class CallResponse(Struct, frozen=True):
    """A response; an object is sent as JSON, text unchanged."""

    status: int = 200
    body: Mapping[str, object] | str = ""
    wait: int = 0
    """Seconds for Retry-After; 0 omits the header."""
    media_type: str = "text/plain"
    """The content type of a text."""


class CallRejected(Exception):
    """A rejected call; `code` is for programs, the message for people."""

    def __init__(self, status: int, code: str, message: str, *, wait: int = 0) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.wait = wait

    @property
    def answer(self) -> CallResponse:
        error = {"code": self.code, "message": str(self)}
        return CallResponse(self.status, {"error": error}, self.wait)
