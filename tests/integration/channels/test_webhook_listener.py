"""The webhook listener: limits, refusals, start and shutdown."""

import gzip
import logging
import socket
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import anyio
import anyio.lowlevel
import msgspec
import pytest
from anyio.abc import SocketStream

from hermes.app.channels import ProcessResources, open_process_resources
from hermes.channels.http_listener import ListenerLimits
from hermes.channels.webhook.channel import open_channel, webhook_channel
from hermes.channels.webhook.listener import Listener
from hermes.channels.webhook.routes import read_settings
from hermes.config.sections.messaging import Platform
from hermes.ports.channel import ChannelDeps, Inbound, Offline, SupportsLiveness
from hermes.schema.errors import ConfigError
from hermes.store.blobs import FileBlobs
from hermes.testing.clock import FakeClock
from support.channel_deps import admit_all
from support.gateway import wait_until
from support.polling import pause
from support.webhooks import SECRET, WebhookHarness, inbound_text, signed_headers, webhook_harness

MEGABYTE = 1024 * 1024
TIMEOUT = 60


def body_of(size: int) -> bytes:
    return b'{"a":"' + b"x" * (size - 8) + b'"}'


async def raw(harness: WebhookHarness) -> SocketStream:
    return await anyio.connect_tcp("127.0.0.1", harness.listener.port)


async def rest_of(stream: SocketStream) -> bytes:
    """Read until the other side closes the connection."""
    received = b""
    with anyio.fail_after(TIMEOUT):
        try:
            while True:
                received += await stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            return received


def head_of(headers: dict[str, str], path: str = "/webhooks/a") -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: x", *(f"{n}: {t}" for n, t in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode()


async def test_health_and_unknown_paths(tmp_path: Path) -> None:
    async with webhook_harness(tmp_path, {"a": {}}) as harness:
        async with harness.session.get(f"{harness.url}/health") as response:
            assert response.status == 200
            assert await response.json() == {"status": "ok", "platform": "webhook"}
        async with harness.session.get(f"{harness.url}/webhooks/a") as response:
            assert (response.status, response.headers["Allow"]) == (405, "POST")
            assert (await response.json())["error"]["code"] == "method"
        for path in ("/", "/webhooks", "/webhooks/a/b", "/webhooks/none", "/p/x/webhooks/a"):
            unknown = await harness.post(path, b"{}", {})
            assert (unknown.status, unknown.code) == (404, "not_found")
            assert unknown.body["error"]["message"]


async def test_body_size_limit(tmp_path: Path) -> None:
    async with webhook_harness(tmp_path, {"a": {}}) as harness:
        assert (await harness.call("a", body_of(MEGABYTE), "d-1")).status == 202
        response = await harness.call("a", body_of(MEGABYTE + 1), "d-2")
        assert (response.status, response.code) == (413, "too_large")


async def test_chunked_body(tmp_path: Path) -> None:
    async with webhook_harness(tmp_path, {"a": {}}) as harness:
        for size, status in ((1000, 202), (MEGABYTE, 202), (MEGABYTE + 1, 413)):
            body = body_of(size)

            async def body_parts(body: bytes = body):
                for start in range(0, len(body), 40_000):
                    yield body[start : start + 40_000]

            headers = signed_headers(body, harness.clock.now(), f"d-{size}")
            url = f"{harness.url}/webhooks/a"
            try:
                async with harness.session.post(
                    url, data=body_parts(), headers=headers
                ) as response:
                    assert response.status == status
            except aiohttp.ClientError:
                # The server may close the connection of a sender that does not stop.
                assert status == 413
        assert len(harness.inbound) == 2


async def test_compressed_body_is_refused(tmp_path: Path) -> None:
    async with webhook_harness(tmp_path, {"a": {}}) as harness:
        packed = gzip.compress(b'{"a": 1}')
        response = await harness.call("a", packed, Content_Encoding="gzip")
        assert (response.status, response.code) == (415, "content_encoding")


@pytest.mark.parametrize("kind", ["text/plain", "multipart/form-data; boundary=x"])
async def test_other_content_types_are_refused(tmp_path: Path, kind: str) -> None:
    async with webhook_harness(tmp_path, {"a": {}}) as harness:
        response = await harness.call("a", b"hello", Content_Type=kind)
        assert (response.status, response.code) == (415, "content_type")
        response = await harness.call("a", b"{not json")
        assert (response.status, response.code) == (400, "body")
        form = await harness.call("a", b"who=ann", Content_Type="application/x-www-form-urlencoded")
        assert form.status == 202


