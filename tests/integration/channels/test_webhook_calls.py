"""Webhook calls over a real socket: accepted, refused, deduplicated."""

import logging
from pathlib import Path

import anyio
import pytest

from hermes.channels.webhook.routes import INSECURE
from hermes.channels.webhook.signatures import Scheme, sign
from hermes.channels.webhook.subscriptions import Subscriptions
from hermes.ports.channel import InboundDetails, InboundRefused, Outbound, TargetGone
from hermes.schema.errors import StoreError
from hermes.schema.messages import Text
from hermes.schema.scope import Address
from hermes.testing.clock import FakeClock
from support.polling import pause
from support.webhooks import (
    JSON_HEADERS,
    SECRET,
    WebhookHarness,
    inbound_text,
    signed_headers,
    webhook_harness,
)

SIGNATURE = {
    Scheme.STANDARD: "webhook-signature",
    Scheme.SVIX: "svix-signature",
    Scheme.V2: "x-webhook-signature-v2",
    Scheme.GITHUB: "x-hub-signature-256",
    Scheme.LEGACY: "x-webhook-signature",
    Scheme.GITLAB: "x-gitlab-token",
}
FORM = "application/x-www-form-urlencoded"
UNSIGNED_ID = (Scheme.V2, Scheme.GITHUB, Scheme.LEGACY)


class PublicListener:
    """A listener reachable from anywhere."""

    serving = True
    loopback = False


async def test_valid_call_becomes_a_message(tmp_path: Path) -> None:
    routes = {"github": {"prompt": "Look at {pull.title}", "deliver": "telegram:5"}}
    async with webhook_harness(tmp_path, routes) as harness:
        call_status = await harness.call(
            "github", b'{"pull": {"title": "Fix"}}', "guid-1", Scheme.GITHUB
        )
        assert call_status.status == 202
        assert call_status.body == {
            "status": "accepted",
            "route": "github",
            "delivery_id": "guid-1",
        }
        (received,) = harness.inbound
        assert received.key.startswith("github:")
        assert "guid-1" not in received.key
        assert received.address == Address("webhook", "webhook:github:guid-1")
        assert (received.sender, received.message, received.reply_to) == ("github", "guid-1", None)
        assert received.about == InboundDetails(
            chat_type="webhook", chat_name="github", user_name="github"
        )
        assert (received.answer_to, received.verbatim) == ("telegram:5", False)
        assert ">Fix</data-" in inbound_text(received)


async def test_verbatim_route_delivers_the_filled_text(tmp_path: Path) -> None:
    routes = {"a": {"prompt": "{who} is here", "deliver": "telegram", "deliver_only": True}}
    async with webhook_harness(tmp_path, routes) as harness:
        await harness.call("a", b'{"who": "Ann"}')
        (received,) = harness.inbound
        assert (inbound_text(received), received.verbatim, received.answer_to) == (
            "Ann is here",
            True,
            "telegram",
        )


async def test_route_of_a_job_names_it(tmp_path: Path) -> None:
    routes = {"a": {"prompt": "{who} is here", "cron_job": "greet"}}
    async with webhook_harness(tmp_path, routes) as harness:
        assert (await harness.call("a", b'{"who": "Ann"}')).status == 202
        (received,) = harness.inbound
        assert received.job == "greet"


async def test_payload_is_never_a_command(tmp_path: Path) -> None:
    """A typed command is a message of one part that begins with a slash."""
    async with webhook_harness(
        tmp_path, {"a": {"prompt": "{text}"}, "b": {"prompt": "/stop {text}"}}
    ) as harness:
        await harness.call("a", b'{"text": "/stop"}')
        await harness.call("b", b'{"text": "/stop"}', "d-2")
        assert [len(received.parts) for received in harness.inbound] == [2, 2]
        assert not any(inbound_text(received).startswith("/") for received in harness.inbound)


@pytest.mark.parametrize("scheme", Scheme)
async def test_replay_is_ignored(tmp_path: Path, scheme: Scheme) -> None:
    """The same request again: after a second, and after an hour."""
    clock = FakeClock()
    body = b'{"a": 1}'
    async with webhook_harness(tmp_path, {"a": {}}, clock=clock) as harness:
        headers = signed_headers(body, clock.now(), "d-1", scheme)
        assert (await harness.post("/webhooks/a", body, headers)).status == 202
        await clock.advance(1)
        again = await harness.post("/webhooks/a", body, headers)
        assert (again.status, again.code) == (200, "duplicate")
        await clock.advance(3600)
        late = await harness.post("/webhooks/a", body, headers)
        assert late.code in {"duplicate", "stale"}
        assert len(harness.inbound) == 1


