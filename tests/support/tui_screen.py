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
from hermes.tui.display_options import DEFAULT_OPTIONS, DisplayOptions

SCREEN_TIMEOUT = 60


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

    async def types(self, text: str, *keys: str) -> None:
        """Type the text in one burst, then each key when the screen is idle."""
        for one in text:
            self.ui.post_message(Key(_KEY_NAMES.get(one, one), one))
        await self.pilot.pause()
        await self.pilot.press(*keys)

    async def says(self, text: str) -> None:
        await self.types(text, "enter")

    async def until(self, true: Callable[[], object]) -> None:
        with anyio.fail_after(SCREEN_TIMEOUT):
            while not true():
                await self.pilot.pause(0.01)
        await self.pilot.pause()

    async def shows(self, words: str) -> None:
        await self.until(lambda: words in self.text)

    async def hides(self, words: str) -> None:
        await self.until(lambda: words not in self.text)

    async def rests(self) -> None:
        """Wait until no turn is running."""
        await self.until(lambda: not self.ui.chat.talk.busy and not self.ui.chat.talk.queued)


_KEY_NAMES = {" ": "space", "/": "slash", "@": "at", "\\": "backslash", ".": "full_stop"}


@asynccontextmanager
async def tui_screen(
    companion: TuiClient,
    folder: Path,
    *,
    size: tuple[int, int] = (80, 24),
    clock: Clock | None = None,
    look: str = "dark",
    starting: bool = False,
    taste: DisplayOptions = DEFAULT_OPTIONS,
) -> AsyncGenerator[TuiScreen]:
    settings = UiSettings(
        history=folder / "cli_history", clock=clock or FakeClock(), look=look, taste=taste
    )
    ui = Ui(companion, settings)
    async with ui.run_test(size=size) as pilot:
        one = TuiScreen(ui, pilot)
        await one.until(lambda: ui.screen is ui.chat and ui.chat.prompt.has_focus)
        await one.until(lambda: starting or ui.chat.talk.open)
        yield one
