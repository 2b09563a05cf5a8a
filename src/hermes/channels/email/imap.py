"""A small IMAP client: one connection, its commands, and waiting for new mail with IDLE."""

import base64
import re
import ssl
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, date, datetime, timedelta

import anyio
from anyio.abc import ByteStream
from anyio.streams.tls import TLSStream
from msgspec import Struct

from hermes.channels.proxies import SocketProxy, connect_failure, connect_tcp
from hermes.ports.channel import Offline

CONNECT_SECONDS = 20.0
COMMAND_SECONDS = 30.0
TRANSFER_SECONDS = 1800.0
"""Enough for a large mail over a slow line; the supervisor notices a silent connection."""
MAX_RESPONSE = 64 * 1024 * 1024
_LITERAL = re.compile(rb"\{(\d+)\}\r\n$")
_FETCH = re.compile(rb"\* \d+ FETCH ", re.IGNORECASE)
_UID = re.compile(rb"\bUID (\d+)", re.IGNORECASE)
_SIZE = re.compile(rb"\bRFC822\.SIZE (\d+)", re.IGNORECASE)
_ARRIVED = re.compile(
    rb'\bINTERNALDATE "[ 0]?(\d+)-(\w+)-(\d+) (\d+):(\d+):(\d+) ([+-])(\d\d)(\d\d)"', re.IGNORECASE
)
_PLAIN_NAME = re.compile(r"[ -%'-~]+|&|[^ -~]+")
_CODE = re.compile(rb"\[(UIDVALIDITY|UIDNEXT) (\d+)\]", re.IGNORECASE)
_STATUS = re.compile(rb"(OK|NO|BAD)\b ?(.*)", re.IGNORECASE | re.DOTALL)
_EXISTS = re.compile(rb"\* \d+ EXISTS", re.IGNORECASE)
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


class ImapRefused(Offline):
    """The server answered a command with NO or BAD."""

    code = "imap_refused"


class LoginRefused(Offline):
    """The server does not accept the address or the password."""

    code = "login_refused"


class ImapServer(Struct, frozen=True, kw_only=True):
    """Where the mailbox is; `security` is `tls`, `starttls` or `none`.

    A server that does not answer within `timeout` seconds counts as disconnected.
    """

    host: str
    port: int
    security: str
    user: str
    password: str
    timeout: float = COMMAND_SECONDS
    proxy: SocketProxy | None = None


class Response(Struct, frozen=True):
    """One response of the server; `line` is without the `literals`."""

    line: bytes
    literals: tuple[bytes, ...] = ()


class SelectedFolder(Struct, frozen=True, kw_only=True):
    """UIDs are only comparable while the `validity` is the same."""

    validity: int
    next_uid: int


class MailSummary(Struct, frozen=True, kw_only=True):
    """A mail's size in bytes, and when the server received it, if known."""

    size: int
    arrived: datetime | None


