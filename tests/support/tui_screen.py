"""The terminal UI on a screen that tests can read."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from textual.events import Key
from textual.pilot import Pilot

from hermes.kit.clock import Clock
from hermes.testing.clock import FakeClock
from hermes.tui.app import Ui, UiSettings
from hermes.tui.client import TuiClient
from hermes.tui.options import DEFAULT_OPTIONS, DisplayOptions

SCREEN_TIMEOUT = 120


class TuiScreen:
    def __init__(self, ui: Ui, pilot: "Pilot[int]") -> None:
        self.ui = ui
        self.pilot = pilot

    @property
    def lines(self) -> list[str]:
        strips = self.ui.screen._compositor.render_strips()
        return ["".join(part.text for part in strip).rstrip() for strip in strips]

    @property
    def text(self) -> str:
        """The screen as text, without empty lines above it."""
        return "\n".join(self.lines).strip("\n") + "\n"

    async def type_keys(self, text: str, *keys: str) -> None:
        """Type the text in one burst, then each key when the screen is idle."""
        for one in text:
            self.ui.post_message(Key(_KEY_NAMES.get(one, one), one))
        await self.pilot.pause()
        await self.pilot.press(*keys)

    async def submit(self, text: str) -> None:
        await self.type_keys(text, "enter")

    async def wait_until(self, true: Callable[[], object]) -> None:
        with anyio.fail_after(SCREEN_TIMEOUT):
            while not true():
                await self.pilot.pause(0.01)
        await self.pilot.pause()

    async def wait_for(self, words: str) -> None:
        await self.wait_until(lambda: words in self.text)

    async def wait_until_gone(self, words: str) -> None:
        await self.wait_until(lambda: words not in self.text)

    async def wait_until_idle(self) -> None:
        """Wait until no turn is running."""
        await self.wait_until(
            lambda: not self.ui.chat.conversation.busy and not self.ui.chat.conversation.queued
        )


_KEY_NAMES = {" ": "space", "/": "slash", "@": "at", "\\": "backslash", ".": "full_stop"}


@asynccontextmanager
async def tui_screen(
    client: TuiClient,
    folder: Path,
    *,
    size: tuple[int, int] = (80, 24),
    clock: Clock | None = None,
    theme: str = "dark",
    starting: bool = False,
    display: DisplayOptions = DEFAULT_OPTIONS,
) -> AsyncGenerator[TuiScreen]:
    settings = UiSettings(
        history=folder / "cli_history", clock=clock or FakeClock(), theme=theme, display=display
    )
    ui = Ui(client, settings)
    async with ui.run_test(size=size) as pilot:
        one = TuiScreen(ui, pilot)
        await one.wait_until(lambda: ui.screen is ui.chat and ui.chat.prompt.has_focus)
        await one.wait_until(lambda: starting or ui.chat.conversation.open)
        yield one
