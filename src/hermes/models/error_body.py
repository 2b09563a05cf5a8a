"""Parse a provider's error response: its message, codes and retry delay."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from math import isfinite
from typing import Any, cast

import msgspec
from msgspec import Struct

from hermes.kit.redact import MASK, Redactor
from hermes.kit.text import one_line

MAX_SHOWN = 300
"""Characters of a provider's message to show."""

# Patterns are compiled when the first error occurs, as most processes never see one.
_TITLE = r"(?i)<title[^<>]{0,200}>([^<]*)</title>"
_TAG = r"<[^<>]{1,200}>"
_MAX_PAGE = 16_000
"""Characters of a page to parse."""
_DURATION = r"(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?"
_RETRY_PHRASE = (
    r"(?i)(?:try again|retry)\s+(?:in|after)\s+((?:\d+(?:\.\d+)?\s?(?:ms|s|m|h))+|\d+(?:\.\d+)?)"
    r"\s*(seconds?|minutes?|hours?)?"
)
_SENTENCE_END = r"(?<=[.!?])\s+(?=[A-Z])"
_MIN_WORDS = 4
"""Words that a sentence needs to be informative."""
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}
_KEY_LIKE = (
    r"\b(?:sk|gsk|xai|hf|nvapi|pplx|AIza|r8|fw|csk)[-_]?[A-Za-z0-9_-]{16,}|(?i:bearer)\s+\S{12,}"
)


class ErrorDetails(Struct, frozen=True):
    """`codes` are the provider's error codes, in lower case."""

    message: str
    codes: frozenset[str] = frozenset()
    status: int | None = None
    wait: float | None = None


def read_error_body(body: bytes) -> ErrorDetails:
    """Parse a JSON error in any of its common shapes, an HTML page or plain text."""
    try:
        return _from_json(msgspec.json.decode(body))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ErrorDetails(_page_text(body.decode("utf-8", "replace")))


def _page_text(text: str) -> str:
    text = text[:_MAX_PAGE]
    if "<" not in text:
        return text.strip()
    title = re.search(_TITLE, text)
    return re.sub(_TAG, " ", title[1] if title else text).strip()


def _from_json(value: object) -> ErrorDetails:
    """Parse an object, a string, or the first item of a list."""
    if isinstance(value, str):
        return ErrorDetails(value)
    for first in _list(value)[:1]:
        return _from_json(first)
    whole = _dict(value)
    for first in _list(whole.get("errors"))[:1]:
        return _from_json(first)
    error = whole.get("error")
    if isinstance(error, str):
        return _from_object({**whole, "message": error})
    return _from_object({**whole, **_dict(error)})


def _from_object(error: Mapping[str, Any]) -> ErrorDetails:
    extra = _dict(error.get("metadata"))
    # A router passes on the upstream provider's error, as text or as an object.
    raw = extra.get("raw") or ""
    inner = read_error_body(raw.encode()) if isinstance(raw, str) else _from_json(raw)
    message = _message(error)
    if inner.message:
        provider = extra.get("provider_name") or "upstream"
        message = f"{message} ({provider}: {inner.message})" if message else inner.message
    elif reasons := _list(extra.get("reasons")):
        message = f"{message} ({', '.join(map(str, reasons))})"
    code = error.get("code")
    status = code if isinstance(code, int) else error.get("status_code")
    return ErrorDetails(
        message,
        _codes(error) | inner.codes,
        status if isinstance(status, int) and 400 <= status < 600 else inner.status,
        _wait_in(error, extra) or inner.wait,
    )


def _message(error: Mapping[str, Any]) -> str:
    for name in ("message", "detail", "msg", "error_msg", "title"):
        value = error.get(name)
        if isinstance(value, str) and value.strip():
            return value.strip()
        for first in _list(value)[:1]:
            where = ".".join(map(str, _list(_dict(first).get("loc"))))
            text = str(_dict(first).get("msg") or first)
            return f"{text} at {where}" if where else text
        if inner := _dict(value):
            return str(inner.get("message") or inner.get("error") or inner)
    return ""


