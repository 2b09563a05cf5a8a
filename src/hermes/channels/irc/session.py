"""One login on an IRC server: keeps channels joined, receives messages, fetches history, sends."""

import logging
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

import anyio
from msgspec import Struct

from hermes.channels.irc.batches import Batches, History, HistoryTargets, time_of, timestamp
from hermes.channels.irc.connection import IrcConnection, deadline
from hermes.channels.irc.inbound import REPLY_TAGS
from hermes.channels.irc.irc_line import IrcLine
from hermes.channels.irc.login import IrcLogin, LoginResult
from hermes.channels.irc.pending_post import REFUSALS, FloodLimit, PendingPost
from hermes.channels.irc.text_lines import TextLine, room_for, text_lines
from hermes.kit.clock import Clock
from hermes.ports.channel import NotSent, Offline

log = logging.getLogger(__name__)

REPLY_SECONDS = 20.0
"""Seconds of silence before the server is pinged, and the time it has to answer."""
CONFIRM_SECONDS = 60.0
JOIN_SECONDS = 20.0
MAX_WAITING = 5_000
PAGE = 100
MAX_PAGES = 20
MAX_TARGETS = 50
_SYNC, _PULSE, _POST = "hermes-sync", "hermes-pulse", "hermes-post-"
_CANNOT_JOIN = frozenset({"403", "405", "437", "471", "473", "474", "475", "476", "477", "489"})


class Received(Struct, frozen=True):
    """A message; `replayed` if it comes from the server's history."""

    line: IrcLine
    replayed: bool = False


