"""Events after a request: signed callbacks, woken sessions, and event streams."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import apsw
import msgspec
import pytest
from aiohttp import web

from hermes.api.callbacks import _PrivateAddress, _PublicResolver
from hermes.api.run_service import end_abandoned_runs
from hermes.api.turn_gate import SOURCE
from hermes.channels.webhook.signatures import Scheme, verify
from hermes.kit.failpoints import watch_failpoints
from hermes.kit.http_server import shut_down_server
from hermes.ports.api_records import Callback, SetCallback
from hermes.schema.messages import Result, text_of
from hermes.schema.scope import OWNER, Scope
from hermes.session.session_context import async_delivery_supported
from hermes.testing.fake_openai.script import Call, Fault, Reply, Rule, Script
from hermes.testing.fake_openai.server import serve
from support.api_server import KEY, ApiHarness, ApiResponse, api_harness, api_process, api_settings
from support.gateway import wait_until

TIMEOUT = 60
SECRET = "whsec_MDEyMzQ1Njc4OWFiY2RlZg=="
OPEN = api_settings(callback_allow_private=True)
SCRIPT = Script(
    rules=[
        Rule("fail", [Reply(fault=Fault("status", named="unauthorized"))]),
        Rule("the build", [Reply("The build is done.")]),
        Rule("hang", [Reply("one two three", fault=Fault("hang", after=3), chunk=4)]),
    ],
    default=Reply("Hello."),
)


class Receiver:
    """A program that receives callbacks; it answers with `statuses`, then with 200."""

    def __init__(self, *statuses: int) -> None:
        self.statuses = list(statuses)
        self.url = ""
        self.received: list[dict[str, Any]] = []
        self.refused: list[dict[str, Any]] = []
        self.ids: list[str] = []

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        body = await request.read()
        headers = {name.lower(): value for name, value in request.headers.items()}
        proof = verify(SECRET, headers, body, datetime.now(UTC))
        assert proof.scheme is Scheme.STANDARD
        due = msgspec.json.decode(body, type=dict[str, Any])
        assert due["id"] == proof.id
        self.ids.append(proof.id)
        if self.statuses:
            self.refused.append(due)
            status = self.statuses.pop(0)
            location = {"Location": "/elsewhere"} if status == 302 else {}
            return web.Response(status=status, headers=location)
        self.received.append(due)
        return web.Response()

    @property
    def callback(self) -> dict[str, str]:
        return {"callback_url": self.url, "callback_secret": SECRET}

    async def events_of_kind(self, kind: str) -> dict[str, Any]:
        with anyio.fail_after(TIMEOUT):
            await wait_until(lambda: any(one["type"] == kind for one in self.received))
        return next(one["data"] for one in self.received if one["type"] == kind)


@asynccontextmanager
async def receiving(*statuses: int) -> AsyncGenerator[Receiver]:
    one = Receiver(*statuses)
    runner = web.ServerRunner(web.Server(one.handle))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    one.url = f"http://127.0.0.1:{runner.addresses[0][1]}/hook"
    try:
        yield one
    finally:
        await shut_down_server(runner)


async def post(harness: ApiHarness, path: str, body: dict[str, Any]) -> ApiResponse:
    return await harness.ask("POST", path, msgspec.json.encode(body))


async def deliver_result(harness: ApiHarness, session: str, key: str, text: str) -> None:
    """Deliver the result of something started in the session."""
    scope = Scope(
        profile=harness.app.home.profile, session=session, run="r", workspace="/", source=SOURCE
    )
    await harness.app.store.commit(*harness.app.followups.rows(scope, key, text))
    harness.app.followups.wake(scope)


async def texts_in(harness: ApiHarness, session: str) -> list[str]:
    return [text_of(message) for message in await harness.messages(session)]


@pytest.mark.parametrize(
    ("words_", "kind", "status"),
    [("hi", "run.completed", "completed"), ("fail", "run.failed", "failed")],
)
async def test_end_of_a_run_is_sent_to_the_callback(
    tmp_path: Path, words_: str, kind: str, status: str
) -> None:
    async with receiving() as there, api_harness(tmp_path, SCRIPT, settings=OPEN) as harness:
        begun = (await post(harness, "/v1/runs", {"input": words_, **there.callback})).json
        response = await there.events_of_kind(kind)
        assert (response["run_id"], response["session_id"]) == (
            begun["run_id"],
            begun["session_id"],
        )
        assert response["status"] == status
        assert response.get("output", "") == ("Hello." if status == "completed" else "")
        assert bool(response.get("error")) is (status == "failed")


async def test_database_alone_does_not_reveal_the_secret(tmp_path: Path) -> None:
    async with receiving() as there, api_harness(tmp_path, SCRIPT, settings=OPEN) as harness:
        await post(harness, "/v1/runs", {"input": "hi", **there.callback})
        await there.events_of_kind("run.completed")
    files = [path for path in tmp_path.glob("hermes.db*") if path.is_file()]
    kept = b"".join(path.read_bytes() for path in files)
    assert there.url.encode() in kept
    assert SECRET.encode() not in kept
    assert SECRET.removeprefix("whsec_").encode() not in kept
    key = tmp_path / "callback.key"
    assert key.stat().st_mode & 0o777 == 0o600
    assert key.read_bytes() not in kept


async def test_unencrypted_legacy_secret_still_signs(tmp_path: Path) -> None:
    async with receiving() as there, api_harness(tmp_path, SCRIPT, settings=OPEN) as harness:
        await post(harness, "/api/sessions", {"id": "old", **there.callback})
        await harness.app.store.commit(SetCallback("old", Callback(there.url, secret=SECRET)))
        await post(harness, "/v1/runs", {"input": "hi", "session_id": "old"})
        assert (await there.events_of_kind("run.completed"))["session_id"] == "old"


async def test_failed_callback_is_retried_with_the_same_id(tmp_path: Path) -> None:
    async with (
        receiving(500, 302) as there,
        api_harness(tmp_path, SCRIPT, settings=OPEN) as harness,
    ):
        await post(harness, "/v1/runs", {"input": "hi", **there.callback})
        await there.events_of_kind("run.completed")
        assert len(there.ids) == 3
        assert len(set(there.ids)) == 1


async def test_undelivered_callback_is_sent_after_a_restart(tmp_path: Path) -> None:
    async with receiving() as there:
        async with serve(SCRIPT) as mock, aiohttp.ClientSession() as http:
            with anyio.fail_after(TIMEOUT):
                async with api_process(tmp_path, mock.url) as url:
                    headers = {"Authorization": f"Bearer {KEY}"}
                    body = {"input": "hang", **there.callback}
                    async with http.post(f"{url}/v1/runs", json=body, headers=headers) as response:
                        begun = await response.json()
                        assert response.status == 202, begun
        async with api_harness(tmp_path, SCRIPT, settings=OPEN) as harness:
            assert await end_abandoned_runs(harness.app.store, harness.app.clock) == 1
            harness.server.context.followup_services["default"].wake_delivery(begun["session_id"])
            reply = await there.events_of_kind("run.failed")
            assert (reply["run_id"], reply["error_code"]) == (begun["run_id"], "interrupted")


async def test_session_with_a_callback_is_woken_and_answers_there(tmp_path: Path) -> None:
    async with receiving() as there, api_harness(tmp_path, SCRIPT, settings=OPEN) as harness:
        made = await post(harness, "/api/sessions", {"id": "mine", **there.callback})
        assert made.session["callback_url"] == there.url
        assert SECRET not in made.body.decode()
        await post(harness, "/api/sessions/mine/chat", {"message": "hi"})
        assert there.received == [], "the client is still connected"
        await deliver_result(harness, "mine", "proc_1", "the build has ended")
        response = await there.events_of_kind("session.message")
        assert (response["session_id"], response["text"]) == ("mine", "The build is done.")
        assert await texts_in(harness, "mine") == [
            "hi",
            "Hello.",
            "the build has ended",
            "The build is done.",
        ]
        assert await harness.app.store.queues.topics("inbox") == []


async def test_event_during_a_turn_is_read_once(tmp_path: Path) -> None:
    script = Script(
        rules=[Rule("slow", [Reply("Slowly.", first_byte=0.4)]), *SCRIPT.rules],
        default=Reply("Hello."),
    )
    async with receiving() as there, api_harness(tmp_path, script, settings=OPEN) as harness:
        await post(harness, "/api/sessions", {"id": "mine", **there.callback})
        async with anyio.create_task_group() as group:
            group.start_soon(post, harness, "/api/sessions/mine/chat", {"message": "slow"})
            with anyio.fail_after(TIMEOUT):
                await wait_until(lambda: bool(harness.model_server.requests))
            await deliver_result(harness, "mine", "proc_1", "the build has ended")
        await there.events_of_kind("session.message")
        assert (await texts_in(harness, "mine")).count("the build has ended") == 1


async def test_event_wakes_the_session_once_the_disk_has_room_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing else would wake it: the event would wait for the next request, or a restart."""
    is_full = True

    def reached(name: str) -> None:
        if name == "writer.before_commit" and is_full:
            raise apsw.FullError("the disk is full, says a test")

    async with receiving() as there, api_harness(tmp_path, SCRIPT, settings=OPEN) as harness:
        await post(harness, "/api/sessions", {"id": "mine", **there.callback})
        scope = Scope(profile="default", session="mine", run="r", workspace="/", source=SOURCE)
        rows = harness.app.followups.rows(scope, "p", "the build has ended")
        await harness.app.store.commit(*rows)
        with watch_failpoints(reached), anyio.fail_after(TIMEOUT):
            harness.app.followups.wake(scope)
            await wait_until(lambda: "cannot wake session mine" in caplog.text)
            is_full = False
            response = await there.events_of_kind("session.message")
        assert response["text"] == "The build is done."