class ImapConnection:
    """Runs one command at a time. Raises `Offline` if the server is gone or does not answer.

    `on_data` is called whenever the server has sent something.
    """

    def __init__(self, stream: ByteStream, *, timeout: float, on_data: Callable[[], None]) -> None:
        self.stream = stream
        self._on_data = on_data
        self._buffer = bytearray()
        self._timeout = timeout
        self._count = 0
        self.has_news = False
        """Whether new mail was announced since the last search, during any command."""
        self.capabilities: frozenset[bytes] = frozenset()

    async def greet(self) -> None:
        with _deadline(CONNECT_SECONDS):
            greeting = await self._response()
        if not greeting.line.upper().startswith((b"* OK", b"* PREAUTH")):
            raise Offline(f"The IMAP server refuses connections: {_readable(greeting.line)}")
        await self.load_capabilities()

    async def load_capabilities(self) -> None:
        found = [
            response.line.upper().split()[2:]
            for response in await self.command(b"CAPABILITY")
            if response.line.upper().startswith(b"* CAPABILITY ")
        ]
        self.capabilities = frozenset(word for words in found for word in words)

    async def start_tls(self, host: str) -> None:
        if b"STARTTLS" not in self.capabilities:
            raise Offline("The IMAP server does not offer encryption (STARTTLS).")
        await self.command(b"STARTTLS")
        # Data received before is not encrypted.
        self._buffer.clear()
        await self.encrypt(host)
        await self.load_capabilities()

    async def encrypt(self, host: str) -> None:
        with _deadline(CONNECT_SECONDS):
            self.stream = await _wrapped(self.stream, host)

    async def login(self, user: str, password: str) -> None:
        try:
            if b"AUTH=PLAIN" in self.capabilities:
                token = base64.b64encode(f"\0{user}\0{password}".encode())
                await self.command(b"AUTHENTICATE PLAIN", more=token)
            else:
                await self.command(b"LOGIN " + quoted(user) + b" " + quoted(password))
        except ImapRefused as error:
            raise LoginRefused(
                f"The IMAP server does not accept the login of {user}.",
                hint="Check EMAIL_ADDRESS and EMAIL_PASSWORD; some providers need an app password.",
            ) from error
        await self.load_capabilities()

    async def select(self, folder: str) -> SelectedFolder:
        responses = await self.command(b"SELECT " + quoted(folder_name(folder)))
        codes = {
            found[1].upper(): int(found[2])
            for response in responses
            for found in _CODE.finditer(response.line)
        }
        next_uid = codes.get(b"UIDNEXT")
        if next_uid is None:
            # Old servers do not report it; existing mails must not all count as new.
            next_uid = max(await self.search(b"ALL"), default=0) + 1
        return SelectedFolder(validity=codes.get(b"UIDVALIDITY", 0), next_uid=next_uid)

    async def search(self, criteria: bytes) -> list[int]:
        """Return the UIDs of the mails that match, in ascending order."""
        self.has_news = False
        responses = await self.command(b"UID SEARCH " + criteria)
        return sorted(
            int(word)
            for response in responses
            if response.line.upper().startswith(b"* SEARCH")
            for word in response.line.split()[2:]
            if word.isdigit()
        )

    async def summaries(self, uids: Sequence[int]) -> dict[int, MailSummary]:
        """Return summaries of these mails, without those that no longer exist."""
        fetched = await self._fetch(uids, b"(UID RFC822.SIZE INTERNALDATE)")
        return {
            uid: MailSummary(size=int(size[1]), arrived=_arrived(response.line))
            for uid, response in fetched
            if (size := _SIZE.search(response.line))
        }

    async def header(self, uid: int, max_bytes: int) -> bytes | None:
        """Return at most this much of the header, or None if the mail no longer exists."""
        return await self._section(uid, b"BODY.PEEK[HEADER]<0.%d>" % max_bytes)

    async def content(self, uid: int) -> bytes | None:
        """Return the mail without marking it as read; None if it no longer exists."""
        return await self._section(uid, b"BODY.PEEK[]")

    async def _section(self, uid: int, section: bytes) -> bytes | None:
        fetched = await self._fetch([uid], b"(UID " + section + b")")
        contents = [
            response.literals[-1]
            for found, response in fetched
            if found == uid and response.literals
        ]
        return contents[-1] if contents else None

    async def mark_seen(self, uids: Sequence[int]) -> None:
        await self.command(b"UID STORE " + _uid_set(uids) + rb" +FLAGS.SILENT (\Seen)")

    async def no_operation(self) -> None:
        await self.command(b"NOOP")

    async def idle(self, seconds: float) -> None:
        """Wait until there is mail since the last search, but not longer than this time.

        The server must still answer.
        """
        if self.has_news:
            return
        tag = await self._send(b"IDLE")
        with _deadline(self._timeout):
            while not (response := await self._response()).line.startswith(b"+"):
                if response.line.startswith(tag):
                    _check(response.line, tag)
                    return
        with anyio.move_on_after(seconds):
            while not self.has_news:
                await self._response()
        with _deadline(self._timeout):
            await self._write(b"DONE\r\n")
            await self._until(tag)

    async def command(
        self, line: bytes, *, more: bytes = b"", seconds: float = 0.0
    ) -> list[Response]:
        """Run a command and return the responses to it.

        `more` is sent when the server asks for it.
        """
        with _deadline(seconds or self._timeout):
            tag = await self._send(line)
            return await self._until(tag, more)

    async def _fetch(self, uids: Sequence[int], items: bytes) -> list[tuple[int, Response]]:
        """Return the responses by UID; some may report flags that another program changed."""
        line = b"UID FETCH " + _uid_set(uids) + b" " + items
        return [
            (int(uid[1]), response)
            for response in await self.command(line, seconds=TRANSFER_SECONDS)
            if _FETCH.match(response.line) and (uid := _UID.search(response.line))
        ]

    async def _send(self, line: bytes) -> bytes:
        self._count += 1
        tag = b"h%d " % self._count
        await self._write(tag + line + b"\r\n")
        return tag

    async def _write(self, data: bytes) -> None:
        try:
            await self.stream.send(data)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError) as error:
            raise Offline("The connection to the IMAP server was lost.") from error

    async def _until(self, tag: bytes, more: bytes = b"") -> list[Response]:
        responses: list[Response] = []
        while True:
            response = await self._response()
            if response.line.startswith(tag):
                _check(response.line, tag)
                return [*responses, response]
            if response.line.startswith(b"+"):
                await self._write(more + b"\r\n")
            else:
                responses.append(response)

    async def _response(self) -> Response:
        """Wait for the next response. A cancelled wait loses no data."""
        while (response := self._buffered()) is None:
            if len(self._buffer) > MAX_RESPONSE:
                raise Offline("The IMAP server sent more than was requested.")
            try:
                self._buffer += await self.stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError, OSError) as error:
                raise Offline("The connection to the IMAP server was lost.") from error
            self._on_data()
        self.has_news = self.has_news or bool(_EXISTS.match(response.line))
        if response.line.upper().startswith(b"* BYE") and self.capabilities:
            raise Offline(f"The IMAP server ended the connection: {_readable(response.line)}")
        return response

    def _buffered(self) -> Response | None:
        """Take a whole response from the buffer, if there is one."""
        line, literals, start = b"", list[bytes](), 0
        while (end := self._buffer.find(b"\r\n", start)) >= 0:
            line += self._buffer[start : end + 2]
            if not (literal := _LITERAL.search(line)):
                del self._buffer[: end + 2]
                return Response(line.rstrip(b"\r\n"), tuple(literals))
            start = end + 2 + int(literal[1])
            if len(self._buffer) < start:
                return None
            literals.append(bytes(self._buffer[end + 2 : start]))
            line = line[: literal.start()]
        return None


