"""Read a web page as text, or download a file.

A URL into this machine or its network is opened only if `allow_internal` allows it, and only as
typed; redirects must lead to public addresses. A name is resolved once, so it cannot point to a
public server first and to this machine afterwards.
"""

import asyncio
import re
from collections.abc import Callable, Collection
from ipaddress import IPv4Address, ip_address
from pathlib import PurePosixPath
from socket import AF_INET, AddressFamily
from typing import TypeAlias
from urllib.parse import SplitResult, unquote, urljoin

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from msgspec import Struct

from hermes.kit.hosts import Ip, is_public, parse_http_url, parse_ip
from hermes.kit.html_text import html_text
from hermes.kit.terminal_text import escape_controls, single_line
from hermes.schema.errors import ToolError

USER_AGENT = "hermes"
_TEXT_TYPES = re.compile(
    r"text/.*|application/(?:.*\+)?(?:json|xml|yaml|toml|javascript|x-ndjson)", re.IGNORECASE
)
_HTML = frozenset({"text/html", "application/xhtml+xml"})
_REDIRECT_CODES = frozenset({301, 302, 303, 307, 308})
_CHARSET = re.compile(rb"<meta[^>]{0,200}charset=[\"']?([\w-]{1,40})", re.IGNORECASE)
_CHARSETS = re.compile(
    r"utf-?(?:8|16(?:le|be)?)|us-ascii|latin-?1|iso-?8859-?\d{1,2}|(?:windows-|cp)125\d"
    r"|gbk|gb2312|gb18030|big5|shift[_-]?jis|windows-31j|euc-(?:jp|kr|cn|tw)|koi8-[ru]",
    re.IGNORECASE,
)
"""Other codecs are not text, or are far too slow."""
_METADATA_ADDRESSES = frozenset(map(ip_address, ("fd00:ec2::254", "100.100.100.200")))
_Site: TypeAlias = tuple[str, str, int | None]


class PageLimits(Struct, frozen=True, kw_only=True):
    """Limits on one page."""

    size: int = 2_000_000  # bytes
    seconds: float = 20.0  # in total
    redirects: int = 5


class Download(Struct, frozen=True):
    """A file as the server sent it; `name` is the last part of its final URL, perhaps empty."""

    data: bytes
    content_type: str
    name: str


class PageReader:
    """Reads pages; `lookup` replaces the system's resolver.

    With `allow_internal_redirects`, redirects may lead into this machine or its network too, except
    to cloud metadata services. `blocked_sites` sites and their subdomains are not opened.
    """

    def __init__(
        self,
        *,
        allow_internal: bool,
        allow_internal_redirects: bool = False,
        blocked_sites: Collection[str] = (),
        limits: PageLimits | None = None,
        lookup: AbstractResolver | None = None,
    ) -> None:
        self._allow_internal = allow_internal
        self._allow_internal_redirects = allow_internal_redirects
        self._blocked_sites = blocked_sites
        self._limits = limits or PageLimits()
        self._lookup = lookup

    async def read(self, url: str) -> str:
        """Return the text of a page. Raises `ToolError` with the reason."""
        found = await self._get(url, text_only=True)
        html = found.content_type in _HTML
        # A thread cannot be cancelled, but this ends: it reads the page once.
        return await asyncio.to_thread(_body_text, found.data, found.charset, html)

    async def download(self, url: str) -> Download:
        """Download a file of any kind. Raises `ToolError` with the reason."""
        found = await self._get(url, text_only=False)
        name = unquote(PurePosixPath(found.url_path).name)
        return Download(data=found.data, content_type=found.content_type, name=name)

    async def _get(self, url: str, *, text_only: bool) -> "_Body":
        try:
            async with asyncio.timeout(self._limits.seconds):
                return await self._follow(url, text_only=text_only)
        except TimeoutError as error:
            raise ToolError(f"it took longer than {self._limits.seconds:g} seconds") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            reason = single_line(str(error)) or type(error).__name__
            raise ToolError(f"it cannot be opened: {reason}") from error

    async def _follow(self, url: str, *, text_only: bool) -> "_Body":
        typed: _Site | None = None
        names = DnsCache(self._lookup or aiohttp.ThreadedResolver())
        for _ in range(self._limits.redirects + 1):
            parts = parse_http_url(url)
            if parts is None:
                raise ToolError("it is not the URL of a web page")
            if site := _blocked_site(parts.hostname or "", self._blocked_sites):
                raise ToolError(f"security.website_blocklist contains {site}")
            typed = typed or _site_of(parts)
            may = _is_not_metadata if self._allow_internal_redirects else is_public
            if self._allow_internal and _site_of(parts) == typed:
                may = _any_address
            resolver = _CheckedResolver(names, may)
            result = await self._open(url, parts, resolver, text_only=text_only)
            if isinstance(result, _Body):
                return result
            url = urljoin(url, result)
        raise ToolError("it redirects too often")

    async def _open(
        self, url: str, parts: SplitResult, resolver: "_CheckedResolver", *, text_only: bool
    ) -> "_Body | str":
        """The body, or the URL of a redirect."""
        number = parse_ip(parts.hostname or "")
        if number is not None and not resolver.may(number):
            raise _internal_address_error()
        connector = aiohttp.TCPConnector(resolver=resolver, force_close=True)
        jar = aiohttp.DummyCookieJar()
        headers = {"User-Agent": USER_AGENT, "Accept": "text/html, text/*;q=0.9, */*;q=0.1"}
        try:
            async with (
                aiohttp.ClientSession(connector=connector, cookie_jar=jar) as client,
                client.get(url, headers=headers, allow_redirects=False) as response,
            ):
                return await self._answer(response, text_only=text_only)
        except aiohttp.ClientConnectorError as error:
            if resolver.rejected:
                raise _internal_address_error() from error
            raise

    async def _answer(self, response: aiohttp.ClientResponse, *, text_only: bool) -> "_Body | str":
        if response.status in _REDIRECT_CODES and "Location" in response.headers:
            return response.headers["Location"]
        if response.status >= 400:
            reason = single_line(response.reason or "")
            raise ToolError(f"the server answered {response.status} {reason}".strip())
        if text_only and not _TEXT_TYPES.fullmatch(response.content_type):
            raise ToolError(f"it is not text but {single_line(response.content_type)}")
        data = bytearray()
        async for chunk in response.content.iter_chunked(65_536):
            data += chunk
            if len(data) > self._limits.size:
                raise ToolError(f"it is larger than {self._limits.size:,} bytes")
        return _Body(
            data=bytes(data),
            content_type=response.content_type,
            charset=response.charset,
            url_path=response.url.path,
        )


