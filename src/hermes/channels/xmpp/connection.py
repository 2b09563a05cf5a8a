"""The connection to an XMPP server: slixmpp speaks the protocol, stanzas pass unchanged."""

import logging
import ssl
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, cast
from xml.etree.ElementTree import Element

import anyio
from anyio.to_thread import run_sync
from msgspec import Struct
from slixmpp import ClientXMPP
from slixmpp.exceptions import IqError, IqTimeout
from slixmpp.xmlstream.handler import Callback
from slixmpp.xmlstream.matcher import MatchXPath

from hermes.channels.account import BadToken
from hermes.channels.proxies import SocketProxy
from hermes.channels.xmpp.stanzas import CLIENT, PING, bare, element
from hermes.ports.channel import NotSent, Offline, UnknownOutcome

log = logging.getLogger(__name__)

CONNECT_SECONDS = 30.0
ANSWER_SECONDS = 20.0
FEATURES = (
    "http://jabber.org/protocol/chatstates",
    "urn:xmpp:message-correct:0",
    "urn:xmpp:reactions:0",
    "urn:xmpp:receipts",
)


class XmppAccount(Struct, frozen=True, kw_only=True):
    """Who logs in; without `host`, the server is looked up in DNS."""

    jid: str
    password: str
    host: str = ""
    port: int = 5222
    use_tls: bool = True
    proxy: SocketProxy | None = None


class RequestRefused(NotSent):
    """The server refused a request, with this condition."""

    def __init__(self, condition: str, text: str) -> None:
        super().__init__(f"The XMPP server refused a request: {text or condition}")
        self.condition = condition


class XmppConnection:
    """One session, which is resumed if its connection is lost."""

    def __init__(
        self,
        account: XmppAccount,
        context: ssl.SSLContext,
        *,
        on_message: Callable[[Element], None],
        on_presence: Callable[[Element], None],
        on_data: Callable[[], None],
    ) -> None:
        self.own = bare(account.jid)
        self._account = account
        self._on_data = on_data
        self._client: Any = _new_client(account, context)
        self._started = anyio.Event()
        self._lost = anyio.Event()
        self._failure: Exception | None = None
        self._is_new = False
        self._is_connected = False
        client = self._client
        for name, stanza, handle in (
            ("messages", "message", on_message),
            ("presences", "presence", on_presence),
        ):
            matcher = MatchXPath(f"{{{CLIENT}}}{stanza}")
            client.register_handler(Callback(f"hermes {name}", matcher, _passing_xml(handle)))
        client.add_filter("in", self._handle_stanza)
        for event, handler in (
            ("session_start", self._handle_start),
            ("session_resumed", self._handle_resumed),
            ("disconnected", self._handle_lost),
            ("connection_failed", self._handle_unreachable),
            ("failed_all_auth", self._handle_refused),
            ("no_auth", self._handle_refused),
            ("ssl_invalid_chain", self._handle_distrust),
        ):
            client.add_event_handler(event, handler)

    async def start(self) -> None:
        """Connect and log in. Raises `BadToken` or `Offline`."""
        self._started, self._lost, self._failure = anyio.Event(), anyio.Event(), None
        account = self._account
        # A proxy resolves the name itself.
        host = account.host or (self.own.partition("@")[2] if account.proxy else "")
        if host:
            self._client.connect(host, account.port)
        else:
            self._client.connect()
        with anyio.move_on_after(CONNECT_SECONDS):
            await self._started.wait()
        if self._failure is not None:
            raise self._failure
        if not self._started.is_set():
            raise Offline("The XMPP server does not answer.")

    async def keep_connected(self) -> None:
        """Resume the session whenever its connection is lost. Raises `Offline`."""
        while True:
            await self._lost.wait()
            log.info("the connection to the XMPP server was lost; resuming the session")
            await self.start()
            if self._is_new:
                raise Offline("The XMPP session could not be resumed.")

    async def ping(self) -> None:
        """Return once the server has handled what was sent before."""
        server = self.own.partition("@")[2]
        # A server that does not support pings has answered, too.
        with suppress(RequestRefused):
            await self.ask("get", server, element(PING, "ping"))

    async def ask(self, kind: str, to: str, payload: Element) -> Element:
        """Send a request and return its answer.

        Raises `RequestRefused`, `Offline`, or `UnknownOutcome` if there is no answer.
        """
        self._check_connected()
        iq = self._client.make_iq(ito=to, itype=kind)
        iq.xml.append(payload)
        try:
            answer = await iq.send(timeout=ANSWER_SECONDS)
        except IqError as error:
            raise RequestRefused(error.condition, error.text) from error
        except IqTimeout as error:
            raise UnknownOutcome("The XMPP server does not answer.") from error
        return answer.xml

    def send_message(self, to: str, kind: str, message: str, parts: Sequence[Element]) -> None:
        """Raises `Offline` if there is no connection."""
        self._check_connected()
        made = self._client.make_message(mto=to, mtype=kind)
        made["id"] = message
        for part in parts:
            made.xml.append(part)
        made.send()

    def send_presence(self, to: str = "", part: Element | None = None) -> None:
        made = self._client.make_presence(pto=to or None)
        if part is not None:
            made.xml.append(part)
        made.send()

    async def close(self) -> None:
        with anyio.move_on_after(2.0):
            await self._client.disconnect(wait=1.0)
        self._client.abort()

    def _check_connected(self) -> None:
        if not self._is_connected:
            raise Offline("The connection to the XMPP server was lost.")

    def _handle_stanza(self, stanza: object) -> object:
        self._on_data()
        return stanza

    def _handle_start(self, event: object) -> None:
        self._is_new = self._is_connected = True
        self._started.set()

    def _handle_resumed(self, event: object) -> None:
        self._is_new, self._is_connected = False, True
        self._started.set()

    def _handle_lost(self, event: object) -> None:
        self._is_connected = False
        self._lost.set()
        self._fail(Offline(f"The connection to the XMPP server was lost: {event or 'closed'}"))

    def _handle_unreachable(self, event: object) -> None:
        self._client.cancel_connection_attempt()
        self._fail(Offline(f"The XMPP server cannot be reached: {event}"))

    def _handle_distrust(self, event: object) -> None:
        self._fail(Offline(f"The XMPP server's encryption cannot be trusted: {event}"))

    def _handle_refused(self, event: object) -> None:
        self._fail(
            BadToken(
                f"The XMPP server does not accept the login of {self.own}.",
                hint="Check XMPP_JID and XMPP_PASSWORD; the connection must be encrypted.",
            )
        )

    def _fail(self, failure: Exception) -> None:
        """End the login, if it is still under way."""
        if not self._started.is_set():
            self._failure = self._failure or failure
            self._started.set()