async def test_waiting_event_wakes_the_session_after_a_restart(tmp_path: Path) -> None:
    async with receiving() as there:
        async with api_harness(tmp_path, SCRIPT, settings=OPEN) as harness:
            await post(harness, "/api/sessions", {"id": "mine", **there.callback})
            scope = Scope(profile="default", session="mine", run="r", workspace="/", source=SOURCE)
            await harness.app.store.commit(
                *harness.app.followups.rows(scope, "p", "the build has ended")
            )
        async with api_harness(tmp_path, SCRIPT, settings=OPEN) as harness:
            response = await there.events_of_kind("session.message")
            assert response["text"] == "The build is done."


BACKGROUND_SCRIPT = Script(
    rules=[
        Rule(
            "in the background",
            [
                Reply(
                    calls=[
                        Call(
                            "terminal",
                            {"command": "true", "background": True, "notify_on_complete": True},
                        )
                    ]
                ),
                Reply("It runs."),
            ],
        )
    ],
    default=Reply("It has ended."),
)


async def promise_of(harness: ApiHarness, session: str) -> bool:
    """Return what the tool answered to the request for a notification."""
    (result,) = [
        message for message in await harness.messages(session) if isinstance(message, Result)
    ]
    response = msgspec.json.decode(text_of(result), type=dict[str, Any])
    assert bool(response.get("notify_unsupported")) is not response["notify_on_complete"]
    return response["notify_on_complete"]


async def test_notification_is_promised_only_if_it_can_be_delivered(tmp_path: Path) -> None:
    async with (
        receiving() as there,
        api_harness(tmp_path, BACKGROUND_SCRIPT, settings=OPEN) as harness,
    ):
        words_ = "Do it in the background."
        await post(harness, "/api/sessions", {"id": "called", **there.callback})
        await post(harness, "/api/sessions", {"id": "plain"})
        for session in ("called", "plain"):
            await post(harness, f"/api/sessions/{session}/chat", {"message": words_})
        assert await promise_of(harness, "called")
        assert not await promise_of(harness, "plain")
        response = await harness.chat({"messages": [{"role": "user", "content": words_}]})
        assert not await promise_of(harness, response.json["hermes"]["session_id"])
        response = await post(harness, "/v1/responses", {"input": words_})
        assert not await promise_of(harness, response.json["session_id"])
        unheard = (await post(harness, "/v1/runs", {"input": words_, "later": False})).json
        await harness.ask("GET", f"/v1/runs/{unheard['run_id']}/events")
        assert not await promise_of(harness, unheard["session_id"])
        assert async_delivery_supported()
        # The promise is kept.
        assert (await there.events_of_kind("session.message"))["text"] == "It has ended."
        assert (await texts_in(harness, "called"))[-1] == "It has ended."
        assert (await texts_in(harness, "plain"))[-1] == "It runs."


async def test_background_result_appears_on_the_session_events(tmp_path: Path) -> None:
    async with api_harness(tmp_path, BACKGROUND_SCRIPT) as harness:
        begun = (await post(harness, "/v1/runs", {"input": "Do it in the background."})).json
        url = f"{harness.url}/api/sessions/{begun['session_id']}/events"
        headers = {"Authorization": f"Bearer {KEY}"}
        with anyio.fail_after(TIMEOUT):
            async with harness.http.get(url, headers=headers) as response:
                async for line in response.content:
                    if b"It has ended." in line:
                        break
        assert await promise_of(harness, begun["session_id"])


