"""A SOCKS5 proxy that looks up every host as this machine."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import anyio
from anyio.abc import SocketAttribute, SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

USER, PASSWORD = "ann", "of-the-proxy"
_WITH_PASSWORD, _CONNECT, _NAME = 2, 1, 3


class SocksProxy:
    """`hosts` are the names that clients asked for; with `refuse`, no connection is made."""

    def __init__(self) -> None:
        self.port = 0
        self.hosts: list[str] = []
        self.refuse = False

    @property
    def url(self) -> str:
        return f"socks5://{USER}:{PASSWORD}@127.0.0.1:{self.port}"

    async def handle(self, client: SocketStream) -> None:
        # A client may hang up at any time.
        with suppress(anyio.IncompleteRead, anyio.BrokenResourceError):
            await self._serve(client)

    async def _serve(self, client: SocketStream) -> None:
        async with client:
            read = BufferedByteReceiveStream(client)
            _, count = await read.receive_exactly(2)
            assert _WITH_PASSWORD in await read.receive_exactly(count)
            await client.send(bytes([5, _WITH_PASSWORD]))
            _, length = await read.receive_exactly(2)
            user = await read.receive_exactly(length)
            password = await read.receive_exactly((await read.receive_exactly(1))[0])
            right = (user, password) == (USER.encode(), PASSWORD.encode())
            await client.send(bytes([1, 0 if right else 1]))
            if not right:
                return
            _, command, _, kind, length = await read.receive_exactly(5)
            assert (command, kind) == (_CONNECT, _NAME), "the proxy looks up the name"
            self.hosts.append((await read.receive_exactly(length)).decode())
            port = int.from_bytes(await read.receive_exactly(2))
            await client.send(bytes([5, 2 if self.refuse else 0, 0, 1, 0, 0, 0, 0, 0, 0]))
            if not self.refuse:
                async with await anyio.connect_tcp("127.0.0.1", port) as server:
                    await join_streams(client, server)


async def join_streams(one: SocketStream, other: SocketStream) -> None:
    async with anyio.create_task_group() as group:

        async def copy(source: SocketStream, target: SocketStream) -> None:
            try:
                async for data in source:
                    await target.send(data)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                pass
            group.cancel_scope.cancel()

        group.start_soon(copy, one, other)
        group.start_soon(copy, other, one)


@asynccontextmanager
async def socks_proxy() -> AsyncGenerator[SocksProxy]:
    proxy = SocksProxy()
    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
        anyio.create_task_group() as group,
    ):
        proxy.port = listener.extra(SocketAttribute.local_port)  # noqa: S610 - not a query
        group.start_soon(listener.serve, proxy.handle)
        yield proxy
        group.cancel_scope.cancel()