def quoted(text: str) -> bytes:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return b'"' + escaped.replace("\r", "").replace("\n", "").encode() + b'"'


def folder_name(text: str) -> str:
    """Encode the name of a folder in modified UTF-7 (RFC 3501, 5.1.3)."""
    return "".join(_encoded(found[0]) for found in _PLAIN_NAME.finditer(text))


def _encoded(part: str) -> str:
    if part == "&":
        return "&-"
    if part.isascii() and part.isprintable():
        return part
    encoded = base64.b64encode(part.encode("utf-16-be")).decode().rstrip("=")
    return f"&{encoded.replace('/', ',')}-"


def _arrived(line: bytes) -> datetime | None:
    if not (found := _ARRIVED.search(line)):
        return None
    day, month, year, hour, minute, second, sign, hours, minutes = (
        part.decode() for part in found.groups()
    )
    offset = timedelta(hours=int(hours), minutes=int(minutes))
    try:
        local = datetime(
            int(year), _MONTHS.index(month.title()) + 1, int(day),
            int(hour), int(minute), int(second), tzinfo=UTC,
        )  # fmt: skip
    except ValueError:
        return None
    return local + offset if sign == "-" else local - offset


def search_date(day: date) -> bytes:
    """Format a date for IMAP, independently of the locale."""
    return f"{day.day}-{_MONTHS[day.month - 1]}-{day.year}".encode()


@asynccontextmanager
async def open_imap(
    server: ImapServer, on_data: Callable[[], None] = lambda: None
) -> AsyncGenerator[ImapConnection]:
    """Connect and log in."""
    with _deadline(CONNECT_SECONDS):
        try:
            stream = await connect_tcp(server.host, server.port, server.proxy, CONNECT_SECONDS)
        except OSError as error:
            raise Offline(
                f"The IMAP server {server.host}:{server.port} cannot be reached: "
                f"{connect_failure(error)}"
            ) from error
    connection = ImapConnection(stream, timeout=server.timeout, on_data=on_data)
    try:
        if server.security == "tls":
            await connection.encrypt(server.host)
        await connection.greet()
        if server.security == "starttls":
            await connection.start_tls(server.host)
        await connection.login(server.user, server.password)
        yield connection
    finally:
        with anyio.CancelScope(shield=True), anyio.move_on_after(1.0):
            await anyio.aclose_forcefully(connection.stream)


async def _wrapped(stream: ByteStream, host: str) -> TLSStream:
    try:
        return await TLSStream.wrap(
            stream,
            hostname=host,
            ssl_context=ssl.create_default_context(),
            standard_compatible=False,
        )
    except (ssl.SSLError, anyio.EndOfStream, anyio.BrokenResourceError) as error:
        raise Offline(f"The IMAP server's encryption cannot be trusted: {error}") from error


@contextmanager
def _deadline(seconds: float) -> Generator[None]:
    try:
        with anyio.fail_after(seconds):
            yield
    except TimeoutError as error:
        raise Offline("The IMAP server does not answer.") from error


def _check(line: bytes, tag: bytes) -> None:
    status = _STATUS.match(line.removeprefix(tag))
    if status is None or status[1].upper() != b"OK":
        raise ImapRefused(f"The IMAP server refused a command: {_readable(line)}")


def _uid_set(uids: Sequence[int]) -> bytes:
    return ",".join(map(str, uids)).encode()


def _readable(line: bytes) -> str:
    return line.decode("utf-8", "replace")[:200]
