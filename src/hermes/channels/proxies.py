"""HTTP and SOCKS proxies between a channel and its platform."""

import sys
from collections.abc import Callable
from importlib.util import find_spec
from urllib.parse import urlsplit

import aiohttp
from msgspec import Struct

from hermes.schema.errors import ConfigError

_HTTP = frozenset({"http", "https"})
_SOCKS = {"socks4": "socks4", "socks4a": "socks4", "socks5": "socks5", "socks5h": "socks5"}
"""The proxy always looks up the names of hosts, whatever the scheme says about that."""


class Proxy(Struct, frozen=True, kw_only=True):
    """How connections are made: with `connector`, and `url` as the proxy of each request.

    `errors` are raised if there is no connection through the proxy, so nothing was sent.
    """

    connector: Callable[..., aiohttp.TCPConnector] = aiohttp.TCPConnector
    url: str | None = None
    errors: tuple[type[Exception], ...] = ()


def open_proxy(label: str, url: str, variable: str = "") -> Proxy:
    """Return the proxy at `url`, or a direct connection. Raises `ConfigError`."""
    parts = urlsplit(url)
    if not url:
        return Proxy()
    if parts.scheme in _HTTP:
        return Proxy(url=url)
    where = f" ({variable})" if variable else ""
    if parts.scheme not in _SOCKS or not parts.hostname:
        # The address may contain a password.
        raise ConfigError(
            f"{label}'s proxy {parts.scheme}:// is not supported.",
            hint=f"Use an http://, https://, socks4:// or socks5:// proxy{where}.",
        )
    if find_spec("aiohttp_socks") is None:
        raise ConfigError(
            f"{label}'s proxy {parts.scheme}:// needs the package aiohttp-socks.",
            hint=f"Install it: {sys.executable} -m pip install 'hermes[socks]'",
        )
    return _socks(url.replace(parts.scheme, _SOCKS[parts.scheme], 1))


def _socks(url: str) -> Proxy:
    from aiohttp_socks import (  # noqa: PLC0415 - only with such a proxy
        ProxyConnectionError,
        ProxyConnector,
        ProxyError,
        ProxyTimeoutError,
    )

    def connector(**options: object) -> aiohttp.TCPConnector:
        return ProxyConnector.from_url(url, rdns=True, **options)

    errors = (ProxyConnectionError, ProxyError, ProxyTimeoutError)
    return Proxy(connector=connector, errors=errors)
