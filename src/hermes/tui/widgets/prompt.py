"""The input field, with its history, suggestions and collapsed pastes."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message
from textual.widgets import OptionList, TextArea
from textual.widgets.option_list import Option

from hermes.commands.completion import Suggestion, suggestions
from hermes.kit.terminal_text import display_width, pad
from hermes.tui.images import ImageChips, pasted_image
from hermes.tui.input_history import InputHistory
from hermes.tui.options import BusyMode
from hermes.tui.widgets import consume

DEFAULT_PLACEHOLDER = "Ask anything. / for commands, @ for files"
SEND_KEYS = {
    "ctrl+s": BusyMode.INTERRUPT,
    "ctrl+g": BusyMode.STEER,
    "ctrl+n": BusyMode.QUEUE,
}
"""Handled by the prompt, because a binding of the screen would overtake typed keys."""
_NEWLINE_KEYS = ("shift+enter", "ctrl+j", "alt+enter")


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

    class Chosen(Message):
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
    def selected(self) -> Suggestion | None:
        index = self.highlighted
        return None if index is None or not self._suggestions else self._suggestions[index]

    def show_suggestions(self, suggestions: list[Suggestion]) -> None:
        if suggestions == self._suggestions:
            return
        self._suggestions = suggestions
        self.set_class(bool(suggestions), "shown")
        self.clear_options()
        width = max((display_width(suggestion.label) for suggestion in suggestions), default=0) + 2
        self.add_options(
            [Option(_suggestion_line(suggestion, width)) for suggestion in suggestions]
        )
        self.highlighted = 0 if suggestions else None

    def move(self, by: int) -> None:
        if self.highlighted is not None:
            self.highlighted = (self.highlighted + by) % len(self._suggestions)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.post_message(self.Chosen(self._suggestions[event.option_index]))


def _suggestion_line(suggestion: Suggestion, width: int) -> Content:
    """The label, and the description in its own column."""
    if not suggestion.about:
        return Content(suggestion.label)
    return Content.assemble(pad(suggestion.label, width), (suggestion.about, "dim"))


class PastedTexts:
    def __init__(self, lines: int, characters: int) -> None:
        """Longer texts are collapsed; zero means no limit."""
        self._lines = lines
        self._characters = characters
        self._texts: dict[str, str] = {}

    def shortened(self, text: str) -> str:
        """The text, or a placeholder if it is long."""
        lines = text.rstrip("\n").count("\n") + 1
        too_many = self._lines and lines > self._lines
        if not too_many and not (self._characters and len(text) > self._characters):
            return text
        size = f"{lines:,} lines" if lines > 1 else f"{len(text):,} characters"
        placeholder = f"[pasted text {len(self._texts) + 1}: {size}]"
        self._texts[placeholder] = text
        return placeholder

    def expanded(self, text: str) -> str:
        """Replace the placeholders by the pasted texts.

        In one pass, because a pasted text may contain something that looks like a placeholder.
        """
        if not self._texts:
            return text
        pattern = "|".join(map(re.escape, self._texts))
        return re.sub(pattern, lambda found: self._texts[found[0]], text)

    def forget(self) -> None:
        self._texts.clear()


class Prompt(TextArea):
    DEFAULT_CSS = """
    Prompt {
        height: auto; min-height: 2; max-height: 40%; width: 1fr;
        border: none; border-top: solid $panel; padding: 0 1; background: $background;
        scrollbar-size-vertical: 1;
    }
    Prompt:focus { border: none; border-top: solid $primary; }
    Prompt .text-area--cursor-line { background: transparent; }
    Prompt:nocolor .text-area--cursor { text-style: reverse; }
    Prompt:nocolor .text-area--selection { text-style: reverse; }
    Prompt .text-area--placeholder { color: $foreground 60%; }
    """
    # Ctrl+Z suspends the program.
    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+underscore", "undo", show=False)]

    class Submitted(Message):
        """A submitted text.

        `mode` overrides the default during a turn; with `predates_question` the text was begun
        before the open question appeared.
        """

        def __init__(self, text: str, mode: BusyMode | None, *, predates_question: bool) -> None:
            super().__init__()
            self.text = text
            self.mode = mode
            self.predates_question = predates_question

    class ImageRequested(Message):
        """Ctrl+V: the terminal pasted no text, so there may be an image in the clipboard."""

    class QuitRequested(Message):
        """Ctrl+D in an empty prompt."""

    def __init__(
        self,
        history: InputHistory,
        suggestion_list: Suggestions,
        pop_pending: Callable[[], str | None],
        pastes: PastedTexts,
        images: ImageChips,
    ) -> None:
        """`pop_pending` removes and returns the last queued line."""
        super().__init__(
            soft_wrap=True,
            tab_behavior="focus",
            highlight_cursor_line=False,
            placeholder=DEFAULT_PLACEHOLDER,
        )
        # A blinking cursor would keep redrawing an idle screen.
        self.cursor_blink = False
        self._history = history
        self._suggestions = suggestion_list
        self._commands: Mapping[str, str] = {}
        self._folder = ""
        self._pop_pending = pop_pending
        self._pastes = pastes
        self._images = images
        self._ignores: Callable[[str], bool] = _ignore_nothing
        self._predates_question = False
        self._dismissed_text = ""
        """The text for which suggestions were dismissed."""

    @property
    def full_text(self) -> str:
        return self._pastes.expanded(self.text)

    def set_completion(self, commands: Mapping[str, str], folder: str) -> None:
        """`commands` maps names to summaries; files in `folder` are completed."""
        self._commands, self._folder = commands, folder
        if self.is_attached:
            self._complete()

    def set_placeholder(self, text: str) -> None:
        """Set the placeholder; the part after ";" is dropped if it does not fit."""
        room = self.size.width
        self.placeholder = text if display_width(text) < room else text.partition(";")[0]

    def ignore(self, ignores: Callable[[str], bool]) -> None:
        """Ignore matching keys in an empty prompt until another key comes."""
        self._ignores = ignores

    def ignores(self, key: str | None) -> bool:
        if key is not None and not self.text and self._ignores(key):
            return True
        self._ignores = _ignore_nothing
        return False

    def question_asked(self) -> None:
        """A question was asked: text already typed is not an answer."""
        self._predates_question = bool(self.text)

    def fill(self, text: str) -> None:
        """Set the text, with the cursor at its end."""
        self.load_text(text)
        self.move_cursor(self.document.end)

    def empty(self) -> None:
        self._pastes.forget()
        self.load_text("")

    def submit(self, mode: BusyMode | None = None) -> None:
        text = self.full_text
        self._dismiss_suggestions()
        if not text.strip():
            return
        self._history.add(text)
        message = self.Submitted(text, mode, predates_question=self._predates_question)
        self.empty()
        self.post_message(message)

    def insert_suggestion(self, suggestion: Suggestion) -> None:
        row, column = self.cursor_location
        start = (row, max(column - suggestion.replaces, 0))
        self.replace(suggestion.text, start, (row, column))
        self.focus()

    def on_text_area_changed(self, event: TextArea.Changed) -> None:
        self._predates_question = self._predates_question and bool(self.text)
        self._complete()

    def on_text_area_selection_changed(self, event: TextArea.SelectionChanged) -> None:
        self._complete()

    def _complete(self) -> None:
        row, column = self.cursor_location
        before = self.document.get_line(row)[:column]
        if self.text == self._dismissed_text or (row > 0 and before.startswith("/")):
            self._suggestions.show_suggestions([])
            return
        self._dismissed_text = ""
        self._suggestions.show_suggestions(suggestions(before, self._commands, self._folder))

    def _dismiss_suggestions(self) -> None:
        self._dismissed_text = self.text
        self._suggestions.show_suggestions([])

    async def _on_paste(self, event: events.Paste) -> None:
        consume(event)
        text = event.text.replace("\r\n", "\n").replace("\r", "\n")
        if (image := pasted_image(text)) is not None:
            self.add_image(image)
        else:
            self.insert(self._pastes.shortened(text))

    def add_image(self, path: Path) -> None:
        """Insert the chip of an image."""
        self.insert(f"{self._images.add(path)} ")

    async def _on_key(self, event: events.Key) -> None:
        handled = (
            self.ignores(event.character)
            or self._handle_list_key(event.key)
            or self._handle_line_key(event.key)
        )
        if handled:
            consume(event)
        else:
            await super()._on_key(event)

    def _handle_list_key(self, key: str) -> bool:
        """Whether the key was handled by the suggestions."""
        # Keys may arrive before the Changed event.
        self._complete()
        if not self._suggestions.shown:
            return False
        marked = self._suggestions.selected
        match key:
            case "up" | "down":
                self._suggestions.move(-1 if key == "up" else 1)
            case "escape":
                self._dismiss_suggestions()
            case "tab" if marked is not None:
                self.insert_suggestion(marked)
            case "enter" if marked is not None and marked.label != self.text.strip():
                self.insert_suggestion(marked)
            case _:
                return False
        return True

    def _handle_line_key(self, key: str) -> bool:
        if key in _NEWLINE_KEYS:
            self.insert("\n")
        elif key == "enter":
            self._enter()
        elif key in SEND_KEYS:
            self.submit(SEND_KEYS[key])
        elif key == "ctrl+v":
            self.post_message(self.ImageRequested())
        elif key == "ctrl+d" and not self.text:
            self.post_message(self.QuitRequested())
        elif key == "up":
            return self._show_previous()
        elif key == "down":
            return self._show_next()
        else:
            return False
        return True

    def _enter(self) -> None:
        row, column = self.cursor_location
        if column and self.document.get_line(row)[column - 1] == "\\":
            self.replace("\n", (row, column - 1), (row, column))
        else:
            self.submit()

    def _show_previous(self) -> bool:
        if not self.cursor_at_first_line:
            return False
        if not self.text and (pending := self._pop_pending()) is not None:
            self.fill(pending)
        elif (line := self._history.back(self.text)) is not None:
            self._show_earlier(line)
        return True

    def _show_next(self) -> bool:
        if not self.cursor_at_last_line:
            return False
        if (line := self._history.forward()) is not None:
            self._show_earlier(line)
        return True

    def _show_earlier(self, line: str) -> None:
        self.fill(line)
        self._dismiss_suggestions()


def _ignore_nothing(key: str) -> bool:
    return False
