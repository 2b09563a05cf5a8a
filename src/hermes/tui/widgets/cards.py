"""Expandable cards for tool calls and reasoning."""

from typing import ClassVar

import msgspec
from msgspec import Struct
from textual import events
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from hermes.kit.numbered_diff import DiffLine, numbered_diff
from hermes.kit.terminal_text import display_width, escape_controls, fit, single_line
from hermes.kit.text import head_and_tail, one_line, plural
from hermes.schema.call_label import call_arguments, call_label
from hermes.schema.messages import Result, Text, ToolCall
from hermes.schema.shell import ShellResult
from hermes.tui.display_text import failure_text, result_text
from hermes.tui.options import DisplayOptions
from hermes.tui.todo_list import TodoList
from hermes.tui.widgets import app_of

_MAX_OUTPUT = 20_000
"""Characters shown of one output."""
_MAX_LINE = 400
FOLD_LINES = 24
"""Longer details are folded; opening the card again shows them in the pager."""
_FOLD_HEAD, _FOLD_TAIL = 14, 6
SHORT_DIFF_LINES = 12
"""Diffs up to this many lines are expanded automatically."""
MIN_SHOWN_SECONDS = 0.1
"""Durations below this are not shown."""
_MAX_PROGRESS = 8_000
_STYLES = {"+": "$success", "-": "$error", " ": "$foreground 75%"}
_HEADINGS = ("diff ", "--- ", "+++ ", "New files:")


