"""Accepted `Host` headers: parsed strictly, so that no foreign name passes as local."""

from pathlib import Path

import anyio

from support.api_server import ApiHarness, api_harness, api_settings

LOCAL = [
    "localhost",
    "LocalHost:8642",
    "localhost.",
    "localhost.:80",
    "127.0.0.1:1",
    "[::1]",
    "[::1]:8642",
    "[0:0:0:0:0:0:0:1]",
    "xn--bcher-kva.example",
]
FOREIGN = [
    "[::1].evil.com",
    "[::1]evil.com",
    "[::1]:80.evil.com",
    "[::1]:evil",
    "[::1",
    "::1",
    "[localhost]",
    "[::1%25lo]",
    "[127.0.0.1]",
    "localhost:80:90",
    "localhost:99999",
    "localhost:8o",
    "localhost@evil.com",
    "evil.com@localhost",
    "localhost/evil.com",
    "localhost evil.com",
    "localhost,evil.com",
    "localhost..",
    ".localhost",
    "localhost.evil.com",
    "127.0.0.1.evil.com",
    "b\u00fccher.example",
    "",
]


async def status(
    harness: ApiHarness, *lines: str, target: str = "/health", version: str = "1.1"
) -> int:
    async with await anyio.connect_tcp("127.0.0.1", harness.server.port) as stream:
        request = "\r\n".join([f"GET {target} HTTP/{version}", *lines, "", ""])
        await stream.send(request.encode("latin-1"))
        answer = b""
        while b"\r\n" not in answer:
            answer += await stream.receive()
        return int(answer.split(b" ", 2)[1])


async def test_only_local_hosts_are_answered(tmp_path: Path) -> None:
    settings = api_settings(allowed_hosts=("xn--bcher-kva.example",))
    async with api_harness(tmp_path, settings=settings) as harness:
        for host in LOCAL:
            assert await status(harness, f"Host: {host}") == 200, host
        for host in FOREIGN:
            assert await status(harness, f"Host: {host}") in {400, 403}, host
        assert await status(harness, version="1.0") in {400, 403}


async def test_second_host_is_rejected(tmp_path: Path) -> None:
    async with api_harness(tmp_path) as harness:
        twice = ["Host: localhost", "Host: evil.com"]
        for lines in (twice, twice[::-1], [twice[0]] * 2):
            assert await status(harness, *lines) == 400
        for target, host in (
            ("http://evil.com/health", "localhost"),
            ("http://localhost/health", "evil.com"),
            ("http://localhost@evil.com/health", "localhost"),
            ("http://[::1].evil.com/health", "localhost"),
        ):
            assert await status(harness, f"Host: {host}", target=target) in {400, 403}, target
        whole = "http://localhost/health"
        assert await status(harness, "Host: localhost", target=whole) == 200


async def test_two_hosts_are_rejected_even_if_any_is_allowed(tmp_path: Path) -> None:
    async with api_harness(tmp_path, settings=api_settings(allowed_hosts=("*",))) as harness:
        assert await status(harness, "Host: any.example") == 200
        assert await status(harness, "Host: any.example", "Host: other.example") == 400
