"""A real server of the web page with a real profile and a fake model."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from hermes.app.build import App, open_app
from hermes.app.options import AppOptions
from hermes.config.home import resolve_home
from hermes.kit.clock import SystemClock
from hermes.schema.events import Event
from hermes.testing.fake_openai.script import Script
from hermes.testing.fake_openai.server import FakeOpenAiServer, serve
from hermes.web.context import Route
from hermes.web.logins import Logins
from hermes.web.server import WebServer
from hermes.web.settings import WebSettings
from support.api_server import api_env
from support.chromium import Page

IDLE = "!document.querySelector('[data-running]')"
"""True on a chat page while no turn is running."""


async def say(page: Page, words: str) -> None:
    """Type a message and send it with Enter."""
    await page.wait("document.activeElement?.id === 'message'")
    await page.type(words)
    await page.press("Enter")


async def fill(page: Page, selector: str, words: str) -> None:
    """Replace the text of a field with the keyboard."""
    await page.wait(f"document.querySelector({quoted(selector)})?.checkVisibility()")
    await page.run(f"document.querySelector({quoted(selector)}).select()")
    await page.type(words) if words else await page.press("Delete")


async def confirm(page: Page) -> None:
    """The dialog has the focus on its button."""
    await page.wait("document.activeElement?.value === 'ok'")
    await page.press("Enter")
    await page.wait("!document.querySelector('dialog[open]')")


def quoted(words: str) -> str:
    return msgspec.json.encode(words).decode()


class WebHarness:
    def __init__(
        self,
        server: WebServer,
        app: App,
        model: FakeOpenAiServer,
        open_again: Callable[[int], Awaitable[WebServer]],
    ) -> None:
        self.server = server
        self._open_again = open_again
        self.app = app
        self.model = model
        self.url = f"http://127.0.0.1:{server.port}"
        self.logins: Logins = server.context.logins

    def drop_streams(self) -> None:
        """Break the connections of all event streams, as a lost network does."""
        for connection in self.server.connections:
            if connection.transport is not None:
                connection.transport.abort()

    async def restart(self) -> None:
        """End the server and serve at the same port again, as a restarted gateway does.

        Task groups end in reverse order: open the window of the browser before the harness.
        """
        port = self.server.port
        await self.server.__aexit__(None, None, None)
        self.server = await self._open_again(port)

    @asynccontextmanager
    async def in_background(self, work: Coroutine[Any, Any, object]) -> AsyncGenerator[None]:
        """Do the work meanwhile; it has ended at the end of the block."""
        task = asyncio.create_task(work)
        yield
        await task

    async def ignore(self, event: Event) -> None:
        """A reader of a turn that shows nothing."""

    async def log_in(self, page: Page, path: str = "/chat/new") -> None:
        """Log in with a one-time link, as a person does."""
        await page.goto(f"{self.url}/login?next={path}#{self.logins.new_link()}")
        await page.wait(f"location.pathname === '{path}' && document.readyState === 'complete'")


@asynccontextmanager
async def web_harness(
    folder: Path,
    script: Script | None = None,
    *,
    config: str = "",
    more: Sequence[Route] = (),
    **settings: object,
) -> AsyncGenerator[WebHarness]:
    async with serve(script) as model:
        env = api_env(folder, model.url)
        home = resolve_home(env)
        (folder / "workspace").mkdir(exist_ok=True)
        (folder / "config.yaml").write_text(config)
        options = AppOptions(workspace=str(folder / "workspace"), source="web")
        async with open_app(home, env, options) as app:
            clock = SystemClock()
            logins = Logins(folder / "dashboard", clock)

            async def opened(port: int) -> WebServer:
                given = WebSettings(port=port, **settings)  # pyright: ignore[reportArgumentType]
                server = await WebServer(given, clock, logins, more).__aenter__()
                server.attach("default", app)
                return server

            web = WebHarness(await opened(0), app, model, opened)
            try:
                yield web
            finally:
                await web.server.__aexit__(None, None, None)
