"""Parse the host of an HTTP request strictly."""

import re
from collections.abc import Sequence
from ipaddress import IPv6Address, ip_address

_PORT = r"(?::([0-9]{0,5}))?"
_NAME = re.compile(
    r"([a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?(?:\.[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?)*)\.?" + _PORT
)
_BRACKETED = re.compile(r"\[([0-9a-f:.]+)\]" + _PORT)
_LAST_PORT = 65535
_LONGEST = 300


def host_of(given: str) -> str | None:
    """The host in lower case without port and brackets; None if invalid."""
    small = given.lower() if given.isascii() and len(given) <= _LONGEST else ""
    found = _NAME.fullmatch(small) or _BRACKETED.fullmatch(small)
    if found is None or int(found[2] or 0) > _LAST_PORT:
        return None
    if small.startswith("["):
        try:
            return IPv6Address(found[1]).compressed
        except ValueError:
            return None
    return found[1]


def hosts_asked(headers: Sequence[str], target: str) -> list[str | None]:
    """All hosts of a request: from `Host` headers and an absolute target."""
    named = [host_of(one) for one in headers]
    if target.startswith("/") or target == "*":
        return named
    rest = target.partition("://")[2] or target
    return [*named, host_of(re.split(r"[/?#]", rest, maxsplit=1)[0])]


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return host == "localhost"
