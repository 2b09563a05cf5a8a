"""Mail hosts for tests: an IMAP server (the emulator or dovecot) and aiosmtpd."""

import asyncio
import socket
import ssl
import subprocess
import tempfile
import time
import warnings
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime
from email import message_from_bytes, policy
from email.message import EmailMessage
from email.utils import format_datetime
from imaplib import IMAP4
from pathlib import Path
from typing import Protocol

import anyio
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session
from msgspec import Struct, structs

from emulators.mail.imap_server import ImapEmulator, serve_imap
from emulators.mail.mailbox import EmulatedMailbox
from hermes.channels.email.channel import EmailChannel, open_channel
from hermes.channels.email.imap import ImapServer, open_imap
from hermes.kit.clock import Clock
from hermes.ports.channel import ChannelDeps
from hermes.schema.scope import Address
from hermes.store.blobs import FileBlobs
from support.channel_deps import Admits, admit_all, new_deps

AGENT = "hermes@agent.example"
PASSWORD = "of-the-mailbox"
ANN = "ann@people.example"
SERVER = "mx.agent.example"
HOME = Address("email", ANN)
TIMEOUT = 20.0
START_ATTEMPTS = 3


def new_mail(
    text: str,
    *,
    sender: str = ANN,
    number: str = "1",
    subject: str = "",
    headers: Mapping[str, str] | None = None,
    authenticated: bool = True,
) -> EmailMessage:
    """A mail as the receiving server stores it."""
    mail = EmailMessage(policy=policy.SMTP)
    if authenticated:
        domain = sender.rpartition("@")[2]
        mail["Authentication-Results"] = f"{SERVER}; dmarc=pass header.from={domain}"
    mail["From"] = sender
    mail["To"] = AGENT
    if subject:
        mail["Subject"] = subject
    mail["Date"] = format_datetime(datetime.now(UTC))
    mail["Message-ID"] = f"<{number}@people.example>"
    for name, value in (headers or {}).items():
        mail[name] = value
    mail.set_content(text)
    return mail


