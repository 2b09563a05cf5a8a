"""Every route against everybody who may not come in, and what every answer carries."""

from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import anyio
import msgspec
import pytest

from hermes.api.context import ApiLimits
from hermes.api.middleware import MAX_LOGGED_REFUSALS, SECURITY_HEADERS
from hermes.api.server import MAX_REJECTED
from hermes.testing.clock import FakeClock
from support.api_server import KEY, ApiHarness, ApiResponse, api_harness, api_settings
from support.cli_process import TEST_TIMEOUT

pytestmark = pytest.mark.anyio

ORIGIN = "https://chat.example"
FREE = {"/health", "/v1/health"}


def places(one: ApiHarness) -> list[tuple[str, str]]:
    routes = [(route.method, route.path) for route in one.server.routes]
    filled = [(method, filled_in(path)) for method, path in routes]
    return filled + [(method, f"/p/default{path}") for method, path in filled]


def filled_in(path: str) -> str:
    """Something in the place of every name in the path."""
    return "/".join("x1" if part.startswith("{") else part for part in path.split("/"))


async def refused(told: ApiResponse, status: int, code: str) -> None:
    assert (told.status, told.code) == (status, code)
    for name, value in SECURITY_HEADERS.items():
        assert told.headers[name.lower()] == value


async def test_no_route_lets_a_stranger_in(tmp_path: Path) -> None:
    async with api_harness(tmp_path, given=api_settings(cors_origins=(ORIGIN,))) as one:
        for method, path in places(one):
            free = path.removeprefix("/p/default") in FREE
            if not free:
                for key in (None, "wrong-key-0123456789", KEY[:-1], KEY + "x", ""):
                    told = await one.ask(method, path, key=key)
                    await refused(told, 401, "invalid_api_key")
                told = await one.ask(method, path, key=None, Authorization=f"Basic {KEY}")
                await refused(told, 401, "invalid_api_key")
            told = await one.ask(method, path, Origin="https://evil.example")
            await refused(told, 403, "origin_not_allowed")
            assert "access-control-allow-origin" not in told.headers
            told = await one.ask(method, path, Host="evil.example")
            await refused(told, 403, "host_not_allowed")
            told = await one.ask("OPTIONS", path, key=None, Origin="https://evil.example")
            await refused(told, 403, "origin_not_allowed")
        assert await one.sessions() == []
        assert one.mock.requests == []


async def test_wrong_keys_are_logged_without_the_key_and_not_without_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with api_harness(tmp_path) as one:
        for _ in range(MAX_LOGGED_REFUSALS + 5):
            await one.ask("GET", "/v1/models", key="wrong-key-0123456789")
    told = [one for one in caplog.records if "invalid API key" in one.getMessage()]
    assert [one.levelname for one in told] == ["WARNING"] * MAX_LOGGED_REFUSALS
    assert "'GET /v1/models'" in told[0].getMessage()
    assert "wrong-key" not in caplog.text


async def test_a_page_that_may_ask_is_told_all_it_needs(tmp_path: Path) -> None:
    async with api_harness(tmp_path, given=api_settings(cors_origins=(ORIGIN,))) as one:
        told = await one.ask(
            "OPTIONS",
            "/v1/chat/completions",
            key=None,
            Origin=ORIGIN,
            Access_Control_Request_Method="POST",
            Access_Control_Request_Headers="authorization, x-stainless-os, x-other",
        )
        assert told.status == 204
        assert told.headers["access-control-allow-origin"] == ORIGIN
        allowed = told.headers["access-control-allow-headers"]
        for name in ("Authorization", "X-Hermes-Session-Id", "Last-Event-ID", "x-stainless-os"):
            assert name in allowed
        assert "x-other" not in allowed
        assert "PATCH" in told.headers["access-control-allow-methods"]
        for path, key in (("/v1/models", KEY), ("/v1/models", None), ("/none", KEY)):
            told = await one.ask("GET", path, key=key, Origin=ORIGIN)
            assert told.headers["access-control-allow-origin"] == ORIGIN
            assert told.headers["vary"] == "Origin"
            shown = told.headers["access-control-expose-headers"]
            # Clients in a browser try again by themselves, unless they can read that they must not.
            for name in ("X-Hermes-Session-Id", "X-Should-Retry", "Retry-After"):
                assert name in shown


