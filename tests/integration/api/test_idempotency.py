"""A request with a key runs once: complete or streamed, immediately or after a restart."""

from datetime import timedelta
from pathlib import Path

import aiohttp
import anyio
import msgspec
import pytest

from hermes.api.idempotency import RETENTION
from hermes.testing.clock import FakeClock
from hermes.testing.fake_openai.script import Fault, Reply, Script
from hermes.testing.fake_openai.server import serve
from support.api_server import KEY, ApiResponse, api_harness, api_process
from support.gateway import wait_until

HI: dict[str, object] = {"messages": [{"role": "user", "content": "hi"}]}
SCRIPT = Script(replies=[Reply(text=f"answer {n}") for n in range(9)])


def text(response: ApiResponse) -> str:
    assert response.status == 200
    return response.json["choices"][0]["message"]["content"]


async def test_repeated_request_gets_the_same_answer(tmp_path: Path) -> None:
    async with api_harness(tmp_path, SCRIPT) as harness:
        first = await harness.chat(HI, Idempotency_Key="a")
        again = await harness.chat(HI, Idempotency_Key="a")
        assert (text(first), again.body) == ("answer 0", first.body)
        assert again.headers["x-hermes-replayed"] == "true"
        assert text(await harness.chat(HI, Idempotency_Key="b")) == "answer 1"
        other = await harness.chat({**HI, "n": 1}, Idempotency_Key="a")
        assert (other.status, other.code) == (422, "idempotency_key_reused")
    async with api_harness(tmp_path, Script(default=Reply(text="not me"))) as harness:
        assert (await harness.chat(HI, Idempotency_Key="a")).body == first.body
        assert harness.model_server.requests == []


async def test_repeated_stream_gets_the_same_answer(tmp_path: Path) -> None:
    body = {**HI, "stream": True}
    async with api_harness(tmp_path, SCRIPT) as harness:
        first = await harness.chat(body, Idempotency_Key="a")
        assert b"answer" in first.body
    async with api_harness(tmp_path, SCRIPT) as harness:
        again = await harness.chat(body, Idempotency_Key="a")
        assert b'"content":"answer 0"' in again.body
        assert again.body.endswith(b"data: [DONE]\n\n")
        assert harness.model_server.requests == []


async def test_concurrent_duplicate_waits_for_the_first(tmp_path: Path) -> None:
    script = Script(replies=[Reply(text="once", first_byte=0.1), Reply(text="twice")])
    answers: list[str] = []
    async with api_harness(tmp_path, script) as harness:

        async def ask() -> None:
            answers.append(text(await harness.chat(HI, Idempotency_Key="a")))

        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                for _ in range(5):
                    group.start_soon(ask)
        assert answers == ["once"] * 5
        assert len(harness.model_server.requests) == 1


async def test_failed_request_can_be_retried(tmp_path: Path) -> None:
    script = Script(replies=[Reply(fault=Fault("status", named="unauthorized")), Reply(text="ok")])
    async with api_harness(tmp_path, script) as harness:
        assert (await harness.chat(HI, Idempotency_Key="a")).status == 502
        assert text(await harness.chat(HI, Idempotency_Key="a")) == "ok"


async def test_key_expires_after_a_day(tmp_path: Path) -> None:
    clock = FakeClock()
    async with api_harness(tmp_path, SCRIPT, clock=clock) as harness:
        assert text(await harness.chat(HI, Idempotency_Key="a")) == "answer 0"
    later = FakeClock(clock.now() + RETENTION + timedelta(minutes=1))
    async with api_harness(tmp_path, SCRIPT, clock=later) as harness:
        assert text(await harness.chat(HI, Idempotency_Key="b")) == "answer 0"
        assert await harness.app.store.api.forget_requests(later.now() + timedelta(days=1)) == 1
        assert text(await harness.chat(HI, Idempotency_Key="a")) == "answer 1"


@pytest.mark.parametrize(
    ("path", "request_body"),
    [
        ("/v1/chat/completions", HI),
        ("/v1/chat/completions", {**HI, "stream": True}),
        ("/v1/responses", {"input": "hi"}),
        ("/v1/responses", {"input": "hi", "stream": True}),
    ],
)
async def test_killed_turn_is_not_run_again(
    tmp_path: Path, path: str, request_body: dict[str, object]
) -> None:
    """A repeated request learns that it was interrupted, and no turn is run."""
    script = Script(default=Reply("one two three", fault=Fault("hang", after=3), chunk=4))
    body, headers = msgspec.json.encode(request_body), {"Idempotency-Key": "a"}
    async with serve(script) as mock, aiohttp.ClientSession() as http:

        async def fail_to_read(url: str) -> None:
            sent = headers | {"Authorization": f"Bearer {KEY}"}
            with pytest.raises(aiohttp.ClientError):
                async with http.post(url, data=body, headers=sent) as response:
                    await response.read()

        with anyio.fail_after(60):
            async with anyio.create_task_group() as group, api_process(tmp_path, mock.url) as url:
                group.start_soon(fail_to_read, url + path)
                await wait_until(lambda: bool(mock.requests))
    for _ in range(2):
        async with api_harness(tmp_path, Script()) as harness:
            for _ in range(2):
                reply = await harness.ask("POST", path, body, Idempotency_Key="a")
                assert (reply.status, reply.code) == (410, "turn_interrupted")
                session = reply.headers["x-hermes-session-id"]
            assert harness.model_server.requests == []
            other = await harness.ask("POST", path, body + b" ", Idempotency_Key="a")
            assert (other.status, other.code) == (422, "idempotency_key_reused")
            assert [one.session.id for one in await harness.sessions()] == [session]
            assert (await harness.ask("POST", path, body, Idempotency_Key="b")).status == 200
            await harness.app.store.archive_for("owner").delete(
                [
                    found.session.id
                    for found in await harness.sessions()
                    if found.session.id != session
                ]
            )


async def test_request_running_in_another_process_is_not_repeated(tmp_path: Path) -> None:
    script = Script(default=Reply("one two three", fault=Fault("hang", after=3), chunk=4))
    body, path = msgspec.json.encode(HI), "/v1/chat/completions"
    async with serve(script) as mock, aiohttp.ClientSession() as http:

        async def ask(url: str) -> None:
            sent = {"Idempotency-Key": "a", "Authorization": f"Bearer {KEY}"}
            async with http.post(url + path, data=body, headers=sent):
                pass

        with anyio.fail_after(60):
            async with api_process(tmp_path, mock.url) as url, anyio.create_task_group() as group:
                group.start_soon(ask, url)
                await wait_until(lambda: bool(mock.requests))
                async with api_harness(tmp_path, Script()) as harness:
                    response = await harness.ask("POST", path, body, Idempotency_Key="a")
                    assert (response.status, response.code) == (409, "request_in_progress")
                    assert harness.model_server.requests == []
                group.cancel_scope.cancel()


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/runs"])
async def test_same_body_for_another_session_is_a_different_request(
    tmp_path: Path, path: str
) -> None:
    body = msgspec.json.encode({"input": "hi"})
    async with api_harness(tmp_path, SCRIPT) as harness:
        for name in ("alice", "bob"):
            await harness.chat(HI, X_Hermes_Session_Id=name)
        first = await harness.ask(
            "POST", path, body, Idempotency_Key="a", X_Hermes_Session_Id="alice"
        )
        assert first.status in {200, 202}
        other = await harness.ask(
            "POST", path, body, Idempotency_Key="a", X_Hermes_Session_Id="bob"
        )
        assert (other.status, other.code) == (422, "idempotency_key_reused")
