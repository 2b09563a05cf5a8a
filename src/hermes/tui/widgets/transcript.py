"""The scrollable transcript of user messages, answers and notes; it follows the end."""

import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Static

from hermes.kit.report_text import report_text
from hermes.kit.terminal_text import escape_controls, fit, single_line
from hermes.kit.text import head_and_tail
from hermes.tui.markdown_stream import MarkdownStream
from hermes.tui.widgets import app_of
from hermes.tui.widgets.cards import colored_diff

if TYPE_CHECKING:
    from hermes.tui.widgets.code import Prose

_MAX_CHARACTERS = 4_000
_HEAD, _TAIL = 9, 3
"""Characters and lines shown of a user message; it is sent whole."""
_MAX_COMMAND = 200
_MAX_HEADLINE = 200
"""Characters shown of an incoming report."""
_RAW_BLOCK_SIZE = 1_000
"""Characters after which a raw answer continues in a new block."""
MAX_WIDGETS = 240
"""Widgets kept; beyond that, the older half is replaced by plain text."""
_IMAGE_CHIP = re.compile(r"\[image \d+: [^\]\n]+\]")
PAST = "past"
"""CSS class of messages from before this start."""
TURN = "turn"
"""CSS class of the first widget of a turn of this session."""
UNDONE = "undone"
"""CSS class of undone messages."""


class UserMessage(Static):
    DEFAULT_CSS = """
    UserMessage {
        margin: 1 0 1 0; padding: 0 1; border-left: outer $primary; background: $surface;
    }
    """

    def __init__(self, text: str, at: datetime | None = None) -> None:
        """`at` is shown before the text."""
        self.plain = "> " + escape_controls(text)
        content = Content(head_and_tail(_shorten(escape_controls(text)), _MAX_CHARACTERS))
        content = content.highlight_regex(_IMAGE_CHIP, style="bold $accent on $panel")
        time = Content.styled(f"{at.astimezone():%H:%M} ", "dim") if at else Content("")
        super().__init__(Content.assemble(time, content), markup=False)


class Note(Static):
    """A warning, an error or the reply to a command."""

    DEFAULT_CSS = """
    Note { margin: 0 1; color: $foreground 70%; }
    Note.warning { color: $warning; }
    Note.error { color: $error; text-style: bold; }
    Note.reply { color: $foreground; }
    Note.error, Note.reply, Note.alone { margin: 1 1; }
    """

    def __init__(
        self, text: str, kind: str = "", typed: str = "", *, is_diff: bool = False
    ) -> None:
        """`typed` is the command it replies to."""
        mark = "✗ " if kind == "error" else ""
        body = mark + escape_controls(text)
        command = fit(single_line(typed), _MAX_COMMAND)
        self.plain = "\n".join(filter(None, (typed and f"> {command}", body)))
        shown_body = colored_diff(body.expandtabs()) if is_diff else Content(body)
        lines = [Content.styled(command, "$foreground 50%"), shown_body]
        shown = Content("\n").join(line for line in lines if line)
        super().__init__(shown, markup=False, classes=f"{kind} command" if typed else kind)


def report_note(text: str) -> Note:
    """A note about an incoming report."""
    return Note(f"● {report_text(text, _MAX_HEADLINE)}")


class ArchivedText(Static):
    """Old messages as plain text."""

    DEFAULT_CSS = "ArchivedText { margin: 0 1; color: $foreground 70%; }"

    def __init__(self, text: str) -> None:
        self.plain = text
        super().__init__(Content(text), markup=False)


class Answer(Vertical):
    """A streamed answer; only its last piece is parsed again."""

    DEFAULT_CSS = "Answer { height: auto; margin: 1 1 1 1; }"

    def __init__(self, *, raw: bool = False) -> None:
        """`raw` shows the Markdown source."""
        super().__init__()
        self._raw = raw
        self._block: _Verbatim | None = None
        self._pieces = MarkdownStream()
        self._open: Prose | None = None
        self._rest = ""
        self._chunks: list[str] = []
        self.parse_count = 0
        """Number of parser runs, for tests."""

    @property
    def text(self) -> str:
        return "".join(self._chunks)

    @property
    def plain(self) -> str:
        return escape_controls(self.text)

    async def add(self, text: str) -> None:
        # "\r\n" may arrive in two parts.
        text, self._rest = self._rest + text, ""
        if text.endswith("\r"):
            text, self._rest = text[:-1], "\r"
        self._chunks.append(text)
        if self._raw:
            await self._write(escape_controls(text))
            return
        for piece in self._pieces.feed(escape_controls(text)):
            if piece.text:
                await self._extend(piece.text)
            if piece.last:
                if self._open is not None:
                    self._open.set_class(piece.joined, "joined")
                self._open = None

    async def _write(self, text: str) -> None:
        for line in text.splitlines(keepends=True):
            if self._block is None:
                self._block = _Verbatim()
                await self.mount(self._block)
            if self._block.add(line) and line.endswith("\n"):
                self._block = None

    async def _extend(self, text: str) -> None:
        if self._open is None:
            from hermes.tui.widgets.code import Prose  # noqa: PLC0415 - slow to import

            self._open = Prose()
            await self.mount(self._open)
        self.parse_count += 1
        await self._open.append(text)


