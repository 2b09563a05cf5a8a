"""The terminal UI as a program: its looks, its threads, its end."""

import asyncio
import os
import signal
from pathlib import Path
from typing import ClassVar

from msgspec import Struct
from textual import on
from textual.app import App
from textual.binding import Binding, BindingType
from textual.filter import Monochrome, NoColor
from textual.theme import Theme
from textual.worker import WorkerFailed

from hermes.kit.clock import Clock
from hermes.schema.errors import HermesError
from hermes.tui.client import TuiClient
from hermes.tui.display_options import DisplayOptions
from hermes.tui.input_history import InputHistory
from hermes.tui.screens.chat import Chat
from hermes.tui.screens.chat_deps import ChatDeps, ExitRequest
from hermes.tui.worker import WorkerThread

_END_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


class UiSettings(Struct, frozen=True, kw_only=True):
    """`history` is the file of what was typed; `look` is dark or light.

    With `signals` the process listens to them, as a program in a terminal should. What is
    `headless` draws for nobody.
    """

    history: Path
    clock: Clock
    theme: str = "dark"
    display: DisplayOptions = DisplayOptions()
    signals: bool = False
    headless: bool = False


class UiResult(Struct, frozen=True):
    """How it ended, and what stood on the screen, for the terminal that comes back."""

    code: int
    text: str
    trouble: HermesError | None = None


class Ui(App[int]):
    TITLE = "hermes"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+t", "other_look", show=False, priority=True),
        Binding("ctrl+z", "sleep", show=False, priority=True),
    ]

    def __init__(self, companion: TuiClient, setting: UiSettings) -> None:
        super().__init__()
        if self.no_color:
            # Shades of grey are colours, too, and not those of the terminal.
            kept = [one for one in self._filters if not isinstance(one, Monochrome)]
            self._filters[:] = [*kept, NoColor()]
        self._client = companion
        self._setting = setting
        self._turn_worker = WorkerThread("tui-talk")
        self._aside = WorkerThread("tui-aside")
        history = InputHistory(setting.history)
        house = ChatDeps(
            companion, self._turn_worker, self._aside, history, setting.clock, setting.display
        )
        self.chat = Chat(house)
        self.text = ""
        self.trouble: HermesError | None = None
        for theme in THEMES.values():
            self.register_theme(theme)
        self.theme = THEMES.get(setting.theme, DARK_THEME).name

    def on_mount(self) -> None:
        self._turn_worker.start()
        self._aside.start()
        if self._setting.signals:
            loop = asyncio.get_running_loop()
            for number in _END_SIGNALS:
                loop.add_signal_handler(number, self._end, 128 + number)
        self.push_screen(self.chat)

    @on(ExitRequest)
    def _leave(self, event: ExitRequest) -> None:
        self.trouble = event.trouble
        self._end(event.code)

    def _end(self, code: int) -> None:
        """What is going on is not wanted any more; all that matters is on disk."""
        if self.chat.conversation.busy:
            self._client.interrupt()
        self.chat.stop_rendering()
        self.text = self.chat.plain
        self._turn_worker.close()
        self._aside.close()
        self.exit(code)

    def action_other_look(self) -> None:
        self.theme = other_theme(self.theme)

    def action_sleep(self) -> None:
        """Back to the shell for a while, with whatever else it started together with us."""
        # The first group of a session has no shell above it that could wake it up again.
        if self._setting.signals and os.getpgrp() != os.getsid(0):
            # The terminal is given back first: whoever is no longer in front may not touch it.
            with self.suspend():
                os.killpg(0, signal.SIGSTOP)
        else:
            self.notify("There is no shell here to come back from.", timeout=2)

    def check(self) -> None:
        """Raises what went wrong in the program itself, if anything did."""
        match self._exception:
            case WorkerFailed(error=error):
                raise error
            case Exception() as error:
                raise error
            case None:
                return

    def _fatal_error(self) -> None:
        """No pages of source code: whoever runs this tells of it in a sentence, and logs it."""
        self._close_messages_no_wait()

    async def action_quit(self) -> None:
        self._end(0)


def run_ui(companion: TuiClient, setting: UiSettings) -> UiResult:
    """Until the person leaves."""
    ui = Ui(companion, setting)
    code = ui.run(headless=setting.headless)
    ui.check()
    return UiResult(code or 0, ui.text, ui.trouble)


DARK_THEME = Theme(
    name="hermes-dark",
    primary="#7aa2f7",
    secondary="#9aa5ce",
    accent="#7dcfff",
    warning="#e0af68",
    error="#f7768e",
    success="#9ece6a",
    foreground="#d5d9e6",
    background="#16171d",
    surface="#1c1e26",
    panel="#252833",
    dark=True,
)
LIGHT_THEME = Theme(
    name="hermes-light",
    primary="#2f5bd0",
    secondary="#4a5578",
    accent="#00708f",
    warning="#8a5a00",
    error="#b3243f",
    success="#3b7a12",
    foreground="#22252e",
    background="#fbfbf9",
    surface="#f1f1ed",
    panel="#e4e4de",
    dark=False,
)
THEMES = {"dark": DARK_THEME, "light": LIGHT_THEME}


def other_theme(name: str) -> str:
    """The name of the theme that is not this one."""
    return LIGHT_THEME.name if name == DARK_THEME.name else DARK_THEME.name
