"""Send one mail over SMTP, in a thread, and report whether the server accepted it."""

import re
import smtplib
import socket
import ssl
from collections.abc import Generator
from contextlib import contextmanager, suppress
from functools import partial

from anyio.to_thread import run_sync
from msgspec import Struct

from hermes.channels.email.imap import LoginRefused
from hermes.channels.proxies import SocketProxy, connect_failure
from hermes.ports.channel import NotSent, Offline, TargetGone, Throttled, UnknownOutcome

CALL_SECONDS = 20.0
DATA_SECONDS = 600.0
"""How long a server may take to confirm a mail (RFC 5321, 4.5.3.2)."""
BUSY_SECONDS = 30.0
"""Seconds to wait if the server is busy; it does not say how long."""
_NO_MAILBOX = re.compile(rb"5\.1\.\d+\b")
"""Codes for a wrong address; other refusals are about the mail or the sender (RFC 3463)."""


class SmtpServer(Struct, frozen=True, kw_only=True):
    """Where mails are sent; `security` is `tls`, `starttls` or `none`."""

    host: str
    port: int
    security: str
    user: str
    password: str
    proxy: SocketProxy | None = None


async def send_mail(server: SmtpServer, sender: str, recipient: str, data: bytes) -> None:
    """Send a mail. Raises the errors of `Channel.send`; a cancelled thread ends by its timeout."""
    await run_sync(partial(_send, server, sender, recipient, data), abandon_on_cancel=True)


async def check_login(server: SmtpServer) -> None:
    await run_sync(partial(_check_login, server), abandon_on_cancel=True)


def _check_login(server: SmtpServer) -> None:
    with _connected(server):
        pass


def _send(server: SmtpServer, sender: str, recipient: str, data: bytes) -> None:
    with _connected(server) as smtp:
        try:
            _check(smtp.mail(sender), all_chats=True)
            _check_recipient(smtp.rcpt(recipient))
            code, answer = smtp.docmd("DATA")
        except (smtplib.SMTPException, OSError) as error:
            raise Offline(f"The connection to the SMTP server was lost: {error}") from error
        if code != 354:
            _check((code, answer), all_chats=True)
            raise NotSent(f"The SMTP server did not accept the mail: {code}")
        try:
            if smtp.sock is not None:
                smtp.sock.settimeout(DATA_SECONDS)
            smtp.send(_stuffed(data))
        except (smtplib.SMTPException, OSError) as error:
            # Servers do not accept the mail without the final dot.
            raise Offline(f"The connection to the SMTP server was lost: {error}") from error
        try:
            smtp.send(b".\r\n")
            reply = smtp.getreply()
        except (smtplib.SMTPException, OSError) as error:
            raise UnknownOutcome(f"The SMTP server did not confirm the mail: {error}") from error
        _check(reply)


@contextmanager
def _connected(server: SmtpServer) -> Generator[smtplib.SMTP]:
    try:
        smtp = _connect(server)
    except smtplib.SMTPAuthenticationError as error:
        raise LoginRefused(
            f"The SMTP server does not accept the login of {server.user}.",
            hint="Check EMAIL_ADDRESS and EMAIL_PASSWORD; some providers need an app password.",
        ) from error
    except smtplib.SMTPNotSupportedError as error:
        raise Offline(f"The SMTP server {server.host}: {error}") from error
    except (smtplib.SMTPException, OSError) as error:
        raise Offline(
            f"The SMTP server {server.host}:{server.port} cannot be reached: "
            f"{connect_failure(error)}"
        ) from error
    try:
        yield smtp
    finally:
        with suppress(smtplib.SMTPException, OSError):
            smtp.quit()
        smtp.close()


class _Smtp(smtplib.SMTP):
    """Connects through a proxy if there is one, and encrypts at once or not."""

    def __init__(self, server: SmtpServer) -> None:
        self._server = server
        super().__init__(server.host, server.port, timeout=CALL_SECONDS)

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        proxy = self._server.proxy
        if proxy is None:
            connected = socket.create_connection((host, port), timeout)
        else:
            connected = proxy.connect_blocking(host, port, timeout)
            connected.settimeout(timeout)
        if self._server.security != "tls":
            return connected
        context = ssl.create_default_context()
        try:
            return context.wrap_socket(connected, server_hostname=host)
        except OSError:
            connected.close()
            raise


def _connect(server: SmtpServer) -> smtplib.SMTP:
    smtp = _Smtp(server)
    try:
        if server.security == "starttls":
            smtp.starttls(context=ssl.create_default_context())
        smtp.ehlo_or_helo_if_needed()
        if server.password and smtp.has_extn("auth"):
            smtp.login(server.user, server.password)
    except BaseException:
        smtp.close()
        raise
    return smtp


def _check_recipient(reply: tuple[int, bytes]) -> None:
    code, answer = reply
    if 500 <= code < 600 and _NO_MAILBOX.match(answer):
        raise TargetGone(f"The address does not accept mail: {code} {_readable(answer)}")
    _check(reply)


def _check(reply: tuple[int, bytes], *, all_chats: bool = False) -> None:
    """Raise `Throttled` if a retry may succeed, otherwise `NotSent`."""
    code, answer = reply
    if 200 <= code < 400:
        return
    text = f"The SMTP server refused the mail: {code} {_readable(answer)}"
    if 400 <= code < 500:
        raise Throttled(text, wait=BUSY_SECONDS, all_chats=all_chats)
    raise NotSent(text)


def _stuffed(data: bytes) -> bytes:
    """Return the mail for DATA, without the final dot: dots at the start of a line are doubled."""
    lines = b"\r\n".join(data.replace(b"\r\n", b"\n").split(b"\n"))
    stuffed = lines.replace(b"\r\n.", b"\r\n..")
    stuffed = b"." + stuffed if stuffed.startswith(b".") else stuffed
    return stuffed if stuffed.endswith(b"\r\n") else stuffed + b"\r\n"


def _readable(answer: bytes) -> str:
    return " ".join(answer.decode("utf-8", "replace").split())[:200]
