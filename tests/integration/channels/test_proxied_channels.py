"""E-mail, IRC, XMPP and Signal through HTTP and SOCKS proxies."""

import socket
import ssl
import threading
from collections.abc import AsyncGenerator
from contextlib import suppress
from pathlib import Path

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream
from msgspec import structs

from emulators.signal.server import serve_signal
from emulators.signal.state import ACCOUNT, EmulatedSignal
from hermes.channels.email import EmailOptions
from hermes.channels.email.channel import servers_of
from hermes.channels.irc.setup import check_account as check_irc
from hermes.channels.proxies import ProxySettings, SocketProxy, open_proxy, socket_proxy
from hermes.channels.signal.channel import open_channel as open_signal_channel
from hermes.kit.ids import new_id
from hermes.ports.channel import Inbound, Offline, Outbound
from hermes.schema.errors import ConfigError
from hermes.schema.messages import Text
from hermes.schema.scope import Address
from hermes.testing.contracts.channel import listening, text_of
from support.channel_deps import new_deps
from support.http_proxy import HttpProxy, http_proxy
from support.irc import InspIrcd, connected, irc_bench, person
from support.mail import HOME, Dovecot, mail_bench, new_mail
from support.signal_cli import HOME as SIGNAL_HOME
from support.socks import SocksProxy, socks_proxy
from support.xmpp import Prosody, listening_to, xmpp_bench
from support.xmpp import person as xmpp_person

HI = Outbound((Text("through the proxy"),), plain="through the proxy")


@pytest.fixture(params=["socks", "http"])
async def proxy(request: pytest.FixtureRequest) -> AsyncGenerator[SocksProxy | HttpProxy]:
    async with socks_proxy() if request.param == "socks" else http_proxy() as one:
        yield one


def irc_proxy(url: str) -> SocketProxy:
    proxy = socket_proxy("IRC", "localhost", ProxySettings(url, "IRC_PROXY"))
    assert proxy is not None
    return proxy


async def arrived(received: list[Inbound]) -> str:
    with anyio.fail_after(20):
        while not received:  # noqa: ASYNC110 - another task appends to the list
            await anyio.sleep(0.005)
    return text_of(received[0])


@pytest.mark.slow
async def test_mailbox_is_read_and_answered(
    tmp_path: Path,
    dovecot: Dovecot,
    proxy: SocksProxy | HttpProxy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(dovecot.certificate))
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(dovecot.certificate, dovecot.certificate.with_name("key.pem"))
    extra = {
        "imap_host": "localhost", "imap_port": dovecot.tls_port, "imap_security": "tls",
        "smtp_host": "localhost", "smtp_security": "starttls", "proxy_url": proxy.url,
    }  # fmt: skip
    host = dovecot.host(f"{new_id('agent')}@agent.example".lower())
    async with mail_bench(tmp_path, host, extra=extra, smtp_tls=tls) as one:
        async with listening(one.channel) as received:
            await one.host.deliver(new_mail("hello"))
            assert await arrived(received) == "hello"
        assert set(proxy.hosts) == {"localhost"}
        connections = len(proxy.hosts)
        await one.channel.send(HOME, HI)
    assert one.smtp.texts(HOME.chat) == ["through the proxy"]
    assert len(proxy.hosts) == connections + 1


@pytest.mark.slow
async def test_irc_network_is_reached(
    tmp_path: Path, inspircd: InspIrcd, proxy: SocksProxy | HttpProxy
) -> None:
    room = inspircd.rooms.pop()
    nick, ann_nick = f"p{new_id('')[-8:]}", f"a{new_id('')[-8:]}"
    extra = {"server": "localhost", "nickname": nick, "channel": [room], "proxy_url": proxy.url}
    async with (
        person(inspircd.port, ann_nick, [room]) as ann,
        irc_bench(tmp_path, inspircd.port, extra) as one,
        connected(one),
    ):
        await ann.until(lambda line: line.command == "JOIN" and line.nick == nick)
        await one.channel.send(Address("irc", room), HI)
        await ann.until(lambda line: ann.received(room, nick))
        assert ann.received(room, nick) == ["through the proxy"]
    assert proxy.hosts == ["localhost"]


