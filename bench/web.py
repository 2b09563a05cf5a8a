"""Measure the web page in a real Chromium: size, first paint, long sessions, large boards, idling.

Times are compared with those of an empty page of the same server, in turn, so that both meet the
same other load.
"""

import statistics
import tempfile
from collections.abc import Iterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import anyio
from aiohttp import web

from bench.report import Number
from hermes.kanban.service import BoardService
from hermes.kanban.tasks import NewTask, create_task
from hermes.ports.board import BoardRows
from hermes.schema.messages import Assistant, Message, Stop, Text, User
from hermes.session.conversation import SessionOptions
from hermes.testing.fake_openai.script import Reply, Script
from hermes.web.context import Route, html_response
from hermes.web.html import Html
from support.chromium import Page, Window, browser_path, chromium_process, open_window
from support.web_page import WebHarness, web_harness

ROUNDS = 15
MESSAGES = 2_000
SMALL, LARGE = 50, 2_000
TOKENS, CHUNK, PACE = 1_600, 5, 1 / 200
IDLE_SECONDS = 31
IDLE_PAGES = ("/chat/new", "/board", "/system", "/settings/channels")
PATIENCE = 180
CONFIG = "compression:\n  enabled: false\n"
EMPTY = Html("<!doctype html><title>empty</title><p>empty</p>")
WATCH = """
    const look = () => {
        if (document.activeElement?.id === 'message') window.usable = performance.now();
        else requestAnimationFrame(look);
    };
    requestAnimationFrame(look);
"""
PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
LOADED = "performance.getEntriesByType('navigation')[0].loadEventEnd"


def measure() -> Iterator[Number]:
    if browser_path() is None:
        return
    with tempfile.TemporaryDirectory() as folder, chromium_process(Path(folder)) as address:
        for part in (_loading, _long_session, _boards, _idle):
            yield from anyio.run(part, address)


async def _empty(request: web.Request) -> web.Response:
    return html_response(EMPTY)


class _Bench:
    """A server with a page that is logged in."""

    def __init__(self, harness: WebHarness, page: Page) -> None:
        self.web = harness
        self.page = page

    async def times(self, path: str, *names: str) -> list[float]:
        """Load a page without the browser's cache; the values of these expressions."""
        await self.page.goto(self.web.url + path)
        return [float(await self.page.wait(name)) for name in names]


