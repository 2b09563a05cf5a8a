"""The list above the prompt with what can be meant by what is being typed."""

from textual.content import Content
from textual.message import Message
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from hermes.kit.terminal_text import display_width, pad
from hermes.tui.completion import Suggestion


class Suggestions(OptionList, can_focus=False):
    """The prompt keeps the keyboard; this only shows, and takes clicks."""

    DEFAULT_CSS = """
    Suggestions {
        display: none; height: auto; max-height: 30%; border: none; padding: 0 1;
        background: $surface; scrollbar-size-vertical: 1;
        text-wrap: nowrap; text-overflow: ellipsis;
    }
    Suggestions.shown { display: block; }
    Suggestions > .option-list--option-highlighted { text-style: bold reverse; }
    Suggestions:nocolor > .option-list--option-highlighted { text-style: bold underline; }
    """

    class Taken(Message):
        def __init__(self, suggestion: Suggestion) -> None:
            super().__init__()
            self.suggestion = suggestion

    def __init__(self) -> None:
        super().__init__(markup=False)
        self._offered: list[Suggestion] = []

    @property
    def shown(self) -> bool:
        return bool(self._offered)

    @property
    def marked(self) -> Suggestion | None:
        place = self.highlighted
        return None if place is None or not self._offered else self._offered[place]

    def offer(self, suggestions: list[Suggestion]) -> None:
        if suggestions == self._offered:
            return
        self._offered = suggestions
        self.set_class(bool(suggestions), "shown")
        self.clear_options()
        room = max((display_width(one.label) for one in suggestions), default=0) + 2
        self.add_options([Option(_line(one, room)) for one in suggestions])
        self.highlighted = 0 if suggestions else None

    def move(self, by: int) -> None:
        if self.highlighted is not None:
            self.highlighted = (self.highlighted + by) % len(self._offered)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.post_message(self.Taken(self._offered[event.option_index]))


def _line(one: Suggestion, room: int) -> Content:
    """What each is for stands in a column of its own."""
    if not one.about:
        return Content(one.label)
    return Content.assemble(pad(one.label, room), (one.about, "dim"))
