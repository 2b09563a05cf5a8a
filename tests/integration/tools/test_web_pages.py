"""Web pages are read from real local servers, within limits and without unsafe redirects."""

import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from socket import AF_INET, AddressFamily

import anyio
import anyio.lowlevel
import pytest
from aiohttp import web
from aiohttp.abc import AbstractResolver, ResolveResult
from msgspec import structs

from hermes.agent.provenance import UntrustedContent, find_sources
from hermes.config.home import Home
from hermes.config.sections.general import WebsiteBlocklist
from hermes.kit.html_text import html_text
from hermes.kit.http_server import shut_down_server
from hermes.sandbox.local import LocalSandbox
from hermes.sandbox.spawner import Spawner
from hermes.schema.errors import ToolError
from hermes.schema.messages import Text, User, attachments_of, typed_text
from hermes.schema.scope import Scope
from hermes.tools.paths import SessionPaths
from hermes.tools.references import References, ReferenceSources, blocked_sites
from hermes.tools.web_pages import DnsCache, Download, PageLimits, PageReader

Answers = Callable[[web.Request], Awaitable[web.StreamResponse]]

PAGE = """<!doctype html><html><head><title>Boats &amp; ships</title><style>p {}</style>
<script>steal("</p>")</script></head><body><nav><a href="/">Home</a></nav><h1>Boats</h1>
<p>The  ferry leaves <b>at noon</b>.</p><ul><li>one<li>two</ul><pre>  a
    b</pre><svg><text>drawn</text></svg><p>Tell   nobody.</body></html>"""


class Lookup(AbstractResolver):
    """Resolves names like a hostile server: to different addresses each time."""

    def __init__(self, *meanings: list[str]) -> None:
        self.meanings = list(meanings)

    async def resolve(
        self, host: str, port: int = 0, family: AddressFamily = AF_INET
    ) -> list[ResolveResult]:
        found = self.meanings.pop(0)
        return [
            ResolveResult(hostname=host, host=one, port=port, family=AF_INET, proto=0, flags=0)
            for one in found
        ]

    async def close(self) -> None:
        pass


@asynccontextmanager
async def served(
    at: tuple[str, int] = ("127.0.0.1", 0), /, **answers: Answers
) -> AsyncGenerator[str]:
    """A local server with these answers."""
    app = web.Application()
    for name, answer in answers.items():
        app.router.add_get(f"/{name}", answer)
    runner = web.AppRunner(app, handler_cancellation=True)
    await runner.setup()
    try:
        site = web.TCPSite(runner, *at)
        await site.start()
        yield f"http://{at[0]}:{runner.addresses[0][1]}"
    finally:
        await shut_down_server(runner)


async def page(request: web.Request) -> web.Response:
    return web.Response(text=PAGE, content_type="text/html")


async def refused(pages: PageReader, url: str) -> str:
    with pytest.raises(ToolError) as caught:
        await pages.read(url)
    return str(caught.value)


def to(where: str) -> Answers:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(status=302, headers={"Location": where})

    return answer


def test_page_text_is_extracted() -> None:
    assert html_text(PAGE) == (
        "Boats & ships\n\nHome\n\n# Boats\n\nThe ferry leaves at noon.\n\n- one\n- two\n\n"
        "  a\n    b\n\nTell nobody."
    )
    assert html_text("<svg><p>never closed</svg>seen<template>x</template>") == "seen"
    assert html_text("no page at all & <") == "no page at all & <"


async def test_typed_internal_url_is_opened_and_redirects_on_its_site_are_followed() -> None:
    async with served(page=page, moved=to("page"), round=to("/round")) as url:
        pages = PageReader(allow_internal=True)
        assert "leaves at noon" in await pages.read(f"{url}/page")
        assert "leaves at noon" in await pages.read(f"{url}/moved")
        assert "redirects too often" in await refused(pages, f"{url}/round")
        assert "answered 404" in await refused(pages, f"{url}/none")


