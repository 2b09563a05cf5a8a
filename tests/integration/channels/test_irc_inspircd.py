"""The IRC channel against InspIRCd: the channel contract, logins, TLS, and missed messages."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from hermes.channels.irc.setup import check_account
from hermes.kit.ids import new_id
from hermes.ports.channel import Offline, Outbound, TargetGone
from hermes.schema.messages import Text
from hermes.schema.scope import Address
from hermes.testing.contracts.channel import (
    CapabilitiesContract,
    ChannelBench,
    InboundContract,
    OutboundContract,
    PlatformEvents,
    PlatformFaults,
    listening,
    text_of,
)
from support.faulty_link import FaultyLink, faulty_link
from support.irc import (
    NICK,
    SERVER_PASSWORD,
    InspIrcd,
    IrcBench,
    Person,
    connected,
    irc_bench,
    person,
    recorded,
)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


class Ann:
    """Ann writes to the agent in a channel that keeps its history."""

    def __init__(self, one: IrcBench, ann: Person, link: FaultyLink, room: str) -> None:
        self.room = room
        self.one = one
        self._ann = ann
        self._link = link
        self._port = link.port

    async def ready(self) -> None:
        """Wait until both are in the channel, and the agent has handled what was there."""
        await self._ann.joined.wait()
        await self._ann.until(lambda line: self._joined)

    @property
    def _joined(self) -> bool:
        """Whether the agent is in the room."""
        own = [one for one in self._ann.lines if self.room in one.params or one.command == "QUIT"]
        moves = [one.command for one in own if one.nick == NICK]
        present = any(one.command == "353" and NICK in one.last for one in own)
        return moves.count("JOIN") + present > moves.count("QUIT")

    async def arrive(self, text: str) -> None:
        await self._say(text, {})

    async def reply(self, message: str, text: str) -> None:
        await self._say(text, {"+draft/reply": message})

    async def _say(self, text: str, tags: Mapping[str, str]) -> None:
        await self.ready()
        sent = await self._ann.say(self.room, f"{NICK}: {text}", **tags)
        await recorded(self.one, sent.tags["msgid"])

    async def again(self) -> None:
        """The server replays the channel's history to a new connection."""
        self._link.hang_up()
        await self._ann.until(lambda line: not self._joined)
        await self.ready()

    async def cut_link(self) -> None:
        """Return once the agent has noticed it and connects again, in vain."""
        before, self._link.port = self._link.connections, 1
        self._link.hang_up()
        while self._link.connections == before:  # noqa: ASYNC110 - the link has no event for it
            await anyio.sleep(0.005)

    async def restore_link(self) -> None:
        if self._link.port != self._port:
            await self._ann.until(lambda line: not self._joined)
            self._link.port = self._port

    async def shown(self, address: Address) -> list[str]:
        await self._ann.synced()
        return self._ann.received(address.chat)

    async def quoted(self, post: str) -> str | None:
        await self._ann.synced()
        sent = next(one for one in self._ann.lines if one.tags.get("msgid") == post)
        return sent.tags.get("+draft/reply")


def real_bench(ann: Ann) -> ChannelBench:
    return ChannelBench(
        ann.one.channel,
        Address("irc", ann.room),
        ann.arrive,
        ann.shown,
        ann.again,
        PlatformEvents(reply=ann.reply),
        faults=PlatformFaults(unreachable=ann.cut_link),
    )


@asynccontextmanager
async def real(folder: Path, server: InspIrcd, *rooms: str) -> AsyncGenerator[Ann]:
    nick = new_id("ann").replace("_", "-")
    async with person(server.port, nick, rooms) as client, faulty_link(server.port) as link:
        port = int(link.url.rpartition(":")[2])
        async with irc_bench(folder, port, {"channel": rooms}) as one:
            yield Ann(one, client, link, rooms[0])


