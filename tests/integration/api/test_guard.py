"""Every route against everybody who may not come in, and what every answer carries."""

from pathlib import Path

import anyio
import msgspec
import pytest

from api_house import KEY, House, Told, house, settings
from hermes.api.desk import Limits
from hermes.api.guard import SECURITY, TOLD
from hermes.testing.clock import FakeClock

pytestmark = pytest.mark.anyio

ORIGIN = "https://chat.example"
FREE = {"/health", "/v1/health"}


def places(one: House) -> list[tuple[str, str]]:
    routes = [(route.method, route.path) for route in one.server.routes]
    filled = [(method, filled_in(path)) for method, path in routes]
    return filled + [(method, f"/p/default{path}") for method, path in filled]


def filled_in(path: str) -> str:
    """Something in the place of every name in the path."""
    return "/".join("x1" if part.startswith("{") else part for part in path.split("/"))


async def refused(told: Told, status: int, code: str) -> None:
    assert (told.status, told.code) == (status, code)
    assert SECURITY.keys() <= {name.title() for name in told.headers} | SECURITY.keys()
    for name, value in SECURITY.items():
        assert told.headers[name.lower()] == value


async def test_no_route_lets_a_stranger_in(tmp_path: Path) -> None:
    async with house(tmp_path, given=settings(cors_origins=(ORIGIN,))) as one:
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
    async with house(tmp_path) as one:
        for _ in range(TOLD + 5):
            await one.ask("GET", "/v1/models", key="wrong-key-0123456789")
    told = [one for one in caplog.records if "wrong API key" in one.getMessage()]
    assert [one.levelname for one in told] == ["WARNING"] * TOLD
    assert "'GET /v1/models'" in told[0].getMessage()
    assert "wrong-key" not in caplog.text


async def test_a_page_that_may_ask_is_told_all_it_needs(tmp_path: Path) -> None:
    async with house(tmp_path, given=settings(cors_origins=(ORIGIN,))) as one:
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
            assert "X-Hermes-Session-Id" in told.headers["access-control-expose-headers"]


async def test_addresses_and_methods_that_are_not_there(tmp_path: Path) -> None:
    async with house(tmp_path) as one:
        await refused(await one.ask("GET", "/none"), 404, "not_found")
        told = await one.ask("GET", "/v1/chat/completions")
        await refused(told, 405, "method_not_allowed")
        assert told.headers["allow"] == "POST"
        await refused(await one.ask("GET", "/p/nobody/v1/models"), 404, "profile_not_found")
        assert (await one.ask("GET", "/p/default/v1/models")).status == 200
        assert (await one.ask("GET", "/health", key=None)).json["status"] == "ok"


async def test_what_is_no_http_gets_the_same_shape(tmp_path: Path) -> None:
    async with house(tmp_path) as one:
        for words in (
            b"GARBAGE\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nA" + b"b" * 20_000 + b": c\r\n\r\n",
            b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        ):
            stream = await anyio.connect_tcp("127.0.0.1", one.server.port)
            async with stream:
                await stream.send(words)
                heard = b""
                with anyio.fail_after(60):
                    try:
                        while True:
                            heard += await stream.receive()
                    except (anyio.EndOfStream, anyio.BrokenResourceError):
                        pass
            head, _, body = heard.partition(b"\r\n\r\n")
            assert head.startswith((b"HTTP/1.1 400", b"HTTP/1.0 400")), head
            assert msgspec.json.decode(body)["error"]["code"] == "bad_http"


async def test_who_says_nothing_and_who_says_it_too_slowly(tmp_path: Path) -> None:
    clock = FakeClock()
    async with house(tmp_path, clock=clock, limits=Limits(body_seconds=5)) as one:
        half = await anyio.connect_tcp("127.0.0.1", one.server.port)
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
            f"Authorization: Bearer {KEY}\r\nContent-Length: 100\r\n\r\n{{"
        )
        async with half:
            await half.send(head.encode())
            with anyio.fail_after(60):
                heard = b""
                async with anyio.create_task_group() as group:

                    async def pass_time() -> None:
                        while True:
                            await clock.advance(1)
                            await anyio.lowlevel.checkpoint()

                    group.start_soon(pass_time)
                    while b"body_timeout" not in heard:
                        heard += await half.receive()
                    group.cancel_scope.cancel()
            assert heard.startswith(b"HTTP/1.1 408")


async def test_a_body_is_bounded(tmp_path: Path) -> None:
    async with house(tmp_path, limits=Limits(body=10_000)) as one:
        told = await one.ask("POST", "/v1/chat/completions", b"x" * 10_001)
        await refused(told, 413, "body_too_large")
        told = await one.ask("POST", "/v1/chat/completions", b"x" * 10_000)
        await refused(told, 400, "invalid_json")


async def test_too_many_turns_and_a_server_that_ends(tmp_path: Path) -> None:
    async with house(tmp_path, given=settings(most=1)) as one:
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
