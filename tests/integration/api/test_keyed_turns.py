"""A turn under a key outlives its client: it is done once, and told to whoever asks again."""

import base64
import io
import zipfile
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from hermes.api.context import ApiLimits
from hermes.schema.messages import Result
from hermes.schema.scope import OWNER
from hermes.store.connection import READ_WRITE, connect
from hermes.store.connection import begin_write as begin_to_write
from hermes.testing.fake_openai import Call, Fault, Reply, Rule, Script
from support.api_server import KEY, ApiHarness, ApiResponse, api_harness
from support.cli_process import TEST_TIMEOUT
from support.gateway import wait_until

pytestmark = pytest.mark.anyio

W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
IN_SESSION, SESSION_STREAM = "/api/sessions/s/chat", "/api/sessions/s/chat/stream"
TOUCH = {"command": "echo done"}
ASKED: list[tuple[str, dict[str, object]]] = [
    (CHAT, {"messages": [{"role": "user", "content": "touch"}]}),
    (CHAT, {"messages": [{"role": "user", "content": "touch"}], "stream": True}),
    (RESPONSES, {"input": "touch"}),
    (RESPONSES, {"input": "touch", "stream": True}),
    (IN_SESSION, {"message": "touch"}),
    (SESSION_STREAM, {"message": "touch"}),
]


def script(*last: Reply) -> Script:
    """A turn that does something outside, and then answers."""
    return Script(rules=[Rule("touch", [Reply("", [Call("terminal", TOUCH)]), *last])])


async def begin(one: ApiHarness) -> None:
    assert (await one.ask("POST", "/api/sessions", b'{"id": "s"}')).status == 201


async def ask_and_leave(one: ApiHarness, path: str, body: bytes, requests: int) -> None:
    """Hang up as soon as the model was asked so often."""
    sent = {"Idempotency-Key": "a", "Authorization": f"Bearer {KEY}"}

    async def ask() -> None:
        async with one.http.post(one.url + path, data=body, headers=sent) as response:
            await response.read()

    async with anyio.create_task_group() as group:
        group.start_soon(ask)
        await wait_until(lambda: len(one.mock.requests) >= requests)
        group.cancel_scope.cancel()


async def times_done(one: ApiHarness) -> int:
    said = [await one.said(found.session.id) for found in await one.sessions()]
    return sum(isinstance(message, Result) for messages in said for message in messages)


@pytest.mark.parametrize(("path", "asked"), ASKED)
async def test_who_was_cut_off_is_told_the_rest(
    tmp_path: Path, path: str, asked: dict[str, object]
) -> None:
    body = msgspec.json.encode(asked)
    with anyio.fail_after(TEST_TIMEOUT):
        async with api_harness(tmp_path, script(Reply("Done it.", first_byte=0.3))) as one:
            await begin(one)
            await ask_and_leave(one, path, body, 2)
            told = await one.ask("POST", path, body, Idempotency_Key="a")
            assert (told.status, told.headers["x-hermes-replayed"]) == (200, "true")
            assert b"Done it." in told.body
            assert await times_done(one) == 1
            assert len(one.mock.requests) == 2


@pytest.mark.parametrize(("path", "asked"), ASKED)
async def test_what_failed_after_it_did_something_is_not_done_again(
    tmp_path: Path, path: str, asked: dict[str, object]
) -> None:
    body = msgspec.json.encode(asked)
    wrong = Reply(fault=Fault("status", named="unauthorized"))
    with anyio.fail_after(TEST_TIMEOUT):
        async with api_harness(tmp_path, script(wrong, Reply("never"))) as one:
            await begin(one)
            first = await one.ask("POST", path, body, Idempotency_Key="a")
            assert first.status == (200 if "stream" in f"{path}{asked}" else 502)
            again = await one.ask("POST", path, body, Idempotency_Key="a")
            assert (again.status, again.code) == (410, "turn_interrupted")
            assert await times_done(one) == 1


@pytest.mark.parametrize(("path", "asked"), ASKED)
async def test_what_did_nothing_may_be_asked_again(
    tmp_path: Path, path: str, asked: dict[str, object]
) -> None:
    body = msgspec.json.encode(asked)
    wrong = Reply(fault=Fault("status", named="unauthorized"))
    with anyio.fail_after(TEST_TIMEOUT):
        async with api_harness(tmp_path, Script(replies=[wrong], default=Reply("ok"))) as one:
            await begin(one)
            await one.ask("POST", path, body, Idempotency_Key="a")
            again = await one.ask("POST", path, body, Idempotency_Key="a")
            assert again.status == 200
            assert "x-hermes-replayed" not in again.headers
            assert b"ok" in again.body


@pytest.mark.parametrize(("path", "asked"), ASKED)
async def test_without_a_key_who_leaves_ends_the_turn(
    tmp_path: Path, path: str, asked: dict[str, object]
) -> None:
    body = msgspec.json.encode(asked)
    slow = Reply("one two three", fault=Fault("hang", after=3), chunk=4)
    with anyio.fail_after(TEST_TIMEOUT):
        async with api_harness(tmp_path, Script(default=slow)) as one:
            await begin(one)

            async def ask() -> None:
                await one.ask("POST", path, body)

            async with anyio.create_task_group() as group:
                group.start_soon(ask)
                await wait_until(lambda: bool(one.mock.requests))
                group.cancel_scope.cancel()
            await one.mock.requests[0].ended.wait()
            await one.server.entry.idle()


async def test_the_end_of_the_server_ends_it_and_it_is_not_done_again(tmp_path: Path) -> None:
    path, asked = ASKED[1]
    body = msgspec.json.encode(asked)
    slow = Reply("one two three", fault=Fault("hang", after=3), chunk=4)
    with anyio.fail_after(TEST_TIMEOUT):
        async with api_harness(tmp_path, script(slow), limits=ApiLimits(drain=0.1)) as one:
            await ask_and_leave(one, path, body, 2)
            assert one.server.entry.active == 1
        async with api_harness(tmp_path, Script(default=Reply("never"))) as one:
            told = await one.ask("POST", path, body, Idempotency_Key="a")
            assert (told.status, told.code) == (410, "turn_interrupted")
            assert one.mock.requests == []


async def test_who_leaves_before_it_has_begun_is_told_all_of_it(tmp_path: Path) -> None:
    """A document is read in a process of its own first: by then nobody listens any more."""
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        archive.writestr(
            "word/document.xml",
            f"<w:document {W}><w:body><w:p><w:r><w:t>words</w:t></w:r></w:p></w:body></w:document>",
        )
    file = {"filename": "a.docx", "file_data": base64.b64encode(written.getvalue()).decode()}
    content = [{"type": "text", "text": "read"}, {"type": "file", "file": file}]
    body = msgspec.json.encode({"messages": [{"role": "user", "content": content}], "stream": True})
    with anyio.fail_after(TEST_TIMEOUT):
        async with api_harness(tmp_path, Script(default=Reply("I see."))) as one:

            async def ask() -> None:
                await one.ask("POST", CHAT, body, Idempotency_Key="a")

            async with anyio.create_task_group() as group:
                group.start_soon(ask)
                await wait_until(lambda: one.server.entry.active == 1)
                group.cancel_scope.cancel()
            told = await one.ask("POST", CHAT, body, Idempotency_Key="a")
            assert told.headers["x-hermes-replayed"] == "true"
            assert b"I see." in told.body
            assert len(one.mock.requests) == 1


HANGS = Reply("one two three", fault=Fault("hang", after=3), chunk=4)


async def going_on(one: ApiHarness) -> list[dict[str, Any]]:
    return list((await one.ask("GET", "/v1/runs")).json["data"])


@pytest.mark.parametrize(("path", "asked"), ASKED)
async def test_who_has_gone_can_still_be_stopped(
    tmp_path: Path, path: str, asked: dict[str, object]
) -> None:
    """Nothing was done yet, but whoever waits for its answer must not begin it again."""
    body = msgspec.json.encode(asked)
    with anyio.fail_after(TEST_TIMEOUT):
        async with api_harness(tmp_path, Script(default=HANGS)) as one:
            await begin(one)
            await ask_and_leave(one, path, body, 1)
            (turn,) = await going_on(one)
            assert (turn["object"], turn["status"]) == ("hermes.turn", "running")
            state = await one.ask("GET", f"/v1/runs/{turn['run_id']}")
            assert state.json == turn
            told: list[ApiResponse] = []

            async def ask_again() -> None:
                told.append(await one.ask("POST", path, body, Idempotency_Key="a"))

            async with anyio.create_task_group() as group:
                group.start_soon(ask_again)
                stopped = await one.ask("POST", f"/v1/runs/{turn['run_id']}/stop")
                assert (stopped.status, stopped.json["status"]) == (200, "stopping")
            assert (told[0].status, told[0].code) == (410, "turn_interrupted")
            assert told[0].headers["x-hermes-session-id"] == turn["session_id"]
            assert len(one.mock.requests) == 1
            assert await going_on(one) == []
            assert (await one.ask("GET", f"/v1/runs/{turn['run_id']}")).status == 404


@pytest.mark.parametrize(("path", "asked"), ASKED)
async def test_who_is_there_when_it_is_stopped_gets_what_was_said(
    tmp_path: Path, path: str, asked: dict[str, object]
) -> None:
    body = msgspec.json.encode(asked)
    with anyio.fail_after(TEST_TIMEOUT):
        async with api_harness(tmp_path, Script(default=HANGS)) as one:
            await begin(one)
            told: list[ApiResponse] = []

            async def ask() -> None:
                told.append(await one.ask("POST", path, body, Idempotency_Key="a"))

            async with anyio.create_task_group() as group:
                group.start_soon(ask)
                await wait_until(lambda: bool(one.mock.requests))
                (turn,) = await going_on(one)
                await one.ask("POST", f"/v1/runs/{turn['run_id']}/stop")
            assert told[0].status in {200, 502}
            assert b"cancelled" in told[0].body or b"Interrupted." in told[0].body


