"""From a provider's refusal to one of our errors, with a sentence for whoever can act."""

import logging
import re
from collections.abc import Mapping
from datetime import datetime

from msgspec import Struct

from hermes.models.address import shown_url
from hermes.models.error_body import Said, gist, read_body, shown, wait_from
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


class Origin(Struct, frozen=True, kw_only=True):
    """Whose answer it was; for the words and hints of errors. `key` is only kept out of them."""

    provider: str
    model: str
    base_url: str
    key_env: str = ""
    key: str = ""
    local: bool = False

    @property
    def address(self) -> str:
        """Where it is, without what may be a secret in that."""
        return shown_url(self.base_url)


def _any_of(*patterns: str) -> str:
    return "|".join(patterns)


def _says(pattern: str, words: str) -> bool:
    """Compiled by `re` when the first error comes, as most processes never see one."""
    return re.search(pattern, words, re.IGNORECASE) is not None


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
_BUSY = _any_of(
    r"overload|over capacity|at capacity|no available (?:capacity|server|workers)",
    r"loading model|model is (?:currently )?loading|temporarily unavailable|server is busy",
    r"system is too busy|insufficient_system_resource",
)
_LIMITED = _any_of(
    r"rate[ _-]?limit",
    r"too many requests",
    r"resource[ _]exhausted",
    r"requests? per (?:second|minute|day)|tokens per (?:minute|day)|\b(?:rpm|tpm|rpd)\b",
    r"throttl",
)
_BUSY_STATUSES = frozenset({408, 409, 424, 425, 498, 499, 500, 502, 503, 504})


def classify(
    status: int | None,
    body: bytes,
    headers: Mapping[str, str],
    origin: Origin,
    now: datetime,
) -> ModelError:
    """The error for one refusal. `status` is None when it came inside a stream."""
    said = read_body(body)
    status = status or said.status
    words = " ".join([said.message, *sorted(said.codes)])
    kind = _kind(status, words, said)
    message = _sentence(kind, status, said, origin)
    wait = wait_from(headers, said, now) if kind.retryable else None
    return kind(message, hint=_hint(kind, said, origin), wait=wait)


def _kind(status: int | None, words: str, said: Said) -> type[ModelError]:
    if status == 413:
        return ContextTooLong
    # A gateway's page about its own trouble says nothing about our request.
    about_us = status is None or status < 502
    told = _by_words(status, words, said) if about_us else None
    return told or _by_status(status, words)


def _by_words(status: int | None, words: str, said: Said) -> type[ModelError] | None:
    if status != 429 and _says(_CONTEXT, words):
        return ContextTooLong
    if _says(_POLICY, words) and not _is_setting(words):
        return PolicyRefused
    if _is_billing(status, words, said):
        return OutOfCredit
    if status == 429 or _says(_LIMITED, words):
        return RateLimited
    return _by_more_words(status, words)


def _by_more_words(status: int | None, words: str) -> type[ModelError] | None:
    if status == 401 or _says(_AUTH, words):
        return Unauthorized
    if status not in _BUSY_STATUSES and _says(_NO_MODEL, words):
        return ModelNotFound
    return None


def _by_status(status: int | None, words: str) -> type[ModelError]:
    if status is None or status in _BUSY_STATUSES or status >= 500 or _says(_BUSY, words):
        return Overloaded
    if status == 403:
        return Unauthorized
    return BadRequest


def _is_setting(words: str) -> bool:
    """A router that finds nobody allowed by the account's privacy settings refused no content."""
    return "data policy" in words.lower()


def _is_billing(status: int | None, words: str, said: Said) -> bool:
    if status == 402:
        return not _says(_LIMITED, words)
    # Some call every rate limit a quota; a wait of minutes tells that it is none.
    return _says(_BILLING, words) and said.wait is None


_WHAT: dict[type[ModelError], str] = {
    Unauthorized: "{provider} refused the key",
    OutOfCredit: "{provider} says the account has no credit left",
    RateLimited: "{provider} limits the rate",
    Overloaded: "{provider} is overloaded or broken",
    ContextTooLong: "the conversation is too long for {model} at {provider}",
    PolicyRefused: "{provider} declined the content",
    ModelNotFound: "{provider} does not serve the model {model!r}",
    BadRequest: "{provider} did not accept the request",
}


def _sentence(kind: type[ModelError], status: int | None, said: Said, origin: Origin) -> str:
    told = "{provider} wants a key" if kind is Unauthorized and not origin.key else _WHAT[kind]
    what = told.format(provider=origin.provider, model=origin.model)
    number = f" ({status})" if status else ""
    whole = shown(said.message, (origin.key,))
    words = gist(whole)
    if words != whole:
        log.info("%s said: %s", origin.provider, whole)
    return f"{what}{number}: {words}" if words else f"{what}{number}"


def key_hint(origin: Origin) -> str:
    if not origin.key_env:
        return "Give the right key: hermes setup; or correct its api_key: hermes config edit"
    name = origin.key_env
    verb = "Check" if origin.key else "Set"
    return f"{verb} {name}: hermes config set {name} <key>"


def _hint(kind: type[ModelError], said: Said, origin: Origin) -> str:
    if kind is Unauthorized:
        return key_hint(origin)
    if kind is ModelNotFound:
        return _model_hint(said, origin)
    if kind is BadRequest and "page not found" in said.message.lower():
        return url_hint(origin)
    return _HINTS.get(kind, "")


_HINTS: dict[type[ModelError], str] = {
    OutOfCredit: "Top up the account, or choose another model: hermes model",
    RateLimited: "Wait a little, or choose another model: hermes model",
    Overloaded: "Try again later, or choose another model: hermes model",
    ContextTooLong: "Begin a new conversation with /new, or take the last turns back with /undo.",
    PolicyRefused: "Say it differently, or choose another model with /model.",
    BadRequest: "If this repeats, begin a new conversation with /new or choose another model.",
}


def _model_hint(said: Said, origin: Origin) -> str:
    if "try pulling it" in said.message:
        return f"Fetch it first: ollama pull {origin.model}"
    if _is_setting(said.message):
        return "Change the privacy settings of the account, or choose another model: hermes model"
    if origin.local:
        return "Load a model in the local server, or choose one it has: hermes model"
    return "Choose a model this provider has: hermes model"


def url_hint(origin: Origin) -> str:
    return (
        f"Check the address {origin.address}, which usually ends in /v1: "
        "hermes config set model.base_url <url>"
    )
