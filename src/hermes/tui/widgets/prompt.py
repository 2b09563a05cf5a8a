"""Long pasted texts, shown as a short mark while they are edited around."""

from collections.abc import Callable, Mapping
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import TextArea

from hermes.kit.terminal_text import display_width
from hermes.tui.busy_mode import BusyMode
from hermes.tui.completion import Suggestion, suggestions
from hermes.tui.input_history import InputHistory
from hermes.tui.widgets.suggestions import Suggestions


class PastedTexts:
    def __init__(self, lines: int, characters: int) -> None:
        """What is longer than that is shortened; zero sets no limit."""
        self._lines = lines
        self._characters = characters
        self._texts: dict[str, str] = {}

    def shortened(self, text: str) -> str:
        """The text itself, or a mark that stands for it when it is long."""
        lines = text.rstrip("\n").count("\n") + 1
        many = self._lines and lines > self._lines
        long = self._characters and len(text) > self._characters
        if not many and not long:
            return text
        size = f"{lines:,} lines" if lines > 1 else f"{len(text):,} characters"
        mark = f"[pasted text {len(self._texts) + 1}: {size}]"
        self._texts[mark] = text
        return mark

    def expanded(self, text: str) -> str:
        """With every mark that is still there replaced by what it stands for.

        One pass: what was pasted may itself look like a mark, and stays as it is.
        """
        if not self._texts:
            return text
        whole: list[str] = []
        rest = text
        while found := min(
            ((place, mark) for mark in self._texts if (place := rest.find(mark)) >= 0),
            default=None,
        ):
            place, mark = found
            whole += [rest[:place], self._texts[mark]]
            rest = rest[place + len(mark) :]
        return "".join([*whole, rest])

    def forget(self) -> None:
        self._texts.clear()


