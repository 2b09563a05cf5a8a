"""HTTP and SOCKS proxies between a channel and its platform, from settings or environment."""

import os
import socket
import threading
import time
from base64 import b64encode
from collections.abc import Collection, Mapping
from contextlib import AsyncExitStack
from importlib.util import find_spec
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, unquote, urlsplit

import aiohttp
import anyio
from anyio.abc import SocketStream
from anyio.to_thread import run_sync
from msgspec import Struct

from hermes.kit.hosts import is_loopback
from hermes.kit.terminal_text import single_line
from hermes.schema.errors import ConfigError

if TYPE_CHECKING:
    from aiohttp.connector import Connection
    from aiohttp.tracing import Trace

_MAX_HEAD = 16_384
_HTTP = ("http", "https")
_VARIABLES = {"http": "http", "ws": "http", "https": "https", "wss": "https"}
_SOCKS = {"socks4": "socks4", "socks4a": "socks4", "socks5": "socks5", "socks5h": "socks5"}
"""The proxy always resolves host names, whatever the scheme says."""


class ProxySettings(Struct, frozen=True):
    """An account's own proxy, set as `url` or in `variable`, or else those of the environment."""

    url: str = ""
    variable: str = ""
    env: Mapping[str, str] = {}

    def proxy_for(self, host: str, scheme: str = "") -> str:
        """The proxy to reach a host; the scheme is that of HTTP or a websocket. "" for none.

        Hosts in `NO_PROXY` are reached directly, and this machine unless the account has its own
        proxy.
        """
        host = host.lower()
        exceptions = (self.env.get("no_proxy", "") or self.env.get("NO_PROXY", "")).lower()
        is_direct = any(_is_in(host, one.strip()) for one in exceptions.split(","))
        if is_direct or (not self.url and is_loopback(host)):
            return ""
        return self.find(scheme)[0]

    def find(self, scheme: str = "") -> tuple[str, str]:
        """The proxy for addresses with this scheme, and the variable that sets it."""
        if self.url:
            return self.url, self.variable
        names = [f"{_VARIABLES[scheme]}_proxy"] if scheme in _VARIABLES else []
        for name in (*names, "all_proxy"):
            for variable in (name, name.upper()):
                if url := self.env.get(variable, "").strip():
                    return url if "://" in url else f"http://{url}", variable
        return "", ""


def _is_in(host: str, exception: str) -> bool:
    """Whether an entry is `*`, the host, or a domain or network that contains it."""
    if "/" in exception:
        try:
            return ip_address(host) in ip_network(exception, strict=False)
        except ValueError:
            return False
    if exception.startswith("["):
        name = exception[1:].partition("]")[0]
    elif exception.count(":") > 1:
        name = exception  # an IPv6 address without a port
    else:
        name = exception.partition(":")[0].removeprefix("*").lstrip(".")
    return exception == "*" or (bool(name) and f".{host}".endswith(f".{name}"))


DIRECT = ProxySettings()


class Proxy(Struct, frozen=True):
    """How connections are made: with `connector`, and `url_for` as the proxy of each request.

    `errors` are raised if there is no connection through the proxy, so nothing was sent.
    """

    settings: ProxySettings = DIRECT
    errors: tuple[type[Exception], ...] = ()

    def url_for(self, url: str) -> str | None:
        """The HTTP proxy for a request to this address."""
        try:
            parts = urlsplit(url)
        except ValueError:
            return None  # aiohttp reports what is wrong with the address
        found = self.settings.proxy_for(parts.hostname or "", parts.scheme)
        return None if not found or _socks_url(found) else found

    def connector(self, **options: Any) -> aiohttp.TCPConnector:
        # aiodns, which slixmpp installs, would take one of the user's few inotify instances each.
        options = {"resolver": aiohttp.ThreadedResolver(), **options}
        return (
            _Connector(self.settings, options) if self.errors else aiohttp.TCPConnector(**options)
        )