class SmtpState:
    """Collects mails; `answer` decides what the server says to each one."""

    def __init__(self) -> None:
        self.mails: list[EmailMessage] = []
        self.answer: Callable[[EmailMessage], str] = lambda mail: "250 OK"
        self.refuse_recipient = ""
        self.cut_after: Callable[[], bool] = lambda: False
        self.changed = anyio.Event()

    async def handle_RCPT(  # noqa: N802 - the name of aiosmtpd
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if self.refuse_recipient:
            return self.refuse_recipient
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        content = envelope.content
        assert isinstance(content, bytes)
        mail = message_from_bytes(content, policy=policy.default)
        assert isinstance(mail, EmailMessage)
        answer = self.answer(mail)
        if answer.startswith("250"):
            self.mails.append(mail)
            self.changed.set()
            self.changed = anyio.Event()
        if self.cut_after():
            transport = server.transport
            assert transport is not None
            transport.abort()
        return answer

    def texts(self, to: str) -> list[str]:
        return [text_of(mail) for mail in self.mails if mail["To"] == to]

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await self.changed.wait()


def text_of(mail: EmailMessage) -> str:
    body = mail.get_body(("plain",))
    return body.get_content().replace("\r\n", "\n").rstrip("\n") if body is not None else ""


def _authenticator(
    server: SMTP, session: Session, envelope: Envelope, mechanism: str, data: LoginPassword
) -> AuthResult:
    return AuthResult(success=data.password == PASSWORD.encode())


def _smtp_session(
    state: SmtpState, loop: asyncio.AbstractEventLoop, tls: ssl.SSLContext | None
) -> SMTP:
    with warnings.catch_warnings():
        # It warns of a login without TLS, which stays on this machine.
        warnings.simplefilter("ignore", UserWarning)
        return SMTP(
            state,
            authenticator=_authenticator,
            auth_required=True,
            auth_require_tls=tls is not None,
            require_starttls=tls is not None,
            tls_context=tls,
            data_size_limit=64_000_000,
            enable_SMTPUTF8=True,
            loop=loop,
        )


@asynccontextmanager
async def serve_smtp(state: SmtpState, tls: ssl.SSLContext | None = None) -> AsyncGenerator[int]:
    """Run aiosmtpd in this event loop, with STARTTLS if there is a context; yields its port."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _smtp_session(state, loop, tls), "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


class Mailhost(Protocol):
    """An account on an IMAP server."""

    user: str
    port: int

    async def deliver(self, mail: EmailMessage) -> None:
        """Put a mail into the mailbox."""
        ...

    async def seen(self, count: int) -> None:
        """Wait until this many mails are marked as read."""
        ...


class EmulatorHost:
    def __init__(self, server: ImapEmulator) -> None:
        self.server = server
        self.box = next(iter(server.mailboxes.values()))
        self.user = self.box.user
        self.port = server.port

    async def deliver(self, mail: EmailMessage) -> None:
        self.box.append(mail.as_bytes())

    async def seen(self, count: int) -> None:
        await self.server.until(lambda: len(self.box.mails) - len(self.box.unseen()) >= count)


@asynccontextmanager
async def emulator_host(*, idle: bool = True) -> AsyncGenerator[EmulatorHost]:
    server = ImapEmulator([EmulatedMailbox(AGENT, PASSWORD)], idle=idle)
    async with serve_imap(server):
        yield EmulatorHost(server)


class DovecotHost:
    """One user of a running dovecot; uses IMAP clients of its own."""

    def __init__(self, port: int, user: str) -> None:
        self.port = port
        self.user = user

    async def deliver(self, mail: EmailMessage) -> None:
        await anyio.to_thread.run_sync(self._append, mail.as_bytes())

    def _append(self, data: bytes) -> None:
        with self._client() as client:
            status, _ = client.append("INBOX", "", None, data)  # pyright: ignore[reportArgumentType]
            assert status == "OK"

    def _client(self) -> IMAP4:
        client = IMAP4("127.0.0.1", self.port)
        client.login(self.user, PASSWORD)
        return client

    async def seen(self, count: int) -> None:
        """Wait with IDLE, which also announces flags."""
        async with open_imap(self.account()) as imap:
            await imap.select("INBOX")
            while len(await imap.search(b"SEEN")) < count:
                await imap.idle(0.2)

    def account(self) -> ImapServer:
        return ImapServer(
            host="127.0.0.1", port=self.port, security="none", user=self.user, password=PASSWORD
        )


DOVECOT = """
protocols = imap
base_dir = {base}/run
state_dir = {base}/run
log_path = {base}/dovecot.log
ssl = yes
ssl_cert = <{base}/cert.pem
ssl_key = <{base}/key.pem
disable_plaintext_auth = no
auth_mechanisms = plain login
listen = 127.0.0.1
mail_location = maildir:{base}/mail/%u
first_valid_uid = 1
passdb {{
  driver = static
  args = password={password}
}}
userdb {{
  driver = static
  args = uid=nobody gid=nogroup home={base}/home/%u
}}
service imap-login {{
  inet_listener imap {{
    port = {port}
  }}
  inet_listener imaps {{
    port = {tls_port}
    ssl = yes
  }}
}}
namespace inbox {{
  inbox = yes
}}
"""


class Dovecot(Struct, frozen=True):
    """A running dovecot: every user exists, with the same password.

    `certificate` is that of `localhost`, in the folder with its key.
    """

    port: int
    tls_port: int
    certificate: Path

    def host(self, user: str) -> DovecotHost:
        return DovecotHost(self.port, user)


@contextmanager
def run_dovecot() -> Generator[Dovecot]:
    """Run dovecot until the end of the block."""
    # Not in pytest's folder: dovecot's processes run as other users.
    with tempfile.TemporaryDirectory(prefix="dovecot-") as folder:
        yield from _run_dovecot(Path(folder))


def _run_dovecot(base: Path) -> Generator[Dovecot]:
    make_certificate(base)
    for name in ("mail", "home"):
        (base / name).mkdir()
        (base / name).chmod(0o777)
    base.chmod(0o755)
    process, port, tls_port = _start_dovecot(base)
    with process:
        try:
            yield Dovecot(port, tls_port, base / "cert.pem")
        finally:
            process.terminate()


def _start_dovecot(base: Path) -> tuple[subprocess.Popen[bytes], int, int]:
    """Start it on other ports if somebody else has taken one before it could."""
    config = base / "dovecot.conf"
    for _ in range(START_ATTEMPTS):
        port, tls_port = _free_ports()
        text = DOVECOT.format(base=base, port=port, tls_port=tls_port, password=PASSWORD)
        config.write_text(text)
        process = subprocess.Popen(["dovecot", "-F", "-c", str(config)])
        if _greets(port, process):
            return process, port, tls_port
        process.kill()
        process.wait()
    raise AssertionError(f"dovecot does not start: {(base / 'dovecot.log').read_text()[-500:]}")


def _free_ports() -> tuple[int, int]:
    with socket.socket() as one, socket.socket() as two:
        for each in (one, two):
            each.bind(("127.0.0.1", 0))
        return one.getsockname()[1], two.getsockname()[1]


def make_certificate(folder: Path) -> None:
    """Write `cert.pem` and `key.pem` of `localhost`; dovecot's package brings openssl."""
    command = [
        "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
        "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost",
        "-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem"),
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True)


