"""Which errors of codex ask for a login."""

from msgspec import Raw

from hermes.runtimes.codex.errors import (
    LOGIN_HINT,
    CodexError,
    is_login_error,
    process_ended,
    request_rejected,
    turn_failed,
)
from hermes.schema.errors import ModelError, OutOfCredit, Unauthorized, Unreachable
from support.cases import cases


@cases(
    "message",
    [
        "invalid_grant",
        "Your access token could not be refreshed: refresh token was revoked",
        "token refresh failed",
        "unexpected status 401 Unauthorized: missing bearer",
        "You are not logged in",
        "Please log in again",
        "Please sign in",
        "Token has expired",
        "run `codex login`",
    ],
)
def test_login_errors_are_recognised(message: str) -> None:
    assert is_login_error(message)
    error = request_rejected("turn/start", message)
    assert isinstance(error, Unauthorized)
    assert error.hint == LOGIN_HINT


@cases(
    "message",
    [
        "the model burns",
        "stream disconnected before completion",
        "line 401 of the file is wrong",
        "the author is unauthorized to merge, says the README",
        "unknown token '}' in JSON",
        "context window exceeded: 300000 tokens",
        "blogging in the rain",
    ],
)
def test_other_errors_are_shown_unchanged(message: str) -> None:
    assert not is_login_error(message)
    error = request_rejected("turn/start", message)
    assert not isinstance(error, Unauthorized)
    assert message in str(error)
    assert "/codex-runtime auto" in error.hint


def test_error_kind_decides() -> None:
    assert isinstance(turn_failed(CodexError("no", Raw(b'"unauthorized"'))), Unauthorized)
    assert isinstance(turn_failed(CodexError("no", Raw(b'"usageLimitExceeded"'))), OutOfCredit)
    lost = CodexError("no", Raw(b'{"responseStreamDisconnected":{"httpStatusCode":502}}'))
    assert isinstance(turn_failed(lost), Unreachable)
    assert type(turn_failed(CodexError("no", Raw(b"[1]")))) is ModelError


def test_log_counts_only_without_an_error_kind() -> None:
    log = "WARN mcp: status 401 from the server of somebody else"
    assert isinstance(turn_failed(CodexError("it went wrong", Raw(b'"other"')), log), Unauthorized)
    known = turn_failed(CodexError("it went wrong", Raw(b'"serverOverloaded"')), log)
    assert not isinstance(known, Unauthorized)


def test_last_output_of_a_dead_process_is_shown() -> None:
    assert isinstance(process_ended("a\nERROR auth: invalid_grant\n"), Unauthorized)
    assert "out of cheese." in str(process_ended("warn\npanicked: out of cheese\n"))
    assert "last output" not in str(process_ended(""))