@pytest.mark.parametrize("scheme", UNSIGNED_ID)
async def test_replay_with_another_unsigned_id_is_ignored(
    tmp_path: Path, scheme: Scheme, caplog: pytest.LogCaptureFixture
) -> None:
    clock = FakeClock()
    body = b'{"a": 1}'
    async with webhook_harness(tmp_path, {"a": {}}, clock=clock) as harness:
        headers = signed_headers(body, clock.now(), "d-1", scheme)
        assert (await harness.post("/webhooks/a", body, headers)).status == 202
        forged = {name: "d-2" if text == "d-1" else text for name, text in headers.items()}
        await clock.advance(1)
        again = await harness.post("/webhooks/a", body, forged)
        assert (again.status, again.code) == (200, "duplicate")
        assert "signed content was repeated" in caplog.text
        assert (await harness.post("/webhooks/a", b'{"a":2}', forged)).status == 401
        await clock.advance(86_400)
        assert (await harness.post("/webhooks/a", body, forged)).code in {"duplicate", "stale"}
        assert len(harness.inbound) == 1


@pytest.mark.parametrize("scheme", UNSIGNED_ID)
async def test_stored_key_depends_on_signed_content(tmp_path: Path, scheme: Scheme) -> None:
    """Two processes that do not know each other's calls use the same key."""
    clock = FakeClock()
    keys: list[str] = []
    for delivery in ("d-1", "d-2"):
        async with webhook_harness(
            tmp_path, {"a": {"allow_repeats": scheme is Scheme.V2}}, clock=clock
        ) as harness:
            assert (await harness.call("a", b'{"a": 1}', delivery, scheme)).status == 202
            keys += [received.key for received in harness.inbound]
    assert keys[0] == keys[1]


@pytest.mark.parametrize("scheme", [Scheme.GITHUB, Scheme.LEGACY])
async def test_route_can_allow_repeated_bodies(tmp_path: Path, scheme: Scheme) -> None:
    async with webhook_harness(tmp_path, {"a": {"allow_repeats": True}}) as harness:
        for delivery in ("d-1", "d-2"):
            assert (await harness.call("a", b"{}", delivery, scheme)).status == 202
            assert (await harness.call("a", b"{}", delivery, scheme)).code == "duplicate"
        assert [received.key for received in harness.inbound] == ["a:d-1", "a:d-2"]


async def test_signature_is_accepted_once_across_schemes(tmp_path: Path) -> None:
    async with webhook_harness(tmp_path, {"a": {}}) as harness:
        headers = signed_headers(b"{}", harness.clock.now(), "d-1", Scheme.GITHUB)
        assert (await harness.post("/webhooks/a", b"{}", headers)).status == 202
        other = JSON_HEADERS | {
            "X-Webhook-Signature": headers["x-hub-signature-256"],
            "X-Request-ID": "2",
        }
        assert (await harness.post("/webhooks/a", b"{}", other)).code == "duplicate"


@pytest.mark.parametrize("route", [{}, {"form": True}, {"signature": "legacy", "form": True}])
async def test_old_call_is_refused_under_another_scheme(
    tmp_path: Path, route: dict[str, object]
) -> None:
    """The signed time and body of a call, sent as the body of a scheme without a time."""
    clock = FakeClock()
    body = b"who=ann"
    stamp = str(int(clock.now().timestamp()))
    signature = sign(SECRET, "d-1", clock.now(), body, Scheme.V2)["x-webhook-signature-v2"]
    await clock.advance(86_400)
    async with webhook_harness(tmp_path, {"a": route}, clock=clock) as harness:
        headers = {"Content-Type": FORM, "X-Webhook-Signature": signature}
        call_status = await harness.post("/webhooks/a", f"{stamp}.".encode() + body, headers)
        assert (call_status.status, call_status.code) == (401, "signature")
        assert harness.inbound == []


@pytest.mark.parametrize("scheme", Scheme)
async def test_forms_require_an_unambiguous_signature(tmp_path: Path, scheme: Scheme) -> None:
    more = {"Content_Type": FORM}
    clock = FakeClock()
    async with webhook_harness(
        tmp_path, {"a": {}, "forms": {"form": True}}, clock=clock
    ) as harness:
        call_status = await harness.call("a", b"who=ann", "d-1", scheme, **more)
        if scheme in {Scheme.GITHUB, Scheme.LEGACY}:
            assert (call_status.status, call_status.code) == (415, "content_type")
            assert "form: true" in call_status.body["error"]["message"]
        else:
            assert call_status.status == 202
        await clock.advance(1)
        assert (await harness.call("forms", b"who=ann", "d-2", scheme, **more)).status == 202


