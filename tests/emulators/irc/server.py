"""Serve an emulated IRC network; what people write is said with `say`.

Follows RFC 2812 and the IRCv3 specifications of the capabilities that it offers.
"""

import asyncio
import base64
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime

from emulators.irc.state import EmulatedIrc, EmulatedMessage
from hermes.channels.irc.irc_line import IrcLine, format_line, parse_line

NAME = "irc.emulator"
_NO_TAGS: Mapping[str, str] = {}


class _Client:
    """One connection of a program."""

    def __init__(self, irc: EmulatedIrc, writer: asyncio.StreamWriter) -> None:
        self.irc = irc
        self.writer = writer
        self.nick = ""
        self.user = ""
        self.account = ""
        self.password = ""
        self.mechanism = ""
        self.capabilities: set[str] = set()
        self.channels: set[str] = set()
        self.negotiating = False
        self.welcomed = False
        self.synced = False
        """It has asked for an answer, so it has handled what was sent to it at first."""
        self.batch: tuple[IrcLine, list[IrcLine]] | None = None

    @property
    def source(self) -> str:
        return f"{self.nick}!{self.user}@emulated.example"

    def write(
        self, command: str, *params: str, source: str = NAME, tags: Mapping[str, str] = _NO_TAGS
    ) -> None:
        if self.irc.deaf:
            return
        given = tags if "message-tags" in self.capabilities else _NO_TAGS
        self.writer.write(format_line(f":{source} {command}", *params, tags=given))

    def numeric(self, number: str, *params: str, tags: Mapping[str, str] = _NO_TAGS) -> None:
        self.write(number, self.nick or "*", *params, tags=tags)

    def show(self, message: EmulatedMessage, more: Mapping[str, str] = _NO_TAGS) -> None:
        """Send a message: as a batch if it has several lines."""
        lines = message.text.split("\n")
        if len(lines) == 1 or "draft/multiline" not in self.capabilities:
            for text in lines:
                line = message.line(text, more)
                self.write("PRIVMSG", *line.params, source=line.source, tags=line.tags)
            return
        name = f"ml{message.id}"
        opened = message.line("", more).tags
        self.write(
            "BATCH", f"+{name}", "draft/multiline", message.target,
            source=message.source, tags=opened,
        )  # fmt: skip
        for text in lines:
            tags = {"batch": name}
            self.write("PRIVMSG", message.target, text, source=message.source, tags=tags)
        self.write("BATCH", f"-{name}")


