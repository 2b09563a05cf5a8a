"""Going through what was said and done: scrolling, opening, copying, asking for the keys."""

from typing import ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.screen import Screen

from hermes.kit.terminal_text import fit, single_line
from hermes.tui.widgets import CopyRequest, app_of
from hermes.tui.widgets.cards import ExpandableCard
from hermes.tui.widgets.transcript import Transcript


class TranscriptScreen(Screen[None]):
    DEFAULT_CSS = "TranscriptScreen:nocolor .screen--selection { text-style: reverse; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+o", "toggle_last", show=False, priority=True),
        Binding("ctrl+y", "copy_code", show=False, priority=True),
        Binding("f1", "keys", show=False, priority=True),
        Binding("pageup", "scroll(-1)", show=False, priority=True),
        Binding("pagedown", "scroll(1)", show=False, priority=True),
        Binding("ctrl+home", "beginning", show=False, priority=True),
        Binding("ctrl+end", "end", show=False, priority=True),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.transcript = Transcript()

    @on(CopyRequest)
    def _copied(self, event: CopyRequest) -> None:
        app_of(self).copy_to_clipboard(event.text)
        # It does not say whether it did.
        told = f"Asked the terminal to copy: {fit(single_line(event.text), 40)}"
        self.notify(told, timeout=2, markup=False)

    def copy_selected(self) -> bool:
        """Whether something was marked with the mouse."""
        chosen = self.get_selected_text()
        if chosen is None:
            return False
        self.post_message(CopyRequest(chosen))
        self.clear_selection()
        return True

    async def action_toggle_last(self) -> None:
        cards = self.transcript.query(ExpandableCard)
        if cards:
            await cards.last().action_flip()

    def action_copy_code(self) -> None:
        from hermes.tui.widgets.code import Code  # noqa: PLC0415 - loaded when there is an answer

        codes = self.transcript.query(Code)
        if codes:
            codes.last().action_copy()
        else:
            self.notify("There is no code yet.", timeout=2)

    def action_scroll(self, way: int) -> None:
        if way < 0:
            self.transcript.scroll_page_up(animate=False)
        else:
            self.transcript.scroll_page_down(animate=False)

    def action_beginning(self) -> None:
        self.transcript.scroll_home(animate=False)

    def action_end(self) -> None:
        self.transcript.go_to_end()

    def action_keys(self) -> None:
        from hermes.tui.screens.key_help import KeyHelp  # noqa: PLC0415 - as above

        app_of(self).push_screen(KeyHelp())
