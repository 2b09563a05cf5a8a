"""Base of the chat screen: scroll, expand and copy parts of the transcript."""

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
    def _copy_requested(self, event: CopyRequest) -> None:
        app_of(self).copy_to_clipboard(event.text)
        # The terminal does not report whether it did.
        text = f"Copied to the terminal's clipboard: {fit(single_line(event.text), 40)}"
        self.notify(text, timeout=2, markup=False)

    def copy_selected(self) -> bool:
        """Copy the text selected with the mouse, if any."""
        selected = self.get_selected_text()
        if selected is None:
            return False
        self.post_message(CopyRequest(selected))
        self.clear_selection()
        return True

    async def action_toggle_last(self) -> None:
        cards = self.transcript.query(ExpandableCard)
        if cards:
            await cards.last().action_flip()

    def show_long_output(self, number: int) -> bool:
        """Show the last long output for 1, the one before it for 2; False if there is none."""
        cards = [card for card in self.transcript.query(ExpandableCard) if card.is_long]
        if number > len(cards):
            return False
        cards[-number].show_in_pager()
        return True

    def action_copy_code(self) -> None:
        from hermes.tui.widgets.code import Code  # noqa: PLC0415 - loaded with the first answer

        codes = self.transcript.query(Code)
        if codes:
            codes.last().action_copy()
        else:
            self.notify("There is no code to copy.", timeout=2)

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
        from hermes.tui.keys import KeyHelp  # noqa: PLC0415 - rarely needed

        app_of(self).push_screen(KeyHelp())
