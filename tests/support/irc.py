"""IRC networks for tests: the emulator, and InspIRCd with channels that keep their history."""

import asyncio
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import anyio
from msgspec import Struct

from hermes.channels.irc.channel import IrcChannel, open_channel
from hermes.channels.irc.irc_line import IrcLine, format_line, parse_line
from hermes.kit.clock import Clock
from hermes.ports.channel import Inbound
from support.channel_deps import new_deps
from support.debian import PATH
from support.mail import make_certificate

NICK = "hermes"
PASSWORD = "of-the-nickname"
SERVER_PASSWORD = "of-the-server"
TIMEOUT = 20.0
INSPIRCD = """
<config format="xml">
<server name="irc.test" description="test" network="Test">
<admin name="a" nick="a" email="a@irc.test">
<bind address="127.0.0.1" port="{port}" type="clients">
<bind address="127.0.0.1" port="{tls_port}" type="clients" sslprofile="own">
<module name="ssl_gnutls">
<sslprofile name="own" provider="gnutls" certfile="{base}/cert.pem" keyfile="{base}/key.pem">
<connect name="locked" allow="*" password="of-the-server" port="{tls_port}" fakelag="off"
 commandrate="100000" threshold="1000" localmax="1000" globalmax="1000" maxchans="100"
 resolvehostnames="no">
<connect name="main" allow="*" port="{port}" fakelag="off" commandrate="100000" threshold="1000"
 localmax="1000" globalmax="1000" recvq="64K" maxchans="100" resolvehostnames="no">
<performance softlimit="1000" quietbursts="yes">
<files motd="">
<pid file="{base}/pid">
<log method="file" type="*" level="default" target="{base}/log">
<path configdir="{base}" datadir="{base}" logdir="{base}" runtimedir="{base}">
<module name="cap">
<module name="ircv3">
<module name="ircv3_accounttag">
<module name="services_account">
<module name="ircv3_batch">
<module name="ircv3_ctctags">
<module name="ircv3_echomessage">
<module name="ircv3_labeledresponse">
<module name="ircv3_msgid">
<module name="ircv3_servertime">
<module name="botmode">
<module name="chanhistory">
<chanhistory maxlines="200" prefixmsg="no" bots="yes" enableumode="yes">
<module name="permchannels">
"""
ROOM = '<permchannels channel="{}" modes="+ntPH 50:1h">\n'
ROOMS = tuple(f"#room-{number}" for number in range(60))
"""Channels that exist from the start and keep their history; a test takes one of its own."""


class InspIrcd(Struct, frozen=True):
    """A running InspIRCd; the port with TLS needs the password of the server."""

    port: int
    tls_port: int
    certificate: Path
    rooms: list[str]


@contextmanager
def run_inspircd() -> Generator[InspIrcd]:
    """Run InspIRCd until the end of the block."""
    with tempfile.TemporaryDirectory(prefix="inspircd-") as folder:
        base = Path(folder)
        make_certificate(base)
        with socket.socket() as one, socket.socket() as two:
            for each in (one, two):
                each.bind(("127.0.0.1", 0))
            port, tls_port = one.getsockname()[1], two.getsockname()[1]
        config = base / "inspircd.conf"
        text = INSPIRCD.format(base=base, port=port, tls_port=tls_port)
        config.write_text(text + "".join(map(ROOM.format, ROOMS)))
        program = shutil.which("inspircd", path=PATH) or "inspircd"
        command = [program, "--runasroot", "--nofork", "--config", str(config)]
        with (base / "out").open("wb") as out:
            process = subprocess.Popen(command, stdout=out, stderr=out, cwd=base)
        with process:
            try:
                _wait_for(port, process, base)
                yield InspIrcd(port, tls_port, base / "cert.pem", list(ROOMS))
            finally:
                process.terminate()


def _wait_for(port: int, process: subprocess.Popen[bytes], base: Path) -> None:
    end = time.monotonic() + TIMEOUT
    while time.monotonic() < end and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise AssertionError(f"inspircd does not start: {(base / 'out').read_text()[-800:]}")