@pytest.fixture(scope="module")
async def people(
    tmp_path_factory: pytest.TempPathFactory, inspircd: InspIrcd
) -> AsyncGenerator[tuple[Ann, list[str]]]:
    """One connection for all tests that send: the server takes a second to let a client in."""
    rooms = [inspircd.rooms.pop() for _ in range(25)]
    folder = tmp_path_factory.mktemp("irc")
    async with real(folder, inspircd, *rooms) as ann, connected(ann.one):
        yield ann, rooms


class TestIrcReceivesFromInspircd(InboundContract, CapabilitiesContract):
    @pytest.fixture
    async def bench(self, tmp_path: Path, inspircd: InspIrcd) -> AsyncGenerator[ChannelBench]:
        async with real(tmp_path, inspircd, inspircd.rooms.pop()) as ann:
            yield real_bench(ann)


class TestIrcSendsToInspircd(OutboundContract):
    @pytest.fixture
    async def bench(self, people: tuple[Ann, list[str]]) -> ChannelBench:
        ann, rooms = people
        ann.room = rooms.pop()
        await ann.restore_link()
        await ann.arrive("Are you there?")
        return real_bench(ann)

    async def test_post_quotes_the_message_it_replies_to_in_the_room(
        self, bench: ChannelBench, people: tuple[Ann, list[str]]
    ) -> None:
        first = await bench.channel.send(bench.home, Outbound((Text("one"),)))
        quoting = Outbound((Text("two"),), reply_to=first.id)
        second = await bench.channel.send(bench.home, quoting)
        assert await people[0].quoted(second.id) == first.id


async def test_tls_and_server_password(
    tmp_path: Path, inspircd: InspIrcd, monkeypatch: pytest.MonkeyPatch
) -> None:
    extra = {"server": "localhost", "use_tls": True, "server_password": SERVER_PASSWORD}
    with pytest.raises(Offline, match="cannot be trusted"):
        await check_account("", {**extra, "port": inspircd.tls_port}, {})
    monkeypatch.setenv("SSL_CERT_FILE", str(inspircd.certificate))
    found = await check_account("", {**extra, "port": inspircd.tls_port}, {})
    assert found.account == "hermes-bot on Test"
    wrong = {**extra, "server_password": "wrong", "port": inspircd.tls_port}
    with pytest.raises(Offline):
        await check_account("", wrong, {})


async def test_channel_replays_missed_messages(tmp_path: Path, inspircd: InspIrcd) -> None:
    room = inspircd.rooms.pop()
    async with person(inspircd.port, "carol", [room]) as carol:
        await carol.joined.wait()
        await carol.say(room, "keeper: before the first start")
        extra = {"channel": [room], "nickname": "keeper"}
        async with irc_bench(tmp_path, inspircd.port, extra) as one:
            async with listening(one.channel) as received:
                await carol.until(lambda line: line.command == "JOIN" and line.nick == "keeper")
                sent = await carol.say(room, "keeper: one")
                await recorded(one, sent.tags["msgid"])
            assert list(map(text_of, received)) == ["one"]
            await carol.say(room, "keeper: two")
            last = await carol.say(room, "keeper: three")
            async with listening(one.channel) as received:
                await recorded(one, last.tags["msgid"])
            assert list(map(text_of, received)) == ["two", "three"]


async def test_long_answer_arrives_whole(people: tuple[Ann, list[str]]) -> None:
    ann, rooms = people
    ann.room = rooms.pop()
    await ann.restore_link()
    await ann.arrive("Are you there?")
    text = " ".join(f"wörd-{number}" for number in range(300))
    to = Address("irc", ann.room)
    await ann.one.channel.send(to, Outbound((Text(text),), plain=text))
    assert "".join(await ann.shown(to)) == text


async def test_refusals_of_the_server_are_understood(people: tuple[Ann, list[str]]) -> None:
    ann, rooms = people
    ann.room = rooms.pop()
    await ann.restore_link()
    await ann.arrive("Are you there?")
    post = Outbound((Text("hi"),), plain="hi")
    for chat in ("nobody", "#nowhere"):
        with pytest.raises(TargetGone):
            await ann.one.channel.send(Address("irc", chat), post)
