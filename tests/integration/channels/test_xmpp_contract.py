"""The XMPP channel passes the channel contract against prosody, with slixmpp as other client."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from hermes.schema.messages import Media
from hermes.schema.scope import Address
from hermes.testing.contracts.channel import (
    Admission,
    CapabilitiesContract,
    ChannelBench,
    InboundContract,
    OutboundContract,
    PlatformEvents,
    PlatformFaults,
    PlatformFiles,
    PlatformView,
)
from support.faulty_link import FaultyLink, faulty_link
from support.xmpp import (
    Person,
    Prosody,
    XmppBench,
    ignore,
    listening_to,
    person,
    recorded,
    xmpp_bench,
)

pytestmark = pytest.mark.slow


class Ann:
    def __init__(self, one: XmppBench, ann: Person, link: FaultyLink) -> None:
        self.home = Address("xmpp", ann.jid)
        self.one = one
        self._ann = ann
        self._link = link
        self._last: dict[str, str] = {}
        self._broken = False

    async def arrive(self, text: str) -> None:
        await self._write(text=text)

    async def send_file(self, name: str, data: bytes) -> None:
        await listening_to(self.one)
        address = await self._ann.upload(name, data)
        sent = self._ann.write(self.one.jid, address, oob=address)
        await recorded(self.one, sent)

    async def again(self) -> None:
        await self._write(**self._last)

    async def edit(self, message: str, text: str) -> None:
        await self._write(text=text, replaces=message)

    async def reply(self, message: str, text: str) -> None:
        await self._write(text=text, reply_to=message)

    async def unreadable(self) -> None:
        if not self._broken:
            self._broken = True
            self._ann.write(self.one.jid, "hello", reply_to="x", quoted_until="9" * 5000)

    async def _write(self, text: str, **more: str) -> None:
        await listening_to(self.one)
        sent = self._ann.write(self.one.jid, text, **more)
        self._last = {"text": text, **more, "id": sent}
        await recorded(self.one, sent)

    async def shown(self, address: Address) -> list[str]:
        await self._ann.synced()
        return self._ann.texts(self.one.jid)

    async def cut_link(self) -> None:
        """Return once the agent has noticed it and connects again, in vain."""
        before, self._link.port = self._link.connections, 1
        self._link.hang_up()
        while self._link.connections == before:  # noqa: ASYNC110 - the link has no event for it
            await anyio.sleep(0.005)


@asynccontextmanager
async def bench_of(folder: Path, server: Prosody, admission: Admission) -> AsyncGenerator[Ann]:
    async with person(server) as ann, faulty_link(server.port) as link:
        port = int(link.url.rpartition(":")[2])
        async with xmpp_bench(folder, server, port=port, admits=admission) as one:
            yield Ann(one, ann, link)


def contract_bench(ann: Ann, admission: Admission, folder: Path) -> ChannelBench:
    async def store(data: bytes, name: str) -> Media:
        return await ann.one.blobs.put(data, "application/octet-stream", name)

    return ChannelBench(
        ann.one.channel,
        ann.home,
        ann.arrive,
        ann.shown,
        ann.again,
        PlatformEvents(edit=ann.edit, reply=ann.reply, unreadable=ann.unreadable),
        # What is shown at once cannot be asked for: it arrives a moment later.
        PlatformView(),
        PlatformFaults(unreachable=ann.cut_link),
        store,
        PlatformFiles(send=ann.send_file, admission=admission, folder=folder),
    )


class TestXmppReceives(InboundContract, CapabilitiesContract):
    @pytest.fixture
    async def bench(self, tmp_path: Path, prosody: Prosody) -> AsyncGenerator[ChannelBench]:
        admission = Admission()
        async with bench_of(tmp_path, prosody, admission) as ann:
            yield contract_bench(ann, admission, tmp_path / "cache" / "blobs")


class TestXmppSends(OutboundContract):
    @pytest.fixture
    async def bench(self, tmp_path: Path, prosody: Prosody) -> AsyncGenerator[ChannelBench]:
        admission = Admission()
        async with (
            bench_of(tmp_path, prosody, admission) as ann,
            anyio.create_task_group() as group,
        ):
            group.start_soon(ann.one.channel.run, ignore)
            await listening_to(ann.one)
            yield contract_bench(ann, admission, tmp_path / "cache" / "blobs")
            group.cancel_scope.cancel()