DEFAULT_PLACEHOLDER = "Ask anything. / for commands, @ for files"
SEND_KEYS = {
    "ctrl+s": BusyMode.INTERRUPT,
    "ctrl+g": BusyMode.STEER,
    "ctrl+n": BusyMode.QUEUE,
}
"""Taken here, in their order among what is typed: a key of the screen would overtake it."""
_NEWLINE_KEYS = ("shift+enter", "ctrl+j", "alt+enter")


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
    # Ctrl+Z is the shell's: it leaves the program for a while.
    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+underscore", "undo", show=False)]

    class Sent(Message):
        """`manner` is what it does to a turn that is going on, where somebody chose.

        What is `unasked` was begun before the question that waits.
        """

        def __init__(self, text: str, manner: BusyMode | None, *, unasked: bool) -> None:
            super().__init__()
            self.text = text
            self.manner = manner
            self.unasked = unasked

    class Left(Message):
        """Ctrl+D, and nothing is typed."""

    def __init__(
        self,
        history: InputHistory,
        offered: Suggestions,
        pop_pending: Callable[[], str | None],
        pastes: PastedTexts,
    ) -> None:
        """`recall` takes back the last thing that waits to be said."""
        super().__init__(
            soft_wrap=True,
            tab_behavior="focus",
            highlight_cursor_line=False,
            placeholder=DEFAULT_PLACEHOLDER,
        )
        # A cursor that blinks would redraw an idle screen for ever.
        self.cursor_blink = False
        self._history = history
        self._offered = offered
        self._commands: Mapping[str, str] = {}
        self._folder = ""
        self._recall = pop_pending
        self._pastes = pastes
        self._ignores: Callable[[str], bool] = _ignore_nothing
        self._unasked = False
        self._settled = ""
        """The text for which nothing is suggested, because that was declined."""

    @property
    def full_text(self) -> str:
        return self._pastes.expanded(self.text)

    def set_completion(self, commands: Mapping[str, str], folder: str) -> None:
        """What there is to complete: commands and what they are for, and files of the folder."""
        self._commands, self._folder = commands, folder
        if self.is_attached:
            self._complete()

    def set_placeholder(self, words: str) -> None:
        """What is told while nothing is typed; without its second half where that has no room."""
        room = self.size.width
        self.placeholder = words if display_width(words) < room else words.partition(";")[0]

    def ignore(self, ignores: Callable[[str], bool]) -> None:
        """Until a key comes that it does not name, while nothing is typed."""
        self._ignores = ignores

    def ignores(self, key: str | None) -> bool:
        """Whether a key was meant for something that is there no more."""
        if key is not None and not self.text and self._ignores(key):
            return True
        self._ignores = _ignore_nothing
        return False

    def asked(self) -> None:
        """A question came up: what stands here is no answer to it."""
        self._unasked = bool(self.text)

    def fill(self, text: str) -> None:
        """Put something there to be edited, the cursor behind it."""
        self.load_text(text)
        self.move_cursor(self.document.end)

    def empty(self) -> None:
        self._pastes.forget()
        self.load_text("")

    def submit(self, manner: BusyMode | None = None) -> None:
        text = self.full_text
        self._decline()
        if not text.strip():
            return
        self._history.add(text)
        sent = self.Sent(text, manner, unasked=self._unasked)
        self.empty()
        self.post_message(sent)

    def take(self, suggestion: Suggestion) -> None:
        row, column = self.cursor_location
        start = (row, max(column - suggestion.replaces, 0))
        self.replace(suggestion.text, start, (row, column))
        self.focus()

    def on_text_area_changed(self, event: TextArea.Changed) -> None:
        self._unasked = self._unasked and bool(self.text)
        self._complete()

    def on_text_area_selection_changed(self, event: TextArea.SelectionChanged) -> None:
        self._complete()

    def _complete(self) -> None:
        row, column = self.cursor_location
        before = self.document.get_line(row)[:column]
        if self.text == self._settled or (row > 0 and before.startswith("/")):
            self._offered.offer([])
            return
        self._settled = ""
        self._offered.offer(suggestions(before, self._commands, self._folder))

    def _decline(self) -> None:
        self._settled = self.text
        self._offered.offer([])

    async def _on_paste(self, event: events.Paste) -> None:
        event.stop()
        event.prevent_default()
        text = event.text.replace("\r\n", "\n").replace("\r", "\n")
        self.insert(self._pastes.shortened(text))

    async def _on_key(self, event: events.Key) -> None:
        if self.ignores(event.character):
            event.stop()
            event.prevent_default()
            return
        if self._handle_list_key(event.key) or self._handle_line_key(event.key):
            event.stop()
            event.prevent_default()
            return
        await super()._on_key(event)

    def _handle_list_key(self, key: str) -> bool:
        """Whether the key was for the suggestions."""
        # Keys may come faster than the news that the text has changed.
        self._complete()
        if not self._offered.shown:
            return False
        marked = self._offered.marked
        match key:
            case "up" | "down":
                self._offered.move(-1 if key == "up" else 1)
            case "escape":
                self._decline()
            case "tab" if marked is not None:
                self.take(marked)
            case "enter" if marked is not None and marked.label != self.text.strip():
                self.take(marked)
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
        elif key == "ctrl+d" and not self.text:
            self.post_message(self.Left())
        elif key == "up":
            return self._go_back()
        elif key == "down":
            return self._go_forth()
        else:
            return False
        return True

    def _enter(self) -> None:
        row, column = self.cursor_location
        if column and self.document.get_line(row)[column - 1] == "\\":
            self.replace("\n", (row, column - 1), (row, column))
        else:
            self.submit()

    def _go_back(self) -> bool:
        if not self.cursor_at_first_line:
            return False
        if not self.text and (waiting := self._recall()) is not None:
            self.fill(waiting)
        elif (line := self._history.back(self.text)) is not None:
            self._show_past(line)
        return True

    def _go_forth(self) -> bool:
        if not self.cursor_at_last_line:
            return False
        if (line := self._history.forward()) is not None:
            self._show_past(line)
        return True

    def _show_past(self, line: str) -> None:
        self.fill(line)
        self._decline()


def _ignore_nothing(key: str) -> bool:
    return False