def _passing_xml(handle: Callable[[Element], None]) -> Callable[[Any], None]:
    return lambda stanza: handle(stanza.xml)


class _ProxiedClient(ClientXMPP):
    """Connects through a proxy; slixmpp itself has no way to do that."""

    def __init__(self, account: XmppAccount, proxy: SocketProxy, context: ssl.SSLContext) -> None:
        cast("Any", super()).__init__(account.jid, account.password, ssl_context=context)
        self._proxy = proxy

    async def _attempt_connection(
        self, host: str, port: int, tls: bool, server_hostname: str | None
    ) -> bool:
        self.event_when_connected = "connected"
        try:
            connected = await self._proxy.connect(host, port, CONNECT_SECONDS)
            await self.loop.create_connection(lambda: self, sock=connected)
        except OSError as error:
            self.event("connection_failed", error)
            return False
        return True


def _new_client(account: XmppAccount, context: ssl.SSLContext) -> Any:
    client: Any = (
        ClientXMPP(account.jid, account.password, ssl_context=context)
        if account.proxy is None
        else _ProxiedClient(account, account.proxy, context)
    )
    client.enable_direct_tls = False
    client.enable_starttls = account.use_tls
    client.enable_plaintext = not account.use_tls
    if not account.use_tls:
        mechanisms = client.plugin["feature_mechanisms"]
        mechanisms.unencrypted_plain = mechanisms.unencrypted_scram = True
    client.roster.auto_subscribe = False
    client.register_plugin("xep_0030")
    client.register_plugin("xep_0198")
    for feature in FEATURES:
        client.plugin["xep_0030"].add_feature(feature)
    return client


@asynccontextmanager
async def open_xmpp(
    account: XmppAccount,
    *,
    on_message: Callable[[Element], None],
    on_presence: Callable[[Element], None],
    on_data: Callable[[], None],
) -> AsyncGenerator[XmppConnection]:
    """Log in. Raises `BadToken` or `Offline`."""
    # Loading the system's certificates takes time.
    context = await run_sync(ssl.create_default_context)
    connection = XmppConnection(
        account, context, on_message=on_message, on_presence=on_presence, on_data=on_data
    )
    try:
        await connection.start()
        yield connection
    finally:
        with anyio.CancelScope(shield=True):
            await connection.close()