class _Connector(aiohttp.TCPConnector):
    """Connects to each host through its SOCKS proxy, or directly."""

    def __init__(self, settings: ProxySettings, options: dict[str, Any]) -> None:
        super().__init__(**options)  # pyright: ignore[reportUnknownMemberType]
        self._settings = settings
        self._options = options
        self._through: dict[str, aiohttp.TCPConnector] = {}

    async def connect(
        self,
        req: aiohttp.ClientRequest,
        traces: "list[Trace]",
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - aiohttp's interface
    ) -> "Connection":
        url = _socks_url(self._settings.proxy_for(req.url.host or "", req.url.scheme))
        if not url:
            return await super().connect(req, traces, timeout)
        if url not in self._through:
            from aiohttp_socks import ProxyConnector  # noqa: PLC0415 - only with such a proxy

            self._through[url] = ProxyConnector.from_url(url, rdns=True, **self._options)
        return await self._through[url].connect(req, traces, timeout)

    async def close(self, *, abort_ssl: bool = False) -> None:
        # All are closed, even if waiting for one of them is cancelled.
        async with AsyncExitStack() as stack:
            for one in self._through.values():
                stack.push_async_callback(one.close, abort_ssl=abort_ssl)
            await super().close(abort_ssl=abort_ssl)


def open_proxy(label: str, settings: ProxySettings) -> Proxy:
    """Return the proxies for HTTP and websockets. Raises `ConfigError`."""
    has_socks = False
    for url, variable in {settings.find("https"), settings.find("http")} - {("", "")}:
        parts = _parsed(label, url, variable, (*_HTTP, *_SOCKS))
        has_socks = has_socks or parts.scheme in _SOCKS
    if not has_socks:
        return Proxy(settings)
    from aiohttp_socks import (  # noqa: PLC0415 - only with such a proxy
        ProxyConnectionError,
        ProxyError,
        ProxyTimeoutError,
    )

    return Proxy(settings, (ProxyConnectionError, ProxyError, ProxyTimeoutError))


def _socks_url(url: str) -> str:
    """The address for aiohttp-socks and python-socks; empty if it is no SOCKS proxy."""
    parts = urlsplit(url)
    return parts._replace(scheme=_SOCKS[parts.scheme]).geturl() if parts.scheme in _SOCKS else ""


def _parsed(label: str, url: str, variable: str, schemes: Collection[str]) -> SplitResult:
    """Raises `ConfigError` without the address: it may contain a password."""
    where = f" in {variable}" if variable else ""
    try:
        parts = urlsplit(url)
        valid = parts.port != 0 and "@" not in parts.path + parts.query + parts.fragment
    except ValueError:
        valid, parts = False, SplitResult("", "", "", "", "")
    if not valid:
        raise ConfigError(
            f"The address of {label}'s proxy is not valid.",
            hint=f"Check the port{where}, and percent-encode the special characters of a password.",
        )
    if parts.scheme not in schemes or not parts.hostname:
        known = " or ".join(
            f"{scheme}://" for scheme in schemes if scheme in {"http", "https", "socks5"}
        )
        raise ConfigError(
            f"{label}'s proxy {parts.scheme}:// is not supported.",
            hint=f"Set an address that begins with {known}{where}.",
        )
    if parts.scheme in _SOCKS and find_spec("aiohttp_socks") is None:
        raise ConfigError(
            f"{label}'s proxy {parts.scheme}:// needs the extra socks, which is not installed.",
            hint="The section Extras of the README says how to install it.",
        )
    return parts


