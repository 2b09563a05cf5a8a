"""Drive a real Chromium over its DevTools protocol, with one window per test."""

import asyncio
import shutil
import subprocess
import threading
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
WAIT = 60.0
"""Seconds after which a condition that does not come true fails the test."""
_KEYS = {
    "Enter": 13, "Delete": 46, "Tab": 9, "Escape": 27, " ": 32,
    "ArrowDown": 40, "ArrowUp": 38, "ArrowRight": 39, "ArrowLeft": 37,
}  # fmt: skip
_FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
    "--remote-debugging-port=0", "--no-first-run", "--disable-extensions",
    "--disable-background-networking", "--disable-component-update",
    "--force-device-scale-factor=1",
)  # fmt: skip


def browser_path() -> str | None:
    return next((path for name in BROWSERS if (path := shutil.which(name))), None)


class Chromium:
    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._number = 0
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.pages: dict[str, Page] = {}

    async def read(self) -> None:
        async for frame in self._socket:
            message = msgspec.json.decode(frame.data, type=dict[str, Any])
            if "id" in message:
                answer = self._answers.pop(message["id"], None)
                if answer is not None and not answer.done():
                    answer.set_result(message)
            elif page := self.pages.get(message.get("sessionId", "")):
                page.on_event(message["method"], message["params"])

    async def call(self, method: str, session: str = "", **params: object) -> dict[str, Any]:
        self._number += 1
        number = self._number
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        body: dict[str, Any] = {"id": number, "method": method, "params": params}
        await self._socket.send_json(body | ({"sessionId": session} if session else {}))
        found = await asyncio.wait_for(answer, WAIT + 10)
        if "error" in found:
            raise BrowserError(f"{method}: {found['error']['message']}")
        return found.get("result", {})

    @asynccontextmanager
    async def window(self) -> AsyncGenerator["Window"]:
        """Pages with cookies and storage of their own."""
        context = (await self.call("Target.createBrowserContext"))["browserContextId"]
        try:
            yield Window(self, context)
        finally:
            await self.call("Target.disposeBrowserContext", browserContextId=context)


class BrowserError(Exception):
    pass


class Window:
    def __init__(self, browser: Chromium, context: str) -> None:
        self._browser = browser
        self._context = context

    async def page(self, *, width: int = 1280, height: int = 800) -> "Page":
        call = self._browser.call
        target = await call(
            "Target.createTarget", url="about:blank", browserContextId=self._context
        )
        attached = await call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        page = Page(self._browser, attached["sessionId"])
        self._browser.pages[attached["sessionId"]] = page
        for domain in ("Page", "Runtime", "Network", "Log"):
            await page.call(f"{domain}.enable")
        await page.resize(width, height)
        return page

    async def grant(self, origin: str, *permissions: str) -> None:
        """Allow what the browser would ask a person for."""
        await self._browser.call(
            "Browser.grantPermissions",
            browserContextId=self._context, origin=origin, permissions=permissions,
        )  # fmt: skip

    async def worker(self) -> "Page":
        """The service worker of the pages, in which scripts can be run."""
        found = (await self._browser.call("Target.getTargets"))["targetInfos"]
        identity = next(
            one["targetId"]
            for one in found
            if one["type"] == "service_worker" and one.get("browserContextId") == self._context
        )
        attached = await self._browser.call(
            "Target.attachToTarget", targetId=identity, flatten=True
        )
        return Page(self._browser, attached["sessionId"])


