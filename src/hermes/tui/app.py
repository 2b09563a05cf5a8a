"""The Textual application: themes, worker threads, signals and exit."""

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
from hermes.tui.attention import Attention
from hermes.tui.chat_deps import ChatDeps, ExitRequest, ThemeRequest, WorkerThread
from hermes.tui.chat_screen import Chat
from hermes.tui.client import TuiClient
from hermes.tui.input_history import InputHistory
from hermes.tui.options import DisplayOptions

_END_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


class UiSettings(Struct, frozen=True, kw_only=True):
    history: Path  # file of typed lines
    clock: Clock
    theme: str = "dark"  # or "light"
    auto_theme: str = "dark"  # the one that fits the terminal
    display: DisplayOptions = DisplayOptions()
    notification: str = ""  # escape sequence for a desktop notification
    signals: bool = False  # handle SIGTERM, SIGHUP and Ctrl+Z
    headless: bool = False  # for tests


class UiResult(Struct, frozen=True):
    """The exit code, the text to leave in the terminal, and an error if there was one."""

    code: int
    text: str
    error: HermesError | None = None


class Ui(App[int]):
    TITLE = "hermes"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+t", "toggle_theme", show=False, priority=True),
        Binding("ctrl+z", "suspend", show=False, priority=True),
    ]

    def __init__(self, client: TuiClient, settings: UiSettings) -> None:
        super().__init__()
        if self.no_color:
            # `Monochrome` produces shades of gray, which are colors, too.
            kept = [
                line_filter
                for line_filter in self._filters
                if not isinstance(line_filter, Monochrome)
            ]
            self._filters[:] = [*kept, NoColor()]
        self._client = client
        self._settings = settings
        self._turn_worker = WorkerThread("tui-talk")
        self._side_worker = WorkerThread("tui-aside")
        history = InputHistory(settings.history)
        deps = ChatDeps(
            client=client,
            turn_worker=self._turn_worker,
            side_worker=self._side_worker,
            history=history,
            clock=settings.clock,
            display=settings.display,
            attention=Attention(self._write_sequence, settings.clock, settings.notification),
        )
        self.chat = Chat(deps)
        self.text = ""
        self.exit_error: HermesError | None = None
        for theme in THEMES.values():
            self.register_theme(theme)
        self.theme = THEMES.get(settings.theme, DARK_THEME).name

    def on_mount(self) -> None:
        self._turn_worker.start()
        self._side_worker.start()
        if self._settings.signals:
            loop = asyncio.get_running_loop()
            for number in _END_SIGNALS:
                loop.add_signal_handler(number, self._end, 128 + number)
        self.push_screen(self.chat)

    @on(ExitRequest)
    def _exit_requested(self, event: ExitRequest) -> None:
        self.exit_error = event.error
        self._end(event.code)

    @on(ThemeRequest)
    def _theme_requested(self, event: ThemeRequest) -> None:
        if not event.name:
            self.action_toggle_theme()
        else:
            name = self._settings.auto_theme if event.name == "auto" else event.name
            self.theme = THEMES.get(name, DARK_THEME).name

    def _end(self, code: int) -> None:
        """Interrupt a running turn and exit; everything is already on disk."""
        if self.chat.conversation.busy:
            self._client.interrupt()
        self.chat.stop_rendering()
        self.text = self.chat.plain
        self._turn_worker.close()
        self._side_worker.close()
        self.exit(code)

    def _write_sequence(self, sequence: str) -> None:
        if self._driver is not None and not self.is_headless:
            self._driver.write(sequence)
            self._driver.flush()

    def action_toggle_theme(self) -> None:
        other = LIGHT_THEME if self.theme == DARK_THEME.name else DARK_THEME
        self.theme = other.name

    def action_suspend(self) -> None:
        # A session leader has no shell that could resume it.
        if self._settings.signals and os.getpgrp() != os.getsid(0):
            # Restore the terminal first: a background process may not touch it.
            with self.suspend():
                os.killpg(0, signal.SIGSTOP)
        else:
            self.notify("There is no shell to return to.", timeout=2)

    def check(self) -> None:
        """Raise the error that ended the application, if any."""
        match self._exception:
            case WorkerFailed(error=error):
                raise error
            case Exception() as error:
                raise error
            case None:
                return

    def _fatal_error(self) -> None:
        """Print no traceback: the caller reports and logs the error."""
        self._close_messages_no_wait()

    async def action_quit(self) -> None:
        self.chat.quit()


def run_ui(client: TuiClient, settings: UiSettings) -> UiResult:
    """Run the UI until the user quits."""
    ui = Ui(client, settings)
    code = ui.run(headless=settings.headless)
    ui.check()
    return UiResult(code or 0, ui.text, ui.exit_error)


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
