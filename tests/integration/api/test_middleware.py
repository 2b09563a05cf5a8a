"""Every route rejects unauthorized requests, and every response has the security headers."""

from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import anyio
import msgspec
import pytest

from hermes.api.context import ApiLimits
from hermes.api.middleware import MAX_LOGGED_REJECTIONS, SECURITY_HEADERS
from hermes.api.server import MAX_REJECTED
from hermes.testing.clock import FakeClock
from support.api_server import KEY, ApiHarness, ApiResponse, api_harness, api_settings
from support.cli_process import TEST_TIMEOUT
from support.polling import pause

ORIGIN = "https://chat.example"
FREE = {"/health", "/v1/health"}


def routes(harness: ApiHarness) -> list[tuple[str, str]]:
    routes = [(route.method, route.path) for route in harness.server.routes]
    filled = [(method, filled_in(path)) for method, path in routes]
    return filled + [(method, f"/p/default{path}") for method, path in filled]


def filled_in(path: str) -> str:
    """Replace every placeholder in the path."""
    return "/".join("x1" if part.startswith("{") else part for part in path.split("/"))


async def check_error(response: ApiResponse, status: int, code: str) -> None:
    assert (response.status, response.code) == (status, code)
    for name, value in SECURITY_HEADERS.items():
        assert response.headers[name.lower()] == value


async def test_every_route_requires_a_key(tmp_path: Path) -> None:
    async with api_harness(tmp_path, settings=api_settings(cors_origins=(ORIGIN,))) as harness:
        for method, path in routes(harness):
            free = path.removeprefix("/p/default") in FREE
            if not free:
                for key in (None, "wrong-key-0123456789", KEY[:-1], KEY + "x", ""):
                    response = await harness.ask(method, path, key=key)
                    await check_error(response, 401, "invalid_api_key")
                response = await harness.ask(method, path, key=None, Authorization=f"Basic {KEY}")
                await check_error(response, 401, "invalid_api_key")
            response = await harness.ask(method, path, Origin="https://evil.example")
            await check_error(response, 403, "origin_not_allowed")
            assert "access-control-allow-origin" not in response.headers
            response = await harness.ask(method, path, Host="evil.example")
            await check_error(response, 403, "host_not_allowed")
            response = await harness.ask("OPTIONS", path, key=None, Origin="https://evil.example")
            await check_error(response, 403, "origin_not_allowed")
        assert await harness.sessions() == []
        assert harness.model_server.requests == []


