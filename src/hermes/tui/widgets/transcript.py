"""The scrollable transcript; it follows the end until the user scrolls up."""

from typing import Protocol, runtime_checkable

from textual.containers import VerticalScroll
from textual.message import Message
from textual.widget import Widget

from hermes.tui.widgets import app_of
from hermes.tui.widgets.messages import ArchivedText

MAX_WIDGETS = 240
"""Widgets kept; beyond that, the older half is replaced by plain text."""


PAST = "past"
"""CSS class of messages from before this start."""
TURN = "turn"
"""CSS class of the first widget of a turn of this session."""
UNDONE = "undone"
"""CSS class of undone messages."""


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

    class Moved(Message):
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
        remaining = [widget for widget in old if not widget.has_class(UNDONE)]
        text = "\n".join(
            widget.plain
            for widget in remaining
            if isinstance(widget, HasPlainText) and widget.plain
        )
        with app_of(self).batch_update():
            await self.mount(ArchivedText(text), before=old[0])
            for widget in old:
                await widget.remove()

    async def empty(self) -> None:
        await self.remove_children()
        self.anchor()

    def plain_text(self) -> str:
        """The text since this start, without undone messages."""
        with_text = [widget for widget in self.children if isinstance(widget, HasPlainText)]
        kept = [
            widget
            for widget in with_text
            if not widget.has_class(PAST) and not widget.has_class(UNDONE)
        ]
        return "\n".join(widget.plain for widget in kept if widget.plain)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self.post_message(self.Moved())

    def go_to_end(self) -> None:
        self.anchor()
        self.post_message(self.Moved())

    def go_to(self, widget: Widget) -> None:
        """Scroll to the end, or to the start of a last widget longer than the screen."""
        self.go_to_end()
        self.call_after_refresh(self._scroll_to_start, widget)

    def _scroll_to_start(self, widget: Widget) -> None:
        if widget.is_attached and widget.outer_size.height > self.size.height:
            self.release_anchor()
            self.scroll_to_widget(widget, animate=False, top=True, force=True)
