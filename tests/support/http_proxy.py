"""An HTTP proxy that connects every host to this machine."""

import base64
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
from anyio.abc import SocketAttribute, SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from support.socks import join_streams

USER, PASSWORD = "ann", "of-the-proxy"
_MAX_HEAD = 8192


class HttpProxy:
    """`hosts` are the names that clients asked for."""

    def __init__(self) -> None:
        self.port = 0
        self.hosts: list[str] = []

    @property
    def url(self) -> str:
        return f"http://{USER}:{PASSWORD}@127.0.0.1:{self.port}"

    async def handle(self, client: SocketStream) -> None:
        async with client:
            read = BufferedByteReceiveStream(client)
            head = (await read.receive_until(b"\r\n\r\n", _MAX_HEAD)).decode()
            method, target, _ = head.splitlines()[0].split()
            login = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
            if method != "CONNECT" or f"Basic {login}" not in head:
                await client.send(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
                return
            host, _, port = target.rpartition(":")
            self.hosts.append(host)
            await client.send(b"HTTP/1.1 200 Connection established\r\n\r\n")
            async with await anyio.connect_tcp("127.0.0.1", int(port)) as server:
                await join_streams(client, server)


@asynccontextmanager
async def http_proxy() -> AsyncGenerator[HttpProxy]:
    proxy = HttpProxy()
    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
        anyio.create_task_group() as group,
    ):
        proxy.port = listener.extra(SocketAttribute.local_port)  # noqa: S610 - not a query
        group.start_soon(listener.serve, proxy.handle)
        yield proxy
        group.cancel_scope.cancel()