@pytest.mark.slow
async def test_xmpp_server_is_reached(
    tmp_path: Path,
    prosody: Prosody,
    proxy: SocksProxy | HttpProxy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(prosody.folder / "cert.pem"))
    extra = {"host": "localhost", "use_tls": True, "proxy_url": proxy.url}
    async with (
        xmpp_person(prosody) as ann,
        xmpp_bench(tmp_path, prosody, extra) as one,
        listening(one.channel) as received,
    ):
        await listening_to(one)
        ann.write(one.jid, "hello")
        assert await arrived(received) == "hello"
        await one.channel.send(Address("xmpp", ann.jid), HI)
        await ann.until(lambda: ann.texts(one.jid))
        assert ann.texts(one.jid) == ["through the proxy"]
    assert proxy.hosts == ["localhost"]


async def test_signal_daemon_is_reached(tmp_path: Path) -> None:
    signal = EmulatedSignal()
    async with serve_signal(signal) as server, socks_proxy() as proxy:
        there = server.url.replace("127.0.0.1", "signal.invalid")
        env = {"SIGNAL_HTTP_URL": there, "SIGNAL_ACCOUNT": ACCOUNT, "SIGNAL_PROXY": proxy.url}
        deps = new_deps("signal", tmp_path, extra={}, env=env)
        async with open_signal_channel(deps) as channel, listening(channel) as received:
            await server.until(lambda: server.listeners > 0)
            signal.say("hello")
            assert await arrived(received) == "hello"
            await channel.send(SIGNAL_HOME, HI)
    assert set(proxy.hosts) == {"signal.invalid"}


async def test_refusing_proxy_is_an_outage() -> None:
    async with socks_proxy() as proxy:
        proxy.refuse = True
        extra = {"server": "localhost", "port": 1, "use_tls": False, "proxy_url": proxy.url}
        with pytest.raises(Offline, match="the proxy refused it") as caught:
            await check_irc("", extra, {})
    assert "of-the-proxy" not in str(caught.value)


@pytest.mark.parametrize(
    "exceptions", ["example.org", " .example.org,other", "IMAP.example.org:993", "*"]
)
def test_host_in_no_proxy_is_reached_directly(exceptions: str) -> None:
    url = "socks5://127.0.0.1:1080"
    options = EmailOptions(imap_host="imap.example.org", smtp_host="smtp.other.net", proxy_url=url)
    imap, smtp = servers_of(options, {"NO_PROXY": exceptions})
    assert imap.proxy is None
    assert (smtp.proxy is None) == (exceptions == "*")


def test_other_hosts_use_the_proxy() -> None:
    for exceptions in ("", ",", "ample.org", "org.example", "a.example.org"):
        assert (
            ProxySettings("socks5://p", env={"no_proxy": exceptions}).proxy_for("example.org")
            == "socks5://p"
        )


