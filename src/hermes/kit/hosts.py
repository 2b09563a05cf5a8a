"""Parse the hosts of HTTP requests and URLs strictly, and tell public ones from local ones."""

import re
import socket
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import TypeAlias
from urllib.parse import SplitResult, urlsplit

Ip: TypeAlias = IPv4Address | IPv6Address
Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]
"""The addresses of a host, as text."""

_LOCAL_DOMAINS = ("localhost", "localdomain", "local", "internal", "lan", "home", "intranet")
_NON_PUBLIC_NETWORKS = tuple(map(ip_network, (
    "64:ff9b::/96", "64:ff9b:1::/48", "fec0::/10", "::/96", "::ffff:0:0:0/96", "3fff::/20",
    "5f00::/16", "192.0.0.0/24",
)))  # fmt: skip
"""Translated, retired or reserved addresses that Python counts as public."""
_PORT = r"(?::([0-9]{0,5}))?"
_NAME = re.compile(
    r"([a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?(?:\.[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?)*)\.?" + _PORT
)
_BRACKETED = re.compile(r"\[([0-9a-f:.]+)\]" + _PORT)
_LAST_PORT = 65535
_MAX_LENGTH = 300


def parse_host(text: str) -> str | None:
    """The host in lower case without port and brackets; None if invalid."""
    small = text.lower() if text.isascii() and len(text) <= _MAX_LENGTH else ""
    found = _NAME.fullmatch(small) or _BRACKETED.fullmatch(small)
    if found is None or int(found[2] or 0) > _LAST_PORT:
        return None
    if small.startswith("["):
        try:
            return IPv6Address(found[1]).compressed
        except ValueError:
            return None
    return found[1]


def request_hosts(headers: Sequence[str], target: str) -> list[str | None]:
    """All hosts of a request: from `Host` headers and an absolute target."""
    named = [parse_host(header) for header in headers]
    if target.startswith("/") or target == "*":
        return named
    rest = target.partition("://")[2] or target
    return [*named, parse_host(re.split(r"[/?#]", rest, maxsplit=1)[0])]


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return host == "localhost"


def parse_http_url(url: str) -> SplitResult | None:
    """Parse a valid HTTP URL with a host."""
    if not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
        return None
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    if parts.scheme.lower() not in {"http", "https"} or not parts.hostname or port == 0:
        return None
    return None if parts.username or parts.password else parts


def is_public_url(url: str) -> bool:
    """Whether the host may be public; names are not resolved here."""
    parts = parse_http_url(url)
    if parts is None or not parts.hostname:
        return False
    host = parts.hostname.rstrip(".").lower()
    number = parse_ip(host)
    if number is not None:
        return is_public(number)
    return "." in host and host.rpartition(".")[2] not in _LOCAL_DOMAINS


def is_public(number: Ip) -> bool:
    """Whether the address is globally routable."""
    inner = getattr(number, "ipv4_mapped", None) or getattr(number, "sixtofour", None)
    if isinstance(inner, IPv4Address):
        return is_public(inner)
    if any(number in net for net in _NON_PUBLIC_NETWORKS if net.version == number.version):
        return False
    return number.is_global and not number.is_multicast


def parse_ip(host: str) -> Ip | None:
    """Parse an IP address, including legacy number formats."""
    try:
        return ip_address(host.partition("%")[0])
    except ValueError:
        pass
    try:
        return IPv4Address(socket.inet_aton(host))
    except OSError:
        return None
