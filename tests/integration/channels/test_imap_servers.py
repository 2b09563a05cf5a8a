"""The IMAP emulator behaves as dovecot does; Python's own client is an independent witness."""

import ssl
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from imaplib import IMAP4
from pathlib import Path

import anyio
import pytest

from hermes.channels.email.imap import ImapServer, open_imap, search_date
from hermes.channels.email.smtp import SmtpServer, check_login
from hermes.kit.ids import new_id
from hermes.ports.channel import Offline
from support.mail import (
    AGENT,
    PASSWORD,
    Dovecot,
    SmtpState,
    emulator_host,
    make_certificate,
    new_mail,
    serve_smtp,
)


@pytest.fixture(params=["emulator", pytest.param("dovecot", marks=pytest.mark.slow)])
async def client(request: pytest.FixtureRequest) -> AsyncGenerator[IMAP4]:
    """Python's client, logged in to an empty mailbox."""
    async with AsyncExitStack() as stack:
        if request.param == "dovecot":
            one: Dovecot = request.getfixturevalue("dovecot")
            port, user = one.port, f"{new_id('u')}@agent.example".lower()
        else:
            port, user = (await stack.enter_async_context(emulator_host())).port, AGENT
        imap = await anyio.to_thread.run_sync(IMAP4, "127.0.0.1", port)
        with pytest.raises(IMAP4.error):
            await anyio.to_thread.run_sync(imap.login, user, "wrong")
        await anyio.to_thread.run_sync(imap.login, user, PASSWORD)
        yield imap
        await anyio.to_thread.run_sync(imap.logout)


def check_rules(imap: IMAP4) -> None:
    """The rules of RFC 3501 that the channel relies on."""
    mails = [new_mail(f"text {number}", number=str(number)).as_bytes() for number in (1, 2)]
    for data in mails:
        assert imap.append("INBOX", "", None, data)[0] == "OK"  # pyright: ignore[reportArgumentType]
    assert imap.select("INBOX") == ("OK", [b"2"])
    assert imap.response("UIDNEXT")[1] == [b"3"]
    assert imap.select("nowhere")[0] == "NO"
    imap.select("INBOX")

    def search(*criteria: str) -> list[bytes]:
        return (imap.uid("SEARCH", *criteria)[1][0] or b"").split()

    today = datetime.now(UTC).date()
    assert search("UNSEEN") == [b"1", b"2"]
    assert search("SINCE", search_date(today - timedelta(days=1)).decode()) == [b"1", b"2"]
    assert search("SINCE", search_date(today + timedelta(days=2)).decode()) == []
    assert search("UID", "2:*") == [b"2"]
    assert search("UID", "9:*") == [b"2"], "the last one is always in a range up to *"
    (whole, size), _ = imap.uid("FETCH", "1", "(UID RFC822.SIZE BODY.PEEK[])")[1]
    assert size == mails[0].replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
    assert f"RFC822.SIZE {len(size)}".encode() in whole
    assert search("UNSEEN") == [b"1", b"2"], "PEEK does not mark it as read"
    imap.uid("STORE", "1", "+FLAGS.SILENT", r"(\Seen)")
    assert search("UNSEEN") == [b"2"]


async def test_independent_client_sees_the_same_rules(client: IMAP4) -> None:
    await anyio.to_thread.run_sync(check_rules, client)


def account(port: int, security: str) -> ImapServer:
    user = f"{new_id('u')}@agent.example".lower()
    return ImapServer(host="localhost", port=port, security=security, user=user, password=PASSWORD)


@pytest.mark.slow
async def test_encrypted_connections_need_a_certificate_that_is_trusted(
    dovecot: Dovecot, monkeypatch: pytest.MonkeyPatch
) -> None:
    ports = {"tls": dovecot.tls_port, "starttls": dovecot.port}
    for security, port in ports.items():
        with pytest.raises(Offline, match="cannot be trusted"):
            async with open_imap(account(port, security)):
                pass
    monkeypatch.setenv("SSL_CERT_FILE", str(dovecot.certificate))
    for security, port in ports.items():
        async with open_imap(account(port, security)) as imap:
            assert (await imap.select("INBOX")).next_uid == 1


@pytest.mark.slow
async def test_mail_is_sent_over_starttls_only_to_a_trusted_server(
    tmp_path: Path, dovecot: Dovecot, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_certificate(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    async with serve_smtp(SmtpState(), context) as port:
        server = SmtpServer(
            host="localhost", port=port, security="starttls", user=AGENT, password=PASSWORD
        )
        with pytest.raises(Offline, match="certificate"):
            await check_login(server)
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert.pem"))
        await check_login(server)