@pytest.mark.parametrize("scheme", UNSIGNED_ID)
async def test_call_without_id_is_named_by_signed_content(tmp_path: Path, scheme: Scheme) -> None:
    clock = FakeClock()
    body = b'{"a": 1}'

    def headers() -> dict[str, str]:
        header_values = signed_headers(body, clock.now(), "d-1", scheme)
        return {name: text for name, text in header_values.items() if text != "d-1"}

    async with webhook_harness(tmp_path, {"a": {}}, clock=clock) as harness:
        assert (await harness.post("/webhooks/a", body, headers())).status == 202
        assert (await harness.post("/webhooks/a", body, headers())).code == "duplicate"
        await clock.advance(1)
        later = await harness.post("/webhooks/a", body, headers())
        assert later.code == ("accepted" if scheme is Scheme.V2 else "duplicate")
        assert len({received.key for received in harness.inbound}) == len(harness.inbound)


async def test_resigned_delivery_is_a_retry(tmp_path: Path) -> None:
    clock = FakeClock()
    async with webhook_harness(tmp_path, {"a": {}}, clock=clock) as harness:
        for scheme in (Scheme.STANDARD, Scheme.V2):
            assert (await harness.call("a", delivery=scheme, scheme=scheme)).status == 202
            await clock.advance(200)
            assert (await harness.call("a", delivery=scheme, scheme=scheme)).code == "duplicate"


async def test_routes_have_separate_delivery_ids(tmp_path: Path) -> None:
    secret = "another-secret-of-some-length"
    async with webhook_harness(tmp_path, {"a": {}, "b": {"secret": secret}}) as harness:
        assert (await harness.call("a")).status == 202
        headers = JSON_HEADERS | sign(secret, "d-1", harness.clock.now(), b"{}")
        assert (await harness.post("/webhooks/b", b"{}", headers)).status == 202
        assert [received.key for received in harness.inbound] == ["a:d-1", "b:d-1"]


async def test_unusual_ids_are_hashed(tmp_path: Path) -> None:
    async with webhook_harness(tmp_path, {"a": {}}) as harness:
        for odd in ("a:b", "x" * 300, "a b", "ü", "../../x"):
            call_status = await harness.call("a", delivery=odd)
            assert call_status.status == 202
            assert len(call_status.body["delivery_id"]) == 32
            assert (await harness.call("a", delivery=odd)).code == "duplicate"


@pytest.mark.parametrize("scheme", Scheme)
async def test_changed_byte_is_refused(tmp_path: Path, scheme: Scheme) -> None:
    body = b'{"event_type":"x"}'
    async with webhook_harness(tmp_path, {"a": {}}) as harness:
        headers = signed_headers(body, harness.clock.now(), "d-1", scheme)
        name = SIGNATURE[scheme]
        for index in range(len(headers[name])):
            changed = headers[name]
            byte = "0" if changed[index] != "0" else "1"
            forged = headers | {name: changed[:index] + byte + changed[index + 1 :]}
            assert (await harness.post("/webhooks/a", body, forged)).status == 401
        if scheme is not Scheme.GITLAB:
            for index in range(len(body)):
                other = body[:index] + bytes([body[index] ^ 1]) + body[index + 1 :]
                assert (await harness.post("/webhooks/a", other, headers)).status == 401
        assert harness.inbound == []
        assert (await harness.post("/webhooks/a", body, headers)).status == 202


async def test_duplicate_security_header_is_refused(tmp_path: Path) -> None:
    async with webhook_harness(tmp_path, {"a": {}}) as harness:
        for scheme in Scheme:
            genuine = list(signed_headers(b"{}", harness.clock.now(), "d-1", scheme).items())
            for name, text in genuine[1:]:
                call_status = await harness.post("/webhooks/a", b"{}", [*genuine, (name, text)])
                assert (call_status.status, call_status.code) == (400, "duplicate_header")
        assert harness.inbound == []