@pytest.mark.parametrize("url", ["https://proxy", "ftp://proxy", "socks5://"])
def test_proxy_that_cannot_be_used_is_named_without_its_password(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        irc_proxy(url.replace("://", "://ann:secret@"))
    assert "IRC_PROXY" in caught.value.hint
    assert "secret" not in str(caught.value) + caught.value.hint


@pytest.mark.parametrize(
    "url",
    [
        "http://ann:sec/ret@proxy:3128",
        "http://ann:1/ret@proxy:3128",
        "socks5://[ret",
        "http://proxy:ret",
    ],
)
def test_address_that_cannot_be_parsed_is_not_shown(url: str) -> None:
    settings = ProxySettings(url, "IRC_PROXY")
    for opens in (
        lambda: socket_proxy("IRC", "localhost", settings),
        lambda: open_proxy("IRC", settings),
    ):
        with pytest.raises(ConfigError) as caught:
            opens()
        assert "IRC_PROXY" in caught.value.hint
        assert "ret" not in str(caught.value) + caught.value.hint
        assert caught.value.__context__ is None


def test_scheme_may_be_in_capitals() -> None:
    for value, used in (("HTTP", "http"), ("SOCKS5H", "socks5")):
        proxy = irc_proxy(f"{value}://Ann:Secret@proxy:1")
        assert proxy.url == f"{used}://Ann:Secret@proxy:1"


def test_ipv6_address_in_no_proxy_is_reached_directly() -> None:
    for exceptions in ("::1", "[::1]", "[::1]:993", "other,::1"):
        assert ProxySettings("socks5://p", env={"NO_PROXY": exceptions}).proxy_for("::1") == ""
    assert ProxySettings("socks5://p", env={"NO_PROXY": "::1"}).proxy_for("::2") == "socks5://p"


async def test_ipv6_address_is_sent_to_the_proxy_in_brackets() -> None:
    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as server,
        http_proxy() as one,
    ):
        proxy = irc_proxy(one.url)
        port = server.extra(SocketAttribute.local_port)  # noqa: S610 - not a query
        (await proxy.connect("2001:db8::1", port, 20)).close()
        assert one.hosts == ["[2001:db8::1]"]


def test_reason_of_the_proxy_is_one_printable_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        proxy = irc_proxy(f"http://127.0.0.1:{server.getsockname()[1]}")

        def refuse() -> None:
            with server.accept()[0] as client:
                client.recv(4096)
                client.sendall(b"HTTP/1.1 403 no\x1b[2J\nway\r\n\r\n")

        thread = threading.Thread(target=refuse)
        thread.start()
        with pytest.raises(OSError, match="403 no") as caught:
            proxy.connect_blocking("localhost", 1, 20)
        thread.join()
    assert str(caught.value).isprintable()


async def test_proxy_that_answers_byte_by_byte_is_given_up_in_time() -> None:
    async def drip(client: SocketStream) -> None:
        with suppress(anyio.BrokenResourceError):
            async with client:
                for byte in b"HTTP/1.1 200 " + b"x" * 20 + b"\r\n\r\n":
                    await anyio.sleep(0.02)
                    await client.send(bytes([byte]))

    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
        anyio.create_task_group() as group,
    ):
        group.start_soon(listener.serve, drip)
        port = listener.extra(SocketAttribute.local_port)  # noqa: S610 - not a query
        proxy = irc_proxy(f"http://127.0.0.1:{port}")
        with pytest.raises(TimeoutError):
            await proxy.connect("localhost", 1, 0.1)
        group.cancel_scope.cancel()


async def test_cancelled_connection_is_closed() -> None:
    requested, cancelled, closed = anyio.Event(), anyio.Event(), anyio.Event()

    async def answer_late(client: SocketStream) -> None:
        async with client:
            await client.receive()
            requested.set()
            await cancelled.wait()
            await client.send(b"HTTP/1.1 200 OK\r\n\r\n")
            with pytest.raises(anyio.EndOfStream):
                await client.receive()
        closed.set()

    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
        anyio.create_task_group() as group,
    ):
        group.start_soon(listener.serve, answer_late)
        port = listener.extra(SocketAttribute.local_port)  # noqa: S610 - not a query
        proxy = irc_proxy(f"http://127.0.0.1:{port}")
        async with anyio.create_task_group() as connecting:
            connecting.start_soon(proxy.connect, "localhost", 1, 20)
            await requested.wait()
            connecting.cancel_scope.cancel()
        cancelled.set()
        with anyio.fail_after(20):
            await closed.wait()
        group.cancel_scope.cancel()


def test_password_is_not_sent_unencrypted_to_a_proxy() -> None:
    local = EmailOptions(
        imap_host="localhost", imap_security="none", smtp_host="localhost", smtp_security="none"
    )
    servers_of(local, {})
    for url in ("http://127.0.0.1:3128", "http://proxy.example"):
        with pytest.raises(ConfigError, match="without encryption"):
            servers_of(structs.replace(local, proxy_url=url), {})
