"""What servers may send, and what becomes of their connections."""

import asyncio
import gzip
import ipaddress
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from hermes.models.http_client import (
    Disconnected,
    HttpClient,
    HttpResponse,
    IdleTimeout,
    InvalidResponse,
    InvalidUrl,
    custom_tls,
    default_tls,
)
from support.polling import pause

TIMEOUT = 60.0
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


class ScriptedServer:
    """Answers each request with the next bytes; `None` closes the connection."""

    def __init__(self, *answers: bytes | None) -> None:
        self._answers = list(answers)
        self.connections = 0
        self.heads: list[str] = []
        self.closed = anyio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while self._answers:
                self.heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
                answer = self._answers.pop(0)
                if answer is None:
                    return
                writer.write(answer)
            await reader.read()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self.closed.set()
            writer.close()


@asynccontextmanager
async def running_server(
    *answers: bytes | None, idle: float = TIMEOUT
) -> AsyncGenerator[tuple[ScriptedServer, "Caller"]]:
    script = ScriptedServer(*answers)
    async with await asyncio.start_server(script.serve, "127.0.0.1", 0) as server:
        caller = Caller(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", idle)
        try:
            with anyio.fail_after(TIMEOUT):
                yield script, caller
        finally:
            await caller.client.aclose()


class Caller:
    def __init__(self, url: str, idle: float = TIMEOUT) -> None:
        self.url = url
        self._idle = idle
        self.client = HttpClient(connect=TIMEOUT, tls=default_tls)

    async def get(self, **headers: str) -> HttpResponse:
        return await self.client.send("GET", self.url, headers, [], idle=self._idle)

    async def text(self, **headers: str) -> str:
        response = await self.get(**headers)
        body = await read(response)
        self.client.release(response)
        return body.decode()


async def read(response: HttpResponse) -> bytes:
    pieces: list[bytes] = []
    while piece := await response.readany():
        pieces.append(piece)
    return b"".join(pieces)


async def test_connection_is_reused_after_a_complete_response():
    chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"
    async with running_server(OK, chunked, OK) as (server, caller):
        assert [await caller.text() for _ in range(3)] == ["ok"] * 3
    assert server.connections == 1


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok",
    ],
)
async def test_connection_is_closed_if_the_server_wants_that(answer: bytes):
    async with running_server(answer, OK) as (server, caller):
        assert [await caller.text(), await caller.text()] == ["ok", "ok"]
    assert server.connections == 2


async def test_connection_of_an_unread_response_is_closed():
    async with running_server(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nok") as (
        server,
        caller,
    ):
        response = await caller.get()
        assert await response.readany() == b"ok"
        caller.client.release(response)
        await server.closed.wait()


async def test_connection_of_an_unread_large_response_that_is_complete_answers_again():
    size = 256 * 1024 + 1  # one byte more than may wait for its reader
    large = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size + bytes(size)
    async with running_server(large, OK, OK) as (_, caller):
        response = await caller.get()
        while not response.complete:
            await pause()
        caller.client.release(response)
        assert await caller.text() == "ok"


async def test_cancelled_request_closes_its_connection():
    async with running_server(b"") as (server, caller), anyio.create_task_group() as group:
        group.start_soon(caller.get)
        while not server.heads:
            await pause()
        group.cancel_scope.cancel()
    await server.closed.wait()


@pytest.mark.parametrize("more", [b"HTTP/1.1 200 OK\r\n", b"more"])
async def test_data_after_a_complete_response_only_closes_the_connection(more: bytes):
    async with running_server(OK + more, OK) as (server, caller):
        assert await caller.text() == "ok"
        assert await caller.text() == "ok"
    assert server.connections == 2


async def test_interim_responses_are_skipped():
    async with running_server(b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + OK) as (_, caller):
        response = await caller.get()
        assert (response.status, response.headers) == (200, {"content-length": "2"})
        assert await read(response) == b"ok"