class Page:
    """A tab.

    - `requests`, `sizes`: the addresses and sizes of what was loaded.
    - `activity`: the number of requests and of events of its streams.
    - `errors`: what the console says.
    """

    def __init__(self, browser: Chromium, session: str) -> None:
        self._browser = browser
        self._session = session
        self.requests: dict[str, str] = {}
        self.sizes: dict[str, int] = {}
        self.errors: list[str] = []
        self.activity = 0
        self._trace: list[dict[str, Any]] = []
        self._traced = asyncio.Event()

    async def call(self, method: str, **params: object) -> dict[str, Any]:
        return await self._browser.call(method, self._session, **params)

    def on_event(self, method: str, params: dict[str, Any]) -> None:
        match method:
            case "Network.eventSourceMessageReceived":
                self.activity += 1
            case "Network.requestWillBeSent":
                self.activity += 1
                self.requests[params["requestId"]] = params["request"]["url"]
            case "Network.dataReceived":
                identity = params["requestId"]
                self.sizes[identity] = self.sizes.get(identity, 0) + params["dataLength"]
            case "Tracing.dataCollected":
                self._trace += params["value"]
            case "Tracing.tracingComplete":
                self._traced.set()
            case "Runtime.exceptionThrown":
                self.errors.append(str(params["exceptionDetails"].get("exception", params)))
            case "Log.entryAdded":
                entry = params["entry"]
                if entry["level"] == "error":
                    self.errors.append(f"{entry['text']} {entry.get('url', '')}")
            case _:
                pass

    @asynccontextmanager
    async def tasks(self) -> AsyncGenerator[list[float]]:
        """The milliseconds of processor time that each task of the page's main thread takes.

        Not the time that passes: other programs of the machine are not what is measured.
        """
        found: list[float] = []
        self._trace.clear()
        self._traced.clear()
        await self.call(
            "Tracing.start",
            traceConfig={"includedCategories": ["toplevel"]},
            transferMode="ReportEvents",
        )
        yield found
        await self.call("Tracing.end")
        await asyncio.wait_for(self._traced.wait(), WAIT)
        names = [one for one in self._trace if one["name"] == "thread_name"]
        main = {
            (one["pid"], one["tid"]) for one in names if one["args"]["name"] == "CrRendererMain"
        }
        found += [
            one.get("tdur", 0) / 1e3
            for one in self._trace
            if (one["pid"], one["tid"]) in main and one["name"].endswith("RunTask")
        ]

    async def resize(self, width: int, height: int) -> None:
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=width < 600,
        )  # fmt: skip

    async def goto(self, url: str) -> None:
        # Browsers may take their time to finish pages that nobody sees.
        await self.call("Page.bringToFront")
        await self.call("Page.navigate", url=url)
        await self.wait("document.readyState === 'complete'")

    async def run(self, script: str) -> Any:
        """The value of an expression, which may be a promise."""
        found = await self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in found:
            details = found["exceptionDetails"]
            raise BrowserError(str(details.get("exception", details).get("description", details)))
        return found["result"].get("value")

    async def wait(self, condition: str) -> Any:
        """Wait until the expression is true, across navigations."""
        quoted = msgspec.json.encode(condition).decode()
        script = f"""new Promise((done, fail) => {{
            const end = Date.now() + {WAIT * 1000};
            const check = () => {{
                let value;
                try {{ value = {condition} }} catch {{ value = false }}
                if (value) done(value);
                else if (Date.now() < end) setTimeout(check, 20);
                else fail(new Error("waited for " + {quoted} + " in " + document.body.innerText));
            }};
            check();
        }})"""
        deadline = asyncio.get_running_loop().time() + WAIT
        while True:
            try:
                return await self.run(script)
            except BrowserError as error:
                gone = "context" in str(error).lower() or "navigat" in str(error).lower()
                if not gone or asyncio.get_running_loop().time() > deadline:
                    raise

    async def wait_long(self, condition: str) -> Any:
        """Like `wait`, three times as long: for work that starts programs."""
        for _ in range(2):
            with suppress(BrowserError):
                return await self.wait(condition)
        return await self.wait(condition)

    async def text(self, selector: str = "body") -> str:
        quoted = msgspec.json.encode(selector).decode()
        return str(await self.run(f"document.querySelector({quoted})?.textContent ?? ''"))

    async def click(self, selector: str) -> None:
        quoted = msgspec.json.encode(selector).decode()
        box = await self.wait(
            f"(() => {{ const e = document.querySelector({quoted}); if (!e || e.disabled) return; "
            "e.scrollIntoView({block: 'center'}); const b = e.getBoundingClientRect(); "
            "return b.width && [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            await self.call(
                "Input.dispatchMouseEvent",
                type=kind, x=box[0], y=box[1], button="left", clickCount=1,
            )  # fmt: skip

    async def type(self, words: str) -> None:
        await self.call("Input.insertText", text=words)

    async def press(self, key: str, *, control: bool = False, shift: bool = False) -> None:
        code = _KEYS.get(key, ord(key[0].upper()))
        modifiers = 2 * control + 8 * shift
        text = {"Enter": "\r", " ": " "}.get(key, key if len(key) == 1 and not control else "")
        common = {"key": key, "windowsVirtualKeyCode": code, "modifiers": modifiers}
        await self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **common)
        await self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    async def set_offline(self, offline: bool) -> None:
        await self.call(
            "Network.emulateNetworkConditions",
            offline=offline, latency=0, downloadThroughput=-1, uploadThroughput=-1,
        )  # fmt: skip


@contextmanager
def chromium_process(folder: Path) -> Generator[str]:
    """Start the browser; yields the address of its DevTools. It ends with the block."""
    path = browser_path()
    assert path is not None, "Chromium is missing (Debian: apt install chromium)"
    command = [path, *_FLAGS, f"--user-data-dir={folder / 'profile'}", "about:blank"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr is not None
    try:
        address = ""
        for line in process.stderr:
            if line.startswith(b"DevTools listening on "):
                address = line.decode().split()[-1]
                break
        assert address, "Chromium ended"
        # What it says later must not fill the pipe.
        drain = threading.Thread(target=process.stderr.read)
        drain.start()
        yield address
        process.terminate()
        drain.join()
    finally:
        process.terminate()
        process.wait()
        process.stderr.close()


@asynccontextmanager
async def connect(url: str) -> AsyncGenerator[Chromium]:
    async with (
        aiohttp.ClientSession() as http,
        http.ws_connect(url, max_msg_size=0) as socket,
    ):
        browser = Chromium(socket)
        reading = asyncio.create_task(browser.read())
        try:
            yield browser
        finally:
            reading.cancel()


@asynccontextmanager
async def open_window(url: str) -> AsyncGenerator[Window]:
    async with connect(url) as browser, browser.window() as window:
        yield window
