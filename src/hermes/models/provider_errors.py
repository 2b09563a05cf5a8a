"""Convert a provider's error response into a `ModelError` with a message and a hint."""

import logging
import re
from collections.abc import Callable, Mapping
from datetime import datetime

from msgspec import Struct

from hermes.models.error_body import (
    ErrorDetails,
    first_sentence,
    read_error_body,
    redacted_message,
    retry_wait,
)
from hermes.models.urls import redacted_url
from hermes.schema.errors import (
    BadRequest,
    ContextTooLong,
    ModelError,
    ModelNotFound,
    OutOfCredit,
    Overloaded,
    PolicyRefused,
    RateLimited,
    Unauthorized,
)

log = logging.getLogger(__name__)


class RequestOrigin(Struct, frozen=True, kw_only=True):
    """What a request was sent to, for error messages. `key` is only used for redaction."""

    provider: str
    model: str
    base_url: str
    key_env: str = ""
    key: str = ""
    local: bool = False

    @property
    def address(self) -> str:
        """The base URL without secrets."""
        return redacted_url(self.base_url)


def _any_of(*patterns: str) -> str:
    return "|".join(patterns)


def _matches(pattern: str, text: str) -> bool:
    """Compile patterns only when the first error occurs, as most processes never see one."""
    return re.search(pattern, text, re.IGNORECASE) is not None


_CONTEXT = _any_of(
    r"context[ _](?:length|window|size)",
    r"maximum (?:context|input|prompt|number of tokens)",
    r"(?:prompt|input|message|request)[^.]{0,40} (?:is |are )?too (?:long|large)",
    r"too many (?:input )?tokens",
    r"exceeds? the (?:available |maximum |model'?s? )?(?:context|max(?:imum)? (?:input|tokens))",
    r"input token count .{0,40}exceeds",
    r"(?:tokens|inputs?).{0,60}must (?:be|have) (?:<=|less than)",
    r"reduce the length of",
    r"greater than the context",
    r"longer than the model'?s",
    r"range of input length",
    r"exceeded model token limit",
)
_POLICY = _any_of(
    r"content[ _-]?(?:policy|filter|management)",
    r"safety (?:system|reasons|policy)",
    r"responsibleaipolicy",
    r"flagged (?:for|by|as)",
    r"requires moderation",
    r"content exists risk",
    r"data[ _]inspection[ _]?failed",
    r"inappropriate content",
    r"violat\w+ (?:our|the|of our) (?:usage|content|safety) polic",
    r"prohibited[ _]content",
    r"unsafe or sensitive content",
)
_BILLING = _any_of(
    r"insufficient[ _](?:quota|balance|credit|funds)",
    r"exceeded your current quota",
    r"(?:credit|account) balance is too low",
    r"(?:out of|no|not enough|add(?: more)?|requires more|purchase) credits?\b",
    r"exceeded your (?:monthly|included) (?:included )?credits",
    r"billing (?:hard )?limit",
    r"recharge|arrearage|overdue[ -]payment",
    r"account is suspended.{0,40}(?:balance|billing|payment)",
    r"used all (?:available )?credits|spending limit",
)
_AUTH = _any_of(
    r"(?:invalid|incorrect|missing|expired|wrong|no|not a valid|malformed) (?:x-)?api[ _-]?key",
    r"api[ _-]?key (?:is )?(?:not valid|invalid|expired|missing|not found|required|incorrect)",
    r"invalid[ _](?:authentication|token|credentials)|authentication (?:failed|fails|error)",
    r"no auth credentials|unauthorized|user not found|didn'?t provide an api key",
    r"invalid username or password",
)
_NO_MODEL = _any_of(
    r"model[^.]{0,80}(?:not found|does ?n[o']t exist|not exist|is not (?:available|supported|found)"
    r"|not supported|not a valid)",
    r"(?:no such|unknown|unsupported|invalid|unrecognized) model",
    r"not a valid model",
    r"models?/[\w.:-]+ is not found",
    r"no (?:endpoints|allowed providers|models? (?:are )?(?:found|loaded|available))",
    r"^model: [\w.:@/-]+ .*not_found_error",
    r"deployment (?:for this resource )?does not exist",
    r"(?:not|no) (?:have )?access to (?:the )?model|unable to access model|try pulling it",
    r"must have .{0,20}model loaded|failed to load model",
)
_OVERLOADED = _any_of(
    r"overload|over capacity|at capacity|no available (?:capacity|server|workers)",
    r"loading model|model is (?:currently )?loading|temporarily unavailable|server is busy",
    r"system is too busy|insufficient_system_resource",
)
_RATE_LIMITED = _any_of(
    r"rate[ _-]?limit",
    r"too many requests",
    r"resource[ _]exhausted",
    r"requests? per (?:second|minute|day)|tokens per (?:minute|day)|\b(?:rpm|tpm|rpd)\b",
    r"throttl",
)
_OVERLOADED_STATUSES = frozenset({408, 409, 424, 425, 498, 499, 500, 502, 503, 504})


