"""Bodies are decoded as JSON or forms, and their events named."""

import pytest
from inline_snapshot import snapshot

from hermes.channels.http_calls import CallRejected
from hermes.channels.webhook.payload import as_text, event_of, read_payload, value_at
from support.cases import cases


@cases(
    "kind",
    [
        "application/json",
        "application/json; charset=utf-8",
        "text/json",
        "application/vnd.a+json",
        "",
        "application/octet-stream",
        "application/x-www-form-urlencoded",
    ],
)
def test_json_content_types(kind: str) -> None:
    assert read_payload(kind, b' {"a": [1]}').value == {"a": [1]}


def test_form_is_decoded_to_a_mapping() -> None:
    form = read_payload("application/x-www-form-urlencoded", b"a=1&b=x+y&b=%C3%BC&c=")
    assert form.value == {"a": "1", "b": ["x y", "ü"], "c": ""}
    assert form.raw == "a=1&b=x+y&b=%C3%BC&c="


def test_forms_can_be_refused() -> None:
    kind = "application/x-www-form-urlencoded"
    with pytest.raises(CallRejected, match="form: true"):
        read_payload(kind, b"a=1", forms=False)
    assert read_payload(kind, b'{"a":1}', forms=False).value == {"a": 1}


def test_json_in_a_form_is_decoded() -> None:
    form = read_payload("application/x-www-form-urlencoded", b"payload=%7B%22a%22%3A1%7D")
    assert form.value == {"a": 1}
    assert form.raw == '{"a":1}'


@cases(
    ("kind", "body", "status"),
    [
        ("text/plain", b"hello", 415),
        ("multipart/form-data; boundary=x", b"", 415),
        ("application/xml", b"<a/>", 415),
        ("application/json", b"", 400),
        ("application/json", b"{", 400),
        ("application/json", b'"text"', 400),
        ("application/json", b"5", 400),
        ("application/json", b"null", 400),
        ("application/json", b'{"a": 1e999}', 400),
        ("application/json", b'{"a": "\xff"}', 400),
        ("application/json", b'{"a": "\\ud800"}', 400),
        ("application/json", b"[" * 100_000, 400),
        ("application/json", b"1" * 10_000, 400),
        ("application/x-www-form-urlencoded", b"a=%FF", 400),
        ("application/x-www-form-urlencoded", b"\xff=1", 400),
        ("application/x-www-form-urlencoded", b"a=1&" * 2000, 400),
        ("application/x-www-form-urlencoded", b"payload=no+json", 400),
    ],
)
def test_invalid_body_is_refused(kind: str, body: bytes, status: int) -> None:
    with pytest.raises(CallRejected) as caught:
        read_payload(kind, body)
    assert caught.value.status == status
    assert len(str(caught.value)) < 300


def test_value_at() -> None:
    value = {"a": {"b": [{"c": None}, 7]}, "x.y": 1, "0": "zero"}
    assert value_at(value, "a.b.0.c") == (True, None)
    assert value_at(value, "a.b.1") == (True, 7)
    assert value_at(value, "0") == (True, "zero")
    for path in ("a.c", "a.b.2", "a.b.-1", "a.b.x", "x.y", "", "a.", "a.b.1.c", "a.b.\u0660"):
        assert value_at(value, path) == (False, None)
    assert value_at([5], "0") == (True, 5)


def test_as_text() -> None:
    shown = [as_text(one) for one in ("ü\n", 1, 1.5, True, None, [1, "ü"], {"a": 10**30})]
    assert shown == snapshot(
        ["ü\n", "1", "1.5", "true", "null", '[1,"ü"]', '{"a":1000000000000000000000000000000}']
    )


@cases(
    ("headers", "value", "name", "also"),
    [
        ({"x-github-event": "push"}, {}, "push", {"push"}),
        (
            {"x-github-event": "pull_request"},
            {"action": "Opened"},
            "pull_request",
            {"pull_request", "pull_request.opened"},
        ),
        (
            {"x-gitlab-event": "Merge Request Hook"},
            {"object_kind": "merge_request", "event_type": "merge_request"},
            "Merge Request Hook",
            {"merge request hook", "merge_request"},
        ),
        ({}, {"event_type": "item:updated"}, "item:updated", {"item:updated"}),
        ({}, {"type": "invoice.paid"}, "invoice.paid", {"invoice.paid"}),
        ({}, {"event_type": "a", "type": "b"}, "a", {"a", "b"}),
        ({}, {"type": 5}, "unknown", {"unknown"}),
        ({}, [1], "unknown", {"unknown"}),
        ({"x-github-event": "  "}, {}, "unknown", {"unknown"}),
    ],
)
def test_event_names(headers: dict, value: object, name: str, also: set[str]) -> None:
    event = event_of(headers, value)
    assert (event.name, event.names) == (name, also)
