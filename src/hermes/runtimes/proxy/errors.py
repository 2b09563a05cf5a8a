"""Convert the remote gateway's errors into a `ModelError` with a message and a hint."""

import os
from typing import Any, cast

import aiohttp
import msgspec

from hermes.kit.json_errors import JSON_ERRORS
from hermes.kit.redact import Redactor
from hermes.kit.text import one_line
from hermes.schema.errors import (
    BadRequest,
    ModelError,
    Overloaded,
    RateLimited,
    Unauthorized,
    Unreachable,
    UsageError,
)

KEY_VARIABLE = "GATEWAY_PROXY_KEY"
URL_VARIABLE = "GATEWAY_PROXY_URL"
MAX_QUOTED = 300
"""Characters of the remote gateway's own messages to show."""
MAX_ERROR_BODY = 64 * 1024
"""Bytes to read of an error body."""


class LinkBroken(Exception):
    """The connection failed or broke."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause) or type(cause).__name__)
        self.cause = cause


def request_rejected(status: int, body: bytes, key: str) -> ModelError:
    kind, hint = _error_for_status(status)
    return kind(f"⚠️ Proxy error ({status}): {_quoted_message(body, key)}.", hint=hint)


def stream_error(body: bytes, key: str) -> ModelError:
    return Overloaded(f"⚠️ Proxy error: {_quoted_message(body, key)}.", hint="Try again.")


def roles_unsupported() -> ModelError:
    """An old gateway would treat every user as its owner."""
    return BadRequest(
        "The remote gateway does not support roles, so only the owner can use it.",
        hint="Update the remote gateway.",
    )


def connection_error(error: Exception, read: float, key: str) -> ModelError:
    hint = f"Check {URL_VARIABLE} and that the remote gateway is running."
    match error:
        case aiohttp.ConnectionTimeoutError():
            problem = "the remote gateway did not accept a connection in time"
        case aiohttp.ServerTimeoutError() | TimeoutError():
            problem, hint = f"the remote gateway sent nothing for {read:g} s", "Try again."
        case aiohttp.ClientConnectorDNSError():
            problem = "the remote gateway's host cannot be resolved"
        case aiohttp.ClientConnectorError():
            problem = (
                f"cannot connect: {os.strerror(error.errno) if error.errno else error.strerror}"
            )
        case aiohttp.InvalidURL():
            problem, hint = "the address is invalid", f"Set {URL_VARIABLE} to http://host:port."
        case aiohttp.ClientPayloadError() | aiohttp.ServerDisconnectedError():
            problem, hint = "the remote gateway closed the connection early", "Try again."
        case ValueError():
            problem = f"cannot build a request: {quote(str(error), key)}"
            hint = f"Check {KEY_VARIABLE} and {URL_VARIABLE}."
        case _:
            problem = quote(str(error), key) or type(error).__name__
    return Unreachable(f"⚠️ Proxy connection error: {problem}.", hint=hint)


def stream_broken(problem: str) -> ModelError:
    """Return the error for a stream that ended early or is invalid."""
    return Unreachable(f"⚠️ Proxy connection error: {problem}.", hint="Try again.")


def stream_invalid(error: Exception) -> ModelError:
    return stream_broken(f"the remote gateway sent an invalid stream: {error}")


def nothing_to_answer() -> UsageError:
    return UsageError("There is nothing to answer.", hint="Send a message first.")


def run_interrupted() -> ModelError:
    """Its process died during the turn, and it does not resume such turns."""
    return Overloaded(
        "⚠️ Proxy error: the remote gateway was restarted during this turn, which ended it. "
        "Anything already done was not undone.",
        hint="Check the results, then say how to continue, or try again.",
    )


def run_unknown() -> ModelError:
    """The remote gateway does not know a run that it accepted."""
    return Overloaded(
        "⚠️ Proxy error: the remote gateway no longer knows this turn: its records were lost or "
        "deleted.",
        hint="Ask what was done, or try again.",
    )


def turn_timed_out(seconds: float) -> ModelError:
    return Overloaded(
        f"⚠️ Proxy error: the turn took longer than {seconds:g} s and was stopped.",
        hint="Ask for less at a time, or raise gateway.proxy.total_timeout.",
    )


def quote(text: str, key: str) -> str:
    """Return external text on one line, shortened and without our key."""
    redactor = Redactor((key,) if key else ())
    return one_line(redactor.redact(text[: 10 * MAX_QUOTED]), MAX_QUOTED)


def _quoted_message(body: bytes, key: str) -> str:
    return quote(_error_message(body), key).rstrip(".") or "no reason given"


def _error_for_status(status: int) -> tuple[type[ModelError], str]:
    if status in {401, 403}:
        return Unauthorized, f"Set {KEY_VARIABLE} to the remote gateway's key."
    if status in {409, 429}:
        return RateLimited, "Try again later."
    if status >= 500:
        return Overloaded, "Try again, or check the remote gateway's log."
    return BadRequest, f"Check {URL_VARIABLE}: the address of a gateway with the API server on."


def _error_message(body: bytes) -> str:
    """Return the message of `{"error": {"message": …}}` and similar bodies, or the text itself."""
    try:
        decoded = msgspec.json.decode(body)
    except JSON_ERRORS:
        return body.decode("utf-8", "replace")
    error = decoded
    for name in ("error", "message", "detail"):
        if isinstance(error, dict):
            error = cast("dict[str, Any]", error).get(name, error)
    return error if isinstance(error, str) else msgspec.json.encode(error).decode()