class SocketProxy(Struct, frozen=True):
    """A proxy for connections other than HTTP. Raises `OSError` if there is no connection."""

    url: str

    async def connect(self, host: str, port: int, seconds: float) -> socket.socket:
        if self.url.startswith("http:"):
            return await self._connect_in_thread(host, port, seconds)
        from python_socks import ProxyError  # noqa: PLC0415 - only with such a proxy
        from python_socks.async_.asyncio import Proxy as AsyncProxy  # noqa: PLC0415 - as above

        proxy = AsyncProxy.from_url(self.url, rdns=True)
        try:
            return await proxy.connect(host, port, timeout=seconds)
        except ProxyError as error:
            raise OSError(f"the proxy refused it: {error}") from error

    async def _connect_in_thread(self, host: str, port: int, seconds: float) -> socket.socket:
        opened: list[socket.socket] = []
        abandoned = threading.Event()

        def connect() -> None:
            opened.append(self.connect_blocking(host, port, seconds))
            if abandoned.is_set():
                opened[0].close()

        try:
            await run_sync(connect, abandon_on_cancel=True)
        except BaseException:
            abandoned.set()
            for connected in opened:
                connected.close()
            raise
        opened[0].setblocking(False)
        return opened[0]

    def connect_blocking(self, host: str, port: int, seconds: float) -> socket.socket:
        if self.url.startswith("http:"):
            name = f"[{host}]" if ":" in host else host
            return _http_connected(self.url, f"{name}:{port}", seconds)
        from python_socks import ProxyError  # noqa: PLC0415 - only with such a proxy
        from python_socks.sync import Proxy as BlockingProxy  # noqa: PLC0415 - as above

        proxy = BlockingProxy.from_url(self.url, rdns=True)
        try:
            return proxy.connect(host, port, timeout=seconds)
        except ProxyError as error:
            raise OSError(f"the proxy refused it: {error}") from error


def _http_connected(url: str, target: str, seconds: float) -> socket.socket:
    """Connect with `CONNECT`.

    The answer is read byte by byte, because mail servers speak first and the rest is theirs.
    """
    parts = urlsplit(url)
    login = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
    token = b64encode(login.encode()).decode()
    header = f"Proxy-Authorization: Basic {token}\r\n" if parts.username else ""
    deadline = time.monotonic() + seconds
    connected = socket.create_connection((parts.hostname or "", parts.port or 80), seconds)
    try:
        request = f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{header}\r\n"
        connected.sendall(request.encode())
        _check_answer(connected, deadline)
    except BaseException:
        connected.close()
        raise
    return connected


def _check_answer(connected: socket.socket, deadline: float) -> None:
    head = bytearray()
    while not head.endswith(b"\r\n\r\n"):
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            raise TimeoutError("the proxy did not answer in time")
        connected.settimeout(remaining)
        byte = connected.recv(1)
        if not byte or len(head) > _MAX_HEAD:
            raise OSError("the proxy gave no answer")
        head += byte
    status = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ", 2)
    if status[1:2] != ["200"]:
        reason = single_line(" ".join(status[1:]))
        raise OSError(f"the proxy refused it: {reason[:100]}")


def socket_proxy(label: str, host: str, settings: ProxySettings) -> SocketProxy | None:
    """Return the proxy to reach a host without HTTP, or None. Raises `ConfigError`."""
    found = settings.proxy_for(host)
    if not found:
        return None
    variable = settings.find()[1]
    parts = _parsed(label, found, variable, ("http", *_SOCKS))
    return SocketProxy(_socks_url(found) or parts._replace(scheme="http").geturl())


def connect_failure(error: OSError) -> str:
    """Describe why a connection failed."""
    if isinstance(error, socket.gaierror):
        return "the name cannot be resolved"
    # In other errors the number may be a TLS or SMTP code.
    if isinstance(error, ConnectionError) and error.errno:
        return os.strerror(error.errno)
    return str(error)


async def connect_tcp(
    host: str, port: int, proxy: SocketProxy | None, seconds: float
) -> SocketStream:
    """Connect through the proxy, if there is one. Raises `OSError`."""
    if proxy is None:
        return await anyio.connect_tcp(host, port)
    return await SocketStream.from_socket(await proxy.connect(host, port, seconds))


def stays_here(host: str, proxy: SocketProxy | None) -> bool:
    """Whether data for the host certainly stays on this machine.

    A proxy resolves the name itself and may forward to another machine.
    """
    return proxy is None and is_loopback(host)