async def test_rejected_keys_are_logged_without_the_key_and_limited(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with api_harness(tmp_path) as harness:
        for _ in range(MAX_LOGGED_REJECTIONS + 5):
            await harness.ask("GET", "/v1/models", key="wrong-key-0123456789")
    response = [one for one in caplog.records if "invalid API key" in one.getMessage()]
    assert [one.levelname for one in response] == ["WARNING"] * MAX_LOGGED_REJECTIONS
    assert "'GET /v1/models'" in response[0].getMessage()
    assert "wrong-key" not in caplog.text


async def test_allowed_origin_gets_cors_headers(tmp_path: Path) -> None:
    async with api_harness(tmp_path, settings=api_settings(cors_origins=(ORIGIN,))) as harness:
        response = await harness.ask(
            "OPTIONS",
            "/v1/chat/completions",
            key=None,
            Origin=ORIGIN,
            Access_Control_Request_Method="POST",
            Access_Control_Request_Headers="authorization, x-stainless-os, x-other",
        )
        assert response.status == 204
        assert response.headers["access-control-allow-origin"] == ORIGIN
        allowed = response.headers["access-control-allow-headers"]
        for name in ("Authorization", "X-Hermes-Session-Id", "Last-Event-ID", "x-stainless-os"):
            assert name in allowed
        assert "x-other" not in allowed
        assert "PATCH" in response.headers["access-control-allow-methods"]
        for path, key in (("/v1/models", KEY), ("/v1/models", None), ("/none", KEY)):
            response = await harness.ask("GET", path, key=key, Origin=ORIGIN)
            assert response.headers["access-control-allow-origin"] == ORIGIN
            assert response.headers["vary"] == "Origin"
            shown = response.headers["access-control-expose-headers"]
            # Browser clients retry on their own unless they can read that they must not.
            for name in ("X-Hermes-Session-Id", "X-Should-Retry", "Retry-After"):
                assert name in shown


async def test_unknown_paths_and_methods(tmp_path: Path) -> None:
    async with api_harness(tmp_path) as harness:
        await check_error(await harness.ask("GET", "/none"), 404, "not_found")
        await check_error(await harness.ask("GET", "/api/jobsite"), 404, "not_found")
        response = await harness.ask("GET", "/v1/chat/completions")
        await check_error(response, 405, "method_not_allowed")
        assert response.headers["allow"] == "POST"
        await check_error(await harness.ask("GET", "/p/nobody/v1/models"), 404, "profile_not_found")
        assert (await harness.ask("GET", "/p/default/v1/models")).status == 200
        await check_error(
            await harness.ask("GET", "/p/nobody/health", key=None), 404, "profile_not_found"
        )
        assert (await harness.ask("GET", "/p/default/health", key=None)).status == 200
        assert (await harness.ask("GET", "/health", key=None)).json["status"] == "ok"


async def raw_reply(harness: ApiHarness, words: bytes) -> bytes:
    """Return everything the server sends in reply to these bytes."""
    stream = await anyio.connect_tcp("127.0.0.1", harness.server.port)
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
    response = ApiResponse(int(lines[0].split()[1]), headers, body)
    assert headers["content-type"].startswith("application/json")
    assert int(headers["content-length"]) == len(body)
    return response.status, str(response.code)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/none"])
async def test_unsupported_expect_header_gets_an_api_error(tmp_path: Path, path: str) -> None:
    async with api_harness(tmp_path) as harness:
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nExpect: 200-maybe\r\n"
        head += f"Authorization: Bearer {KEY}\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{{}}"
        assert refusal(await raw_reply(harness, head.encode())) == (417, "expectation_failed")


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {KEY}\r\n\r\n".encode()


async def test_connection_beyond_the_limit_gets_an_api_error(tmp_path: Path) -> None:
    async with api_harness(tmp_path, limits=ApiLimits(connections=2)) as harness:
        await harness.ask("POST", "/api/sessions", b'{"id": "s1"}')
        async with (
            await anyio.connect_tcp("127.0.0.1", harness.server.port) as first,
            await anyio.connect_tcp("127.0.0.1", harness.server.port) as second,
        ):
            for stream in (first, second):
                # Once answered, they count; they took the slot of an idle one.
                await stream.send(get("/api/sessions/s1/events"))
                with anyio.fail_after(TEST_TIMEOUT):
                    assert (await stream.receive()).startswith(b"HTTP/1.1 200")
            for words in (get("/v1/models"), b""):
                found = await raw_reply(harness, words)
                assert refusal(found) == (503, "too_many_connections")
                assert b"\r\nretry-after: 1\r\n" in found.lower()
            for path in ("/health", "/v1/health?x=1"):
                head, _, body = (await raw_reply(harness, get(path))).partition(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 200 OK\r\n")
                assert msgspec.json.decode(body)["status"] == "ok"
        # There is room again once the server has noticed the disconnects.
        again = get("/v1/models").replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
        with anyio.fail_after(TEST_TIMEOUT):
            while not (await raw_reply(harness, again)).startswith(b"HTTP/1.1 200"):
                pass


async def test_silent_connections_do_not_block_health_checks(tmp_path: Path) -> None:
    async with (
        api_harness(tmp_path, limits=ApiLimits(connections=0)) as harness,
        AsyncExitStack() as stack,
    ):
        for _ in range(MAX_REJECTED + 3):
            stream = await anyio.connect_tcp("127.0.0.1", harness.server.port)
            await stack.enter_async_context(stream)
        assert (await raw_reply(harness, get("/health"))).startswith(b"HTTP/1.1 200 OK\r\n")


async def test_silent_connections_do_not_block_requests(tmp_path: Path) -> None:
    """More silent connections than there is room for, of three kinds, again after each answer."""
    partly = [b"", b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nX: ", get("/x")[:-2]]
    wrong = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n"
    async with (
        api_harness(tmp_path, limits=ApiLimits(connections=8)) as harness,
        AsyncExitStack() as stack,
    ):
        for round_ in range(3):
            for number in range(40):
                stream = await anyio.connect_tcp("127.0.0.1", harness.server.port)
                await stack.enter_async_context(stream)
                await stream.send(partly[number % 3] or b"\r\n")
            for _ in range(10):
                stream = await anyio.connect_tcp("127.0.0.1", harness.server.port)
                await stack.enter_async_context(stream)
                await stream.send(wrong)
                reply = b""
                with anyio.fail_after(TEST_TIMEOUT):
                    while not reply.endswith(b"}}"):
                        reply += await stream.receive()
                assert refusal(reply) == (401, "invalid_api_key")
            async with aiohttp.ClientSession() as http:
                headers = {"Authorization": f"Bearer {KEY}"}
                async with http.get(f"{harness.url}/v1/models", headers=headers) as response:
                    assert (round_, response.status) == (round_, 200)


async def test_authenticated_client_is_closed_last(tmp_path: Path) -> None:
    async with (
        api_harness(tmp_path, limits=ApiLimits(connections=3)) as harness,
        await anyio.connect_tcp("127.0.0.1", harness.server.port) as known,
        AsyncExitStack() as stack,
    ):
        with anyio.fail_after(TEST_TIMEOUT):
            await known.send(get("/v1/models"))
            response = b""
            while not response.endswith(b"}"):
                response += await known.receive()
            assert response.startswith(b"HTTP/1.1 200")
            for _ in range(20):
                stream = await anyio.connect_tcp("127.0.0.1", harness.server.port)
                await stack.enter_async_context(stream)
                await stream.send(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert (await stream.receive()).startswith(b"HTTP/1.1 200")
            await known.send(get("/v1/models"))
            assert (await known.receive()).startswith(b"HTTP/1.1 200")


async def test_idle_connection_makes_room(tmp_path: Path) -> None:
    async with (
        api_harness(tmp_path, limits=ApiLimits(connections=1)) as harness,
        await anyio.connect_tcp("127.0.0.1", harness.server.port) as idle,
    ):
        with anyio.fail_after(TEST_TIMEOUT):
            await idle.send(get("/health"))
            assert (await idle.receive()).startswith(b"HTTP/1.1 200")
            assert (await harness.ask("GET", "/v1/models")).status == 200
            # The server has closed the connection, so reading ends.
            async for _ in idle:
                pass


async def test_head_is_answered_like_get(tmp_path: Path) -> None:
    async with api_harness(tmp_path) as harness:
        await harness.chat(
            {"messages": [{"role": "user", "content": "hi"}]}, X_Hermes_Session_Id="s1"
        )
        run = (await harness.ask("POST", "/v1/runs", b'{"input": "hi"}')).json["run_id"]
        known = {"{session_id}": "s1", "{run_id}": run, "{model_id}": "hermes-agent"}
        for route in harness.server.routes:
            path = route.path
            for name, value in known.items():
                path = path.replace(name, value)
            with anyio.fail_after(TEST_TIMEOUT):
                response = await harness.ask("HEAD", path)
            assert response.body == b""
            if route.method == "GET" and "{" not in path:
                status = 404 if path.endswith("/goal") else 200  # the session has no goal
                assert (path, response.status) == (path, status)
        assert (await harness.ask("HEAD", "/health", key=None)).status == 200
        assert (await harness.ask("HEAD", "/v1/models", key=None)).status == 401
        got = await harness.ask("GET", "/v1/models")
        assert (await harness.ask("HEAD", "/v1/models")).headers["content-length"] == str(
            len(got.body)
        )
        response = await harness.ask("HEAD", "/v1/chat/completions")
        assert (response.status, response.headers["allow"]) == (405, "POST")


async def test_allowed_host_names_are_answered(tmp_path: Path) -> None:
    async with api_harness(tmp_path / "one") as harness:
        response = await harness.ask("GET", "/health", Host="host.docker.internal:8642")
        await check_error(response, 403, "host_not_allowed")
        assert "allowed_hosts" in response.json["error"]["message"]
    named = api_settings(allowed_hosts=("host.docker.internal", "hermes"))
    async with api_harness(tmp_path / "two", settings=named) as harness:
        for host in ("host.docker.internal:8642", "HERMES", "localhost"):
            assert (await harness.ask("GET", "/health", Host=host)).status == 200
        assert (await harness.ask("GET", "/health", Host="evil.example")).status == 403
    async with api_harness(
        tmp_path / "three", settings=api_settings(allowed_hosts=("*",))
    ) as harness:
        assert (await harness.ask("GET", "/health", Host="any.example")).status == 200


async def test_incomplete_head_times_out(tmp_path: Path) -> None:
    clock = FakeClock()
    async with api_harness(tmp_path, clock=clock, limits=ApiLimits(head_seconds=15)) as harness:
        began = clock.monotonic()
        async with (
            await anyio.connect_tcp("127.0.0.1", harness.server.port) as quick,
            await anyio.connect_tcp("127.0.0.1", harness.server.port) as slow,
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
                            await pause()

                    group.start_soon(pass_time)
                    with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
                        await slow.receive()
                    group.cancel_scope.cancel()
                assert clock.monotonic() - began >= 15
                # A client that has sent a complete request is not affected.
                await quick.send(request)
                assert (await quick.receive()).startswith(b"HTTP/1.1 200")


async def test_invalid_http_gets_an_api_error(tmp_path: Path) -> None:
    async with api_harness(tmp_path) as harness:
        for words in (
            b"GARBAGE\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nA" + b"b" * 20_000 + b": c\r\n\r\n",
            b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        ):
            assert refusal(await raw_reply(harness, words)) == (400, "bad_http")


async def test_missing_and_slow_bodies_time_out(tmp_path: Path) -> None:
    clock = FakeClock()
    async with api_harness(tmp_path, clock=clock, limits=ApiLimits(body_seconds=5)) as harness:
        half = await anyio.connect_tcp("127.0.0.1", harness.server.port)
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
            f"Authorization: Bearer {KEY}\r\nContent-Length: 100\r\n\r\n{{"
        )
        async with half:
            await half.send(head.encode())
            with anyio.fail_after(60):
                response = b""
                async with anyio.create_task_group() as group:

                    async def pass_time() -> None:
                        while True:
                            await clock.advance(1)
                            await pause()

                    group.start_soon(pass_time)
                    while b"body_timeout" not in response:
                        response += await half.receive()
                    group.cancel_scope.cancel()
            assert response.startswith(b"HTTP/1.1 408")


async def test_body_size_is_limited(tmp_path: Path) -> None:
    async with api_harness(tmp_path, limits=ApiLimits(body=10_000)) as harness:
        response = await harness.ask("POST", "/v1/chat/completions", b"x" * 10_001)
        await check_error(response, 413, "body_too_large")
        response = await harness.ask("POST", "/v1/chat/completions", b"x" * 10_000)
        await check_error(response, 400, "invalid_json")


async def test_turn_limit_and_draining_server(tmp_path: Path) -> None:
    async with api_harness(tmp_path, settings=api_settings(max_turns=1)) as harness:
        slot = harness.server.turn_gate.take()
        response = await harness.chat({"messages": [{"role": "user", "content": "hi"}]})
        await check_error(response, 429, "rate_limit_exceeded")
        assert response.headers["retry-after"] == "1"
        slot.release()
        slot.release()
        assert (await harness.chat({"messages": [{"role": "user", "content": "hi"}]})).status == 200
        harness.server.drain()
        response = await harness.chat({"messages": [{"role": "user", "content": "hi"}]})
        await check_error(response, 503, "gateway_draining")
        assert (await harness.ask("GET", "/health/detailed")).json["status"] == "draining"
        assert len(await harness.sessions()) == 1
