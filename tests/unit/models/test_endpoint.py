import asyncio
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import pytest

from hermes.models.endpoint import (
    BodyTooLarge,
    Endpoint,
    EndpointSettings,
    connection_error,
    read_all,
    read_up_to,
)
from hermes.models.provider_errors import RequestOrigin
from hermes.schema.errors import Unreachable


class FakeBody:
    """A body in pieces that then ends, breaks or hangs."""

    def __init__(self, *pieces: bytes, end: Exception | None = None, hangs: bool = False) -> None:
        self.left = list(pieces)
        self._end = end
        self._hangs = hangs

    async def readany(self) -> bytes:
        await anyio.lowlevel.checkpoint()
        if self.left:
            return self.left.pop(0)
        if self._hangs:
            await anyio.sleep_forever()
        if self._end:
            raise self._end
        return b""


async def test_body_in_many_pieces_is_read_completely():
    pieces = [b'{"error": "', b"x" * 70_000, b'", "code": ', b"1}"]
    assert await read_all(FakeBody(*pieces), 80_000, 60) == b"".join(pieces)
    assert await read_up_to(FakeBody(*pieces), 80_000, 60) == b"".join(pieces)


async def test_body_may_have_exactly_the_limit():
    assert await read_all(FakeBody(b"ab", b"cd"), 4, 60) == b"abcd"
    with pytest.raises(BodyTooLarge, match="more than 3 bytes"):
        await read_all(FakeBody(b"ab", b"cd"), 3, 60)


async def test_reading_stops_at_the_limit():
    source = FakeBody(b"ab", b"cd", b"ef", b"gh")
    assert await read_up_to(source, 3, 60) == b"abc"
    assert source.left == [b"ef", b"gh"]


@pytest.mark.parametrize("end", [TimeoutError(), ConnectionResetError()])
async def test_start_of_a_broken_body_is_returned(end: Exception):
    assert await read_up_to(FakeBody(b"ab", end=end), 100, 60) == b"ab"


async def test_start_of_a_hanging_body_is_returned():
    assert await read_up_to(FakeBody(b"ab", hangs=True), 100, 0.01) == b"ab"


def test_keep_alives_extend_the_wait_with_a_limit():
    assert EndpointSettings(base_url="", idle=10.0).max_pause == 50.0
    assert EndpointSettings(base_url="", idle=10.0, progress_timeout=20.0).max_pause == 20.0


class ClosingServer:
    """A server that answers some requests per connection and closes it at the next."""

    def __init__(self, answers: int) -> None:
        self._answers = answers
        self.connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        for _ in range(self._answers):
            await reader.readuntil(b"\r\n\r\n{}")
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
        await reader.readuntil(b"\r\n\r\n{}")
        writer.close()


@asynccontextmanager
async def closing_server(answers: int) -> AsyncGenerator[tuple[ClosingServer, Endpoint]]:
    one = ClosingServer(answers)
    async with await asyncio.start_server(one.serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        endpoint = Endpoint(EndpointSettings(base_url=f"http://127.0.0.1:{port}"))
        try:
            with anyio.fail_after(60):
                yield one, endpoint
        finally:
            await endpoint.client.aclose()


async def ask(endpoint: Endpoint) -> None:
    origin = RequestOrigin(provider="custom", model="m", base_url=endpoint.settings.base_url)
    response = await endpoint.post("/chat", [b"{}"], {}, origin)
    assert await read_all(response, 2, 60) == b"{}"
    endpoint.client.release(response)


async def test_failed_new_connection_is_retried_with_a_wait():
    async with closing_server(0) as (server, endpoint):
        with pytest.raises(Unreachable) as failure:
            await ask(endpoint)
    assert server.connections == 1
    assert failure.value.wait is None


async def test_failed_kept_connection_is_retried_without_a_wait():
    async with closing_server(1) as (server, endpoint):
        await ask(endpoint)
        with pytest.raises(Unreachable) as failure:
            await ask(endpoint)
    assert server.connections == 1
    assert failure.value.wait == 0.0


def test_rejected_certificate_is_reported_with_a_hint():
    origin = RequestOrigin(provider="lab", model="m", base_url="https://lab.test/v1")
    error = ssl.SSLCertVerificationError(1, "self-signed certificate")
    failure = connection_error(error, origin, EndpointSettings(base_url=origin.base_url))
    assert isinstance(failure, Unreachable)
    assert "no secure connection to lab" in failure.sentence
    assert "ssl_ca_cert" in failure.hint