async def test_forged_body_is_not_parsed(tmp_path: Path) -> None:
    async with webhook_harness(tmp_path, {"a": {}}) as harness:
        response = await harness.call(
            "a", b"{not json", webhook_id="other", Content_Type="text/plain"
        )
        assert (response.status, response.code) == (401, "signature")


async def test_slow_body_times_out(tmp_path: Path) -> None:
    clock = FakeClock()
    limits = ListenerLimits(linger=0.0)
    async with (
        webhook_harness(tmp_path, {"a": {}}, clock=clock, limits=limits) as harness,
        await raw(harness) as stream,
    ):
        headers = signed_headers(b"{}", clock.now()) | {"Content-Length": "2"}
        await stream.send(head_of(headers) + b"{")
        await wait_until(lambda: clock.sleepers == 1)
        await clock.advance(15)
        answer = await rest_of(stream)
        assert answer.startswith(b"HTTP/1.1 408")
        assert b'"too_slow"' in answer
        assert harness.inbound == []
        assert (await harness.call("a")).status == 202


async def test_slow_connections_are_closed_for_new_ones(tmp_path: Path) -> None:
    limits = ListenerLimits(connections=2)
    async with (
        webhook_harness(tmp_path, {"a": {}}, limits=limits) as harness,
        await raw(harness) as slow,
    ):
        await slow.send(b"POST /webhooks/a HTTP/1.1\r\nHost: x\r\n")
        async with AsyncExitStack() as stack:
            for _ in range(20):
                await stack.enter_async_context(await raw(harness))
            assert (await harness.call("a")).status == 202
            assert await rest_of(slow) == b""


async def test_silent_connection_is_closed(tmp_path: Path) -> None:
    """It is closed when the next connection arrives."""
    clock, limits = FakeClock(), ListenerLimits(head_seconds=1_000)
    async with (
        webhook_harness(tmp_path, {"a": {}}, clock=clock, limits=limits) as harness,
        await raw(harness) as slow,
    ):
        await slow.send(b"POST /webhooks/a HTTP/1.1\r\nHost: x\r\n")
        assert (await harness.call("a")).status == 202
        await clock.advance(1_000)
        async with await raw(harness):
            assert await rest_of(slow) == b""
        assert (await harness.call("a", delivery="d-2")).status == 202


async def test_connections_are_bounded(tmp_path: Path) -> None:
    async with (
        webhook_harness(tmp_path, {"a": {}}, limits=ListenerLimits(connections=1)) as harness,
        anyio.create_task_group() as group,
    ):
        harness.gate = anyio.Event()
        group.start_soon(harness.call, "a")
        await harness.asked.wait()
        async with await raw(harness) as second:
            assert (await rest_of(second)).startswith(b"HTTP/1.1 503")
        harness.gate.set()


async def test_connection_of_a_rejected_call_makes_room_first(tmp_path: Path) -> None:
    """An older one whose call was accepted stays open."""
    clock, limits = FakeClock(), ListenerLimits(connections=2, head_seconds=1_000)
    signed = signed_headers(b"{}", clock.now())
    async with (
        webhook_harness(tmp_path, {"a": {}}, clock=clock, limits=limits) as harness,
        await raw(harness) as known,
        await raw(harness) as unknown,
    ):
        for stream, headers, status in ((known, signed, b"202"), (unknown, {}, b"401")):
            await stream.send(head_of(headers | {"Content-Length": "2"}) + b"{}")
            assert (await stream.receive()).startswith(b"HTTP/1.1 " + status)
        async with await raw(harness):
            assert await rest_of(unknown) == b""


async def test_concurrent_calls_are_bounded(tmp_path: Path) -> None:
    limits = ListenerLimits(requests=1)
    async with (
        webhook_harness(tmp_path, {"a": {}}, limits=limits) as harness,
        anyio.create_task_group() as group,
    ):
        harness.gate = anyio.Event()
        group.start_soon(harness.call, "a")
        await harness.asked.wait()
        response = await harness.call("a", delivery="d-2")
        assert (response.status, response.code, response.headers["Retry-After"]) == (
            503,
            "busy",
            "1",
        )
        harness.gate.set()
        await wait_until(lambda: len(harness.inbound) == 1)
        with anyio.fail_after(TIMEOUT):
            while (await harness.call("a", delivery="d-3")).status == 503:
                await pause()
        assert len(harness.inbound) == 2


