"""What comes after its request: signed callbacks, sessions that are woken, events to follow."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import msgspec
import pytest
from aiohttp import web

from hermes.api.callbacks import CALLBACK_KIND, _PrivateAddress, _PublicResolver
from hermes.api.run_service import end_abandoned_runs
from hermes.api.turn_gate import SOURCE
from hermes.channels.webhook.signatures import Scheme, verify
from hermes.kit.http_shutdown import shut_down_server
from hermes.ports.records import PutRecord
from hermes.schema.messages import Result, text_of
from hermes.schema.scope import OWNER, Scope
from hermes.session.session_context import async_delivery_supported
from hermes.testing.fake_openai.script import Call, Fault, Reply, Rule, Script
from hermes.testing.fake_openai.server import serve
from support.api_server import KEY, ApiHarness, ApiResponse, api_harness, api_process, api_settings
from support.gateway import wait_until

pytestmark = pytest.mark.anyio

PATIENCE = 60
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
    """A program that is called back; it answers with each of `statuses`, then with 200."""

    def __init__(self, *statuses: int) -> None:
        self.statuses = list(statuses)
        self.url = ""
        self.heard: list[dict[str, Any]] = []
        self.refused: list[dict[str, Any]] = []
        self.ids: list[str] = []

    async def hear(self, request: web.BaseRequest) -> web.StreamResponse:
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
        self.heard.append(due)
        return web.Response()

    @property
    def callback(self) -> dict[str, str]:
        return {"callback_url": self.url, "callback_secret": SECRET}

    async def heard_of(self, kind: str) -> dict[str, Any]:
        with anyio.fail_after(PATIENCE):
            await wait_until(lambda: any(one["type"] == kind for one in self.heard))
        return next(one["data"] for one in self.heard if one["type"] == kind)


@asynccontextmanager
async def receiving(*statuses: int) -> AsyncGenerator[Receiver]:
    one = Receiver(*statuses)
    runner = web.ServerRunner(web.Server(one.hear))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    one.url = f"http://127.0.0.1:{runner.addresses[0][1]}/hook"
    try:
        yield one
    finally:
        await shut_down_server(runner)


async def post(one: ApiHarness, path: str, body: dict[str, Any]) -> ApiResponse:
    return await one.ask("POST", path, msgspec.json.encode(body))


async def bring(one: ApiHarness, session: str, key: str, text: str) -> None:
    """Something that was begun in the session has ended."""
    scope = Scope(
        profile=one.app.home.profile, session=session, run="r", workspace="/", source=SOURCE
    )
    await one.app.store.commit(*one.app.later.brought(scope, key, text))
    one.app.later.ring(scope)


async def words(one: ApiHarness, session: str) -> list[str]:
    return [text_of(message) for message in await one.said(session)]


@pytest.mark.parametrize(
    ("words_", "kind", "status"),
    [("hi", "run.completed", "completed"), ("fail", "run.failed", "failed")],
)
async def test_the_end_of_a_run_is_told(
    tmp_path: Path, words_: str, kind: str, status: str
) -> None:
    async with receiving() as there, api_harness(tmp_path, SCRIPT, given=OPEN) as one:
        begun = (await post(one, "/v1/runs", {"input": words_, **there.callback})).json
        told = await there.heard_of(kind)
        assert (told["run_id"], told["session_id"]) == (begun["run_id"], begun["session_id"])
        assert told["status"] == status
        assert told.get("output", "") == ("Hello." if status == "completed" else "")
        assert bool(told.get("error")) is (status == "failed")


async def test_the_database_alone_does_not_tell_the_secret(tmp_path: Path) -> None:
    async with receiving() as there, api_harness(tmp_path, SCRIPT, given=OPEN) as one:
        await post(one, "/v1/runs", {"input": "hi", **there.callback})
        await there.heard_of("run.completed")
    kept = b"".join(path.read_bytes() for path in tmp_path.glob("state.db*"))
    assert there.url.encode() in kept
    assert SECRET.encode() not in kept
    assert SECRET.removeprefix("whsec_").encode() not in kept
    key = tmp_path / "callback.key"
    assert key.stat().st_mode & 0o777 == 0o600
    assert key.read_bytes() not in kept


async def test_a_secret_from_before_it_was_sealed_still_signs(tmp_path: Path) -> None:
    async with receiving() as there, api_harness(tmp_path, SCRIPT, given=OPEN) as one:
        await post(one, "/api/sessions", {"id": "old", **there.callback})
        matter = await one.app.store.records.get(CALLBACK_KIND, "old")
        assert matter is not None
        plain = msgspec.Raw(msgspec.json.encode({"url": there.url, "secret": SECRET}))
        await one.app.store.commit(PutRecord(msgspec.structs.replace(matter, body=plain)))
        await post(one, "/v1/runs", {"input": "hi", "session_id": "old"})
        assert (await there.heard_of("run.completed"))["session_id"] == "old"


async def test_it_is_tried_again_under_the_same_id(tmp_path: Path) -> None:
    async with receiving(500, 302) as there, api_harness(tmp_path, SCRIPT, given=OPEN) as one:
        await post(one, "/v1/runs", {"input": "hi", **there.callback})
        await there.heard_of("run.completed")
        assert len(there.ids) == 3
        assert len(set(there.ids)) == 1


async def test_what_could_not_be_told_is_told_after_the_next_start(tmp_path: Path) -> None:
    async with receiving() as there:
        async with serve(SCRIPT) as mock, aiohttp.ClientSession() as http:
            with anyio.fail_after(PATIENCE):
                async with api_process(tmp_path, mock.url) as url:
                    headers = {"Authorization": f"Bearer {KEY}"}
                    body = {"input": "hang", **there.callback}
                    async with http.post(f"{url}/v1/runs", json=body, headers=headers) as response:
                        begun = await response.json()
                        assert response.status == 202, begun
        async with api_harness(tmp_path, SCRIPT, given=OPEN) as one:
            assert await end_abandoned_runs(one.app.store, one.app.clock) == 1
            one.server.desk.followup_services["default"].posted(begun["session_id"])
            told = await there.heard_of("run.failed")
            assert (told["run_id"], told["error_code"]) == (begun["run_id"], "interrupted")


async def test_a_session_with_a_callback_is_woken_and_answers_there(tmp_path: Path) -> None:
    async with receiving() as there, api_harness(tmp_path, SCRIPT, given=OPEN) as one:
        made = await post(one, "/api/sessions", {"id": "mine", **there.callback})
        assert made.json["callback_url"] == there.url
        assert SECRET not in made.body.decode()
        await post(one, "/api/sessions/mine/chat", {"message": "hi"})
        assert there.heard == [], "who asked is still there"
        await bring(one, "mine", "proc_1", "the build has ended")
        told = await there.heard_of("session.message")
        assert (told["session_id"], told["text"]) == ("mine", "The build is done.")
        assert await words(one, "mine") == [
            "hi",
            "Hello.",
            "the build has ended",
            "The build is done.",
        ]
        assert await one.app.store.queues.topics("inbox") == []


async def test_what_came_in_the_middle_of_a_turn_is_heard_once(tmp_path: Path) -> None:
    script = Script(
        rules=[Rule("slow", [Reply("Slowly.", first_byte=0.4)]), *SCRIPT.rules],
        default=Reply("Hello."),
    )
    async with receiving() as there, api_harness(tmp_path, script, given=OPEN) as one:
        await post(one, "/api/sessions", {"id": "mine", **there.callback})
        async with anyio.create_task_group() as group:
            group.start_soon(post, one, "/api/sessions/mine/chat", {"message": "slow"})
            with anyio.fail_after(PATIENCE):
                await wait_until(lambda: bool(one.mock.requests))
            await bring(one, "mine", "proc_1", "the build has ended")
        await there.heard_of("session.message")
        assert (await words(one, "mine")).count("the build has ended") == 1


async def test_what_waited_when_the_process_ended_wakes_the_next(tmp_path: Path) -> None:
    async with receiving() as there:
        async with api_harness(tmp_path, SCRIPT, given=OPEN) as one:
            await post(one, "/api/sessions", {"id": "mine", **there.callback})
            scope = Scope(profile="default", session="mine", run="r", workspace="/", source=SOURCE)
            await one.app.store.commit(*one.app.later.brought(scope, "p", "the build has ended"))
        async with api_harness(tmp_path, SCRIPT, given=OPEN) as one:
            told = await there.heard_of("session.message")
            assert told["text"] == "The build is done."


BEHIND = Script(
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


async def promised(one: ApiHarness, session: str) -> bool:
    """What the tool said to the wish to be told of the end."""
    (result,) = [said for said in await one.said(session) if isinstance(said, Result)]
    told = msgspec.json.decode(text_of(result), type=dict[str, Any])
    assert bool(told.get("notify_unsupported")) is not told["notify_on_complete"]
    return told["notify_on_complete"]


async def test_only_who_can_be_told_later_is_promised_anything(tmp_path: Path) -> None:
    async with receiving() as there, api_harness(tmp_path, BEHIND, given=OPEN) as one:
        words_ = "Do it in the background."
        await post(one, "/api/sessions", {"id": "called", **there.callback})
        await post(one, "/api/sessions", {"id": "plain"})
        for session in ("called", "plain"):
            await post(one, f"/api/sessions/{session}/chat", {"message": words_})
        assert await promised(one, "called")
        assert not await promised(one, "plain")
        told = await one.chat({"messages": [{"role": "user", "content": words_}]})
        assert not await promised(one, told.json["hermes"]["session_id"])
        told = await post(one, "/v1/responses", {"input": words_})
        assert not await promised(one, told.json["session_id"])
        unheard = (await post(one, "/v1/runs", {"input": words_, "later": False})).json
        await one.ask("GET", f"/v1/runs/{unheard['run_id']}/events")
        assert not await promised(one, unheard["session_id"])
        assert async_delivery_supported()
        # And it is kept.
        assert (await there.heard_of("session.message"))["text"] == "It has ended."
        assert (await words(one, "called"))[-1] == "It has ended."
        assert (await words(one, "plain"))[-1] == "It runs."


async def test_a_run_is_told_of_what_it_began_on_the_events_of_its_session(tmp_path: Path) -> None:
    async with api_harness(tmp_path, BEHIND) as one:
        begun = (await post(one, "/v1/runs", {"input": "Do it in the background."})).json
        url = f"{one.url}/api/sessions/{begun['session_id']}/events"
        headers = {"Authorization": f"Bearer {KEY}"}
        with anyio.fail_after(PATIENCE):
            async with one.http.get(url, headers=headers) as response:
                async for line in response.content:
                    if b"It has ended." in line:
                        break
        assert await promised(one, begun["session_id"])


async def test_a_callback_can_be_taken_away(tmp_path: Path) -> None:
    async with receiving() as there, api_harness(tmp_path, SCRIPT, given=OPEN) as one:
        await post(one, "/api/sessions", {"id": "mine", **there.callback})
        path = "/api/sessions/mine"
        told = await one.ask("PATCH", path, b'{"callback_url": null}')
        assert told.json["callback_url"] is None
        body = {"input": "hi", "session_id": "mine"}
        run = (await post(one, "/v1/runs", body)).json["run_id"]
        await one.ask("GET", f"/v1/runs/{run}/events")
        told = await one.ask("PATCH", path, msgspec.json.encode(there.callback))
        assert told.json["callback_url"] == there.url
        await post(one, "/v1/runs", body)
        assert (await there.heard_of("run.completed"))["run_id"] != run
        assert len(there.heard) == 1


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
async def test_a_bad_callback_is_refused_before_anything_is_written(
    tmp_path: Path, bad: dict[str, str]
) -> None:
    async with api_harness(tmp_path, SCRIPT) as one:
        for path, body in (("/v1/runs", {"input": "hi"}), ("/api/sessions", {})):
            told = await post(one, path, {**body, **bad})
            assert (told.status, told.code) == (400, "invalid_callback")
        assert await one.sessions() == []
        assert await one.app.store.records.find(CALLBACK_KIND) == []


async def test_a_name_that_leads_inside_is_not_called() -> None:
    resolver = _PublicResolver()
    with pytest.raises(_PrivateAddress):
        await resolver.resolve("localhost", 80)
    await resolver.close()


async def test_a_session_is_followed_from_any_message_on(tmp_path: Path) -> None:
    async with api_harness(tmp_path, SCRIPT) as one:
        begun = (await post(one, "/v1/runs", {"input": "hi"})).json
        session, headers = begun["session_id"], {"Authorization": f"Bearer {KEY}"}
        await one.ask("GET", f"/v1/runs/{begun['run_id']}/events")
        url = f"{one.url}/api/sessions/{session}/events"
        heard: list[tuple[int, str]] = []

        async def follow(after: int, until_: int) -> None:
            sent = headers | {"Last-Event-ID": str(after)}
            async with one.http.get(url, headers=sent) as response:
                assert response.status == 200
                async for line in response.content:
                    if line.startswith(b"data: "):
                        told = msgspec.json.decode(line[6:], type=dict[str, Any])
                        heard.append((told["seq"], told["content"]))
                        if len(heard) == until_:
                            return

        with anyio.fail_after(PATIENCE):
            await follow(0, 1)
            async with anyio.create_task_group() as group:
                group.start_soon(follow, heard[0][0], 4)
                await bring(one, session, "proc_1", "the build has ended")
        assert [text for _, text in heard] == [
            "hi",
            "Hello.",
            "the build has ended",
            "The build is done.",
        ]
        numbers = [number for number, _ in heard]
        assert numbers == sorted(set(numbers))
        told = await one.ask("GET", f"/api/sessions/{session}/events?after=x")
        assert told.status == 400
        async with one.http.get(url, headers=headers) as response:
            await one.app.store.archive_for(OWNER).delete([session])
            with anyio.fail_after(PATIENCE):
                assert b"deleted" in await response.read()