class Person:
    """Somebody with a simple client of their own on a real network."""

    def __init__(
        self, nick: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.nick = nick
        self.lines: list[IrcLine] = []
        self.changed = anyio.Event()
        self.joined = anyio.Event()
        self._reader = reader
        self._writer = writer

    def write(self, command: str, *params: str, **tags: str) -> None:
        self._writer.write(format_line(command, *params, tags=tags))

    async def join(self, rooms: Sequence[str]) -> None:
        await self.until(lambda line: line.command == "001")
        for room in rooms:
            self.write("JOIN", room)
        await self.until(lambda line: line.command == "366" and line.param(1) == rooms[-1])
        self.joined.set()

    async def read(self) -> None:
        while data := await self._reader.readline():
            line = parse_line(data.rstrip(b"\r\n"))
            if line is None:
                continue
            if line.command == "PING":
                self.write("PONG", line.last)
            self.lines.append(line)
            self.changed.set()
            self.changed = anyio.Event()

    async def until(self, condition: Callable[[IrcLine], object]) -> IrcLine:
        with anyio.fail_after(TIMEOUT):
            while True:
                for line in self.lines:
                    if condition(line):
                        return line
                await self.changed.wait()

    def received(self, target: str, nick: str = NICK) -> list[str]:
        """What a program has written to a channel or to this person."""
        return [
            line.last
            for line in self.lines
            if line.command == "PRIVMSG" and line.nick == nick and line.param(0) == target
        ]

    async def say(self, target: str, text: str, **tags: str) -> IrcLine:
        """Write a message; return it as the server passes it on, with its id."""
        label = f"say-{len(self.lines)}"
        self.write("PRIVMSG", target, text, label=label, **tags)
        return await self.until(lambda line: line.tags.get("label") == label)

    async def synced(self) -> None:
        """Return once the server has sent everything that was written before."""
        token = f"sync-{len(self.lines)}"
        self.write("PING", token)
        await self.until(lambda line: line.command == "PONG" and line.last == token)


@asynccontextmanager
async def person(port: int, nick: str, rooms: Sequence[str]) -> AsyncGenerator[Person]:
    """Yields at once; the server takes up to a second to let a client in."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    one = Person(nick, reader, writer)
    one.write("CAP", "LS", "302")
    one.write("NICK", nick)
    one.write("USER", nick, "0", "*", nick)
    wanted = "server-time message-tags echo-message labeled-response batch account-tag"
    one.write("CAP", "REQ", wanted)
    one.write("CAP", "END")
    async with anyio.create_task_group() as group:
        group.start_soon(one.read)
        group.start_soon(one.join, rooms)
        yield one
        group.cancel_scope.cancel()
    writer.close()


class IrcBench(Struct, frozen=True):
    channel: IrcChannel
    records: Path


@asynccontextmanager
async def irc_bench(
    home: Path,
    port: int,
    extra: Mapping[str, object] | None = None,
    *,
    env: Mapping[str, str] | None = None,
    clock: Clock | None = None,
) -> AsyncGenerator[IrcBench]:
    """A channel that connects to a network on this machine."""
    settings = {
        "server": "127.0.0.1", "port": port, "use_tls": False, "nickname": NICK,
        "flood_interval": 0, **(extra or {}),
    }  # fmt: skip
    deps = new_deps("irc", home, extra=settings, env=env or {}, clock=clock)
    async with AsyncExitStack() as stack:
        channel = await stack.enter_async_context(open_channel(deps))
        yield IrcBench(channel, home / "irc" / "network.json")


async def ignore(update: Inbound) -> None:
    """The outgoing half of the contract receives nothing."""


@asynccontextmanager
async def connected(one: IrcBench) -> AsyncGenerator[None]:
    async with anyio.create_task_group() as group:
        group.start_soon(one.channel.run, ignore)
        yield
        group.cancel_scope.cancel()


async def recorded(one: IrcBench, message: str) -> None:
    """Return once the channel has stored that the message is handled."""
    while not one.records.exists() or f'"{message}"' not in one.records.read_text():  # noqa: ASYNC110 - another task writes the file
        await anyio.sleep(0.005)