@asynccontextmanager
async def sending(data: bytes) -> AsyncGenerator[HttpResponse]:
    """The response of a server that sends this and closes the connection."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Closing with an unread request would reset the connection.
        await reader.readuntil(b"\r\n\r\n")
        writer.write(data)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        caller = Caller(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        with anyio.fail_after(TIMEOUT):
            yield await caller.get()
        await caller.client.aclose()


async def test_body_without_a_length_ends_with_the_connection():
    async with sending(b"HTTP/1.1 200 OK\r\n\r\nok") as response:
        assert await read(response) == b"ok"


async def test_truncated_body_raises_after_the_received_data():
    async with sending(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nok") as response:
        assert await response.readany() == b"ok"
        with pytest.raises(Disconnected):
            await response.readany()


@pytest.mark.parametrize(
    "answer", [b"SSH-2.0-OpenSSH_9.9\r\n", b"HTTP/1.1 200 OK\r\nx: " + b"y" * 70_000]
)
async def test_invalid_or_endless_head_is_an_error(answer: bytes):
    async with running_server(answer) as (_, caller):
        with pytest.raises(InvalidResponse, match="invalid HTTP"):
            await caller.get()


async def test_missing_response_times_out():
    async with running_server(b"", idle=0.01) as (server, caller):
        with pytest.raises(IdleTimeout):
            await caller.get()
        await server.closed.wait()


async def test_request_that_is_not_read_times_out():
    given_up = asyncio.Event()

    async def ignore(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await given_up.wait()
        writer.transport.abort()

    client = HttpClient(connect=TIMEOUT, tls=default_tls)
    async with await asyncio.start_server(ignore, "127.0.0.1", 0, limit=1) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(IdleTimeout):
            await client.send("POST", url, {}, [b"x" * 50_000_000], idle=0.05)
        given_up.set()
        await client.aclose()


def compressed(body: bytes, encoding: bytes = b"gzip") -> bytes:
    head = b"HTTP/1.1 200 OK\r\ncontent-encoding: %b\r\ncontent-length: %d\r\n\r\n"
    return head % (encoding, len(body)) + body


async def test_compressed_body_is_decompressed_in_bounded_pieces():
    async with running_server(compressed(gzip.compress(b" " * 3_000_000))) as (_, caller):
        response = await caller.get()
        piece = await response.readany()
        assert 0 < len(piece) <= 1024 * 1024
        assert len(piece + await read(response)) == 3_000_000


async def test_name_of_the_compression_may_be_in_capitals():
    async with running_server(compressed(gzip.compress(b"ok"), b"GZIP")) as (_, caller):
        assert await caller.text() == "ok"


async def test_truncated_compressed_body_raises_after_the_received_data():
    async with running_server(compressed(gzip.compress(b"ok")[:-4])) as (_, caller):
        response = await caller.get()
        assert await response.readany() == b"ok"
        with pytest.raises(InvalidResponse, match="cut short"):
            await response.readany()


async def test_compressed_body_may_be_empty():
    async with running_server(compressed(b"")) as (_, caller):
        assert await caller.text() == ""


async def test_large_body_may_be_refused_before_it_is_sent():
    async with running_server(b"HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\n\r\n") as (
        _,
        caller,
    ):
        body = [b"x" * 50_000_000]
        response = await caller.client.send("POST", caller.url, {}, body, idle=TIMEOUT)
        assert response.status == 413
        caller.client.release(response)


async def test_password_of_the_address_is_sent_as_basic_auth():
    async with running_server(OK, OK, OK) as (server, caller):
        caller.url = caller.url.replace("://", "://me:p%40ss@")
        await caller.text()
        await caller.text(authorization="Bearer key")
        await caller.text()
    assert "authorization: Basic bWU6cEBzcw==" in server.heads[0]
    assert "authorization: Bearer key" in server.heads[1]
    assert "Basic" not in server.heads[1]
    assert server.heads[2] == server.heads[0]


@pytest.mark.parametrize("url", ["nonsense", "ftp://x/", "http:///v1", "http://x:99999/", "//x"])
async def test_unusable_address_is_an_error(url: str):
    with pytest.raises(InvalidUrl):
        await Caller(url).get()


async def test_header_with_a_line_break_is_refused():
    with pytest.raises(ValueError, match="line break"):
        await Caller("http://127.0.0.1:9/").get(authorization="x\r\nevil: 1")


def certificate(folder: Path) -> Path:
    """A self-signed certificate for 127.0.0.1, with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "lab")])
    now = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False
        )
        .sign(key, hashes.SHA256())
    )
    path = folder / "lab.pem"
    path.write_bytes(
        signed.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return path


async def test_certificate_is_verified_by_default(tmp_path: Path):
    path = certificate(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(path)
    script = ScriptedServer(OK, OK, OK)
    server = await asyncio.start_server(script.serve, "127.0.0.1", 0, ssl=context)
    async with server:
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        texts: list[str] = []
        for verify, ca_file in ((True, str(path)), (False, "")):
            caller = Caller(url)
            caller.client = HttpClient(
                connect=TIMEOUT,
                tls=lambda verify=verify, ca=ca_file: custom_tls(verify=verify, ca_file=ca),
            )
            texts.append(await caller.text())
            await caller.client.aclose()
        with pytest.raises(ssl.SSLCertVerificationError):
            await Caller(url).get()
    assert texts == ["ok", "ok"]