async def test_addresses_and_methods_that_are_not_there(tmp_path: Path) -> None:
    async with api_harness(tmp_path) as one:
        await refused(await one.ask("GET", "/none"), 404, "not_found")
        for path in ("/api/jobs", "/api/jobs/0123456789ab/run", "/p/default/api/jobs"):
            for method in ("GET", "POST"):
                await refused(await one.ask(method, path), 404, "jobs_not_available")
        await refused(await one.ask("GET", "/api/jobsite"), 404, "not_found")
        able = await one.ask("GET", "/v1/capabilities")
        assert able.json["features"]["jobs_api"] is False
        told = await one.ask("GET", "/v1/chat/completions")
        await refused(told, 405, "method_not_allowed")
        assert told.headers["allow"] == "POST"
        await refused(await one.ask("GET", "/p/nobody/v1/models"), 404, "profile_not_found")
        assert (await one.ask("GET", "/p/default/v1/models")).status == 200
        await refused(await one.ask("GET", "/p/nobody/health", key=None), 404, "profile_not_found")
        assert (await one.ask("GET", "/p/default/health", key=None)).status == 200
        assert (await one.ask("GET", "/health", key=None)).json["status"] == "ok"


async def heard(one: ApiHarness, words: bytes) -> bytes:
    """All that comes back to these bytes, until the server hangs up."""
    stream = await anyio.connect_tcp("127.0.0.1", one.server.port)
    async with stream:
        with anyio.fail_after(TEST_TIMEOUT):
            try:
                await stream.send(words)
                found = b""
                while True:
                    found += await stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                return found


def refusal(found: bytes) -> tuple[int, str]:
    head, _, body = found.partition(b"\r\n\r\n")
    lines = head.decode().splitlines()
    headers = dict(line.lower().split(": ", 1) for line in lines[1:])
    for name, value in SECURITY_HEADERS.items():
        assert headers[name.lower()] == value.lower()
    told = ApiResponse(int(lines[0].split()[1]), headers, body)
    assert headers["content-type"].startswith("application/json")
    assert int(headers["content-length"]) == len(body)
    return told.status, str(told.code)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/none"])
async def test_a_promise_that_nobody_understands_gets_the_same_shape(
    tmp_path: Path, path: str
) -> None:
    async with api_harness(tmp_path) as one:
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nExpect: 200-maybe\r\n"
        head += f"Authorization: Bearer {KEY}\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{{}}"
        assert refusal(await heard(one, head.encode())) == (417, "expectation_failed")


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {KEY}\r\n\r\n".encode()