class CardHeader(Widget, can_focus=True):
    """A line with icon, title and status; the first word of the title is never cut off."""

    FOCUS_ON_CLICK = False
    """A click must not move the focus."""

    DEFAULT_CSS = """
    CardHeader { height: 1; width: 1fr; }
    CardHeader:hover { background: $panel; }
    CardHeader:focus { background: $panel; text-style: bold; }
    CardHeader:focus:nocolor { text-style: bold reverse; }
    """

    def __init__(self, icon: str, style: str, text: str, end: str = "") -> None:
        super().__init__()
        self._parts = (icon, style, text, end)

    def set_text(self, icon: str, style: str, text: str, end: str = "") -> None:
        self._parts = (icon, style, text, end)
        self.refresh()

    def render(self) -> Content:
        icon, style, text, end = self._parts
        room = self.size.width
        name = text.partition(" ")[0]
        kept = min(display_width(text), max(display_width(name) + 2, room // 3))
        end = fit(f"  {end}", max(room - 2 - kept, 0)) if end else ""
        text = fit(text, max(room - 2 - display_width(end), 4))
        return Content.assemble((f"{icon} ", style), text, (end, "dim"))


class ExpandableCard(Vertical):
    """A header with details built on demand by `hidden`."""

    DEFAULT_CSS = """
    ExpandableCard { height: auto; margin: 0 1; }
    ExpandableCard > .hidden { padding: 0 0 0 2; height: auto; color: $foreground 75%; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,space", "flip", "open or close", show=False)
    ]

    def __init__(self, header: CardHeader) -> None:
        super().__init__()
        self.header = header
        self._body: Static | None = None

    def compose(self):  # noqa: ANN201 - textual's own signature
        yield self.header

    @property
    def is_open(self) -> bool:
        return self._body is not None

    def details(self) -> Content:
        raise NotImplementedError

    @property
    def title(self) -> str:
        """What the pager shows as its title."""
        return "output"

    async def open(self) -> None:
        if self._body is None:
            self._body = Static(self._folded(), markup=False, classes="hidden")
            await self.mount(self._body)

    def _folded(self) -> Content:
        details = self.details()
        lines = details.split("\n", allow_blank=True)
        if len(lines) <= FOLD_LINES:
            return details
        left = len(lines) - _FOLD_HEAD - _FOLD_TAIL
        fold = Content.styled(f"… {left:,} lines; open again for all of them …", "bold dim")
        return Content("\n").join([*lines[:_FOLD_HEAD], fold, *lines[-_FOLD_TAIL:]])

    async def close(self) -> None:
        body, self._body = self._body, None
        if body is not None:
            await body.remove()

    def refresh_details(self) -> None:
        if self._body is not None:
            self._body.update(self._folded())

    @property
    def is_long(self) -> bool:
        """Whether its details are folded."""
        return self.details().plain.count("\n") >= FOLD_LINES

    async def action_flip(self) -> None:
        """Open the card, then the pager if it is long, then close it."""
        if not self.is_open:
            await self.open()
            return
        if self.is_long:
            self.show_in_pager()
        await self.close()

    def show_in_pager(self) -> None:
        from hermes.tui.pager import Pager  # noqa: PLC0415 - rarely needed

        app_of(self).push_screen(Pager(self.title, self.details()))

    async def on_click(self, event: events.Click) -> None:
        if event.widget is self.header:
            event.stop()
            await self.action_flip()


class CardStatus(Struct, frozen=True):
    """The outcome of a call in a few words, and whether its result is a (short) diff."""

    text: str
    diff: bool = False
    short: bool = False


def shell_result(call: ToolCall, done: ShellResult) -> Result:
    """What a command typed by the user printed, as the result of its card."""
    text = Text(msgspec.json.encode({"exit_code": done.exit_code}).decode())
    return Result("", call.id, (text,), failed=done.exit_code != 0, shown=done.output)


def card_status(result: Result, tool: str = "") -> CardStatus:
    if is_diff(result) and not result.failed:
        lines = result.shown.splitlines()[2:]
        added = sum(line.startswith("+") for line in lines)
        removed = sum(line.startswith("-") for line in lines)
        return CardStatus(f"+{added} -{removed}", diff=True, short=len(lines) <= SHORT_DIFF_LINES)
    if result.failed:
        return CardStatus(failure_text(result, tool))
    lines = result.shown.splitlines()
    if len(lines) == 1:
        return CardStatus(one_line(single_line(lines[0]), _MAX_LINE))
    return CardStatus(plural(len(lines), "line") if lines else "")


def is_diff(result: Result) -> bool:
    return result.shown.startswith("--- ")


def is_todo_list(call: ToolCall, result: Result | None) -> bool:
    """Todo lists are shown without their arguments."""
    return call.name == "todo" and result is not None and bool(result.shown) and not result.failed


def card_details(call: ToolCall, result: Result | None, progress: str) -> Content:
    """The arguments, and the result or the output so far."""
    if result is not None and is_diff(result) and not result.failed:
        return _diff_of_file(result.shown)
    parts = [] if is_todo_list(call, result) else [_arguments_text(call)]
    if result is None:
        if progress:
            parts.append(Content.styled(escape_controls(progress).expandtabs(), "dim"))
    elif output := result_text(result):
        shown = head_and_tail(escape_controls(output), _MAX_OUTPUT)
        parts.append(Content(shown.expandtabs().rstrip("\n")))
    return Content("\n").join(parts)


def _arguments_text(call: ToolCall) -> Content:
    if call.broken:
        return Content.styled(escape_controls(call.broken), "$warning")
    lines: list[Content] = []
    for name, value in call_arguments(call).items():
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        text = head_and_tail(escape_controls(text), _MAX_OUTPUT).expandtabs()
        lead = "$ " if name == "command" else f"{single_line(name)}: "
        lines.append(Content.assemble((lead, "dim"), text))
    return Content("\n").join(lines) if lines else Content.styled(call.name, "dim")


def _diff_of_file(diff: str) -> Content:
    """Without the names of the file: the header shows them."""
    text = head_and_tail(escape_controls(diff), _MAX_OUTPUT).expandtabs()
    return colored_diff(text.split("\n", 2)[-1])


class ToolCard(ExpandableCard):
    def __init__(self, call: ToolCall, display: DisplayOptions) -> None:
        self.call = call
        self._line = call_label(call, display.preview_length)
        self._opens_diffs = display.diffs
        self._result: Result | None = None
        self._progress = ""
        super().__init__(CardHeader("●", "$accent", self._line, "running"))

    @property
    def plain(self) -> str:
        icon = "●" if self._result is None else "✗" if self._result.failed else "✓"
        return f"{icon} {self._line}"

    @property
    def title(self) -> str:
        return fit(self._line, 40)

    def details(self) -> Content:
        return card_details(self.call, self._result, self._progress)

    def add_progress(self, text: str) -> None:
        """Add output; the header shows its last line."""
        self._progress = (self._progress + text)[-_MAX_PROGRESS:]
        last = single_line(self._progress.rstrip().rpartition("\n")[2])
        self.header.set_text(
            "●", "$accent", f"{self._line}  {last}" if last else self._line, "running"
        )
        self.refresh_details()

    async def end(self, result: Result, took: float) -> None:
        self._result = result
        status = card_status(result, self.call.name)
        if is_todo_list(self.call, result):
            status = CardStatus(TodoList.parse(result.shown).progress)
        time = f"{took:.1f} s" if took >= MIN_SHOWN_SECONDS else ""
        end = " · ".join(filter(None, (status.text, time)))
        if result.failed:
            self.header.set_text("✗", "$error", self._line, end or "failed")
        else:
            self.header.set_text("✓", "$success", self._line, end)
        self._progress = ""
        self.refresh_details()
        if self._opens_diffs and status.diff and status.short:
            await self.open()

    def mark_interrupted(self) -> None:
        """The turn ended without a result of the call."""
        if self._result is None:
            self.header.set_text("✗", "$warning", self._line, "interrupted")


class ThinkingCard(ExpandableCard):
    plain = ""

    def __init__(self) -> None:
        self._chunks: list[str] = []
        self._length = 0
        super().__init__(CardHeader("○", "dim", "thinking…"))
        self.add_class("thinking")

    def details(self) -> Content:
        return Content.styled(escape_controls("".join(self._chunks)).strip(), "dim italic")

    def add(self, text: str) -> None:
        self._chunks.append(text)
        self._length += len(text)
        self.refresh_details()

    def end(self) -> None:
        self.header.set_text("○", "dim", "thought", plural(self._length, "character"))


def colored_diff(text: str) -> Content:
    return Content("\n").join(map(_colored, numbered_diff(text.rstrip("\n"))))


def _colored(line: DiffLine) -> Content:
    other = "bold" if line.text.startswith(_HEADINGS) else "dim"
    return Content.assemble((line.gutter, "dim"), (line.text, _STYLES.get(line.sign, other)))