def _codes(error: Mapping[str, Any]) -> frozenset[str]:
    names = [error.get(name) for name in ("code", "type", "status", "error_type")]
    names.append(_dict(error.get("innererror")).get("code"))
    names += [_dict(detail).get("reason") for detail in _list(error.get("details"))]
    return frozenset(str(name).lower() for name in names if isinstance(name, str | int) and name)


def _wait_in(error: Mapping[str, Any], extra: Mapping[str, Any]) -> float | None:
    for detail in _list(error.get("details")):
        delay = _dict(detail).get("retryDelay")
        if isinstance(delay, str):
            return parse_duration(delay)
    after = error.get("retry_after") or extra.get("retry_after_seconds")
    return _finite_seconds(after) if isinstance(after, int | float) else None


def _dict(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def parse_duration(text: str) -> float | None:
    """Parse `6m0s`, `1.2s`, `250ms` or plain seconds."""
    text = text.strip().replace(" ", "")
    if (plain := _finite_seconds(text)) is not None:
        return plain
    found = re.fullmatch(_DURATION, text)
    if not found or not text:
        return None
    hours, minutes, seconds, millis = (float(group or 0) for group in found.groups())
    return _finite_seconds(hours * 3600 + minutes * 60 + seconds + millis / 1000)


def _finite_seconds(value: str | float) -> float | None:
    """Return a finite number; None for `nan`, `inf` and anything else."""
    try:
        seconds = float(value)
    except (ValueError, OverflowError):
        return None
    return seconds if isfinite(seconds) else None


def retry_wait(headers: Mapping[str, str], details: ErrorDetails, now: datetime) -> float | None:
    """Return how long the provider asks us to wait, preferring the most explicit source."""
    low = {name.lower(): value for name, value in headers.items()}
    if millis := low.get("retry-after-ms"):
        return _not_negative(parse_duration(millis + "ms"))
    if after := low.get("retry-after"):
        is_number = after[:1].isdigit()
        return _not_negative(parse_duration(after) if is_number else _seconds_until(after, now))
    if details.wait is not None:
        return _not_negative(details.wait)
    if wait := _wait_in_message(details.message):
        return wait
    resets = [
        parse_duration(low[f"x-ratelimit-reset-{unit}"])
        for unit in ("requests", "tokens")
        if low.get(f"x-ratelimit-remaining-{unit}") == "0" and f"x-ratelimit-reset-{unit}" in low
    ]
    return max((reset for reset in resets if reset is not None), default=None)


def _wait_in_message(message: str) -> float | None:
    found = re.search(_RETRY_PHRASE, message)
    if not found:
        return None
    amount = parse_duration(found[1])
    unit = (found[2] or "s")[0].lower()
    return None if amount is None else _finite_seconds(amount * _UNITS[unit])


def _seconds_until(date: str, now: datetime) -> float | None:
    from email.utils import parsedate_to_datetime  # noqa: PLC0415 - slow to import, rarely needed

    try:
        moment = parsedate_to_datetime(date)
    except (ValueError, OverflowError):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max((moment - now).total_seconds(), 0.0)


def _not_negative(seconds: float | None) -> float | None:
    return None if seconds is None or seconds < 0 else seconds


def redacted_message(message: str, secrets: tuple[str, ...] = ()) -> str:
    """Return a provider's message, shortened and without secrets."""
    shown = re.sub(_KEY_LIKE, MASK, message[:_MAX_PAGE])
    return one_line(Redactor(secrets).redact(shown), MAX_SHOWN)


def first_sentence(text: str) -> str:
    """Return the first sentence; join the second if the first is too short to be informative."""
    first, *rest = re.split(_SENTENCE_END, text)
    if rest and len(first.split()) < _MIN_WORDS:
        return f"{first.rstrip('.!?')}: {rest[0]}"
    return first