def _blocked_site(host: str, sites: Collection[str]) -> str:
    """Return the blocked site that equals the host or is a parent domain."""
    labels = host.lower().rstrip(".").split(".")
    suffixes = (".".join(labels[index:]) for index in range(len(labels)))
    return next((suffix for suffix in suffixes if suffix in sites), "")


class _Body(Struct, frozen=True, kw_only=True):
    data: bytes
    content_type: str
    charset: str | None
    url_path: str


class DnsCache:
    """DNS results, kept while one page is being read."""

    def __init__(self, lookup: AbstractResolver) -> None:
        self._lookup = lookup
        self._known: dict[tuple[str, int], list[ResolveResult]] = {}

    async def resolve(self, host: str, port: int, family: AddressFamily) -> list[ResolveResult]:
        """Only the public addresses if there are any: private ones may be an attack."""
        if (host, port) not in self._known:
            found = await self._lookup.resolve(host, port, family)
            public = [
                result for result in found if (ip := parse_ip(result["host"])) and is_public(ip)
            ]
            self._known[host, port] = public or found
        return self._known[host, port]


class _CheckedResolver(AbstractResolver):
    """Connects only to resolved and permitted addresses."""

    def __init__(self, names: DnsCache, may: Callable[[Ip], bool]) -> None:
        self._names = names
        self.may = may
        self.rejected = False

    async def resolve(
        self, host: str, port: int = 0, family: AddressFamily = AF_INET
    ) -> list[ResolveResult]:
        found = await self._names.resolve(host, port, family)
        allowed = [result for result in found if (ip := parse_ip(result["host"])) and self.may(ip)]
        self.rejected = not allowed
        if not allowed:
            raise OSError(f"{host} is inside this network")
        return allowed

    async def close(self) -> None:
        """The cache is still used for redirects."""


def _is_not_metadata(number: Ip) -> bool:
    """Whether an address is not a cloud metadata service."""
    inner = getattr(number, "ipv4_mapped", None) or getattr(number, "sixtofour", None)
    if isinstance(inner, IPv4Address):
        return _is_not_metadata(inner)
    return not number.is_link_local and number not in _METADATA_ADDRESSES


def _any_address(number: Ip) -> bool:
    return True


def _site_of(parts: SplitResult) -> _Site:
    return parts.scheme.lower(), (parts.hostname or "").lower(), parts.port


def _internal_address_error() -> ToolError:
    return ToolError("it is inside this machine or its network")


def _body_text(data: bytes, charset: str | None, html: bool) -> str:
    text = _decode(data, charset)
    return escape_controls(html_text(text) if html else text)


def _decode(data: bytes, charset: str | None) -> str:
    named = _CHARSET.search(data[:2_048])
    for name in (charset, named and named[1].decode("ascii"), "utf-8"):
        if not name or not _CHARSETS.fullmatch(name):
            continue
        try:
            return data.decode(name)
        except (LookupError, UnicodeDecodeError):
            continue
    return data.decode("utf-8", "replace")
