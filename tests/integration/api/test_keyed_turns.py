"""A turn with a key outlives its client: it runs once, and its answer can be requested again."""

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

W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
IN_SESSION, SESSION_STREAM = "/api/sessions/s/chat", "/api/sessions/s/chat/stream"
TOUCH = {"command": "echo done"}
REQUESTS: list[tuple[str, dict[str, object]]] = [
    (CHAT, {"messages": [{"role": "user", "content": "touch"}]}),
    (CHAT, {"messages": [{"role": "user", "content": "touch"}], "stream": True}),
    (RESPONSES, {"input": "touch"}),
    (RESPONSES, {"input": "touch", "stream": True}),
    (IN_SESSION, {"message": "touch"}),
    (SESSION_STREAM, {"message": "touch"}),
]


def script(*last: Reply) -> Script:
    """A turn that has an effect, and then answers."""
    return Script(rules=[Rule("touch", [Reply("", [Call("terminal", TOUCH)]), *last])])


async def begin(harness: ApiHarness) -> None:
    assert (await harness.ask("POST", "/api/sessions", b'{"id": "s"}')).status == 201


async def ask_and_leave(harness: ApiHarness, path: str, body: bytes, requests: int) -> None:
    """Disconnect as soon as the model got this many requests."""
    sent = {"Idempotency-Key": "a", "Authorization": f"Bearer {KEY}"}

    async def ask() -> None:
        async with harness.http.post(harness.url + path, data=body, headers=sent) as response:
            await response.read()

    async with anyio.create_task_group() as group:
        group.start_soon(ask)
        await wait_until(lambda: len(harness.model_server.requests) >= requests)
        group.cancel_scope.cancel()


async def times_done(harness: ApiHarness) -> int:
    transcripts = [await harness.messages(found.session.id) for found in await harness.sessions()]
    return sum(isinstance(message, Result) for messages in transcripts for message in messages)


@pytest.mark.parametrize(("path", "request_body"), REQUESTS)
async def test_disconnected_client_gets_the_complete_answer(
    tmp_path: Path, path: str, request_body: dict[str, object]
) -> None:
    body = msgspec.json.encode(request_body)
    with anyio.fail_after(TEST_TIMEOUT):
        async with api_harness(tmp_path, script(Reply("Done it.", first_byte=0.3))) as harness:
            await begin(harness)
            await ask_and_leave(harness, path, body, 2)
            response = await harness.ask("POST", path, body, Idempotency_Key="a")
            assert (response.status, response.headers["x-hermes-replayed"]) == (200, "true")
            assert b"Done it." in response.body
            assert await times_done(harness) == 1
            assert len(harness.model_server.requests) == 2


@pytest.mark.parametrize(("path", "request_body"), REQUESTS)
async def test_turn_that_failed_after_an_effect_is_not_repeated(
    tmp_path: Path, path: str, request_body: dict[str, object]
) -> None:
    body = msgspec.json.encode(request_body)
    wrong = Reply(fault=Fault("status", named="unauthorized"))
    with anyio.fail_after(TEST_TIMEOUT):
        async with api_harness(tmp_path, script(wrong, Reply("never"))) as harness:
            await begin(harness)
            first = await harness.ask("POST", path, body, Idempotency_Key="a")
            assert first.status == (200 if "stream" in f"{path}{request_body}" else 502)
            again = await harness.ask("POST", path, body, Idempotency_Key="a")
            assert (again.status, again.code) == (410, "turn_interrupted")
            assert await times_done(harness) == 1


@pytest.mark.parametrize(("path", "request_body"), REQUESTS)
async def test_turn_without_an_effect_can_be_repeated(
    tmp_path: Path, path: str, request_body: dict[str, object]
) -> None:
    body = msgspec.json.encode(request_body)
    wrong = Reply(fault=Fault("status", named="unauthorized"))
    with anyio.fail_after(TEST_TIMEOUT):
        async with api_harness(tmp_path, Script(replies=[wrong], default=Reply("ok"))) as harness:
            await begin(harness)
            await harness.ask("POST", path, body, Idempotency_Key="a")
            again = await harness.ask("POST", path, body, Idempotency_Key="a")
            assert again.status == 200
            assert "x-hermes-replayed" not in again.headers
            assert b"ok" in again.body


