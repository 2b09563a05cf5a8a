"""Why codex gave no answer, in one sentence that says what to do next."""

import re

import msgspec
from msgspec import Raw, Struct

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
"""How much of codex's own words is worth showing."""
FALLBACK_HINT = "`/codex-runtime auto` goes back to our own loop"
LOGIN_HINT = f"Run `codex login` on this machine, then ask again; {FALLBACK_HINT}."
RETRY_HINT = f"Ask again; {FALLBACK_HINT}."

_LOGIN_WORDS = re.compile(
    r"""invalid_grant | invalid[_ ]token | token_expired | token\ (?:has\ )?expired
    | refresh[_ ]token | token\ refresh | failed\ to\ refresh\ (?:the\ )?(?:access\ )?token
    | not\ (?:logged\ in|authenticated) | (?:please|must)\ (?:log|sign)\ in
    | log\ ?in\ (?:is\ )?(?:again|required) | codex\ login
    | \b401\b[\ :,]*unauthorized | unauthorized[\ :,]*\b401\b | status\ 401\b""",
    re.IGNORECASE | re.VERBOSE,
)
"""Words that only a login mends. What is not surely one of them is shown as it is."""


class CodexError(Struct, frozen=True, rename="camel"):
    """An error in a turn, as the app-server tells it."""

    message: str = ""
    codex_error_info: Raw = Raw(b"null")
    additional_details: str | None = None

    @property
    def kind(self) -> str:
        """The one word, or the name of the one member that there is."""
        given = bytes(self.codex_error_info).lstrip()
        try:
            if given.startswith(b"{"):
                return next(iter(msgspec.json.decode(given, type=dict[str, object])), "")
            return msgspec.json.decode(given, type=str | None) or ""
        except (msgspec.DecodeError, RecursionError):
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
    """Whether it says that codex has to be let in anew."""
    return _LOGIN_WORDS.search(text) is not None


def turn_failed(told: CodexError, said: str = "") -> ModelError:
    """The turn ended with an error; `said` is what codex wrote to its log meanwhile."""
    words = told.message or told.additional_details or "it did not say why"
    # Its log also has the troubles of others, an MCP server's say: where codex knows better, it
    # is not asked.
    heard = said if told.kind in {"", "other"} else ""
    if told.kind == "unauthorized" or is_login_error(
        f"{words}\n{told.additional_details}\n{heard}"
    ):
        return login_required(words)
    kind = _ERRORS_BY_KIND.get(told.kind, ModelError)
    return kind(f"⚠️ Codex could not answer: {quote(words)}", hint=RETRY_HINT)


def login_required(words: str) -> ModelError:
    return Unauthorized(
        f"⚠️ Codex is not logged in, or its login has expired ({quote(words)}).", hint=LOGIN_HINT
    )


def process_ended(said: str) -> ModelError:
    if is_login_error(said):
        return login_required(_last_line(said))
    why = f" Its last words: {quote(_last_line(said))}" if said.strip() else ""
    return Unreachable(
        f"⚠️ The codex process ended in the middle of the work.{why}", hint=RETRY_HINT
    )


def request_refused(what: str, message: str, said: str = "") -> ModelError:
    """It answered a request with an error."""
    if is_login_error(f"{message}\n{said}"):
        return login_required(message)
    return ModelError(f"⚠️ Codex refused {what}: {quote(message)}", hint=RETRY_HINT)


def request_timed_out(what: str, seconds: float) -> ModelError:
    return Overloaded(f"⚠️ Codex did not answer {what} in {seconds:g} s.", hint=RETRY_HINT)


def start_failed(why: str) -> ModelError:
    return Unreachable(
        f"⚠️ Codex could not be started: {quote(why)}",
        hint=f"Install it (npm package @openai/codex) or name it in CODEX_PATH; {FALLBACK_HINT}.",
    )


def quote(words: str) -> str:
    line = one_line(words, MAX_QUOTED)
    return line if line.endswith((".", "!", "?", "…")) else f"{line}."


def _last_line(said: str) -> str:
    lines = [line for line in said.splitlines() if line.strip()]
    return lines[-1] if lines else ""
