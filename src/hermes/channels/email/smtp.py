"""Send one mail over SMTP, in a thread, and say for certain whether the server took it."""

import re
import smtplib
import ssl
from collections.abc import Generator
from contextlib import contextmanager, suppress
from functools import partial

from anyio.to_thread import run_sync
from msgspec import Struct

from hermes.channels.email.imap import LoginRefused
from hermes.ports.channel import NotSent, Offline, TargetGone, Throttled, UnknownOutcome

CALL_SECONDS = 20.0
DATA_SECONDS = 600.0
"""What a server may take to confirm a mail (RFC 5321, 4.5.3.2)."""
BUSY_SECONDS = 30.0
"""The server does not say how long to wait."""
_NO_MAILBOX = re.compile(rb"5\.1\.\d+\b")
"""The address is wrong; other refusals are about the mail or the sender (RFC 3463)."""


class SmtpServer(Struct, frozen=True, kw_only=True):
    """Where mails are sent; `security` is `tls`, `starttls` or `none`."""

    host: str
    port: int
    security: str
    user: str
    password: str


async def send_mail(server: SmtpServer, sender: str, recipient: str, data: bytes) -> None:
    """Raises the errors of `Channel.send`; the thread of a cancelled call ends by its timeout."""
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
            raise Offline(f"The SMTP server was lost: {error}") from error
        if code != 354:
            _check((code, answer), all_chats=True)
            raise NotSent(f"The SMTP server took no mail: {code}")
        try:
            if smtp.sock is not None:
                smtp.sock.settimeout(DATA_SECONDS)
            smtp.send(_stuffed(data))
        except (smtplib.SMTPException, OSError) as error:
            # Without the final dot, no server takes the mail.
            raise Offline(f"The SMTP server was lost: {error}") from error
        try:
            smtp.send(b".\r\n")
            reply = smtp.getreply()
        except (smtplib.SMTPException, OSError) as error:
            raise UnknownOutcome(f"The SMTP server did not confirm a mail: {error}") from error
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
            f"The SMTP server {server.host}:{server.port} cannot be reached: {error}"
        ) from error
    try:
        yield smtp
    finally:
        with suppress(smtplib.SMTPException, OSError):
            smtp.quit()
        smtp.close()


def _connect(server: SmtpServer) -> smtplib.SMTP:
    if server.security == "tls":
        smtp: smtplib.SMTP = smtplib.SMTP_SSL(
            server.host, server.port, timeout=CALL_SECONDS, context=ssl.create_default_context()
        )
    else:
        smtp = smtplib.SMTP(server.host, server.port, timeout=CALL_SECONDS)
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
        raise TargetGone(f"The address does not take mail: {code} {_readable(answer)}")
    _check(reply)


def _check(reply: tuple[int, bytes], *, all_chats: bool = False) -> None:
    """Raise `Throttled` for what may be tried again, `NotSent` for what may not."""
    code, answer = reply
    if 200 <= code < 400:
        return
    text = f"The SMTP server refused the mail: {code} {_readable(answer)}"
    if 400 <= code < 500:
        raise Throttled(text, wait=BUSY_SECONDS, all_chats=all_chats)
    raise NotSent(text)


def _stuffed(data: bytes) -> bytes:
    """The mail as it follows DATA, without the last dot: others at the start of a line double."""
    lines = b"\r\n".join(data.replace(b"\r\n", b"\n").split(b"\n"))
    stuffed = lines.replace(b"\r\n.", b"\r\n..")
    stuffed = b"." + stuffed if stuffed.startswith(b".") else stuffed
    return stuffed if stuffed.endswith(b"\r\n") else stuffed + b"\r\n"


def _readable(answer: bytes) -> str:
    return " ".join(answer.decode("utf-8", "replace").split())[:200]