@pytest.mark.parametrize(("path", "request_body"), REQUESTS)
async def test_disconnect_without_a_key_ends_the_turn(
    tmp_path: Path, path: str, request_body: dict[str, object]
) -> None:
    body = msgspec.json.encode(request_body)
    slow = Reply("one two three", fault=Fault("hang", after=3), chunk=4)
    with anyio.fail_after(TEST_TIMEOUT):
        async with api_harness(tmp_path, Script(default=slow)) as harness:
            await begin(harness)

            async def ask() -> None:
                await harness.ask("POST", path, body)

            async with anyio.create_task_group() as group:
                group.start_soon(ask)
                await wait_until(lambda: bool(harness.model_server.requests))
                group.cancel_scope.cancel()
            await harness.model_server.requests[0].ended.wait()
            await harness.server.turn_gate.wait_idle()


async def test_shutdown_ends_the_turn_and_it_is_not_repeated(tmp_path: Path) -> None:
    path, request_body = REQUESTS[1]
    body = msgspec.json.encode(request_body)
    slow = Reply("one two three", fault=Fault("hang", after=3), chunk=4)
    with anyio.fail_after(TEST_TIMEOUT):
        async with api_harness(tmp_path, script(slow), limits=ApiLimits(drain=0.1)) as harness:
            await ask_and_leave(harness, path, body, 2)
            assert harness.server.turn_gate.active == 1
        async with api_harness(tmp_path, Script(default=Reply("never"))) as harness:
            response = await harness.ask("POST", path, body, Idempotency_Key="a")
            assert (response.status, response.code) == (410, "turn_interrupted")
            assert harness.model_server.requests == []


async def test_client_that_leaves_before_the_start_gets_the_answer(tmp_path: Path) -> None:
    """The document is read in a separate process; by then the client has disconnected."""
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
        async with api_harness(tmp_path, Script(default=Reply("I see."))) as harness:

            async def ask() -> None:
                await harness.ask("POST", CHAT, body, Idempotency_Key="a")

            async with anyio.create_task_group() as group:
                group.start_soon(ask)
                await wait_until(lambda: harness.server.turn_gate.active == 1)
                group.cancel_scope.cancel()
            response = await harness.ask("POST", CHAT, body, Idempotency_Key="a")
            assert response.headers["x-hermes-replayed"] == "true"
            assert b"I see." in response.body
            assert len(harness.model_server.requests) == 1


HANGS = Reply("one two three", fault=Fault("hang", after=3), chunk=4)


async def running_ids(harness: ApiHarness) -> list[dict[str, Any]]:
    return list((await harness.ask("GET", "/v1/runs")).json["data"])


@pytest.mark.parametrize(("path", "request_body"), REQUESTS)
async def test_turn_of_a_disconnected_client_can_be_stopped(
    tmp_path: Path, path: str, request_body: dict[str, object]
) -> None:
    """Nothing was done yet, but a waiting client must not start it again."""
    body = msgspec.json.encode(request_body)
    with anyio.fail_after(TEST_TIMEOUT):
        async with api_harness(tmp_path, Script(default=HANGS)) as harness:
            await begin(harness)
            await ask_and_leave(harness, path, body, 1)
            (turn,) = await running_ids(harness)
            assert (turn["object"], turn["status"]) == ("hermes.turn", "running")
            state = await harness.ask("GET", f"/v1/runs/{turn['run_id']}")
            assert state.json == turn
            response: list[ApiResponse] = []

            async def ask_again() -> None:
                response.append(await harness.ask("POST", path, body, Idempotency_Key="a"))

            async with anyio.create_task_group() as group:
                group.start_soon(ask_again)
                stopped = await harness.ask("POST", f"/v1/runs/{turn['run_id']}/stop")
                assert (stopped.status, stopped.json["status"]) == (200, "stopping")
            assert (response[0].status, response[0].code) == (410, "turn_interrupted")
            assert response[0].headers["x-hermes-session-id"] == turn["session_id"]
            assert len(harness.model_server.requests) == 1
            assert await running_ids(harness) == []
            assert (await harness.ask("GET", f"/v1/runs/{turn['run_id']}")).status == 404


@pytest.mark.parametrize(("path", "request_body"), REQUESTS)
async def test_client_gets_the_partial_answer_of_a_stopped_turn(
    tmp_path: Path, path: str, request_body: dict[str, object]
) -> None:
    body = msgspec.json.encode(request_body)
    with anyio.fail_after(TEST_TIMEOUT):
        async with api_harness(tmp_path, Script(default=HANGS)) as harness:
            await begin(harness)
            response: list[ApiResponse] = []

            async def ask() -> None:
                response.append(await harness.ask("POST", path, body, Idempotency_Key="a"))

            async with anyio.create_task_group() as group:
                group.start_soon(ask)
                await wait_until(lambda: bool(harness.model_server.requests))
                (turn,) = await running_ids(harness)
                await harness.ask("POST", f"/v1/runs/{turn['run_id']}/stop")
            assert response[0].status in {200, 502}
            assert b"cancelled" in response[0].body or b"Interrupted." in response[0].body


