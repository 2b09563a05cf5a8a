"""Why the far gateway gave no answer, in one sentence that says what to do next."""

import os
from typing import Any, cast

import aiohttp
import msgspec

from hermes.kit.redact import Redactor
from hermes.kit.text import one_line
from hermes.schema.errors import (
    BadRequest,
    ModelError,
    Overloaded,
    RateLimited,
    Unauthorized,
    Unreachable,
)

KEY_VARIABLE = "GATEWAY_PROXY_KEY"
URL_VARIABLE = "GATEWAY_PROXY_URL"
MAX_QUOTED = 300
"""How much of the far side's own words is worth showing."""
MAX_ERROR_BODY = 64 * 1024
"""How much of an error's body is read."""


def request_refused(status: int, body: bytes, key: str) -> ModelError:
    """It answered, but with no stream."""
    kind, hint = _error_for_status(status)
    return kind(f"⚠️ Proxy error ({status}): {_quoted_message(body, key)}.", hint=hint)


def stream_error(body: bytes, key: str) -> ModelError:
    """It began to answer and then said that something is wrong."""
    return Overloaded(f"⚠️ Proxy error: {_quoted_message(body, key)}.", hint="Ask again.")


def roles_unsupported() -> ModelError:
    """To it everybody would be the owner."""
    return BadRequest(
        "The far gateway cannot be told who asks, so it is asked for its owner alone.",
        hint="Bring the gateway there up to date.",
    )


def connection_error(error: Exception, read: float, key: str) -> ModelError:
    """There is no connection, or it broke."""
    hint = f"Check {URL_VARIABLE} and that the gateway there is running."
    match error:
        case aiohttp.ConnectionTimeoutError():
            what = "the far gateway took no connection in time"
        case aiohttp.ServerTimeoutError() | TimeoutError():
            what, hint = f"the far gateway was silent for {read:g} s", "Ask again."
        case aiohttp.ClientConnectorDNSError():
            what = "nobody knows the name of the far gateway's host"
        case aiohttp.ClientConnectorError():
            what = f"no connection: {os.strerror(error.errno) if error.errno else error.strerror}"
        case aiohttp.InvalidURL():
            what, hint = "the address is none", f"Give {URL_VARIABLE} as http://host:port."
        case aiohttp.ClientPayloadError() | aiohttp.ServerDisconnectedError():
            what, hint = "the far gateway broke off the connection", "Ask again."
        case ValueError():
            what = f"no request can be made: {quote(str(error), key)}"
            hint = f"Check {KEY_VARIABLE} and {URL_VARIABLE}."
        case _:
            what = quote(str(error), key) or type(error).__name__
    return Unreachable(f"⚠️ Proxy connection error: {what}.", hint=hint)


def stream_broken(what: str) -> ModelError:
    """The stream ended, or ended to be one, before the answer did."""
    return Unreachable(f"⚠️ Proxy connection error: {what}.", hint="Ask again.")


def run_interrupted() -> ModelError:
    """Its process died in the middle of the turn, and it does not take up such a turn by itself."""
    return Overloaded(
        "⚠️ Proxy error: the far gateway was restarted in the middle of this turn, which ended it. "
        "What was done until then is done.",
        hint="Look at it, then say how to go on, or ask again.",
    )


def run_unknown() -> ModelError:
    """It knows nothing of a run that it began."""
    return Overloaded(
        "⚠️ Proxy error: the far gateway no longer knows of this turn: its records were lost or "
        "cleared away.",
        hint="Ask what was done, or ask again.",
    )


def turn_timed_out(seconds: float) -> ModelError:
    return Overloaded(
        f"⚠️ Proxy error: the turn took longer than {seconds:g} s and was stopped.",
        hint="Ask for less at once, or raise gateway.proxy.total_timeout.",
    )


def quote(text: str, key: str) -> str:
    """Somebody else's words: short, on one line, without our key in them."""
    secrets = (key,) if key else ()
    return one_line(Redactor(secrets).redact(text[: 10 * MAX_QUOTED]), MAX_QUOTED)


def _quoted_message(body: bytes, key: str) -> str:
    return quote(_error_message(body), key).rstrip(".") or "without a word why"


def _error_for_status(status: int) -> tuple[type[ModelError], str]:
    if status in {401, 403}:
        return Unauthorized, f"Set {KEY_VARIABLE} to the key of the far gateway."
    if status in {409, 429}:
        return RateLimited, "Ask again in a while."
    if status >= 500:
        return Overloaded, "Ask again, or look into the log of the far gateway."
    return BadRequest, f"Check {URL_VARIABLE}: the address of a gateway whose API server is on."


def _error_message(body: bytes) -> str:
    """`{"error": {"message": …}}` and its relatives, or the text as it is."""
    try:
        told = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return body.decode("utf-8", "replace")
    error = told
    for name in ("error", "message", "detail"):
        if isinstance(error, dict):
            error = cast("dict[str, Any]", error).get(name, error)
    return error if isinstance(error, str) else msgspec.json.encode(error).decode()
