"""Error responses of providers, and the errors they become."""

import json
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from hermes.models.error_body import parse_duration, read_error_body, redacted_message
from hermes.models.provider_errors import RequestOrigin, classify_error
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
from support.cases import cases

NOW = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
ACME = RequestOrigin(
    provider="acme",
    model="m-1",
    base_url="https://api.acme.test/v1",
    key_env="ACME_API_KEY",
    key="acme-secret-key-123",
)


def openai(message: str, kind: str, code: str | int | None = None) -> dict[str, object]:
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


class Refusal(Struct):
    """A row of refusals.json; a body that is not a string is JSON."""

    name: str
    status: int | None
    error: str
    body: object

    @property
    def kind(self) -> type[ModelError]:
        return KINDS[self.error]


KINDS: dict[str, type[ModelError]] = {
    kind.__name__: kind
    for kind in (
        BadRequest,
        ContextTooLong,
        ModelNotFound,
        OutOfCredit,
        Overloaded,
        PolicyRefused,
        RateLimited,
        Unauthorized,
    )
}
REFUSALS = msgspec.json.decode(
    Path(__file__).with_name("refusals.json").read_bytes(), type=list[Refusal]
)
BY_NAME = {refusal.name: refusal for refusal in REFUSALS}


def refused(status: int | None, body: object, headers: dict[str, str] | None = None) -> ModelError:
    raw = body if isinstance(body, str) else json.dumps(body)
    return classify_error(status, raw.encode(), headers or {}, ACME, NOW)


@cases("refusal", REFUSALS)
def test_each_refusal_becomes_its_error(refusal: Refusal):
    error = refused(refusal.status, refusal.body)
    assert type(error) is refusal.kind
    assert "acme" in str(error)
    assert "<title" not in str(error)
    assert error.hint
    assert len(str(error)) < 450


def test_table_covers_every_error():
    assert len(BY_NAME) == len(REFUSALS) >= 60
    assert {refusal.error for refusal in REFUSALS} == set(KINDS)


@cases(
    ("headers", "message", "wait"),
    [
        ({"Retry-After": "4"}, "", 4.0),
        ({"Retry-After": "0.5"}, "", 0.5),
        ({"retry-after-ms": "1500", "retry-after": "9"}, "", 1.5),
        ({"Retry-After": "Sat, 31 Jan 2026 12:00:30 GMT"}, "", 30.0),
        ({"Retry-After": "Sat, 31 Jan 2026 11:00:00 GMT"}, "", 0.0),
        ({"Retry-After": "soon"}, "", None),
        ({}, "Please try again in 2s.", 2.0),
        ({}, "Please try again in 250ms.", 0.25),
        ({}, "Please try again in 7m12.5s.", 432.5),
        ({}, "Please retry after 12 seconds.", 12.0),
        ({}, "Try again in 3 minutes", 180.0),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "6m0s"}, "", 360.0),
        ({"x-ratelimit-remaining-tokens": "5", "x-ratelimit-reset-tokens": "6m0s"}, "", None),
        ({}, "slow down", None),
    ],
)
def test_retry_delay(headers: dict[str, str], message: str, wait: float | None):
    assert refused(429, openai(message, "rate_limit"), headers).wait == wait


def test_retry_delay_in_the_body():
    assert refused(429, BY_NAME["gemini limit"].body).wait == 37.0
    body = {"error": {"message": "slow", "code": 429, "metadata": {"retry_after_seconds": 3}}}
    assert refused(429, body).wait == 3.0


def test_no_retry_delay_for_permanent_errors():
    assert refused(401, openai("bad key", "auth"), {"retry-after": "5"}).wait is None


def test_secrets_never_reach_the_message():
    for text in (
        f"Bad key {ACME.key} given",
        "Bad key sk-proj-abcdefghijklmnopqrstuvwx given",
        "Header was Authorization: Bearer abcdefghijklmnop given",
    ):
        message = str(refused(401, openai(text, "auth")))
        assert "[redacted]" in message
        assert "given" in message
        assert "abcdefgh" not in message
        assert ACME.key not in message


def test_provider_message_is_shortened():
    message = str(refused(400, openai("word " * 500, "x")))
    assert message.startswith("acme did not accept the request (400): word word")
    assert message.endswith("…")


@cases(
    ("row", "part"),
    [
        ("openai key", "ACME_API_KEY"),
        ("ollama no model", "ollama pull m-1"),
        ("openrouter data policy", "privacy"),
        ("go 404", "/v1"),
        ("openai context", "/new"),
        ("openai quota", "Top up"),
    ],
)
def test_hints(row: str, part: str):
    refusal = BY_NAME[row]
    assert part in refused(refusal.status, refusal.body).hint


def test_key_hint_of_a_custom_address():
    own = msgspec.structs.replace(ACME, key_env="")
    hint = classify_error(401, json.dumps(openai("No.", "x")).encode(), {}, own, NOW).hint
    assert hint == "Set the right key: hermes setup; or correct api_key: hermes config edit"


@given(st.integers(400, 599) | st.none(), st.binary(max_size=200))
def test_any_body_becomes_an_error(status: int | None, body: bytes):
    assert isinstance(classify_error(status, body, {}, ACME, NOW), ModelError)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "error",
                    "errors",
                    "message",
                    "code",
                    "detail",
                    "metadata",
                    "raw",
                    "details",
                    "type",
                ]
            ),
            inner,
        )
    ),
)


@given(JSON)
def test_any_json_becomes_an_error(body: object):
    assert isinstance(classify_error(400, json.dumps(body).encode(), {}, ACME, NOW), ModelError)


def test_deeply_nested_body_is_handled():
    assert read_error_body(b'{"error":' * 50_000).codes == frozenset()


@cases(
    ("text", "seconds"),
    [("6m0s", 360.0), ("1h2m3s", 3723.0), ("12", 12.0), ("20 ms", 0.02), ("x", None), ("", None)],
)
def test_durations_are_parsed(text: str, seconds: float | None):
    assert parse_duration(text) == seconds


def test_short_secrets_are_not_redacted_everywhere():
    assert redacted_message("an apple", ("a",)) == "an apple"


@pytest.mark.parametrize("body", [b"<" * 262_144, b"<title>" * 37_000, b"<!" * 100_000])
def test_only_the_start_of_a_page_is_parsed(body: bytes):
    """Patterns over the whole page would take minutes."""
    assert len(read_error_body(body).message) <= 16_000


def test_key_in_an_address_is_redacted():
    message = "no route for https://api.acme.test/v1/chat?key=hunter2-hunter2&x=1"
    assert "hunter2" not in str(refused(404, openai(message, "x")))


@cases("value", ["nan", "inf", "-inf", "1e999", "9" * 400 + "h", "NaNms"])
def test_infinite_retry_delay_is_ignored(value: str):
    names = ("retry-after", "retry-after-ms", "x-ratelimit-reset-requests")
    gone = {"x-ratelimit-remaining-requests": "0"}
    for name in names:
        assert refused(429, openai("slow", "x"), {**gone, name: value}).wait is None
    assert refused(429, openai(f"try again in {'9' * 400} hours", "x")).wait is None
    assert refused(429, f'{{"error": {{"retry_after": {"9" * 400}}}}}').wait is None
    assert parse_duration(value) is None


def test_retry_date_out_of_range_is_ignored():
    odd = "Mon, 01 Jan 2026 00:00:00 +99999999999999999999"
    assert refused(429, openai("slow", "x"), {"retry-after": odd}).wait is None