async def test_closed_connection_is_released(tmp_path: Path) -> None:
    clock = FakeClock()
    async with webhook_harness(
        tmp_path, {"a": {}}, clock=clock, limits=ListenerLimits(requests=1)
    ) as harness:
        async with await raw(harness) as stream:
            headers = signed_headers(b"{}", clock.now()) | {"Content-Length": "2"}
            await stream.send(head_of(headers) + b"{")
            await wait_until(lambda: clock.sleepers == 1)
        await wait_until(lambda: clock.sleepers == 0)
        assert harness.inbound == []
        assert (await harness.call("a")).status == 202


@pytest.mark.parametrize("broken", [b"zz\r\n{}\r\n0\r\n\r\n", b"2\r\n{}xx0\r\n\r\n"])
async def test_incomplete_body_is_refused(tmp_path: Path, broken: bytes) -> None:
    async with webhook_harness(tmp_path, {"a": {}}) as harness, await raw(harness) as stream:
        headers = signed_headers(b"{}", harness.clock.now()) | {"Transfer-Encoding": "chunked"}
        await stream.send(head_of(headers) + broken)
        assert b" 400 " in (await rest_of(stream)).partition(b"\r\n")[0]
        assert harness.inbound == []


async def test_headers_are_case_insensitive(tmp_path: Path) -> None:
    async with webhook_harness(tmp_path, {"a": {}}) as harness, await raw(harness) as stream:
        headers = signed_headers(b"{}", harness.clock.now()) | {
            "Content-Length": "2",
            "Connection": "close",
        }
        twice = headers | {"WEBHOOK-ID": "other"}
        await stream.send(head_of(twice) + b"{}")
        answer = await rest_of(stream)
        assert answer.startswith(b"HTTP/1.1 400")
        assert b"duplicate_header" in answer
        assert harness.inbound == []


async def test_invalid_header_bytes_are_refused(tmp_path: Path) -> None:
    async with webhook_harness(tmp_path, {"a": {}}) as harness, await raw(harness) as stream:
        headers = signed_headers(b"{}", harness.clock.now()) | {
            "Content-Length": "2",
            "Connection": "close",
        }
        odd = head_of(headers | {"webhook-signature": "v1,MARK"}).replace(b"MARK", b"\xff\xfe")
        await stream.send(odd + b"{}")
        assert (await rest_of(stream)).startswith(b"HTTP/1.1 401")


async def test_calls_are_refused_unless_the_channel_runs(tmp_path: Path) -> None:
    clock = FakeClock()
    settings = read_settings({"routes": {"a": {}}, "secret": SECRET}, {})
    channel = webhook_channel(settings, tmp_path / "x.json", clock)
    assert isinstance(channel, SupportsLiveness)
    assert channel.last_seen_at() is None

    async def deliver(update: Inbound) -> None:
        raise AssertionError(update)

    with pytest.raises(Offline):
        await channel.run(deliver)
    async with aiohttp.ClientSession() as session, Listener(clock, port=0) as listener:
        listener.attach("default", channel)
        one = WebhookHarness(listener, clock, session)
        response = await one.call("a")
        assert (response.status, response.code) == (503, "not_listening")
        await clock.advance(100)
        assert channel.last_seen_at() == clock.now()
    last = channel.last_seen_at()
    await clock.advance(100)
    assert channel.last_seen_at() == last
    with pytest.raises(Offline):
        await channel.run(deliver)


async def test_profile_can_be_attached_once(tmp_path: Path) -> None:
    async with webhook_harness(tmp_path, {"a": {}}) as harness:
        with pytest.raises(ValueError, match="default"):
            harness.listener.attach("default", harness.channels["default"])
        harness.listener.detach("default")
        assert (await harness.call("a")).status == 404
        harness.listener.attach("default", harness.channels["default"])
        assert (await harness.call("a")).status == 202


def parts_of(home: Path, profile: str, shares: ProcessResources, port: int = 0) -> ChannelDeps:
    extra = {"port": port, "secret": SECRET, "routes": {"a": {"prompt": profile}}}
    return ChannelDeps(
        name="webhook",
        profile=profile,
        home=home / profile,
        settings=Platform(extra=extra),
        env={},
        current_env=dict,
        clock=FakeClock(),
        shared=shares,
        blobs=FileBlobs(home / "blobs"),
        admits=admit_all,
    )