async def test_keyed_response_is_cancelled_by_its_id(tmp_path: Path) -> None:
    with anyio.fail_after(TEST_TIMEOUT):
        async with api_harness(tmp_path, Script(default=HANGS)) as harness:
            client = harness.client(**{"Idempotency-Key": "a"})
            stream = await client.responses.create(model="hermes-agent", input="go", stream=True)
            begun = await anext(aiter(stream))
            assert begun.type == "response.created"
            ended = await harness.client().responses.cancel(begun.response.id)
            assert (ended.id, ended.status) == (begun.response.id, "incomplete")
            kinds = [event.type async for event in stream]
            assert kinds[-1] == "response.incomplete"


@pytest.mark.parametrize("stream", [True, False])
async def test_cancel_returns_an_unstored_response(tmp_path: Path, stream: bool) -> None:
    body = msgspec.json.encode({"input": "go", "store": False, "stream": stream})
    with anyio.fail_after(TEST_TIMEOUT):
        async with api_harness(tmp_path, Script(default=HANGS)) as harness:
            await ask_and_leave(harness, RESPONSES, body, 1)
            (turn,) = await running_ids(harness)
            name = turn["run_id"]
            ended = await harness.ask("POST", f"{RESPONSES}/{name}/cancel")
            assert (ended.status, ended.json["id"]) == (200, name)
            assert ended.json["status"] == "incomplete"
            assert ended.json["incomplete_details"] == {"reason": "cancelled"}
            await harness.server.turn_gate.wait_idle()
            again = await harness.ask("POST", f"{RESPONSES}/{name}/cancel")
            assert (again.status, again.code) == (404, "response_not_found")
            assert "not stored" in again.json["error"]["message"]


async def test_cancel_has_a_timeout(tmp_path: Path) -> None:
    """Lock the database, so that the end of the turn cannot be stored."""
    body = msgspec.json.encode({"input": "go"})
    with anyio.fail_after(TEST_TIMEOUT):
        async with api_harness(
            tmp_path, Script(default=HANGS), limits=ApiLimits(stop_seconds=0.1)
        ) as harness:
            await ask_and_leave(harness, RESPONSES, body, 1)
            (turn,) = await running_ids(harness)
            path = f"{RESPONSES}/{turn['run_id']}"
            with closing(connect(harness.app.home.database, READ_WRITE)) as other:
                begin_to_write(other)
                ended = await harness.ask("POST", f"{path}/cancel")
                assert (ended.status, ended.json["status"]) == (200, "in_progress")
                other.execute("ROLLBACK")
            await wait_until(lambda: not harness.server.turn_gate.running)
            assert (await harness.ask("GET", path)).json["status"] == "incomplete"
            again = await harness.ask("POST", f"{path}/cancel")
            assert (again.status, again.code) == (400, "response_not_active")


async def test_deleted_run_is_left_out_of_the_list(tmp_path: Path) -> None:
    with anyio.fail_after(TEST_TIMEOUT):
        async with api_harness(
            tmp_path, Script(default=HANGS), limits=ApiLimits(drain=0.1)
        ) as harness:
            runs = [
                (await harness.ask("POST", "/v1/runs", b'{"input": "go"}')).json for _ in range(2)
            ]
            await wait_until(lambda: len(harness.model_server.requests) == 2)
            await harness.app.store.archive_for(OWNER).delete([runs[0]["session_id"]])
            assert [each["run_id"] for each in await running_ids(harness)] == [runs[1]["run_id"]]


async def test_list_has_runs_and_keyed_turns_of_the_profile(tmp_path: Path) -> None:
    with anyio.fail_after(TEST_TIMEOUT):
        async with api_harness(tmp_path, Script(default=HANGS)) as harness:
            run = (await harness.ask("POST", "/v1/runs", b'{"input": "go"}')).json["run_id"]
            await ask_and_leave(harness, *_first(), 2)
            listed = await running_ids(harness)
            assert [each["object"] for each in listed] == ["hermes.run", "hermes.turn"]
            assert listed[0]["run_id"] == run
            for each in listed:
                await harness.ask("POST", f"/v1/runs/{each['run_id']}/stop")
            await harness.ask("GET", f"/v1/runs/{run}/events")
            again = await harness.ask("POST", *_first(), Idempotency_Key="a")
            assert (again.status, again.code) == (410, "turn_interrupted")
            assert await running_ids(harness) == []


def _first() -> tuple[str, bytes]:
    path, body = REQUESTS[0]
    return path, msgspec.json.encode(body)
