"""An IMAP server (RFC 3501, RFC 2177) for tests, with the commands that a mail reader needs."""

import base64
import logging
import re
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime

import anyio
import anyio.abc
from anyio.abc import SocketAttribute

from emulators.mail.mailbox import EmulatedMailbox, StoredMail

log = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
_WORDS = re.compile(rb'"((?:[^"\\]|\\.)*)"|(\([^)]*\)|[^\s"]+)')
_PARTIAL = re.compile(rb"<0\.(\d+)>")
_LITERAL = re.compile(rb"\{(\d+)(\+?)\}$")


class ImapEmulator:
    """Serves mailboxes.

    With `cut`, the connection is lost when the function returns true for a command. While `deaf`,
    commands get no answer and nothing is announced, though connections stay open. The mails with
    `refused` UIDs cannot be fetched. If it `announces_flags`, it does so after each fetched mail.
    """

    def __init__(self, mailboxes: Sequence[EmulatedMailbox], *, idle: bool = True) -> None:
        self.mailboxes = {one.user: one for one in mailboxes}
        self.idle = idle
        self.deaf = False
        self.refused: set[int] = set()
        self.announces_flags = False
        self.names_next_uid = True
        self.cut: Callable[[str], bool] = lambda command: False
        self.logins = 0
        self.commands: list[str] = []
        self.port = 0
        self._changed = anyio.Event()
        for one in mailboxes:
            one.on_change = self.changed

    def changed(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await self._changed.wait()

    async def next_change(self) -> None:
        await self._changed.wait()

    async def handle(self, stream: anyio.abc.SocketStream) -> None:
        async with stream:
            try:
                await _Session(self, stream).run()
            except* (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
                log.debug("a client has left")


class _Session:
    def __init__(self, server: ImapEmulator, stream: anyio.abc.SocketStream) -> None:
        self._server = server
        self._stream = stream
        self._buffer = b""
        self._box: EmulatedMailbox | None = None
        self._known = 0
        self._selected = False

    async def run(self) -> None:
        await self._say("* OK ready")
        while True:
            tag, _, line = (await self._read_line()).partition(b" ")
            name, _, rest = line.partition(b" ")
            command = name.decode().upper()
            if command == "UID":
                name, _, rest = rest.partition(b" ")
                command = f"UID {name.decode().upper()}"
            self._server.commands.append(command)
            if self._server.cut(command):
                return
            while self._server.deaf:
                await self._server.next_change()
            text = tag.decode()
            if command == "LOGOUT":
                await self._say("* BYE bye", f"{text} OK done")
                return
            try:
                await self._run(text, command, rest)
            except ValueError as error:
                await self._say(f"{text} BAD {error}")

    async def _run(self, tag: str, command: str, rest: bytes) -> None:
        match command:
            case "CAPABILITY":
                idle = " IDLE" if self._server.idle else ""
                await self._say(f"* CAPABILITY IMAP4rev1 AUTH=PLAIN{idle}")
            case "NOOP" | "CHECK":
                await self._announce()
            case "LOGIN":
                user, password = (one.decode() for one in _words(rest))
                await self._log_in(tag, user, password)
                return
            case "AUTHENTICATE":
                await self._say("+ ")
                _, user, password = base64.b64decode(await self._read_line()).decode().split("\0")
                await self._log_in(tag, user, password)
                return
            case "SELECT" | "EXAMINE" if self._box is not None:
                if _words(rest)[0].upper() != b"INBOX":
                    await self._say(f"{tag} NO there is no such folder")
                    return
                await self._select(self._box)
            case "APPEND" if self._box is not None:
                await self._append(rest, self._box)
            case "IDLE" if self._selected and self._server.idle:
                await self._idle()
            case "UID SEARCH" | "UID FETCH" | "UID STORE" if self._selected and self._box:
                await self._uid_command(command, rest, self._box)
                # As dovecot does: new mail is announced with the answer to any command.
                await self._announce()
            case _:
                await self._say(f"{tag} BAD {command} is not possible now")
                return
        await self._say(f"{tag} OK done")

    async def _log_in(self, tag: str, user: str, password: str) -> None:
        box = self._server.mailboxes.get(user)
        if box is None or box.password != password:
            await self._say(f"{tag} NO [AUTHENTICATIONFAILED] wrong")
            return
        self._box = box
        self._server.logins += 1
        await self._say(f"{tag} OK logged in")

    async def _select(self, box: EmulatedMailbox) -> None:
        self._selected = True
        self._known = len(box.mails)
        await self._say(
            f"* {self._known} EXISTS",
            "* 0 RECENT",
            "* FLAGS (\\Seen \\Answered \\Deleted)",
            f"* OK [UIDVALIDITY {box.validity}] valid",
        )
        if self._server.names_next_uid:
            await self._say(f"* OK [UIDNEXT {box.next_uid}] next")

    async def _append(self, rest: bytes, box: EmulatedMailbox) -> None:
        found = _LITERAL.search(rest)
        if found is None:
            raise ValueError("APPEND needs a literal")
        if not found[2]:
            await self._say("+ go on")
        data = await self._exactly(int(found[1]))
        await self._read_line()
        flags = {one.decode() for one in re.findall(rb"\\\w+", rest)}
        box.append(data, flags)
        await self._announce()

    async def _idle(self) -> None:
        """Announce changes until the client says DONE."""
        await self._say("+ idling")

        async def announce() -> None:
            while True:
                if not self._server.deaf:
                    await self._announce()
                await self._server.next_change()

        async with anyio.create_task_group() as group:
            group.start_soon(announce)
            if (await self._read_line()).upper() != b"DONE":
                raise ValueError("DONE was expected")
            while self._server.deaf:
                await self._server.next_change()
            group.cancel_scope.cancel()

    async def _announce(self) -> None:
        if self._box is not None and self._selected and len(self._box.mails) != self._known:
            self._known = len(self._box.mails)
            await self._say(f"* {self._known} EXISTS")

    async def _uid_command(self, command: str, rest: bytes, box: EmulatedMailbox) -> None:
        if command == "UID SEARCH":
            found = _found(_words(rest), box)
            await self._say(" ".join(["* SEARCH", *(str(one.uid) for one in found)]))
            return
        which, *more = _words(rest)
        uids = _numbers(which, box)
        if command == "UID FETCH" and uids & self._server.refused:
            raise ValueError("a mail is damaged")
        for number, mail in enumerate(box.mails, 1):
            if mail.uid not in uids:
                continue
            if command == "UID STORE":
                flags = {one.decode() for one in re.findall(rb"\\\w+", more[-1])}
                mail.flags |= flags
            else:
                await self._send_fetched(number, mail, more[0].upper())
        if command == "UID STORE":
            box.on_change()

    async def _send_fetched(self, number: int, mail: StoredMail, items: bytes) -> None:
        answer = f"* {number} FETCH (UID {mail.uid}".encode()
        if b"FLAGS" in items:
            answer += f" FLAGS ({' '.join(sorted(mail.flags))})".encode()
        if b"RFC822.SIZE" in items:
            answer += f" RFC822.SIZE {len(mail.data)}".encode()
        if b"INTERNALDATE" in items:
            answer += f' INTERNALDATE "{mail.at:%d-%b-%Y %H:%M:%S %z}"'.encode()
        if b"BODY[]" in items:
            mail.flags.add("\\Seen")
        if b"BODY.PEEK[]" in items or b"BODY[]" in items:
            answer += b" BODY[] {%d}\r\n" % len(mail.data) + mail.data
        elif b"BODY.PEEK[HEADER]" in items:
            head = mail.data.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"
            partial = _PARTIAL.search(items)
            head = head[: int(partial[1])] if partial else head
            origin = b"<0>" if partial else b""
            answer += b" BODY[HEADER]%s {%d}\r\n" % (origin, len(head)) + head
        await self._stream.send(answer + b")\r\n")
        if self._server.announces_flags:
            await self._say(f"* {number} FETCH (UID {mail.uid} FLAGS ())")

    async def _say(self, *lines: str) -> None:
        await self._stream.send("".join(f"{line}\r\n" for line in lines).encode())

    async def _read_line(self) -> bytes:
        while b"\r\n" not in self._buffer:
            self._buffer += await self._stream.receive()
        line, _, self._buffer = self._buffer.partition(b"\r\n")
        return line

    async def _exactly(self, count: int) -> bytes:
        while len(self._buffer) < count:
            self._buffer += await self._stream.receive()
        data, self._buffer = self._buffer[:count], self._buffer[count:]
        return data


def _words(rest: bytes) -> list[bytes]:
    return [
        re.sub(rb"\\(.)", rb"\1", found[1]) if found[2] is None else found[2]
        for found in _WORDS.finditer(rest)
    ]


def _numbers(which: bytes, box: EmulatedMailbox) -> set[int]:
    """The UIDs of a set such as `3,5:*`; `*` is the last one."""
    last = max((one.uid for one in box.mails), default=0)
    found: set[int] = set()
    for part in which.decode().split(","):
        ends = [last if end == "*" else int(end) for end in part.split(":")]
        found |= set(range(min(ends), max(ends) + 1))
    return found


def _found(words: list[bytes], box: EmulatedMailbox) -> list[StoredMail]:
    found, waiting = box.mails, list(words)
    while waiting:
        match waiting.pop(0).upper():
            case b"ALL":
                pass
            case b"UNSEEN":
                found = [one for one in found if "\\Seen" not in one.flags]
            case b"SINCE":
                day = datetime.strptime(waiting.pop(0).decode() + " +0000", "%d-%b-%Y %z")
                found = [one for one in found if one.at >= day]
            case b"UID":
                uids = _numbers(waiting.pop(0), box)
                found = [one for one in found if one.uid in uids]
            case other:
                raise ValueError(f"{other.decode()} cannot be searched for")
    return found


@asynccontextmanager
async def serve_imap(server: ImapEmulator, *, port: int = 0) -> AsyncGenerator[ImapEmulator]:
    """Serve on loopback during the block; port 0 picks a free one."""
    async with (
        await anyio.create_tcp_listener(local_host=LOOPBACK, local_port=port) as listener,
        anyio.create_task_group() as group,
    ):
        server.port = listener.extra(SocketAttribute.local_port)  # noqa: S610 - not Django
        group.start_soon(listener.serve, server.handle)
        yield server
        group.cancel_scope.cancel()