async def test_call_is_accepted_only_after_storing(tmp_path: Path) -> None:
    async with webhook_harness(tmp_path, {"a": {}}) as harness, anyio.create_task_group() as group:
        harness.gate = anyio.Event()
        answers: list[int] = []

        async def call() -> None:
            answers.append((await harness.call("a")).status)

        group.start_soon(call)
        await harness.asked.wait()
        assert answers == []
        group.start_soon(call)
        await anyio.wait_all_tasks_blocked()
        harness.gate.set()
        with anyio.fail_after(60):
            while len(answers) < 2:
                await pause()
        assert sorted(answers) == [200, 202]
        assert len(harness.inbound) == 1


async def test_unstored_call_can_be_retried(tmp_path: Path) -> None:
    async with webhook_harness(tmp_path, {"a": {}}) as harness:
        harness.failure = StoreError("The disk is full.")
        call_status = await harness.call("a")
        assert (call_status.status, call_status.code, call_status.headers["Retry-After"]) == (
            503,
            "not_kept",
            "5",
        )
        harness.failure = RuntimeError("a defect")
        broken = await harness.call("a")
        assert (broken.status, broken.code) == (500, "internal")
        assert "defect" not in str(broken.body)
        harness.failure = None
        assert (await harness.call("a")).status == 202


async def test_events_and_filters_select_calls(tmp_path: Path) -> None:
    routes = {
        "a": {
            "events": ["issues", "pull_request.opened"],
            "filters": [{"field": "repo", "in": ["x", "y"]}],
        }
    }

    async def call_status(harness: WebhookHarness, number: int, event: str, body: bytes) -> dict:
        extra = {"x_github_event": event}
        return (await harness.call("a", body, f"d-{number}", Scheme.GITHUB, **extra)).body

    async with webhook_harness(tmp_path, routes) as harness:
        assert (await call_status(harness, 1, "issues", b'{"repo": "x"}'))["status"] == "accepted"
        assert (await call_status(harness, 2, "push", b'{"repo":"x"}')) == {
            "status": "ignored",
            "reason": "event",
            "event": "push",
        }
        assert (await call_status(harness, 3, "issues", b'{"repo": "z"}'))["reason"] == "filter"
        opened = b'{"repo": "y", "action": "opened"}'
        assert (await call_status(harness, 4, "pull_request", opened))["status"] == "accepted"
        closed = b'{"repo": "y", "action": "closed"}'
        assert (await call_status(harness, 5, "pull_request", closed))["reason"] == "event"
        assert len(harness.inbound) == 2


async def test_calls_per_minute_are_limited(tmp_path: Path) -> None:
    clock = FakeClock()
    async with webhook_harness(tmp_path, {"a": {"events": ["x"]}, "b": {}}, clock=clock) as harness:
        body = b'{"type": "x"}'
        for number in range(30):
            assert (await harness.call("a", body, f"d-{number}")).status == 202
        await clock.advance(20)
        call_status = await harness.call("a", body, "d-31")
        assert (call_status.status, call_status.code, call_status.headers["Retry-After"]) == (
            429,
            "rate_limit",
            "40",
        )
        assert (await harness.call("a", body, "d-1")).code == "duplicate"
        assert (await harness.call("a", b"{}", "d-32")).code == "ignored"
        assert (await harness.call("b", body, "d-33")).status == 202
        await clock.advance(40)
        assert (await harness.call("a", body, "d-31")).status == 202


async def test_gateway_refusal_is_returned_to_the_caller(
    tmp_path: Path,
) -> None:
    async with webhook_harness(tmp_path, {"a": {}}) as harness:
        harness.failure = InboundRefused("Too much.", wait=0.5)
        call_status = await harness.call("a", b"{}", "d-1")
        assert (call_status.status, call_status.code, call_status.headers["Retry-After"]) == (
            429,
            "rate_limit",
            "1",
        )
        harness.failure = None
        assert (await harness.call("a", b"{}", "d-1")).status == 202


async def test_forged_calls_do_not_count_against_the_limit(tmp_path: Path) -> None:
    async with webhook_harness(tmp_path, {"a": {}}) as harness:
        for _ in range(40):
            assert (await harness.call("a", x_webhook_signature="no", webhook_id="x")).status == 401
        assert (await harness.call("a")).status == 202