class _Verbatim(Static):
    """Some lines of a raw answer; kept short, because each update redraws it."""

    def __init__(self) -> None:
        super().__init__(markup=False)
        self._text = ""

    def add(self, text: str) -> bool:
        """Return whether the block is full."""
        self._text += text
        self.update(Content(self._text.removesuffix("\n")))
        return len(self._text) > _RAW_BLOCK_SIZE


def _shorten(text: str) -> str:
    lines = text.strip("\n").split("\n")
    left = len(lines) - _HEAD - _TAIL
    if left <= 1:
        return "\n".join(lines)
    return "\n".join([*lines[:_HEAD], f"… {left:,} more lines …", *lines[-_TAIL:]])


@runtime_checkable
class HasPlainText(Protocol):
    """A widget with a plain text form."""

    @property
    def plain(self) -> str: ...


class Transcript(VerticalScroll, can_focus=False):
    DEFAULT_CSS = """
    Transcript { height: 1fr; scrollbar-size-vertical: 1; background: $background; }
    Transcript .undone, Transcript .undone * { text-style: strike; text-opacity: 50%; }
    """

    class Scrolled(Message):
        pass

    def on_mount(self) -> None:
        self.anchor()

    @property
    def is_at_end(self) -> bool:
        # While everything fits, the content sits at the bottom and `scroll_y` is negative.
        return self.max_scroll_y - max(self.scroll_y, 0) <= 1

    async def add(self, *widgets: Widget) -> None:
        await self.mount_all(widgets)

    def begin_session(self) -> None:
        """Widgets shown so far belong to another session and cannot be undone here."""
        for widget in self.children:
            widget.remove_class(TURN)

    def mark_undone(self, turns: int) -> None:
        """Mark the last turns as undone, except replies to commands."""
        starts = [index for index, widget in enumerate(self.children) if widget.has_class(TURN)]
        if turns < 1 or not starts:
            return
        for widget in self.children[starts[-turns:][0] :]:
            widget.remove_class(TURN)
            if not widget.has_class("command"):
                widget.add_class(UNDONE)

    async def archive_old(self) -> None:
        """Replace old widgets by plain text, unless the user has scrolled up."""
        widgets = [widget for widget in self.children if not isinstance(widget, ArchivedText)]
        if len(widgets) <= MAX_WIDGETS or not self.is_at_end:
            return
        old = widgets[: MAX_WIDGETS // 2]
        archived = ArchivedText(_plain_text(old, without=(UNDONE,)))
        with app_of(self).batch_update():
            await self.mount(archived, before=old[0])
            for widget in old:
                await widget.remove()

    async def empty(self) -> None:
        await self.remove_children()
        self.anchor()

    def plain_text(self) -> str:
        """The text since this start, without undone messages."""
        return _plain_text(self.children, without=(PAST, UNDONE))

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self.post_message(self.Scrolled())

    def go_to_end(self) -> None:
        self.anchor()
        self.post_message(self.Scrolled())

    def go_to(self, widget: Widget) -> None:
        """Scroll to the end, or to the start of a last widget longer than the screen."""
        self.go_to_end()
        self.call_after_refresh(self._scroll_to_start, widget)

    def _scroll_to_start(self, widget: Widget) -> None:
        if widget.is_attached and widget.outer_size.height > self.size.height:
            self.release_anchor()
            self.scroll_to_widget(widget, animate=False, top=True, force=True)


def _plain_text(widgets: Iterable[Widget], without: Sequence[str]) -> str:
    """The text of all widgets that have none of these classes."""
    return "\n".join(
        widget.plain
        for widget in widgets
        if not any(map(widget.has_class, without))
        if isinstance(widget, HasPlainText) and widget.plain
    )
