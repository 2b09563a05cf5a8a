"""The terminal UI on a screen that tests can read."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from textual.events import Key
from textual.pilot import Pilot

from hermes.kit.clock import Clock
from hermes.testing.clock import FakeClock
from hermes.tui.app import Setting, Ui
from hermes.tui.companion import Companion
from hermes.tui.taste import USUAL, Taste

PATIENCE = 60


class Drawn:
    def __init__(self, ui: Ui, pilot: "Pilot[int]") -> None:
        self.ui = ui
        self.pilot = pilot

    @property
    def lines(self) -> list[str]:
        strips = self.ui.screen._compositor.render_strips()
        return ["".join(part.text for part in strip).rstrip() for strip in strips]

    @property
    def text(self) -> str:
        """What stands there, without the empty space above it."""
        return "\n".join(self.lines).strip("\n") + "\n"

    async def types(self, text: str, *keys: str) -> None:
        """The text at one go, as a quick hand types it; each further key when all is quiet."""
        for one in text:
            self.ui.post_message(Key(_KEYS.get(one, one), one))
        await self.pilot.pause()
        await self.pilot.press(*keys)

    async def says(self, text: str) -> None:
        await self.types(text, "enter")

    async def until(self, true: Callable[[], object]) -> None:
        with anyio.fail_after(PATIENCE):
            while not true():
                await self.pilot.pause(0.01)
        await self.pilot.pause()

    async def shows(self, words: str) -> None:
        await self.until(lambda: words in self.text)

    async def hides(self, words: str) -> None:
        await self.until(lambda: words not in self.text)

    async def rests(self) -> None:
        """Until nothing is going on any more."""
        await self.until(lambda: not self.ui.chat.talk.busy and not self.ui.chat.talk.queued)


_KEYS = {" ": "space", "/": "slash", "@": "at", "\\": "backslash", ".": "full_stop"}


@asynccontextmanager
async def drawn(
    companion: Companion,
    folder: Path,
    *,
    size: tuple[int, int] = (80, 24),
    clock: Clock | None = None,
    look: str = "dark",
    starting: bool = False,
    taste: Taste = USUAL,
) -> AsyncGenerator[Drawn]:
    setting = Setting(
        history=folder / "cli_history", clock=clock or FakeClock(), look=look, taste=taste
    )
    ui = Ui(companion, setting)
    async with ui.run_test(size=size) as pilot:
        one = Drawn(ui, pilot)
        await one.until(lambda: ui.screen is ui.chat and ui.chat.prompt.has_focus)
        await one.until(lambda: starting or ui.chat.talk.open)
        yield one