async def test_all_profiles_share_one_listener(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The path without a profile addresses the only profile, or the default one."""
    async with aiohttp.ClientSession() as session, open_process_resources() as shares:
        parts = parts_of(tmp_path, "work", shares)
        listener = await shares.get_or_open("webhook", lambda: Listener(parts.clock, port=0))
        one = WebhookHarness(listener, parts.clock, session)

        async def prompts(path: str, delivery: str) -> str:
            headers = signed_headers(b"{}", parts.clock.now(), delivery)
            response = await one.post(path, b"{}", headers)
            return (
                inbound_text(one.inbound[-1]).rpartition("\n")[2]
                if response.status == 202
                else response.code
            )

        async with open_channel(parts) as work, anyio.create_task_group() as group:
            group.start_soon(work.run, one.deliver)
            assert await prompts("/webhooks/a", "d-1") == "work"
            assert await prompts("/p/work/webhooks/a", "d-2") == "work"
            other = parts_of(tmp_path, "default", shares, port=5)
            async with open_channel(other) as default:
                assert "are served at 127.0.0.1" in caplog.text
                group.start_soon(default.run, one.deliver)
                await anyio.wait_all_tasks_blocked()
                assert await prompts("/webhooks/a", "d-3") == "default"
                assert await prompts("/p/work/webhooks/a", "d-4") == "work"
                assert await prompts("/p/default/webhooks/a", "d-5") == "default"
            assert await prompts("/p/default/webhooks/a", "d-6") == "not_found"
            group.cancel_scope.cancel()


async def test_channel_opens_its_listener(tmp_path: Path) -> None:
    async with (
        open_process_resources() as shares,
        open_channel(parts_of(tmp_path, "default", shares)) as channel,
    ):
        assert channel.last_seen_at() is not None


async def test_invalid_settings_are_reported_before_opening(tmp_path: Path) -> None:
    async with open_process_resources() as shares:
        parts = parts_of(tmp_path, "default", shares)
        wrong = msgspec.structs.replace(parts, settings=Platform(extra={"port": "many"}))
        with pytest.raises(ConfigError, match="port"):
            await open_channel(wrong).__aenter__()


async def test_used_port_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ConfigError, match=f"127.0.0.1:{port}") as caught:
            async with Listener(FakeClock(), port=port):
                raise AssertionError
        assert "platforms.webhook.extra.port" in caught.value.hint


async def test_foreign_address_is_reported() -> None:
    with pytest.raises(ConfigError, match=r"192\.0\.2\.1"):
        async with Listener(FakeClock(), "192.0.2.1", 0):
            raise AssertionError


async def test_inner_errors_are_not_changed() -> None:
    listener = Listener(FakeClock(), port=0)

    async def fail() -> None:
        async with listener:
            assert listener.serving
            assert listener.loopback
            raise KeyError

    with pytest.raises(KeyError):
        await fail()
    assert not listener.serving


async def test_call_in_progress_is_answered_at_shutdown(tmp_path: Path) -> None:
    """Closing waits a while for calls in progress, even when cancelled."""
    answers: list[int] = []
    async with anyio.create_task_group() as group:
        ready = anyio.Event()
        gate = anyio.Event()

        async def serve() -> None:
            with anyio.CancelScope() as scope:
                async with webhook_harness(tmp_path, {"a": {}}) as harness:
                    harness.gate = gate

                    async def call() -> None:
                        async with aiohttp.ClientSession() as session:
                            here = WebhookHarness(harness.listener, harness.clock, session)
                            answers.append((await here.call("a")).status)

                    group.start_soon(call)
                    await harness.asked.wait()
                    ready.set()
                    scope.cancel()
                    await anyio.lowlevel.checkpoint()

        group.start_soon(serve)
        await ready.wait()
        await anyio.wait_all_tasks_blocked()
        gate.set()
    assert answers == [202]


async def test_many_concurrent_senders(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Each call is sent three times and delivered once."""
    routes = {f"r{number}": {} for number in range(10)}
    async with webhook_harness(
        tmp_path, routes, limits=ListenerLimits(requests=1000, connections=1000)
    ) as harness:
        answers: list[str] = []
        caplog.clear()

        async def call(route: str, delivery: str) -> None:
            answers.append((await harness.call(route, delivery=delivery)).code)

        with caplog.at_level(logging.ERROR):
            async with anyio.create_task_group() as group:
                for number in range(200):
                    for _ in range(3):
                        group.start_soon(call, f"r{number % 10}", f"d-{number}")
        assert sorted(set(answers)) == ["accepted", "duplicate"]
        assert answers.count("accepted") == 200
        assert len({received.key for received in harness.inbound}) == len(harness.inbound) == 200
        assert caplog.text == ""