async def test_redirect_to_internal_address_is_refused() -> None:
    async with served(page=page) as inner:
        targets = {
            "number": to(f"{inner}/page"),
            "name": to(f"{inner.replace('127.0.0.1', 'localhost')}/page"),
            "mapped": to(f"{inner.replace('127.0.0.1', '[::ffff:127.0.0.1]')}/page"),
            "old": to(f"{inner.replace('127.0.0.1', '2130706433')}/page"),
            "cloud": to("http://169.254.169.254/latest/meta-data"),
            "file": to("file:///etc/passwd"),
        }
        async with served(**targets) as outer:
            for name in targets:
                refusal = await refused(PageReader(allow_internal=True), f"{outer}/{name}")
                assert "inside this machine" in refusal or "not the URL of a web page" in refusal


async def test_private_urls_setting_allows_internal_redirects_but_not_metadata() -> None:
    async with served(page=page) as inner:
        clouds = ("169.254.169.254", "[::ffff:169.254.169.254]", "[fd00:ec2::254]")
        targets = {f"cloud{n}": to(f"http://{one}/") for n, one in enumerate(clouds)}
        async with served(
            number=to(f"{inner}/page"),
            name=to(f"{inner.replace('127.0.0.1', 'localhost')}/page"),
            **targets,
        ) as outer:
            pages = PageReader(allow_internal=True, allow_internal_redirects=True)
            assert "leaves at noon" in await pages.read(f"{outer}/number")
            assert "leaves at noon" in await pages.read(f"{outer}/name")
            for name in targets:
                assert "inside this machine" in await refused(pages, f"{outer}/{name}")


async def test_host_is_resolved_once_per_page() -> None:
    async with served(page=page) as inner:
        port = int(inner.rpartition(":")[2])
        async with served(("127.0.0.2", port), start=to("/page")):
            turning = PageReader(allow_internal=True, lookup=Lookup(["127.0.0.2"], ["127.0.0.1"]))
            refusal = await refused(turning, f"http://turning.example:{port}/start")
            assert "answered 404" in refusal


async def test_private_addresses_of_a_public_name_are_ignored() -> None:
    lookup = Lookup(["127.0.0.1", "8.8.8.8", "10.0.0.1"], ["10.0.0.1", "127.0.0.1"])
    names = DnsCache(lookup)
    for _ in range(2):
        mixed = await names.resolve("mixing.example", 80, AF_INET)
        assert [one["host"] for one in mixed] == ["8.8.8.8"]
    own = await names.resolve("router.example", 80, AF_INET)
    assert [one["host"] for one in own] == ["10.0.0.1", "127.0.0.1"]


async def test_internal_address_is_refused_for_remote_users() -> None:
    async with served(page=page) as url:
        for host in ("127.0.0.1", "localhost", "[::1]", "127.1", "0x7f.0.0.1", "2130706433"):
            address = f"{url.replace('127.0.0.1', host)}/page"
            assert "inside this machine" in await refused(
                PageReader(allow_internal=False), address
            ), host
        refusal = await refused(
            PageReader(allow_internal=False), f"{url.replace('//', '//me:word@')}/page"
        )
        assert "not the URL of a web page" in refusal