async def test_a_response_under_a_key_is_cancelled_by_its_name(tmp_path: Path) -> None:
    with anyio.fail_after(TEST_TIMEOUT):
        async with api_harness(tmp_path, Script(default=HANGS)) as one:
            client = one.client(**{"Idempotency-Key": "a"})
            stream = await client.responses.create(model="hermes-agent", input="go", stream=True)
            begun = await anext(aiter(stream))
            assert begun.type == "response.created"
            ended = await one.client().responses.cancel(begun.response.id)
            assert (ended.id, ended.status) == (begun.response.id, "incomplete")
            kinds = [event.type async for event in stream]
            assert kinds[-1] == "response.incomplete"


@pytest.mark.parametrize("stream", [True, False])
async def test_what_is_not_kept_is_told_to_who_cancels_it(tmp_path: Path, stream: bool) -> None:
    body = msgspec.json.encode({"input": "go", "store": False, "stream": stream})
    with anyio.fail_after(TEST_TIMEOUT):
        async with api_harness(tmp_path, Script(default=HANGS)) as one:
            await ask_and_leave(one, RESPONSES, body, 1)
            (turn,) = await going_on(one)
            name = turn["run_id"]
            ended = await one.ask("POST", f"{RESPONSES}/{name}/cancel")
            assert (ended.status, ended.json["id"]) == (200, name)
            assert ended.json["status"] == "incomplete"
            assert ended.json["incomplete_details"] == {"reason": "cancelled"}
            await one.server.entry.idle()
            again = await one.ask("POST", f"{RESPONSES}/{name}/cancel")
            assert (again.status, again.code) == (404, "response_not_found")
            assert "not kept" in again.json["error"]["message"]


async def test_who_cancels_does_not_wait_for_ever(tmp_path: Path) -> None:
    """Somebody holds the disk, so that the end of the turn cannot be written."""
    body = msgspec.json.encode({"input": "go"})
    with anyio.fail_after(TEST_TIMEOUT):
        async with api_harness(
            tmp_path, Script(default=HANGS), limits=ApiLimits(stop_seconds=0.1)
        ) as one:
            await ask_and_leave(one, RESPONSES, body, 1)
            (turn,) = await going_on(one)
            path = f"{RESPONSES}/{turn['run_id']}"
            with closing(connect(one.app.home.state_db, READ_WRITE)) as other:
                begin_to_write(other)
                ended = await one.ask("POST", f"{path}/cancel")
                assert (ended.status, ended.json["status"]) == (200, "in_progress")
                other.execute("ROLLBACK")
            await wait_until(lambda: not one.server.entry.going)
            assert (await one.ask("GET", path)).json["status"] == "incomplete"
            again = await one.ask("POST", f"{path}/cancel")
            assert (again.status, again.code) == (400, "response_not_active")


async def test_a_run_that_is_gone_meanwhile_is_left_out_of_the_list(tmp_path: Path) -> None:
    with anyio.fail_after(TEST_TIMEOUT):
        async with api_harness(tmp_path, Script(default=HANGS), limits=ApiLimits(drain=0.1)) as one:
            runs = [(await one.ask("POST", "/v1/runs", b'{"input": "go"}')).json for _ in range(2)]
            await wait_until(lambda: len(one.mock.requests) == 2)
            await one.app.store.archive_for(OWNER).delete([runs[0]["session_id"]])
            assert [each["run_id"] for each in await going_on(one)] == [runs[1]["run_id"]]


async def test_runs_are_listed_with_the_turns_of_their_profile(tmp_path: Path) -> None:
    with anyio.fail_after(TEST_TIMEOUT):
        async with api_harness(tmp_path, Script(default=HANGS)) as one:
            run = (await one.ask("POST", "/v1/runs", b'{"input": "go"}')).json["run_id"]
            await ask_and_leave(one, *_first(), 2)
            listed = await going_on(one)
            assert [each["object"] for each in listed] == ["hermes.run", "hermes.turn"]
            assert listed[0]["run_id"] == run
            for each in listed:
                await one.ask("POST", f"/v1/runs/{each['run_id']}/stop")
            await one.ask("GET", f"/v1/runs/{run}/events")
            again = await one.ask("POST", *_first(), Idempotency_Key="a")
            assert (again.status, again.code) == (410, "turn_interrupted")
            assert await going_on(one) == []


def _first() -> tuple[str, bytes]:
    path, asked = ASKED[0]
    return path, msgspec.json.encode(asked)
