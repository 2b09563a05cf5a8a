"""A web page as text, for who typed its address: within limits, and not from inside by a detour.

An address that leads into this machine or its network is opened only where `inside` says that
the person may reach it anyhow, and only as it was typed. Where a page leads to must be public.
"""

import asyncio
import re
from socket import AF_INET, AddressFamily
from typing import TypeAlias
from urllib.parse import SplitResult, urljoin

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from msgspec import Struct

from hermes.kit.outside import as_ip, is_public, parsed
from hermes.kit.page_text import page_text
from hermes.schema.errors import ToolError

AGENT = "hermes"
_TEXTS = re.compile(
    r"text/.*|application/(?:.*\+)?(?:json|xml|yaml|toml|javascript|x-ndjson)", re.IGNORECASE
)
_HTML = frozenset({"text/html", "application/xhtml+xml"})
_MOVED = frozenset({301, 302, 303, 307, 308})
_CHARSET = re.compile(rb"<meta[^>]{0,200}charset=[\"']?([\w-]{1,40})", re.IGNORECASE)
_Place: TypeAlias = tuple[str, str, int | None]


class Limits(Struct, frozen=True, kw_only=True):
    """Bytes, seconds for all of it, and how often an address may lead to another."""

    size: int = 2_000_000
    seconds: float = 20.0
    redirects: int = 5


class Pages:
    def __init__(self, *, inside: bool, limits: Limits | None = None) -> None:
        self._inside = inside
        self._limits = limits or Limits()

    async def read(self, url: str) -> str:
        """Raises `ToolError` that says why there is none."""
        try:
            async with asyncio.timeout(self._limits.seconds):
                return await self._follow(url)
        except TimeoutError as error:
            raise ToolError(f"it took longer than {self._limits.seconds:g} seconds") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise ToolError(f"it cannot be opened: {str(error) or type(error).__name__}") from error

    async def _follow(self, url: str) -> str:
        typed: _Place | None = None
        for _ in range(self._limits.redirects + 1):
            parts = parsed(url)
            if parts is None:
                raise ToolError("it is no address of a web page")
            typed = typed or _place(parts)
            found = await self._open(url, parts, inside=self._inside and _place(parts) == typed)
            if found.text is not None:
                return found.text
            url = urljoin(url, found.leads_to)
        raise ToolError("it leads from one address to the next")

    async def _open(self, url: str, parts: SplitResult, *, inside: bool) -> "_Found":
        number = as_ip(parts.hostname or "")
        if number is not None and not inside and not is_public(number):
            raise _leads_inside()
        resolver = _Resolver(inside=inside)
        connector = aiohttp.TCPConnector(resolver=resolver, force_close=True)
        jar = aiohttp.DummyCookieJar()
        headers = {"User-Agent": AGENT, "Accept": "text/html, text/*;q=0.9, */*;q=0.1"}
        try:
            async with (
                aiohttp.ClientSession(connector=connector, cookie_jar=jar) as client,
                client.get(url, headers=headers, allow_redirects=False) as response,
            ):
                return await self._answer(response)
        except aiohttp.ClientConnectorError as error:
            if resolver.refused:
                raise _leads_inside() from error
            raise

    async def _answer(self, response: aiohttp.ClientResponse) -> "_Found":
        if response.status in _MOVED and "Location" in response.headers:
            return _Found(leads_to=response.headers["Location"])
        if response.status >= 400:
            raise ToolError(
                f"the server answered {response.status} {response.reason or ''}".strip()
            )
        if not _TEXTS.fullmatch(response.content_type):
            raise ToolError(f"it is no text but {response.content_type}")
        data = bytearray()
        async for chunk in response.content.iter_chunked(65_536):
            data += chunk
            if len(data) > self._limits.size:
                raise ToolError(f"it is larger than {self._limits.size:,} bytes")
        text = _decoded(bytes(data), response.charset)
        return _Found(text=page_text(text) if response.content_type in _HTML else text)


class _Found(Struct, frozen=True, kw_only=True):
    text: str | None = None
    leads_to: str = ""


class _Resolver(AbstractResolver):
    """What is looked up is what is connected to, so a name cannot mean two things."""

    def __init__(self, *, inside: bool) -> None:
        self._inner = aiohttp.ThreadedResolver()
        self._inside = inside
        self.refused = False

    async def resolve(
        self, host: str, port: int = 0, family: AddressFamily = AF_INET
    ) -> list[ResolveResult]:
        found = await self._inner.resolve(host, port, family)
        if self._inside:
            return found
        allowed = [one for one in found if _is_outside(one["host"])]
        self.refused = not allowed
        if not allowed:
            raise OSError(f"{host} leads into this network")
        return allowed

    async def close(self) -> None:
        await self._inner.close()


def _is_outside(host: str) -> bool:
    number = as_ip(host)
    return number is not None and is_public(number)


def _place(parts: SplitResult) -> _Place:
    return parts.scheme.lower(), (parts.hostname or "").lower(), parts.port


def _leads_inside() -> ToolError:
    return ToolError("it leads into this machine or its network")


def _decoded(data: bytes, charset: str | None) -> str:
    named = _CHARSET.search(data[:2_048])
    for name in (charset, named and named[1].decode("ascii"), "utf-8"):
        try:
            return data.decode(name or "utf-8")
        except (LookupError, UnicodeDecodeError):
            continue
    return data.decode("utf-8", "replace")
