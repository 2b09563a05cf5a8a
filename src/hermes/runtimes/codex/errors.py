"""Convert codex's errors into a `ModelError` with a message and a hint."""

import re

import msgspec
from msgspec import Raw, Struct

from hermes.kit.json_errors import JSON_ERRORS
from hermes.kit.text import one_line
from hermes.schema.errors import (
    BadRequest,
    ContextTooLong,
    ModelError,
    OutOfCredit,
    Overloaded,
    PolicyRefused,
    RateLimited,
    Unauthorized,
    Unreachable,
)

MAX_QUOTED = 400
"""Characters of codex's own messages to show."""
FALLBACK_HINT = "`/codex-runtime auto` switches back to the built-in loop"
LOGIN_HINT = f"Run `codex login` on this machine, then try again; {FALLBACK_HINT}."
RETRY_HINT = f"Try again; {FALLBACK_HINT}."

_LOGIN_WORDS = re.compile(
    r"""invalid_grant | invalid[_ ]token | token_expired | token\ (?:has\ )?expired
    | refresh[_ ]token | token\ refresh | failed\ to\ refresh\ (?:the\ )?(?:access\ )?token
    | not\ (?:logged\ in|authenticated) | (?:please|must)\ (?:log|sign)\ in
    | log\ ?in\ (?:is\ )?(?:again|required) | codex\ login
    | \b401\b[\ :,]*unauthorized | unauthorized[\ :,]*\b401\b | status\ 401\b""",
    re.IGNORECASE | re.VERBOSE,
)
"""Messages that only a new login fixes. Uncertain ones are shown as they are."""


class CodexError(Struct, frozen=True, rename="camel"):
    """An error in a turn, as the app-server reports it."""

    message: str = ""
    codex_error_info: Raw = Raw(b"null")
    additional_details: str | None = None

    @property
    def kind(self) -> str:
        """The string, or the name of the only member of the object."""
        info = bytes(self.codex_error_info).lstrip()
        try:
            if info.startswith(b"{"):
                return next(iter(msgspec.json.decode(info, type=dict[str, object])), "")
            return msgspec.json.decode(info, type=str | None) or ""
        except JSON_ERRORS:
            return ""


_ERRORS_BY_KIND: dict[str, type[ModelError]] = {
    "contextWindowExceeded": ContextTooLong,
    "usageLimitExceeded": OutOfCredit,
    "sessionBudgetExceeded": OutOfCredit,
    "rateLimitExceeded": RateLimited,
    "serverOverloaded": Overloaded,
    "internalServerError": Overloaded,
    "cyberPolicy": PolicyRefused,
    "badRequest": BadRequest,
    "httpConnectionFailed": Unreachable,
    "responseStreamConnectionFailed": Unreachable,
    "responseStreamDisconnected": Unreachable,
    "responseTooManyFailedAttempts": Unreachable,
}


def is_login_error(text: str) -> bool:
    """Return whether a message asks for a new login."""
    return _LOGIN_WORDS.search(text) is not None


def turn_failed(error: CodexError, log_tail: str = "") -> ModelError:
    """Return the error of a failed turn; `log_tail` is the end of codex's log."""
    message = error.message or error.additional_details or "no reason given"
    # The log also contains unrelated errors, such as an MCP server's, so it only counts if codex
    # itself gives no reason.
    logged = log_tail if error.kind in {"", "other"} else ""
    if error.kind == "unauthorized" or is_login_error(
        f"{message}\n{error.additional_details}\n{logged}"
    ):
        return login_required(message)
    kind = _ERRORS_BY_KIND.get(error.kind, ModelError)
    return kind(f"⚠️ Codex could not answer: {quote(message)}", hint=RETRY_HINT)


def login_required(message: str) -> ModelError:
    return Unauthorized(
        f"⚠️ Codex is not logged in, or its login has expired ({quote(message)}).", hint=LOGIN_HINT
    )


def process_ended(log_tail: str) -> ModelError:
    if is_login_error(log_tail):
        return login_required(_last_line(log_tail))
    why = f" Its last output: {quote(_last_line(log_tail))}" if log_tail.strip() else ""
    return Unreachable(f"⚠️ The codex process ended unexpectedly.{why}", hint=RETRY_HINT)


def request_rejected(subject: str, message: str, log_tail: str = "") -> ModelError:
    """Return the error for a request that codex answered with an error."""
    if is_login_error(f"{message}\n{log_tail}"):
        return login_required(message)
    return ModelError(f"⚠️ Codex rejected {subject}: {quote(message)}", hint=RETRY_HINT)


def request_timed_out(subject: str, seconds: float) -> ModelError:
    return Overloaded(f"⚠️ Codex did not answer {subject} in {seconds:g} s.", hint=RETRY_HINT)


def start_failed(reason: str) -> ModelError:
    return Unreachable(
        f"⚠️ Codex could not be started: {quote(reason)}",
        hint=f"Install it (npm package @openai/codex) or set CODEX_PATH; {FALLBACK_HINT}.",
    )


def quote(text: str) -> str:
    line = one_line(text, MAX_QUOTED)
    return line if line.endswith((".", "!", "?", "…")) else f"{line}."


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""