async def test_route_without_secret_accepts_only_local_calls(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    routes = {"a": {"secret": INSECURE}}
    async with webhook_harness(tmp_path, routes) as harness:
        assert (await harness.post("/webhooks/a", b"{}", JSON_HEADERS)).status == 202
        assert (await harness.post("/webhooks/a", b"{}", JSON_HEADERS)).status == 202
        retry = JSON_HEADERS | {"X-Request-ID": "one"}
        assert (await harness.post("/webhooks/a", b"{}", retry)).status == 202
        assert (await harness.post("/webhooks/a", b"{}", retry)).code == "duplicate"
        for header in ("Origin", "X-Forwarded-For", "Sec-Fetch-Site", "Forwarded"):
            call_status = await harness.post("/webhooks/a", b"{}", JSON_HEADERS | {header: "x"})
            assert (call_status.status, call_status.code) == (403, "insecure")
        channel = harness.channels["default"]
        channel.attached_to(PublicListener())
        assert "route a is not served" in caplog.text
        call_status = await harness.post("/webhooks/a", b"{}", JSON_HEADERS)
        assert (call_status.status, call_status.code) == (403, "insecure")
        assert len(harness.inbound) == 3


async def test_new_subscription_is_served_immediately(tmp_path: Path) -> None:
    subscriptions = Subscriptions(tmp_path / "default.json")
    async with webhook_harness(tmp_path, {}) as harness:
        assert (await harness.call("new")).status == 404
        subscriptions.add("new", {"secret": SECRET})
        assert (await harness.call("new")).status == 202
        subscriptions.remove("new")
        assert (await harness.call("new")).status == 404


async def test_disabled_and_unsupported_routes_are_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    routes = {"off": {"enabled": False}, "later": {"script": "x.py"}}
    async with webhook_harness(tmp_path, routes) as harness:
        off, later = await harness.call("off"), await harness.call("later")
        assert (off.status, off.code) == (403, "disabled")
        assert (later.status, later.code) == (501, "not_served")
        assert "route later is not served" in caplog.text
        assert "x.py" not in str(later.body)


async def test_profiles_are_separate(tmp_path: Path) -> None:
    own = {"a": {"secret": "the secret of work", "prompt": "work"}}
    async with webhook_harness(tmp_path, {"a": {"prompt": "default"}}, work=own) as harness:
        body = b"{}"
        headers = signed_headers(body, harness.clock.now())
        assert (await harness.post("/webhooks/a", body, headers)).status == 202
        assert (await harness.post("/p/default/webhooks/a", body, headers)).code == "duplicate"
        assert (await harness.post("/p/work/webhooks/a", body, headers)).status == 401
        assert (await harness.post("/p/other/webhooks/a", body, headers)).status == 404
        assert [inbound_text(received).rpartition("\n")[2] for received in harness.inbound] == [
            "default"
        ]


async def test_answer_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with webhook_harness(tmp_path, {"a": {}}) as harness:
        channel = harness.channels["default"]
        with caplog.at_level(logging.INFO):
            to = Address("webhook", "webhook:a:d-1")
            receipt = await channel.send(to, Outbound((Text("All\ngood."),)))
        assert receipt.address == to
        assert receipt.id
        assert "webhook a, call d-1: All good." in caplog.text
        for chat in ("5", "webhook:a", "webhook::d"):
            with pytest.raises(TargetGone):
                await channel.send(Address("webhook", chat), Outbound((Text("x"),)))
        with pytest.raises(TargetGone):
            await channel.send(Address("telegram", "webhook:a:d"), Outbound((Text("x"),)))


@pytest.mark.parametrize("scheme", [one for one in Scheme if one is not Scheme.GITLAB])
async def test_call_cannot_be_replayed_at_another_route(tmp_path: Path, scheme: Scheme) -> None:
    """Signatures do not name a route, so routes that share a secret accept a call once."""
    own = {"secret": "another-secret-of-some-length"}
    async with webhook_harness(tmp_path, {"a": {}, "b": {}, "c": own}) as harness:
        body = b'{"n": 1}'
        headers = signed_headers(body, harness.clock.now(), scheme=scheme)
        found: list[tuple[str, int]] = []
        for route in ("a", "b", "c"):
            url = f"http://127.0.0.1:{harness.listener.port}/webhooks/{route}"
            async with harness.session.post(url, data=body, headers=headers) as response:
                found.append((route, response.status))
        assert found == [("a", 202), ("b", 200), ("c", 401)]
        assert len(harness.inbound) == 1


async def test_shared_secret_is_warned_about(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with webhook_harness(
        tmp_path, {"a": {}, "b": {}, "c": {"secret": "another-secret-of-some-length"}}
    ):
        call_status = [record.getMessage() for record in caplog.records]
    about = [one for one in call_status if "Give each route its own secret" in one]
    assert len(about) == 2
    assert SECRET not in "".join(about)