async def _open(stack: AsyncExitStack, window: Window, script: Script | None = None) -> _Bench:
    """Without compaction: the model would be asked for a summary first."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    more = (Route("GET", "/empty", _empty),)
    harness = await stack.enter_async_context(web_harness(folder, script, config=CONFIG, more=more))
    page = await window.page()
    await page.call("Page.addScriptToEvaluateOnNewDocument", source=WATCH)
    await harness.log_in(page)
    await page.call("Network.setCacheDisabled", cacheDisabled=True)
    return _Bench(harness, page)


async def _loading(address: str) -> list[Number]:
    async with AsyncExitStack() as stack:
        window = await stack.enter_async_context(open_window(address))
        bench = await _open(stack, window)
        bench.page.requests.clear()
        bench.page.sizes.clear()
        await bench.times("/chat/new", "window.usable")
        size, requests = sum(bench.page.sizes.values()) / 1e3, len(bench.page.requests)
        paints: list[tuple[float, float]] = []
        uses: list[tuple[float, float]] = []
        for _ in range(ROUNDS):
            empty, loaded = await bench.times("/empty", PAINT, LOADED)
            paint, usable = await bench.times("/chat/new", PAINT, "window.usable")
            paints.append((empty, paint))
            uses.append((max(empty, loaded), usable))
    return [
        Number(name="chat page, all that it loads", value=size, unit="KB", bar=150),
        Number(name="the same, requests", value=requests, bar=12),
        _ratio("first paint of the chat against an empty page", paints, 2),
        _ratio("usable chat against an empty page", uses, 4),
    ]


def _ratio(name: str, pairs: list[tuple[float, float]], bar: float) -> Number:
    # The fastest quarter: what other programs do is not what is measured.
    least, most = (statistics.quantiles(times, n=4)[0] for times in zip(*pairs, strict=True))
    note = f"{most:.0f} ms, {least:.0f} ms"
    return Number(name=name, value=most / least, unit="x", bar=bar, note=note)


async def _long_session(address: str) -> list[Number]:
    words = "Some **words** with `code`, and a sentence that is long enough for a line.\n\n"
    reply = Reply(words * (TOKENS * CHUNK // len(words)), chunk=CHUNK, pace=PACE)
    async with AsyncExitStack() as stack:
        window = await stack.enter_async_context(open_window(address))
        bench = await _open(stack, window, Script(default=reply))
        conversation = bench.web.app.new_conversation(SessionOptions(source="web"))
        messages: list[Message] = []
        for number in range(MESSAGES // 2):
            messages.append(User(f"u{number}", (Text(f"question {number}"),)))
            answer = (Text(f"# Answer {number}\n\n{words * 3}"),)
            messages.append(Assistant(f"a{number}", answer, Stop.END))
        await conversation.begin_with(messages)
        page = bench.page
        await bench.times(f"/chat/{conversation.session.id}", "window.usable")
        async with page.tasks() as scrolling:
            nodes = await _scroll_up(page)
        await page.run("document.querySelector('[data-action=to-end]').click()")
        await page.wait("!document.querySelector('#log #m-u0')")
        await page.wait("document.getElementById('message').focus() ?? true")
        async with page.tasks() as streaming:
            nodes = max(nodes, await _stream(page))
    label = f"session of {MESSAGES:,} messages"
    return [
        Number(name=f"{label}, most nodes", value=nodes, bar=300),
        Number(name=f"{label}, longest task, scrolling", value=max(scrolling), unit="ms", bar=50),
        Number(name="the same, 200 tokens/s", value=max(streaming), unit="ms", bar=50),
    ]


NODES = "document.querySelectorAll('.entry').length"


async def _scroll_up(page: Page) -> int:
    """Scroll to the first message in steps, as a person does; the most nodes on the way."""
    script = f"""
        const box = document.querySelector('.scroll');
        window.most = 0;
        const step = () => {{
            window.most = Math.max(window.most, {NODES});
            if (document.getElementById('m-u0')) return;
            box.scrollBy(0, -1500);
            requestAnimationFrame(step);
        }};
        step();
    """
    await page.run(script)
    with anyio.fail_after(PATIENCE):
        while not await page.run("!!document.getElementById('m-u0')"):  # noqa: ASYNC110
            await anyio.sleep(0.5)
    return int(await page.run("window.most"))


async def _stream(page: Page) -> int:
    """Send a message and wait for the end of the answer; the most nodes meanwhile."""
    await page.type("go on")
    await page.press("Enter")
    await page.wait("document.querySelector('.md.live')")
    most = 0
    with anyio.fail_after(PATIENCE):
        while await page.run("!!document.querySelector('[data-running]')"):
            most = max(most, await page.run(NODES))
            await anyio.sleep(0.5)
    return most


async def _boards(address: str) -> list[Number]:
    async with AsyncExitStack() as stack:
        window = await stack.enter_async_context(open_window(address))
        benches = [await _open(stack, window) for _ in (SMALL, LARGE)]
        for bench, size in zip(benches, (SMALL, LARGE), strict=True):
            service: BoardService = bench.web.app.features.get("kanban")
            await service.write(None, partial(_fill, size=size))
        pairs: list[tuple[float, float]] = []
        for _ in range(ROUNDS):
            small, large = [(await bench.times("/board", LOADED))[0] for bench in benches]
            pairs.append((small, large))
    return [_ratio(f"board of {LARGE:,} tasks against {SMALL}", pairs, 2)]


def _fill(rows: BoardRows, size: int) -> None:
    for number in range(size):
        create_task(rows, NewTask(title=f"Task {number}", body="What to do."), number)


async def _idle(address: str) -> list[Number]:
    async with AsyncExitStack() as stack:
        window = await stack.enter_async_context(open_window(address))
        bench = await _open(stack, window)
        counts: list[int] = []
        for path in IDLE_PAGES:
            await bench.page.goto(bench.web.url + path)
            await anyio.sleep(1)
            before = bench.page.activity
            await anyio.sleep(IDLE_SECONDS)
            counts.append(bench.page.activity - before)
    name = f"events and requests of an idle page in {IDLE_SECONDS} s"
    note = ", ".join(f"{path} {count}" for path, count in zip(IDLE_PAGES, counts, strict=True))
    return [Number(name=name, value=max(counts), bar=1, note=note)]