async def test_callback_can_be_removed(tmp_path: Path) -> None:
    async with receiving() as there, api_harness(tmp_path, SCRIPT, settings=OPEN) as harness:
        await post(harness, "/api/sessions", {"id": "mine", **there.callback})
        path = "/api/sessions/mine"
        response = await harness.ask("PATCH", path, b'{"callback_url": null}')
        assert response.session["callback_url"] is None
        body = {"input": "hi", "session_id": "mine"}
        run = (await post(harness, "/v1/runs", body)).json["run_id"]
        await harness.ask("GET", f"/v1/runs/{run}/events")
        response = await harness.ask("PATCH", path, msgspec.json.encode(there.callback))
        assert response.session["callback_url"] == there.url
        await post(harness, "/v1/runs", body)
        assert (await there.events_of_kind("run.completed"))["run_id"] != run
        assert len(there.received) == 1


BAD = [
    {"callback_url": "http://127.0.0.1:1/", "callback_secret": SECRET},
    {"callback_url": "http://localhost/", "callback_secret": SECRET},
    {"callback_url": "http://169.254.169.254/latest", "callback_secret": SECRET},
    {"callback_url": "http://[::1]/", "callback_secret": SECRET},
    {"callback_url": "http://10.1/", "callback_secret": SECRET},
    {"callback_url": "file:///etc/passwd", "callback_secret": SECRET},
    {"callback_url": "https://a:b@example.com/", "callback_secret": SECRET},
    {"callback_url": "https://example.com/" + "a" * 2_000, "callback_secret": SECRET},
    {"callback_url": "https://example.com/"},
    {"callback_url": "https://example.com/", "callback_secret": "short"},
    {"callback_url": "https://example.com/", "callback_secret": "ü" * 20},
    {"callback_secret": SECRET},
]


@pytest.mark.parametrize("bad", BAD)
async def test_invalid_callback_is_rejected_before_anything_is_stored(
    tmp_path: Path, bad: dict[str, str]
) -> None:
    async with api_harness(tmp_path, SCRIPT) as harness:
        for path, body in (("/v1/runs", {"input": "hi"}), ("/api/sessions", {})):
            response = await post(harness, path, {**body, **bad})
            assert (response.status, response.code) == (400, "invalid_callback")
        assert await harness.sessions() == []
        assert await harness.app.store.api.sessions_with_callback(10) == []


async def test_host_that_resolves_to_a_private_address_is_not_called() -> None:
    resolver = _PublicResolver()
    with pytest.raises(_PrivateAddress):
        await resolver.resolve("localhost", 80)
    await resolver.close()


async def test_session_is_followed_from_any_message(tmp_path: Path) -> None:
    async with api_harness(tmp_path, SCRIPT) as harness:
        begun = (await post(harness, "/v1/runs", {"input": "hi"})).json
        session, headers = begun["session_id"], {"Authorization": f"Bearer {KEY}"}
        await harness.ask("GET", f"/v1/runs/{begun['run_id']}/events")
        url = f"{harness.url}/api/sessions/{session}/events"
        received: list[tuple[int, str]] = []

        async def follow(after: int, until_: int) -> None:
            sent = headers | {"Last-Event-ID": str(after)}
            async with harness.http.get(url, headers=sent) as response:
                assert response.status == 200
                async for line in response.content:
                    if line.startswith(b"data: "):
                        reply = msgspec.json.decode(line[6:], type=dict[str, Any])
                        received.append((reply["seq"], reply["content"]))
                        if len(received) == until_:
                            return

        with anyio.fail_after(TIMEOUT):
            await follow(0, 1)
            async with anyio.create_task_group() as group:
                group.start_soon(follow, received[0][0], 4)
                await deliver_result(harness, session, "proc_1", "the build has ended")
        assert [text for _, text in received] == [
            "hi",
            "Hello.",
            "the build has ended",
            "The build is done.",
        ]
        numbers = [number for number, _ in received]
        assert numbers == sorted(set(numbers))
        reply = await harness.ask("GET", f"/api/sessions/{session}/events?after=x")
        assert reply.status == 400
        async with harness.http.get(url, headers=headers) as response:
            await harness.app.store.archive_for(OWNER).delete([session])
            with anyio.fail_after(TIMEOUT):
                assert b"deleted" in await response.read()
