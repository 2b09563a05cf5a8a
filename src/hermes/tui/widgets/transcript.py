"""Everything that was said and done, from the top down; it follows the end until one scrolls up."""

from typing import Protocol, runtime_checkable

from textual.containers import VerticalScroll
from textual.message import Message
from textual.widget import Widget

from hermes.tui.widgets import app_of
from hermes.tui.widgets.messages import ArchivedText

MAX_WIDGETS = 240
"""Things shown in full; when there are more, the older half becomes plain text."""


PAST = "past"
"""The class of what was said in an earlier sitting."""
TURN = "turn"
"""The class of what a turn of this session begins with."""
UNDONE = "undone"
"""The class of what was taken back."""


@runtime_checkable
class HasPlainText(Protocol):
    """Something that can also be told without a screen."""

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
        # While all of it fits, it stands at the bottom: then the place is below zero.
        return self.max_scroll_y - max(self.scroll_y, 0) <= 1

    async def add(self, *things: Widget) -> None:
        await self.mount_all(things)

    def begin_session(self) -> None:
        """What stands there belongs to another one, and cannot be taken back here."""
        for one in self.children:
            one.remove_class(TURN)

    def mark_undone(self, turns: int) -> None:
        """The last turns count no more; what the program said meanwhile does."""
        begins = [place for place, one in enumerate(self.children) if one.has_class(TURN)]
        if turns < 1 or not begins:
            return
        for one in self.children[begins[-turns:][0] :]:
            one.remove_class(TURN)
            if not one.has_class("command"):
                one.add_class(UNDONE)

    async def archive_old(self) -> None:
        """Make old things light. What is looked at just now stays as it is."""
        things = [one for one in self.children if not isinstance(one, ArchivedText)]
        if len(things) <= MAX_WIDGETS or not self.is_at_end:
            return
        old = things[: MAX_WIDGETS // 2]
        left = [one for one in old if not one.has_class(UNDONE)]
        text = "\n".join(one.plain for one in left if isinstance(one, HasPlainText) and one.plain)
        with app_of(self).batch_update():
            await self.mount(ArchivedText(text), before=old[0])
            for one in old:
                await one.remove()

    async def empty(self) -> None:
        await self.remove_children()
        self.anchor()

    def plain_text(self) -> str:
        """All that was said in this sitting, without a screen."""
        said = [one for one in self.children if isinstance(one, HasPlainText)]
        kept = [one for one in said if not one.has_class(PAST) and not one.has_class(UNDONE)]
        return "\n".join(one.plain for one in kept if one.plain)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self.post_message(self.Moved())

    def go_to_end(self) -> None:
        self.anchor()
        self.post_message(self.Moved())

    def go_to(self, thing: Widget) -> None:
        """The end, or the beginning of a last thing that is longer than the screen."""
        self.go_to_end()
        self.call_after_refresh(self._scroll_to_start, thing)

    def _scroll_to_start(self, thing: Widget) -> None:
        if thing.is_attached and thing.outer_size.height > self.size.height:
            self.release_anchor()
            self.scroll_to_widget(thing, animate=False, top=True, force=True)