class IrcSession:
    """Used by several tasks while `run`: one reads, one keeps the connection, others send."""

    def __init__(
        self,
        *,
        connection: IrcConnection,
        login: IrcLogin,
        welcome: LoginResult,
        channels: Mapping[str, str],
        waiting: deque[Received],
        flood: FloodLimit,
        clock: Clock,
    ) -> None:
        """`channels` maps the channels to join to their keys; `waiting` outlives the session."""
        self.welcome = welcome
        self.nick = welcome.nick
        self._source = welcome.source
        self._connection = connection
        self._login = login
        self._channels = channels
        self._flood = flood
        self._clock = clock
        self._batches = Batches()
        self._joined: set[str] = set()
        self._refused: set[str] = set()
        self._joins = anyio.Event()
        self._synced = anyio.Event()
        self._waiting = waiting
        self._arrived = anyio.Event()
        self._asked: str | None = None
        self._answered = anyio.Event()
        self._history: tuple[IrcLine, ...] = ()
        self._names: tuple[str, ...] = ()
        self._sending = anyio.Lock()
        self._pending: PendingPost | None = None
        self._count = 0
        self._last_data_at = clock.monotonic()
        self._is_closed = False

    async def read(self) -> None:
        """Handle what the server sends. Raises `Offline`."""
        try:
            while True:
                line = await self._connection.read()
                self._last_data_at = self._clock.monotonic()
                match self._batches.add(line):
                    case None:
                        pass
                    case History() as history:
                        self._take_history(history)
                    case HistoryTargets(names):
                        self._names = names
                        self._answered.set()
                    case complete:
                        await self._handle(complete)
        finally:
            self._is_closed = True
            self._synced.set()
            if self._pending is not None:
                self._pending.mark_lost()

    async def keep_alive(self) -> None:
        """Notice a dead connection, and rejoin lost channels and regain the nickname."""
        while True:
            await self._clock.sleep(REPLY_SECONDS)
            before = self._last_data_at
            if self._clock.monotonic() - before >= REPLY_SECONDS / 2:
                await self._connection.write("PING", _PULSE)
                await self._clock.sleep(REPLY_SECONDS)
                if self._last_data_at == before:
                    raise Offline("The IRC server does not answer.")
            if self.nick != self._login.nickname:
                await self._connection.write("NICK", self._login.nickname)
            await self._join(
                name for name in self._channels if self._fold(name) not in self._joined
            )

    async def enter(self) -> None:
        """Join the channels; return after the server's own replay."""
        if bot_mode := self.welcome.features.get("BOT"):
            await self._connection.write("MODE", self.nick, f"+{bot_mode}")
        if self.nick != self._login.nickname and self._login.password:
            # This command reaches services only, and no one else who took the name NickServ.
            ghost = ("GHOST", self._login.nickname, self._login.password)
            await self._connection.write("NICKSERV", *ghost)
            await self._connection.write("NICK", self._login.nickname)
        await self._join(self._channels)
        with anyio.move_on_after(JOIN_SECONDS):
            while len(self._joined | self._refused) < len(self._channels):
                await self._joins.wait()
                self._joins = anyio.Event()
        await self._connection.write("PING", _SYNC)
        with deadline(REPLY_SECONDS):
            await self._synced.wait()

    async def wait(self) -> None:
        """Wait until a message is waiting."""
        while not self._waiting:
            self._arrived = anyio.Event()
            await self._arrived.wait()

    async def missed(self, since: datetime, now: datetime) -> list[IrcLine]:
        """Return the messages since then from the server's history, oldest first."""
        if not self.welcome.capability_name("chathistory"):
            return []
        await self._ask("", "TARGETS", timestamp(since), timestamp(now), str(MAX_TARGETS))
        direct = [name for name in self._names if not self.welcome.is_channel(name)]
        found: list[IrcLine] = []
        for target in (*self._joined, *direct):
            found += await self._missed_in(target, since)
        return sorted(found, key=lambda line: time_of(line) or since)

    async def _missed_in(self, target: str, since: datetime) -> list[IrcLine]:
        found: dict[str, IrcLine] = {}
        for _ in range(MAX_PAGES):
            await self._ask(target, "AFTER", target, timestamp(since), str(PAGE))
            page = {line.tags.get("msgid", ""): line for line in self._history}
            if not page.keys() - found.keys():
                break
            found |= page
            since = max(time_of(line) or since for line in page.values())
        found.pop("", None)
        return list(found.values())

    async def _ask(self, target: str, *words: str) -> None:
        """Request history; the result is in `_history` or `_names`, empty if refused."""
        self._answered, self._history, self._names = anyio.Event(), (), ()
        self._asked = self._fold(target)
        try:
            with deadline(REPLY_SECONDS):
                await self._connection.write("CHATHISTORY", *words)
                await self._answered.wait()
        finally:
            self._asked = None

    async def send(self, target: str, text: str, reply_to: str | None) -> str:
        """Send a text once the channels are joined; return its id, if the server reports it.

        Raises `NotSent`, or `UnknownOutcome` if the connection is lost on the way.
        """
        with deadline(CONFIRM_SECONDS):
            await self._synced.wait()
        room = room_for(self._source, target, self.welcome.line_limit)
        lines = text_lines(text, room)
        if not any(line.text.strip() for line in lines):
            raise NotSent("There is no text to send.")
        async with self._sending:
            self._count += 1
            post = PendingPost(self._fold(target), f"{_POST}{self._count}")
            self._pending = post
            try:
                await self._write_post(post, target, lines, reply_to)
                with anyio.move_on_after(CONFIRM_SECONDS) as scope:
                    await post.done.wait()
                if scope.cancelled_caught:
                    post.mark_lost()
            except Offline:
                if not post.count:
                    raise
                post.mark_lost()
            finally:
                self._pending = None
        post.check()
        return post.message_id

    async def _write_post(
        self, post: PendingPost, target: str, lines: Sequence[TextLine], reply_to: str | None
    ) -> None:
        reply = {REPLY_TAGS[1]: reply_to} if reply_to and self.welcome.has("message-tags") else {}
        if len(lines) > 1 and self._fits_multiline(lines):
            await self._write_multiline(post, target, lines, reply)
        else:
            for line in lines:
                if line.text.strip():
                    await self._write_line(post, target, line.text, reply)
                    reply = {}
        await self._connection.write("PING", post.label)

    async def _write_line(
        self, post: PendingPost, target: str, text: str, reply: Mapping[str, str]
    ) -> None:
        await self._flood.wait()
        if self._is_closed:
            raise Offline("The connection to the IRC server was lost.")
        tags = {**self._label(f"{post.label}.{post.count}"), **reply}
        await self._connection.write("PRIVMSG", target, text, tags=tags)
        post.count += 1

    async def _write_multiline(
        self,
        post: PendingPost,
        target: str,
        lines: Sequence[TextLine],
        reply: Mapping[str, str],
    ) -> None:
        kind, write = self.welcome.capability_name("multiline"), self._connection.write
        await self._flood.wait()
        if self._is_closed:
            raise Offline("The connection to the IRC server was lost.")
        tags = {**self._label(f"{post.label}.0"), **reply}
        await write("BATCH", f"+{post.label}", kind, target, tags=tags)
        post.count = 1
        for line in lines:
            concat = {f"{kind}-concat": ""} if line.continues else {}
            batch = {"batch": post.label, **concat}
            await write("PRIVMSG", target, line.text, tags=batch)
        await write("BATCH", f"-{post.label}")

    def _fits_multiline(self, lines: Sequence[TextLine]) -> bool:
        name = self.welcome.capability_name("multiline")
        capability = self.welcome.capabilities.get(name, "") if name else ""
        pairs = [limit.partition("=") for limit in capability.split(",")]
        limits = {key: int(value) for key, _, value in pairs if value.isdecimal()}
        size = sum(len(line.text.encode()) + 1 for line in lines)
        max_bytes, count = limits.get("max-bytes", 0), limits.get("max-lines", len(lines))
        return size <= max_bytes and len(lines) <= count

    def _label(self, label: str) -> Mapping[str, str]:
        return {"label": label} if self.welcome.has("labeled-response") else {}

    async def _join(self, names: Iterable[str]) -> None:
        for name in names:
            key = self._channels[name]
            await self._connection.write("JOIN", name, *([key] if key else []))

    def _fold(self, name: str) -> str:
        return self.welcome.fold(name)

    def _put(self, received: Received) -> None:
        if len(self._waiting) >= MAX_WAITING:
            raise Offline("Messages arrive on IRC faster than they can be handled.")
        self._waiting.append(received)
        self._arrived.set()

    def _take_history(self, history: History) -> None:
        messages = tuple(message for message in history.lines if message.command == "PRIVMSG")
        if self._asked is not None and self._asked == self._fold(history.target):
            self._history = messages
            self._answered.set()
            return
        for message in messages:
            self._put(Received(message, replayed=True))

    async def _handle(self, line: IrcLine) -> None:
        match line.command:
            case "PING":
                await self._connection.write("PONG", line.last)
            case "PONG":
                self._take_pong(line.last)
            case "ERROR":
                raise Offline(f"The IRC server ended the connection: {line.last}")
            case "PRIVMSG":
                self._take_message(line)
            case "NICK" if "account" in line.tags and not self._is_own(line.nick):
                self._put(Received(line))
            case "NICK" | "396" | "JOIN" | "PART" | "KICK":
                self._take_change(line)
            case _:
                self._take_refusal(line)

    def _take_change(self, line: IrcLine) -> None:
        """Track changes of the agent's own nickname, host and channels."""
        user = self._source.partition("!")[2]
        match line.command:
            case "NICK" if self._is_own(line.nick):
                self.nick = line.last
                self._source = f"{self.nick}!{user}"
            case "396":
                self._source = f"{self.nick}!{user.partition('@')[0]}@{line.param(1)}"
            case "JOIN" if self._is_own(line.nick):
                self._source = line.source
                self._joined.add(self._fold(line.param(0)))
                self._joins.set()
            case "PART" if self._is_own(line.nick):
                self._joined.discard(self._fold(line.param(0)))
            case "KICK" if self._is_own(line.param(1)):
                log.warning("removed from %s: %s", line.param(0), line.last)
                self._joined.discard(self._fold(line.param(0)))
            case _:
                pass

    def _take_pong(self, token: str) -> None:
        if token == _SYNC:
            self._synced.set()
        elif self._pending is not None and token == self._pending.label:
            self._pending.done.set()

    def _take_message(self, line: IrcLine) -> None:
        if not self._is_own(line.nick):
            self._put(Received(line))
            return
        post = self._pending
        if post is None or self._fold(line.param(0)) != post.target:
            return
        # Without labels, another client of the same account may have written it.
        label = line.tags.get("label", "")
        if label.startswith(f"{post.label}.") or not self.welcome.has("labeled-response"):
            post.echoes.append(line)

    def _take_refusal(self, line: IrcLine) -> None:
        names = [self._fold(name) for name in line.params]
        is_unknown = line.command in {"FAIL", "421"} and "CHATHISTORY" in line.params
        if is_unknown and self._asked is not None:
            log.info("the IRC server does not share its history: %s", line.last)
            self._answered.set()
        if line.command in _CANNOT_JOIN:
            waiting = {self._fold(name) for name in self._channels} - self._joined
            for name in waiting.intersection(names) - self._refused:
                log.warning("%s cannot be joined: %s", name, line.last)
                self._refused.add(name)
                self._joins.set()
        post = self._pending
        is_error = line.command in REFUSALS or line.command == "FAIL"
        if post is not None and is_error and post.is_refused_by(line, names):
            post.refusals.append(line)

    def _is_own(self, nick: str) -> bool:
        return self._fold(nick) == self._fold(self.nick)