def classify_error(
    status: int | None,
    body: bytes,
    headers: Mapping[str, str],
    origin: RequestOrigin,
    now: datetime,
) -> ModelError:
    """Return the error for a response. `status` is None for an error within a stream."""
    details = read_error_body(body)
    status = status or details.status
    text = " ".join([details.message, *sorted(details.codes)])
    kind = _error_type(status, text, details)
    message = _error_message(kind, status, details, origin)
    wait = retry_wait(headers, details, now) if kind.retryable else None
    return kind(message, hint=_hint(kind, details, origin), wait=wait)


def _error_type(status: int | None, text: str, details: ErrorDetails) -> type[ModelError]:
    if status == 413:
        return ContextTooLong
    # A gateway's error page says nothing about our request.
    about_request = status is None or status < 502
    by_text = _type_by_text(status, text, details) if about_request else None
    return by_text or _type_by_status(status, text)


def _type_by_text(status: int | None, text: str, details: ErrorDetails) -> type[ModelError] | None:
    cases: tuple[tuple[type[ModelError], Callable[[], bool]], ...] = (
        (ContextTooLong, lambda: status != 429 and _matches(_CONTEXT, text)),
        (PolicyRefused, lambda: _matches(_POLICY, text) and not _is_privacy_setting(text)),
        (OutOfCredit, lambda: _is_billing(status, text, details)),
        (RateLimited, lambda: status == 429 or _matches(_RATE_LIMITED, text)),
        (Unauthorized, lambda: status == 401 or _matches(_AUTH, text)),
        (ModelNotFound, lambda: status not in _OVERLOADED_STATUSES and _matches(_NO_MODEL, text)),
    )
    return next((kind for kind, applies in cases if applies()), None)


def _type_by_status(status: int | None, text: str) -> type[ModelError]:
    is_server_error = status is None or status in _OVERLOADED_STATUSES or status >= 500
    if is_server_error or _matches(_OVERLOADED, text):
        return Overloaded
    return Unauthorized if status == 403 else BadRequest


def _is_privacy_setting(text: str) -> bool:
    """An account's privacy settings may exclude all providers; no content was rejected then."""
    return "data policy" in text.lower()


def _is_billing(status: int | None, text: str, details: ErrorDetails) -> bool:
    if status == 402:
        return not _matches(_RATE_LIMITED, text)
    # Some providers call every rate limit a quota; a retry delay shows that it is one.
    return _matches(_BILLING, text) and details.wait is None


_MESSAGES: dict[type[ModelError], str] = {
    Unauthorized: "{provider} rejected the key",
    OutOfCredit: "{provider} says the account has no credit left",
    RateLimited: "{provider} is limiting requests",
    Overloaded: "{provider} is overloaded or broken",
    ContextTooLong: "the conversation is too long for {model} at {provider}",
    PolicyRefused: "{provider} declined the content",
    ModelNotFound: "{provider} does not serve the model {model!r}",
    BadRequest: "{provider} did not accept the request",
}


def _error_message(
    kind: type[ModelError], status: int | None, details: ErrorDetails, origin: RequestOrigin
) -> str:
    what = _MESSAGES[kind].format(provider=origin.provider, model=origin.model)
    if kind is Unauthorized and not origin.key:
        what = f"{origin.provider} requires a key"
    what += f" ({status})" if status else ""
    whole = redacted_message(details.message, (origin.key,))
    text = first_sentence(whole)
    if text != whole:
        log.info("full error from %s: %s", origin.provider, whole)
    return f"{what}: {text}" if text else what


def key_hint(origin: RequestOrigin) -> str:
    if not (name := origin.key_env):
        return "Set the right key: hermes setup; or correct api_key: hermes config edit"
    return f"{'Check' if origin.key else 'Set'} {name}: hermes config set {name} <key>"


def _hint(kind: type[ModelError], details: ErrorDetails, origin: RequestOrigin) -> str:
    if kind is Unauthorized:
        return key_hint(origin)
    if kind is ModelNotFound:
        return _model_hint(details, origin)
    if kind is BadRequest and "page not found" in details.message.lower():
        return url_hint(origin)
    return _HINTS.get(kind, "")


_HINTS: dict[type[ModelError], str] = {
    OutOfCredit: "Top up the account, or choose another model: hermes model",
    RateLimited: "Wait a little, or choose another model: hermes model",
    Overloaded: "Try again later, or choose another model: hermes model",
    ContextTooLong: "Start a new conversation with /new, or undo the last turns with /undo.",
    PolicyRefused: "Rephrase the message, or choose another model with /model.",
    BadRequest: "If this repeats, start a new conversation with /new or choose another model.",
}


def _model_hint(details: ErrorDetails, origin: RequestOrigin) -> str:
    if "try pulling it" in details.message:
        return f"Download it first: ollama pull {origin.model}"
    if _is_privacy_setting(details.message):
        return "Change the account's privacy settings, or choose another model: hermes model"
    if origin.local:
        return "Load a model in the local server, or choose one it has: hermes model"
    return "Choose a model this provider has: hermes model"


def url_hint(origin: RequestOrigin) -> str:
    return (
        f"Check the address {origin.address}, which usually ends in /v1: "
        "hermes config set model.base_url <url>"
    )
