"""The HTTP client of channels: what is certainly not sent, and what has an unknown outcome."""

import gzip
import subprocess
import sys
from collections.abc import Awaitable, Callable

import anyio
import pytest
from aiohttp import web

from hermes.channels.http_client import (
    MAX_ANSWER,
    Upload,
    form_body,
    json_body,
    open_http_client,
    retry_after,
)
from hermes.channels.matrix.client_api import ClientApi
from hermes.channels.proxies import ProxySettings
from hermes.kit.clock import SystemClock
from hermes.ports.channel import NotSent, Offline, Throttled, UnknownOutcome
from hermes.schema.errors import ConfigError
from hermes.testing.fake_openai.server import listen
from support.socks import socks_proxy

SECRET = "secret-token"
TWO_CLIENTS = """
import os
import anyio
from hermes.channels.http_client import open_http_client

async def main():
    async with open_http_client("One"), open_http_client("Two"):
        files = [os.path.realpath(f"/proc/self/fd/{file}") for file in os.listdir("/proc/self/fd")]
        print(*(file for file in files if file.endswith("inotify")))

anyio.run(main)
"""


def server(handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> web.ServerRunner:
    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        return await handler(request)  # pyright: ignore[reportArgumentType]

    return web.ServerRunner(web.Server(handle, access_log=None), shutdown_timeout=0.1)


async def unused_port() -> int:
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as one:
        return one.extra(anyio.abc.SocketAttribute.local_port)  # noqa: S610 - not a query


async def test_unreachable_server_was_not_sent_anything() -> None:
    url = f"http://127.0.0.1:{await unused_port()}/bot{SECRET}"
    async with open_http_client("Example") as http:
        with pytest.raises(Offline, match="Example cannot be reached") as failed:
            await http.call("POST", url, json_body({"a": 1}))
        with pytest.raises(Offline, match="could not be downloaded") as lost:
            await http.download(url, max_bytes=10)
    assert SECRET not in str(failed.value) + str(lost.value)


@pytest.mark.parametrize("failure", ["cut", "slow", "no JSON", "no UTF-8"])
async def test_outcome_is_unknown_after_the_call_was_sent(failure: str) -> None:
    async def handle(request: web.Request) -> web.StreamResponse:
        if failure == "slow":
            await anyio.sleep_forever()
        if failure == "cut" and request.transport is not None:
            request.transport.abort()
        if failure == "no UTF-8":
            return web.Response(body=b'{"a": "\xff"}')
        return web.Response(text="<html>")

    async with listen(server(handle)) as url, open_http_client("Example") as http:

        async def call() -> None:
            answer = await http.call("POST", f"{url}/{SECRET}", json_body({}), seconds=0.1)
            http.decode(answer, dict)

        with pytest.raises(UnknownOutcome) as failed:
            await call()
    assert not isinstance(failed.value, NotSent)
    assert SECRET not in str(failed.value)


async def test_answer_that_grows_without_end_is_not_kept_in_memory() -> None:
    bomb = gzip.compress(bytes(MAX_ANSWER + 1), 1)
    assert len(bomb) < MAX_ANSWER / 100

    async def handle(request: web.Request) -> web.StreamResponse:
        return web.Response(body=bomb, headers={"Content-Encoding": "gzip"})

    async with listen(server(handle)) as url, open_http_client("Example") as http:
        with pytest.raises(UnknownOutcome, match="too large"):
            await http.call("GET", url, seconds=60)


async def test_form_has_fields_and_files() -> None:
    seen: dict[str, object] = {}

    async def handle(request: web.Request) -> web.StreamResponse:
        for name, value in (await request.post()).items():
            seen[name] = (
                (value.filename, value.content_type, value.file.read())
                if isinstance(value, web.FileField)
                else value
            )
        return web.Response(text="{}")

    async with listen(server(handle)) as url, open_http_client("Example") as http:
        body = form_body(
            {"to": "ann", "json": b"[1]"}, [Upload("file", "a.txt", "text/plain", b"x")]
        )
        assert (await http.call("POST", url, body)).ok
    assert seen == {"to": "ann", "json": b"[1]", "file": ("a.txt", "text/plain", b"x")}


async def test_large_download_is_ended() -> None:
    async def handle(request: web.Request) -> web.StreamResponse:
        return web.Response(body=bytes(100_000))

    async with listen(server(handle)) as url, open_http_client("Example") as http:
        assert len(await http.download(url, max_bytes=100_000)) == 100_000
        with pytest.raises(NotSent, match="too large"):
            await http.download(url, max_bytes=99_999)


async def test_refusals_are_the_errors_of_channels() -> None:
    async with open_http_client("Example") as http:
        limited = http.error(429, "slow down", wait=retry_after({"Retry-After": "7"}))
        assert isinstance(limited, Throttled)
        assert limited.wait == 7.0
        assert isinstance(http.error(502, "bad gateway"), UnknownOutcome)
        assert isinstance(http.error(400, "no such chat"), NotSent)
    assert retry_after({"Retry-After": "soon"}, 3.0) == 3.0


async def test_refusal_with_an_unreadable_text_keeps_its_meaning() -> None:
    async def handle(request: web.Request) -> web.StreamResponse:
        return web.Response(status=429, body=b'{"error": "\xff"}')

    async with listen(server(handle)) as url, open_http_client("Matrix") as http:
        with pytest.raises(Throttled):
            await ClientApi(http, url, SystemClock()).log_in("user", "password", "", "Hermes")


async def test_socks_proxy_is_used_and_looks_up_names() -> None:
    async def handle(request: web.Request) -> web.StreamResponse:
        return web.Response(text="{}")

    async with listen(server(handle)) as url, socks_proxy() as proxy:
        there = url.replace("127.0.0.1", "platform.invalid")
        for given in (proxy.url, proxy.url.replace("socks5", "socks5h")):
            async with open_http_client("Example", ProxySettings(given)) as http:
                assert (await http.call("GET", there)).status == 200
    assert proxy.hosts == ["platform.invalid"] * 2


@pytest.mark.parametrize("failure", ["refused", "not there", "wrong password"])
async def test_nothing_was_sent_without_a_connection_through_the_proxy(failure: str) -> None:
    async with socks_proxy() as proxy:
        proxy.refuse = failure == "refused"
        url = proxy.url
        if failure == "not there":
            url = url.replace(str(proxy.port), str(await unused_port()))
        if failure == "wrong password":
            url = url.replace("of-the-proxy", SECRET)
        async with open_http_client("Example", ProxySettings(url)) as http:
            with pytest.raises(Offline, match="cannot be reached") as failed:
                await http.call("POST", "http://platform.invalid/", json_body({}))
            with pytest.raises(Offline):
                await http.download("http://platform.invalid/", max_bytes=1)
    assert SECRET not in str(failed.value)


@pytest.mark.parametrize("url", ["ftp://localhost:1", "socks5:nothing", "localhost:1080"])
async def test_other_proxies_are_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="not supported") as refused:
        async with open_http_client("Example", ProxySettings(url, "EXAMPLE_PROXY")):
            pass
    assert "EXAMPLE_PROXY" in refused.value.hint


def test_clients_take_no_inotify_instances() -> None:
    """A user has only 128 of them; aiodns, if it is installed, takes one per client."""
    done = subprocess.run(
        [sys.executable, "-c", TWO_CLIENTS], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []
