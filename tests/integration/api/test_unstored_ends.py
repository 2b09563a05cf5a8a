"""The end of a turn that cannot be stored: no key is lost, and success is not reported."""

import asyncio
import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import apsw
import msgspec
import pytest

from hermes.api.idempotency import FREE, IdempotentRequests, KeyClaim
from hermes.app.planner import RuntimePlanner
from hermes.kit.failpoints import watch_failpoints
from hermes.runtimes.proxy.chat_runtime import ChatRuntime, RemoteGateway
from hermes.session.runner import Runner
from hermes.testing.fake_openai import Call, Reply, Rule, Script
from support.api_server import ApiHarness, ApiResponse, api_harness
from support.cli_process import TEST_TIMEOUT
from support.remote_gateway import fake_remote_gateway, full_answer

CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
IN_SESSION, SESSION_STREAM = "/api/sessions/s/chat", "/api/sessions/s/chat/stream"
HI = [{"role": "user", "content": "hi"}]
STREAMS: list[tuple[str, dict[str, object]]] = [
    (CHAT, {"messages": HI, "stream": True}),
    (RESPONSES, {"input": "hi", "stream": True}),
    (SESSION_STREAM, {"message": "hi"}),
]
REQUESTS: list[tuple[str, dict[str, object]]] = [
    *STREAMS,
    (CHAT, {"messages": HI}),
    (RESPONSES, {"input": "hi"}),
    (IN_SESSION, {"message": "hi"}),
]
LONG_ANSWER = 1_000_000


@contextmanager
def full_at_the_end(commits: int) -> Generator[None]:
    """Make this many commits fail from the end of the next turn on."""
    left = 0
    ends = 0

    def reached(name: str) -> None:
        nonlocal left, ends
        if name == "recorder.before_end":
            ends += 1
            left = commits if ends == 1 else left
        elif name == "writer.before_commit" and left:
            left -= 1
            raise apsw.FullError("the disk is full, says a test")

    with watch_failpoints(reached):
        yield
    assert ends == 1


async def begin(harness: ApiHarness) -> None:
    assert (await harness.ask("POST", "/api/sessions", b'{"id": "s"}')).status == 201


@pytest.mark.parametrize("commits", [1, LONG_ANSWER])
@pytest.mark.parametrize(("path", "request_body"), REQUESTS)
async def test_key_is_released_if_nothing_was_done(
    tmp_path: Path, path: str, request_body: dict[str, object], commits: int
) -> None:
    body = msgspec.json.encode(request_body)
    with anyio.fail_after(TEST_TIMEOUT):
        async with api_harness(tmp_path, Script(default=Reply("Here I am.", chunk=0))) as harness:
            await begin(harness)
            with full_at_the_end(commits):
                first = await harness.ask("POST", path, body, Idempotency_Key="a")
            assert first.status == (200 if (path, request_body) in STREAMS else 503)
            assert b'"code":"store"' in first.body
            again = await harness.ask("POST", path, body, Idempotency_Key="a")
            assert again.status == 200, again.body
            assert "x-hermes-replayed" not in again.headers
            assert b"Here I am." in again.body
            third = await harness.ask("POST", path, body, Idempotency_Key="a")
            assert third.headers["x-hermes-replayed"] == "true"


@pytest.mark.parametrize("commits", [1, LONG_ANSWER])
async def test_key_is_lost_if_something_was_done(tmp_path: Path, commits: int) -> None:
    steps = [Reply("", [Call("todo", {})]), Reply("Done it.")]
    body = msgspec.json.encode({"messages": HI})
    with anyio.fail_after(TEST_TIMEOUT):
        async with api_harness(tmp_path, Script(rules=[Rule("hi", steps)])) as harness:
            with full_at_the_end(commits):
                await harness.ask("POST", CHAT, body, Idempotency_Key="a")
            for _ in range(2):
                again = await harness.ask("POST", CHAT, body, Idempotency_Key="a")
                assert (again.status, again.code) == (410, "turn_interrupted")


async def test_disconnect_while_the_key_is_stored_releases_it(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    scope, gone = anyio.CancelScope(), threading.Event()

    def cut(name: str) -> None:
        if name == "writer.before_commit" and not gone.is_set():
            loop.call_soon_threadsafe(scope.cancel)
            loop.call_soon_threadsafe(gone.set)
            assert gone.wait(TEST_TIMEOUT)

    with anyio.fail_after(TEST_TIMEOUT):
        async with api_harness(tmp_path) as harness:
            once = IdempotentRequests(harness.server.context).keyed_turn(
                harness.app, KeyClaim("topic", "print", "me"), "s"
            )
            with watch_failpoints(cut), scope:
                async with once:
                    await anyio.sleep_forever()
            assert scope.cancelled_caught
            request = await harness.app.store.api.keyed_request("topic")
            assert request is not None
            assert request.state == FREE


def events(response: ApiResponse) -> list[dict[str, Any]]:
    lines = response.body.decode().splitlines()
    return [json.loads(line[6:]) for line in lines if line.startswith("data: {")]


async def test_response_with_an_unstored_end_is_consistent(tmp_path: Path) -> None:
    body = msgspec.json.encode({"input": "hi", "stream": True})
    with anyio.fail_after(TEST_TIMEOUT):
        async with api_harness(
            tmp_path, Script(default=Reply("one two three", chunk=4))
        ) as harness:
            with full_at_the_end(1):
                found = events(await harness.ask("POST", RESPONSES, body))
    assert [event["sequence_number"] for event in found] == list(range(len(found)))
    kinds = [event["type"] for event in found]
    assert kinds.count("response.output_item.added") == 1
    assert kinds[-1] == "response.failed"
    (done,) = [event["item"] for event in found if event["type"] == "response.output_item.done"]
    out = "".join(event.get("delta", "") for event in found)
    assert done["content"][0]["text"] == out == "one two three"
    last = found[-1]["response"]
    assert last["output"] == [done]
    assert (done["status"], last["error"]["code"]) == ("incomplete", "store")


@pytest.mark.parametrize(("path", "request_body"), STREAMS)
async def test_unstored_end_of_a_runtime_turn_is_reported(
    tmp_path: Path, path: str, request_body: dict[str, object]
) -> None:
    body = msgspec.json.encode(request_body)
    with anyio.fail_after(TEST_TIMEOUT):
        async with (
            fake_remote_gateway(full_answer("All", " well.")) as far,
            api_harness(tmp_path) as harness,
        ):
            await begin(harness)
            app = harness.app
            planner = RuntimePlanner(ChatRuntime(RemoteGateway(url=far.url)), app.planner)
            app.runner = Runner(
                store=app.store,
                clock=app.clock,
                planner=planner,
                price=app.price,
                profile=app.home.profile,
                bus=app.bus,
            )
            with full_at_the_end(1):
                response = await harness.ask("POST", path, body)
            assert b"well." in response.body
            found = events(response)
            codes = [event["error"]["code"] for event in found if event.get("error")]
            if path == RESPONSES:
                last = found[-1]
                assert last["type"] == "response.failed"
                codes = [last["response"]["error"]["code"]]
                name = last["response"]["id"]
                assert (await harness.ask("GET", f"{RESPONSES}/{name}")).status == 404
            assert codes == ["store"]
            assert b"run.completed" not in response.body
            assert b'"finish_reason":"stop"' not in response.body
