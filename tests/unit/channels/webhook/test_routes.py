"""Parsing of webhook routes and settings, and their errors."""

import pytest

from hermes.channels.webhook.routes import (
    INSECURE,
    Route,
    WebhookSettings,
    read_route,
    read_settings,
)
from hermes.channels.webhook.signatures import Scheme
from hermes.schema.errors import ConfigError
from support.cases import cases

SECRET = "a-secret-of-some-length"


def route(**written: object) -> Route:
    return read_route("github", {"secret": SECRET} | written)


def parse_error(written: object, name: str = "github") -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        read_route(name, written)
    return caught.value


def test_route_only_needs_a_secret() -> None:
    assert route() == Route(name="github", secret=SECRET)
    assert read_route("github", {}, SECRET).secret == SECRET
    assert "secret" in str(parse_error({}))
    assert "openssl" in parse_error({"secret": None}).hint
    assert "secret" in str(parse_error({"secret": "  "}))
    assert "variable SOME is not set" in str(parse_error({"secret": "${SOME}"}))
    assert parse_error({"secret": 12345678}).hint == "Put it in quotes."


def test_route_with_all_fields() -> None:
    whole = route(
        events=["Push", "pull_request.opened"],
        prompt="See {a}",
        filters=[{"field": "a", "equals": 1}],
        deliver="telegram",
        deliver_extra={"chat_id": -100123, "message_thread_id": "42"},
        deliver_only=True,
        enabled=False,
        description="mine",
        signature="v2",
        form=True,
        allow_repeats=True,
        created_at="2026-01-31T12:00:00+00:00",
        skills=[],
        script="",
    )
    assert whole.events == {"push", "pull_request.opened"}
    assert (whole.answer_to, whole.verbatim) == ("telegram:-100123:42", True)
    assert (whole.enabled, whole.scheme, whole.prompt) == (False, Scheme.V2, "See {a}")
    assert (whole.form, whole.repeats) == (True, True)
    assert len(whole.filters) == 1
    assert (whole.unserved, whole.notes) == ("", ())


@cases(
    ("events", "name", "wanted"),
    [
        ([], "push", True),
        (["push"], "push", True),
        ("issues, push", "push", True),
        (["*"], "push", True),
        (["issues"], "push", False),
    ],
)
def test_wanted_events(events: object, name: str, wanted: bool) -> None:
    assert route(events=events).wants(frozenset({name})) is wanted


@cases(
    ("deliver", "extra", "answer_to"),
    [
        ("log", {}, ""),
        ("telegram", {}, "telegram"),
        ("telegram", {"chat_id": "1"}, "telegram:1"),
        ("telegram", {"chat_id": 1, "thread_id": 2}, "telegram:1:2"),
        ("telegram:5", {"chat_id": "1"}, "telegram:5"),
        ("telegram:5:7", {}, "telegram:5:7"),
        ("telegram, discord:9", {"chat_id": "1"}, "telegram,discord:9"),
        ("matrix:!room:example.org", {}, "matrix:!room:example.org"),
        ("all", {}, "all"),
        ("local", {}, "local"),
    ],
)
def test_answer_targets(deliver: str, extra: dict, answer_to: str) -> None:
    assert route(deliver=deliver, deliver_extra=extra).answer_to == answer_to


@cases("deliver", ["origin", "log,telegram", "tele gram", "telegram:", ":5", "a,,b"])
def test_invalid_answer_target(deliver: str) -> None:
    assert "deliver" in str(parse_error({"secret": SECRET, "deliver": deliver}))


@pytest.mark.parametrize("chat", ["{chat.id}", "1,discord:2"])
def test_call_cannot_choose_the_recipient(chat: str) -> None:
    written = {"secret": SECRET, "deliver": "telegram", "deliver_extra": {"chat_id": chat}}
    assert "must not choose" in str(parse_error(written))


def test_deliver_only_requires_a_target() -> None:
    assert "no target to deliver to" in str(parse_error({"secret": SECRET, "deliver_only": True}))


@cases(
    "written",
    [
        {"skills": ["review"]},
        {"script": "filter.py"},
        {"deliver": "github_comment", "deliver_extra": {"repo": "a/b", "pr_number": "1"}},
        {"toolsets": ["web"]},
        {"coalesce": {"key": "number"}},
    ],
)
def test_unsupported_features_are_reported(written: dict) -> None:
    found = route(**written)
    assert next(iter(written)) in found.unserved
    assert found.notes == ()


def test_route_may_name_a_scheduled_job() -> None:
    found = route(cron_job=" daily ")
    assert (found.job, found.unserved) == ("daily", "")


def test_route_notes() -> None:
    assert "promt" in route(promt="x").notes[0]
    assert "shorter" in route(secret="short").notes[0]
    assert route(secret=INSECURE).notes == ()
    assert "profile work" in route(profile="work").notes[0]
    assert "repo" in route(deliver_extra={"repo": "a/b"}).notes[0]


@cases(
    ("written", "place"),
    [
        ({"events": 5}, "events"),
        ({"deliver_only": "perhaps"}, "deliver_only"),
        ({"deliver_extra": []}, "deliver_extra"),
        ({"signature": "md5"}, "signature"),
        ({"filters": "x"}, "filters"),
    ],
)
def test_route_errors_name_the_field(written: dict, place: str) -> None:
    assert str(parse_error({"secret": SECRET} | written)).startswith(f"{place}:")


@cases("name", ["", "a/b", "a b", "a:b", "-a", "ä", "a" * 65])
def test_route_name_must_be_url_safe(name: str) -> None:
    assert "name" in str(parse_error({"secret": SECRET}, name))


@pytest.mark.parametrize("value", [None, [], "x", 5])
def test_route_must_be_a_mapping(value: object) -> None:
    assert "expected a route" in str(parse_error(value))


def test_settings_defaults_and_variables() -> None:
    assert read_settings({}, {}) == WebhookSettings()
    assert (WebhookSettings().host, WebhookSettings().port) == ("127.0.0.1", 8644)
    env = {"WEBHOOK_PORT": "9000", "WEBHOOK_SECRET": SECRET}
    read = read_settings({"routes": {"a": {}}, "allow_from": ["x"]}, env)
    assert (read.port, read.routes["a"].secret) == (9000, SECRET)
    assert read_settings({"port": "7", "secret": "own"}, env).port == 7


@cases(
    ("extra", "place"),
    [
        ({"port": "many"}, "port"),
        ({"port": 70000}, "port"),
        ({"rate_limit": 0}, "rate_limit"),
        ({"max_body_bytes": -1}, "max_body_bytes"),
        ({"host": 5}, "host"),
        ({"routes": ["github"]}, "routes"),
        ({"routes": {"github": {"secret": 5}}}, "routes.github: secret"),
        ({"routes": {"a/b": {"secret": SECRET}}}, "routes.a/b"),
    ],
)
def test_settings_errors_name_the_field(extra: dict, place: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_settings(extra, {})
    assert str(caught.value).startswith("platforms.webhook.extra")
    assert place in str(caught.value)