class IrcEmulator:
    def __init__(self, irc: EmulatedIrc) -> None:
        self.irc = irc
        self.port = 0
        self.clients: list[_Client] = []

    def say(
        self, nick: str, target: str, text: str, *, account: str = "", **tags: str
    ) -> EmulatedMessage:
        """Somebody writes a message."""
        message = self.irc.add(f"{nick}!{nick}@people.example", target, text, account, tags)
        self.repeat(message)
        return message

    def repeat(self, message: EmulatedMessage) -> None:
        for client in self.clients:
            if message.target in {client.nick, *client.channels}:
                client.show(message)

    def send_line(self, source: str, command: str, *params: str) -> None:
        """Something else than a message, to every program."""
        for client in self.clients:
            client.write(command, *params, source=source)

    def rename(self, nick: str, new: str, account: str) -> None:
        for client in self.clients:
            source = f"{nick}!{nick}@people.example"
            client.write("NICK", new, source=source, tags={"account": account})

    def cut(self) -> None:
        for client in self.clients:
            client.writer.transport.abort()

    async def until(self, condition: Callable[[], object]) -> None:
        while not condition():
            await self.irc.changed.wait()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = _Client(self.irc, writer)
        self.irc.connections += 1
        with suppress(ConnectionError):
            while not self.irc.closed and (data := await reader.readline()):
                line = parse_line(data.rstrip(b"\r\n"))
                if line is not None:
                    self.irc.commands.append(f"{line.command} {' '.join(line.params)}")
                    self._handle(client, line)
                    self.irc.notify()
        if client in self.clients:
            self.clients.remove(client)
        writer.close()
        self.irc.notify()

    def _handle(self, client: _Client, line: IrcLine) -> None:
        handler = {
            "CAP": self._cap,
            "AUTHENTICATE": self._authenticate,
            "NICK": self._nick,
            "USER": self._user,
            "PASS": self._pass,
            "PING": self._ping,
            "USERHOST": self._userhost,
            "JOIN": self._join,
            "BATCH": self._batch,
            "PRIVMSG": self._privmsg,
            "NICKSERV": self._nickserv,
            "WHOIS": self._whois,
            "CHATHISTORY": self._chathistory,
        }.get(line.command)
        if handler is not None:
            handler(client, line)
        elif line.command not in {"MODE", "QUIT", "PONG"}:
            client.numeric("421", line.command, "Unknown command")

    def _cap(self, client: _Client, line: IrcLine) -> None:
        match line.param(0):
            case "LS":
                client.negotiating = True
                offered = self.irc.capabilities.items()
                words = [f"{name}={value}" if value else name for name, value in offered]
                client.write("CAP", "*", "LS", " ".join(words))
            case "REQ":
                client.capabilities.update(line.last.split())
                client.write("CAP", "*", "ACK", line.last)
            case _:
                client.negotiating = False
                self._welcome(client)

    def _authenticate(self, client: _Client, line: IrcLine) -> None:
        if not client.mechanism:
            client.mechanism = line.last
            client.writer.write(b"AUTHENTICATE +\r\n")
            return
        fields = base64.b64decode(line.last).decode().split("\0")
        name = fields[0]
        is_right = name == self.irc.certificate_account != ""
        if client.mechanism == "PLAIN":
            is_right = self.irc.passwords.get(name) == fields[2]
        if is_right:
            client.account = name
            client.numeric("900", client.source, name, f"You are now logged in as {name}")
            client.numeric("903", "SASL authentication successful")
        else:
            client.numeric("904", "SASL authentication failed")

    def _nick(self, client: _Client, line: IrcLine) -> None:
        taken = {*self.irc.taken, *(one.nick for one in self.clients if one is not client)}
        if line.last in taken:
            client.numeric("433", line.last, "Nickname is already in use")
            return
        if client.welcomed:
            client.write("NICK", line.last, source=client.source)
        client.nick = line.last
        self._welcome(client)

    def _user(self, client: _Client, line: IrcLine) -> None:
        client.user = line.param(0)
        self._welcome(client)

    def _pass(self, client: _Client, line: IrcLine) -> None:
        client.password = line.last

    def _welcome(self, client: _Client) -> None:
        if client.negotiating or client.welcomed or not client.nick or not client.user:
            return
        if client.password != self.irc.server_password:
            client.numeric("464", "Password incorrect")
            client.writer.close()
            return
        client.welcomed = True
        self.clients.append(client)
        client.numeric("001", f"Welcome {client.source}")
        client.numeric("005", "CASEMAPPING=ascii", "CHANTYPES=#", "NETWORK=Emulated", "supported")

    def _ping(self, client: _Client, line: IrcLine) -> None:
        client.synced = True
        client.write("PONG", NAME, line.last)

    def _userhost(self, client: _Client, line: IrcLine) -> None:
        client.numeric("302", f"{client.nick}=+{client.user}@emulated.example")

    def _join(self, client: _Client, line: IrcLine) -> None:
        name = line.param(0)
        if self.irc.keys.get(name, "") != line.param(1):
            client.numeric("475", name, "Cannot join channel (+k)")
            return
        client.channels.add(name)
        client.write("JOIN", name, source=client.source)

    def _batch(self, client: _Client, line: IrcLine) -> None:
        if line.param(0).startswith("+"):
            client.batch = line, []
            return
        (opened, lines), client.batch = client.batch or (line, []), None
        text = lines[0].last
        for one in lines[1:]:
            text += one.last if "draft/multiline-concat" in one.tags else f"\n{one.last}"
        self._accept(client, opened.param(2), text, opened.tags)

    def _privmsg(self, client: _Client, line: IrcLine) -> None:
        if client.batch is not None and "batch" in line.tags:
            client.batch[1].append(line)
        else:
            self._accept(client, line.param(0), line.last, line.tags)

    def _accept(self, client: _Client, target: str, text: str, tags: Mapping[str, str]) -> None:
        label = {"label": tags["label"]} if "label" in tags else {}
        if target == "NickServ" and self.irc.nickserv == "operator":
            self._identify(client, text)
            return
        if target == "NickServ" and not self.irc.nickserv:
            client.numeric("401", target, "No such nick/channel")
            return
        if self.irc.refusal:
            client.numeric(self.irc.refusal, target, "Refused", tags=label)
            return
        own = {name: value for name, value in tags.items() if name.startswith("+")}
        message = self.irc.add(client.source, target, text, client.account, own)
        if "echo-message" in client.capabilities:
            client.show(message, label)

    def _nickserv(self, client: _Client, line: IrcLine) -> None:
        if self.irc.nickserv == "command":
            self._identify(client, " ".join(line.params))
        else:
            client.numeric("421", line.command, "Unknown command")

    def _whois(self, client: _Client, line: IrcLine) -> None:
        """NickServ is a service, or someone who has taken the name."""
        name = line.last
        if not self.irc.nickserv:
            client.numeric("401", name, "No such nick/channel")
        else:
            client.numeric("311", name, "s", "services", "*", "Services")
            if self.irc.nickserv == "operator":
                client.numeric("313", name, "is an IRC operator")
        client.numeric("318", name, "End of /WHOIS list")

    def _identify(self, client: _Client, text: str) -> None:
        verb, name, password = text.split(" ")
        if verb == "GHOST":
            if self.irc.passwords.get(name) == password:
                self.irc.taken.discard(name)
            return
        if self.irc.passwords.get(name) == password:
            client.account = name
            client.numeric("900", client.source, name, f"You are now logged in as {name}")
        else:
            client.write("NOTICE", client.nick, "Invalid password", source="NickServ!s@services")

    def _chathistory(self, client: _Client, line: IrcLine) -> None:
        if "draft/chathistory" not in self.irc.capabilities:
            client.numeric("421", line.command, "Unknown command")
            return
        if line.param(0) == "TARGETS":
            since = _moment(line.param(1))
            nicks = [
                one.source.partition("!")[0]
                for one in self.irc.messages
                if one.target == client.nick and one.at > since
            ]
            client.write("BATCH", "+t", "draft/chathistory-targets")
            for nick in dict.fromkeys(nicks):
                tags = {"batch": "t"}
                client.write("CHATHISTORY", "TARGETS", nick, "timestamp=now", tags=tags)
            client.write("BATCH", "-t")
            return
        target, since, most = line.param(1), _moment(line.param(2)), int(line.param(3))
        self._replay(client, target, self._history(client, target, since)[:most])

    def _history(self, client: _Client, target: str, since: datetime) -> list[EmulatedMessage]:
        def belongs(one: EmulatedMessage) -> bool:
            if target.startswith("#"):
                return one.target == target
            pair = {one.target, one.source.partition("!")[0]}
            return pair == {target, client.nick}

        return [one for one in self.irc.messages if belongs(one) and one.at > since]

    def _replay(self, client: _Client, target: str, messages: Sequence[EmulatedMessage]) -> None:
        client.write("BATCH", "+h", "chathistory", target)
        for one in messages:
            line = one.line(one.text, {"batch": "h"})
            client.write("PRIVMSG", *line.params, source=line.source, tags=line.tags)
        client.write("BATCH", "-h")


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text.removeprefix("timestamp="))


@asynccontextmanager
async def serve_irc(irc: EmulatedIrc) -> AsyncGenerator[IrcEmulator]:
    """Run the server in this event loop until the end of the block."""
    emulator = IrcEmulator(irc)
    server = await asyncio.start_server(emulator.serve, "127.0.0.1", 0)
    emulator.port = server.sockets[0].getsockname()[1]
    try:
        yield emulator
    finally:
        server.close()
        emulator.cut()