async def test_one_connection_too_many_gets_the_same_shape(tmp_path: Path) -> None:
    async with api_harness(tmp_path, limits=ApiLimits(connections=2)) as one:
        await one.ask("POST", "/api/sessions", b'{"id": "s1"}')
        async with (
            await anyio.connect_tcp("127.0.0.1", one.server.port) as first,
            await anyio.connect_tcp("127.0.0.1", one.server.port) as second,
        ):
            for stream in (first, second):
                # Once they are answered, they are counted; they took the place of an idle one.
                await stream.send(get("/api/sessions/s1/events"))
                with anyio.fail_after(TEST_TIMEOUT):
                    assert (await stream.receive()).startswith(b"HTTP/1.1 200")
            for words in (get("/v1/models"), b""):
                found = await heard(one, words)
                assert refusal(found) == (503, "too_many_connections")
                assert b"\r\nretry-after: 1\r\n" in found.lower()
            for path in ("/health", "/v1/health?x=1"):
                head, _, body = (await heard(one, get(path))).partition(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 200 OK\r\n")
                assert msgspec.json.decode(body)["status"] == "ok"
        # There is room again once the server saw them leave.
        again = get("/v1/models").replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
        with anyio.fail_after(TEST_TIMEOUT):
            while not (await heard(one, again)).startswith(b"HTTP/1.1 200"):
                pass


async def test_who_says_nothing_keeps_nobody_from_asking_for_health(tmp_path: Path) -> None:
    async with (
        api_harness(tmp_path, limits=ApiLimits(connections=0)) as one,
        AsyncExitStack() as stack,
    ):
        for _ in range(MAX_REJECTED + 3):
            stream = await anyio.connect_tcp("127.0.0.1", one.server.port)
            await stack.enter_async_context(stream)
        assert (await heard(one, get("/health"))).startswith(b"HTTP/1.1 200 OK\r\n")


async def test_silent_connections_keep_nobody_out(tmp_path: Path) -> None:
    """More of them than there is room for, of three kinds, and again after each answer."""
    partly = [b"", b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nX: ", get("/x")[:-2]]
    wrong = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n"
    async with (
        api_harness(tmp_path, limits=ApiLimits(connections=8)) as one,
        AsyncExitStack() as stack,
    ):
        for round_ in range(3):
            for number in range(40):
                stream = await anyio.connect_tcp("127.0.0.1", one.server.port)
                await stack.enter_async_context(stream)
                await stream.send(partly[number % 3] or b"\r\n")
            for _ in range(10):
                stream = await anyio.connect_tcp("127.0.0.1", one.server.port)
                await stack.enter_async_context(stream)
                await stream.send(wrong)
                told = b""
                with anyio.fail_after(TEST_TIMEOUT):
                    while not told.endswith(b"}}"):
                        told += await stream.receive()
                assert refusal(told) == (401, "invalid_api_key")
            async with aiohttp.ClientSession() as http:
                headers = {"Authorization": f"Bearer {KEY}"}
                async with http.get(f"{one.url}/v1/models", headers=headers) as response:
                    assert (round_, response.status) == (round_, 200)


async def test_a_client_with_the_key_is_closed_last(tmp_path: Path) -> None:
    async with (
        api_harness(tmp_path, limits=ApiLimits(connections=3)) as one,
        await anyio.connect_tcp("127.0.0.1", one.server.port) as known,
        AsyncExitStack() as stack,
    ):
        with anyio.fail_after(TEST_TIMEOUT):
            await known.send(get("/v1/models"))
            told = b""
            while not told.endswith(b"}"):
                told += await known.receive()
            assert told.startswith(b"HTTP/1.1 200")
            for _ in range(20):
                stream = await anyio.connect_tcp("127.0.0.1", one.server.port)
                await stack.enter_async_context(stream)
                await stream.send(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert (await stream.receive()).startswith(b"HTTP/1.1 200")
            await known.send(get("/v1/models"))
            assert (await known.receive()).startswith(b"HTTP/1.1 200")


async def test_an_idle_connection_makes_room(tmp_path: Path) -> None:
    async with (
        api_harness(tmp_path, limits=ApiLimits(connections=1)) as one,
        await anyio.connect_tcp("127.0.0.1", one.server.port) as idle,
    ):
        with anyio.fail_after(TEST_TIMEOUT):
            await idle.send(get("/health"))
            assert (await idle.receive()).startswith(b"HTTP/1.1 200")
            assert (await one.ask("GET", "/v1/models")).status == 200
            # The server has hung up, so there is an end of what it says.
            async for _ in idle:
                pass


async def test_head_is_answered_like_get_without_a_body(tmp_path: Path) -> None:
    async with api_harness(tmp_path) as one:
        await one.chat({"messages": [{"role": "user", "content": "hi"}]}, X_Hermes_Session_Id="s1")
        run = (await one.ask("POST", "/v1/runs", b'{"input": "hi"}')).json["run_id"]
        known = {"{session_id}": "s1", "{run_id}": run, "{model_id}": "hermes-agent"}
        for route in one.server.routes:
            path = route.path
            for name, value in known.items():
                path = path.replace(name, value)
            with anyio.fail_after(TEST_TIMEOUT):
                told = await one.ask("HEAD", path)
            assert told.body == b""
            if route.method == "GET" and "{" not in path:
                assert (path, told.status) == (path, 200)
        assert (await one.ask("HEAD", "/health", key=None)).status == 200
        assert (await one.ask("HEAD", "/v1/models", key=None)).status == 401
        got = await one.ask("GET", "/v1/models")
        assert (await one.ask("HEAD", "/v1/models")).headers["content-length"] == str(len(got.body))
        told = await one.ask("HEAD", "/v1/chat/completions")
        assert (told.status, told.headers["allow"]) == (405, "POST")


async def test_names_that_the_settings_allow_are_answered(tmp_path: Path) -> None:
    async with api_harness(tmp_path / "one") as one:
        told = await one.ask("GET", "/health", Host="host.docker.internal:8642")
        await refused(told, 403, "host_not_allowed")
        assert "allowed_hosts" in told.json["error"]["message"]
    named = api_settings(allowed_hosts=("host.docker.internal", "hermes"))
    async with api_harness(tmp_path / "two", given=named) as one:
        for host in ("host.docker.internal:8642", "HERMES", "localhost"):
            assert (await one.ask("GET", "/health", Host=host)).status == 200
        assert (await one.ask("GET", "/health", Host="evil.example")).status == 403
    async with api_harness(tmp_path / "three", given=api_settings(allowed_hosts=("*",))) as one:
        assert (await one.ask("GET", "/health", Host="any.example")).status == 200


async def test_who_sends_no_whole_head_is_let_go(tmp_path: Path) -> None:
    clock = FakeClock()
    async with api_harness(tmp_path, clock=clock, limits=ApiLimits(head_seconds=15)) as one:
        began = clock.monotonic()
        async with (
            await anyio.connect_tcp("127.0.0.1", one.server.port) as quick,
            await anyio.connect_tcp("127.0.0.1", one.server.port) as slow,
        ):
            request = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
            await quick.send(request)
            await slow.send(request[:30])
            with anyio.fail_after(TEST_TIMEOUT):
                assert (await quick.receive()).startswith(b"HTTP/1.1 200")
                async with anyio.create_task_group() as group:

                    async def pass_time() -> None:
                        while True:
                            await clock.advance(1)
                            await anyio.lowlevel.checkpoint()

                    group.start_soon(pass_time)
                    with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
                        await slow.receive()
                    group.cancel_scope.cancel()
                assert clock.monotonic() - began >= 15
                # Who has sent a whole request is not meant, however long ago.
                await quick.send(request)
                assert (await quick.receive()).startswith(b"HTTP/1.1 200")


async def test_what_is_no_http_gets_the_same_shape(tmp_path: Path) -> None:
    async with api_harness(tmp_path) as one:
        for words in (
            b"GARBAGE\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nA" + b"b" * 20_000 + b": c\r\n\r\n",
            b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        ):
            assert refusal(await heard(one, words)) == (400, "bad_http")


async def test_who_says_nothing_and_who_says_it_too_slowly(tmp_path: Path) -> None:
    clock = FakeClock()
    async with api_harness(tmp_path, clock=clock, limits=ApiLimits(body_seconds=5)) as one:
        half = await anyio.connect_tcp("127.0.0.1", one.server.port)
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
            f"Authorization: Bearer {KEY}\r\nContent-Length: 100\r\n\r\n{{"
        )
        async with half:
            await half.send(head.encode())
            with anyio.fail_after(60):
                told = b""
                async with anyio.create_task_group() as group:

                    async def pass_time() -> None:
                        while True:
                            await clock.advance(1)
                            await anyio.lowlevel.checkpoint()

                    group.start_soon(pass_time)
                    while b"body_timeout" not in told:
                        told += await half.receive()
                    group.cancel_scope.cancel()
            assert told.startswith(b"HTTP/1.1 408")


async def test_a_body_is_bounded(tmp_path: Path) -> None:
    async with api_harness(tmp_path, limits=ApiLimits(body=10_000)) as one:
        told = await one.ask("POST", "/v1/chat/completions", b"x" * 10_001)
        await refused(told, 413, "body_too_large")
        told = await one.ask("POST", "/v1/chat/completions", b"x" * 10_000)
        await refused(told, 400, "invalid_json")


async def test_too_many_turns_and_a_server_that_ends(tmp_path: Path) -> None:
    async with api_harness(tmp_path, given=api_settings(most=1)) as one:
        slot = one.server.entry.take()
        told = await one.chat({"messages": [{"role": "user", "content": "hi"}]})
        await refused(told, 429, "rate_limit_exceeded")
        assert told.headers["retry-after"] == "1"
        slot.release()
        slot.release()
        assert (await one.chat({"messages": [{"role": "user", "content": "hi"}]})).status == 200
        one.server.drain()
        told = await one.chat({"messages": [{"role": "user", "content": "hi"}]})
        await refused(told, 503, "gateway_draining")
        assert (await one.ask("GET", "/health/detailed")).json["status"] == "draining"
        assert len(await one.sessions()) == 1