def _greets(port: int, process: subprocess.Popen[bytes]) -> bool:
    """Wait until the server answers; return False if it ends or does not answer in time."""
    deadline = time.monotonic() + TIMEOUT
    while time.monotonic() < deadline:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), TIMEOUT) as one:
            return one.recv(4) == b"* OK"
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.05)
            return False
    return False


class MailBench(Struct, frozen=True):
    """A channel with its mail host, and the variables of its home."""

    channel: EmailChannel
    host: Mailhost
    smtp: SmtpState
    blobs: FileBlobs
    stack: AsyncExitStack
    env: dict[str, str]


def channel_deps(
    folder: Path,
    *,
    user: str,
    imap_port: int,
    smtp_port: int,
    extra: Mapping[str, object] | None = None,
    clock: Clock | None = None,
) -> ChannelDeps:
    env = {"EMAIL_ADDRESS": user, "EMAIL_PASSWORD": PASSWORD}
    local = {
        "imap_host": "127.0.0.1",
        "imap_port": imap_port,
        "imap_security": "none",
        "smtp_host": "127.0.0.1",
        "smtp_port": smtp_port,
        "smtp_security": "none",
        "authserv_id": SERVER,
    }
    return new_deps("email", folder, extra={**local, **(extra or {})}, env=env, clock=clock)


@asynccontextmanager
async def mail_bench(
    folder: Path,
    host: Mailhost,
    *,
    extra: Mapping[str, object] | None = None,
    clock: Clock | None = None,
    admits: Admits = admit_all,
    smtp_tls: ssl.SSLContext | None = None,
) -> AsyncGenerator[MailBench]:
    smtp = SmtpState()
    async with AsyncExitStack() as stack:
        smtp_port = await stack.enter_async_context(serve_smtp(smtp, smtp_tls))
        deps = channel_deps(
            folder, user=host.user, imap_port=host.port, smtp_port=smtp_port, extra=extra,
            clock=clock,
        )  # fmt: skip
        env = dict(deps.env)
        deps = structs.replace(deps, current_env=lambda: env, admits=admits)
        async with open_channel(deps) as channel:
            blobs = FileBlobs(folder / "cache" / "blobs")
            yield MailBench(channel, host, smtp, blobs, stack, env)