async def test_oversized_slow_or_binary_page_is_refused_with_a_reason() -> None:
    async def large(request: web.Request) -> web.Response:
        return web.Response(text="x" * 5_000)

    async def packed(request: web.Request) -> web.Response:
        answer = web.Response(text="x" * 100_000)
        answer.enable_compression(web.ContentCoding.gzip, strategy=0)
        return answer

    async def slow(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await answer.prepare(request)
        await anyio.sleep_forever()
        return answer

    async def picture(request: web.Request) -> web.Response:
        return web.Response(body=b"\x89PNG", content_type="image/png")

    async with served(large=large, packed=packed, slow=slow, picture=picture) as url:
        pages = PageReader(allow_internal=True, limits=PageLimits(size=1_000, seconds=30))
        assert "larger than 1,000 bytes" in await refused(pages, f"{url}/large")
        assert "larger than 1,000 bytes" in await refused(pages, f"{url}/packed")
        assert "not text but image/png" in await refused(pages, f"{url}/picture")
        hasty = PageReader(allow_internal=True, limits=PageLimits(seconds=0.2))
        assert "longer than 0.2 seconds" in await refused(hasty, f"{url}/slow")


async def test_page_charset_is_honored() -> None:
    async def latin(request: web.Request) -> web.Response:
        body = '<meta charset="iso-8859-1"><p>Café'.encode("latin-1")
        return web.Response(body=body, headers={"Content-Type": "text/html"})

    async def nonsense(request: web.Request) -> web.Response:
        return web.Response(body=b"\xff ok", headers={"Content-Type": "text/plain; charset=what"})

    async with served(latin=latin, nonsense=nonsense) as url:
        assert await PageReader(allow_internal=True).read(f"{url}/latin") == "Café"
        assert await PageReader(allow_internal=True).read(f"{url}/nonsense") == "� ok"


async def test_unknown_charsets_and_control_characters_are_neutralized() -> None:
    def as_sent(body: bytes, kind: str) -> Answers:
        async def answer(request: web.Request) -> web.Response:
            return web.Response(body=body, headers={"Content-Type": kind})

        return answer

    answers = {
        "puny": as_sent(b"egg-plant", "text/plain; charset=punycode"),
        "seven": as_sent(b"<meta charset=utf-7>+AGE-", "text/html"),
        "wide": as_sent("Kaffee".encode("utf-16"), "text/plain; charset=utf-16"),
        "japan": as_sent("日本".encode("shift_jis"), "text/plain; charset=Shift_JIS"),
        "china": as_sent("中文".encode("gb18030"), "text/plain; charset=gb18030"),
        "power": as_sent(b"a\x1b]0;b\x07\xe2\x80\xaec", "text/plain"),
        "hidden": as_sent(b"<p>a&#27;[2J&#x202e;c", "text/html"),
    }
    async with served(**answers) as url:
        texts = {
            name: await PageReader(allow_internal=True).read(f"{url}/{name}") for name in answers
        }
    assert texts == {
        "puny": "egg-plant",
        "seven": "+AGE-",
        "wide": "Kaffee",
        "japan": "日本",
        "china": "中文",
        "power": "a␛]0;b␇�c",
        "hidden": "a[2J�c",
    }


async def test_html_parsing_does_not_block_the_event_loop() -> None:
    html = "<p>one <b>two</b>" * 50_000

    async def long(request: web.Request) -> web.Response:
        return web.Response(text=html, content_type="text/html")

    began = time.thread_time()
    html_text(html)
    alone = time.thread_time() - began
    longest = 0.0

    async def watch() -> None:
        nonlocal longest
        while True:
            began = time.thread_time()
            await anyio.lowlevel.checkpoint()
            longest = max(longest, time.thread_time() - began)

    async with served(long=long) as url, anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        assert "one two" in await PageReader(allow_internal=True).read(f"{url}/long")
        tasks.cancel_scope.cancel()
    assert longest < alone / 2


async def test_page_attachment_counts_as_untrusted(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("the ferry leaves at noon from the old harbour")
    scope = Scope(profile="default", session="s1", run="", workspace=str(tmp_path))
    async with served(page=page) as url:
        with Spawner() as door:
            references = References(
                ReferenceSources(
                    paths=SessionPaths(tmp_path / "home", []),
                    sandbox=LocalSandbox(door),
                    git=None,
                    path="",
                    redact=str,
                    allow_internal=True,
                )
            )
            prompt = f"Sum up @url:{url}/page and @file:notes.md and @url:{url}/none please."
            parts = await references.expand([Text(prompt)], scope)
    question = User("u", parts)
    files, pages = attachments_of(question)
    assert (typed_text(question), files.untrusted, pages.untrusted) == (prompt, False, True)
    assert "old harbour" in files.text
    assert "not attached: the server answered 404" in files.text
    assert "leaves at noon" in pages.text
    found = find_sources("The ferry leaves at noon.", [question], {})
    assert (found.untrusted, found.trusted) == (("a page attached",), ("a file attached",))
    assert "a page attached" in found.quoted
    strangers = UntrustedContent({})
    strangers.add(User("v", (Text("hello"), parts[1])))
    assert not strangers.present
    strangers.add(question)
    assert strangers.present


async def test_blocked_sites_are_not_opened() -> None:
    opened: list[str] = []

    async def moved(request: web.Request) -> web.Response:
        opened.append(request.host)
        raise web.HTTPFound(f"http://deep.example.org:{request.url.port}/page")

    async with served(page=page, moved=moved) as url:
        port = url.rpartition(":")[2]
        shunned = frozenset({"example.org"})
        names = Lookup(["127.0.0.1"], ["127.0.0.1"])
        pages = PageReader(
            allow_internal=True, allow_internal_redirects=True, blocked_sites=shunned, lookup=names
        )
        for name in ("example.org", "WWW.Example.ORG.", "a.b.example.org"):
            with pytest.raises(ToolError, match=r"website_blocklist contains example\.org"):
                await pages.read(f"http://{name}:{port}/page")
        assert "ferry" in await pages.read(f"http://notexample.org:{port}/page")
        with pytest.raises(ToolError, match="website_blocklist"):
            await pages.read(f"http://elsewhere.net:{port}/moved")
        assert opened == [f"elsewhere.net:{port}"]


def test_blocked_sites_are_read_from_settings_and_files(tmp_path: Path) -> None:
    home = Home(tmp_path, tmp_path)
    (tmp_path / "more.txt").write_text("# known bad\n*.Evil.test  # a whole tree\n\n")
    domains = ("https://bad.example/path", "worse.example")
    rules = WebsiteBlocklist(enabled=True, domains=domains, shared_files=("more.txt",))
    assert blocked_sites(rules, home) == {"bad.example", "worse.example", "evil.test"}
    assert blocked_sites(structs.replace(rules, enabled=False), home) == frozenset()
    with pytest.raises(ToolError, match=r"gone\.txt"):
        blocked_sites(structs.replace(rules, shared_files=("gone.txt",)), home)


@pytest.mark.parametrize(
    ("line", "host"),
    [
        ("bad.example:8080", "bad.example"),
        ("http://bad.example:8080/path", "www.bad.example"),
        ("[::1]:8080", "[::1]"),
        ("2001:db8::1", "[2001:db8::1]"),
        ("Bücher.example", "xn--bcher-kva.example"),
        ("straße.example", "strasse.example"),
        ("straße.example", "xn--strae-oqa.example"),
    ],
)
async def test_blocked_site_matches_in_every_spelling(tmp_path: Path, line: str, host: str) -> None:
    (tmp_path / "list.txt").write_text(f"{line}\nü..example\n", encoding="utf-8-sig")
    rules = WebsiteBlocklist(enabled=True, shared_files=("list.txt",))
    pages = PageReader(
        allow_internal=True, blocked_sites=blocked_sites(rules, Home(tmp_path, tmp_path))
    )
    with pytest.raises(ToolError, match="website_blocklist"):
        await pages.read(f"http://{host}:1/")


async def test_file_is_downloaded_with_its_name_under_the_rules_for_pages() -> None:
    async def picture(request: web.Request) -> web.Response:
        return web.Response(body=b"\x89PNG", content_type="image/png")

    async with served(picture=picture, moved=to("picture")) as url:
        typed = PageReader(allow_internal=True)
        found = await typed.download(f"{url}/moved")
        assert found == Download(data=b"\x89PNG", content_type="image/png", name="picture")
        assert "not text" in await refused(typed, f"{url}/picture")
        with pytest.raises(ToolError, match="inside this machine"):
            await PageReader(allow_internal=False).download(f"{url}/picture")
        small = PageReader(allow_internal=True, limits=PageLimits(size=3))
        with pytest.raises(ToolError, match="larger than 3 bytes"):
            await small.download(f"{url}/picture")
