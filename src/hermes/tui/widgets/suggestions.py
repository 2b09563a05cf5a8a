"""The list of suggestions above the prompt."""

from textual.content import Content
from textual.message import Message
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from hermes.kit.terminal_text import display_width, pad
from hermes.tui.completion import Suggestion


class Suggestions(OptionList, can_focus=False):
    """Shows suggestions and takes clicks; the prompt keeps the keyboard focus."""

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
        self._suggestions: list[Suggestion] = []

    @property
    def shown(self) -> bool:
        return bool(self._suggestions)

    @property
    def marked(self) -> Suggestion | None:
        index = self.highlighted
        return None if index is None or not self._suggestions else self._suggestions[index]

    def offer(self, suggestions: list[Suggestion]) -> None:
        if suggestions == self._suggestions:
            return
        self._suggestions = suggestions
        self.set_class(bool(suggestions), "shown")
        self.clear_options()
        width = max((display_width(suggestion.label) for suggestion in suggestions), default=0) + 2
        self.add_options([Option(_line(suggestion, width)) for suggestion in suggestions])
        self.highlighted = 0 if suggestions else None

    def move(self, by: int) -> None:
        if self.highlighted is not None:
            self.highlighted = (self.highlighted + by) % len(self._suggestions)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.post_message(self.Taken(self._suggestions[event.option_index]))


def _line(suggestion: Suggestion, width: int) -> Content:
    """The label, and the description in its own column."""
    if not suggestion.about:
        return Content(suggestion.label)
    return Content.assemble(pad(suggestion.label, width), (suggestion.about, "dim"))
