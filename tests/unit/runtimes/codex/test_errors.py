"""What is a matter of the login, and what is not."""

import pytest
from msgspec import Raw

from hermes.runtimes.codex.errors import LOGIN, Told, died, failed, is_login, refused
from hermes.schema.errors import ModelError, OutOfCredit, Unauthorized, Unreachable


@pytest.mark.parametrize(
    "words",
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
def test_words_of_the_login(words: str) -> None:
    assert is_login(words)
    error = refused("turn/start", words)
    assert isinstance(error, Unauthorized)
    assert error.hint == LOGIN


@pytest.mark.parametrize(
    "words",
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
def test_anything_else_is_shown_as_it_is(words: str) -> None:
    assert not is_login(words)
    error = refused("turn/start", words)
    assert not isinstance(error, Unauthorized)
    assert words in str(error)
    assert "/codex-runtime auto" in error.hint


def test_the_kind_that_codex_names_counts() -> None:
    assert isinstance(failed(Told("no", Raw(b'"unauthorized"'))), Unauthorized)
    assert isinstance(failed(Told("no", Raw(b'"usageLimitExceeded"'))), OutOfCredit)
    lost = Told("no", Raw(b'{"responseStreamDisconnected":{"httpStatusCode":502}}'))
    assert isinstance(failed(lost), Unreachable)
    assert type(failed(Told("no", Raw(b"[1]")))) is ModelError


def test_the_log_counts_only_where_codex_does_not_know_better() -> None:
    log = "WARN mcp: status 401 from the server of somebody else"
    assert isinstance(failed(Told("it went wrong", Raw(b'"other"')), log), Unauthorized)
    known = failed(Told("it went wrong", Raw(b'"serverOverloaded"')), log)
    assert not isinstance(known, Unauthorized)


def test_last_words_of_a_dead_process() -> None:
    assert isinstance(died("a\nERROR auth: invalid_grant\n"), Unauthorized)
    assert "out of cheese." in str(died("warn\npanicked: out of cheese\n"))
    assert "last words" not in str(died(""))
