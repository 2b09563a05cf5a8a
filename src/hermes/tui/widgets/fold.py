"""One line that opens to show more; what it hides is made only when it is looked at."""

from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from hermes.kit.plain import fit, width_of


class Head(Widget, can_focus=True):
    """The line itself: a sign, what it is about, and its end; the first word is never cut off."""

    FOCUS_ON_CLICK = False
    """Whoever clicks on it goes on typing where they were."""

    DEFAULT_CSS = """
    Head { height: 1; width: 1fr; }
    Head:hover { background: $panel; }
    Head:focus { background: $panel; text-style: bold; }
    Head:focus:nocolor { text-style: bold reverse; }
    """

    def __init__(self, sign: str, style: str, text: str, end: str = "") -> None:
        super().__init__()
        self._told = (sign, style, text, end)

    def tell(self, sign: str, style: str, text: str, end: str = "") -> None:
        self._told = (sign, style, text, end)
        self.refresh()

    def render(self) -> Content:
        sign, style, text, end = self._told
        room = self.size.width
        name = text.partition(" ")[0]
        kept = min(width_of(text), max(width_of(name) + 2, room // 3))
        end = fit(f"  {end}", max(room - 2 - kept, 0)) if end else ""
        words = fit(text, max(room - 2 - width_of(end), 4))
        return Content.assemble((f"{sign} ", style), words, (end, "dim"))


class Fold(Vertical):
    """Subclasses say what is hidden in `hidden`."""

    DEFAULT_CSS = """
    Fold { height: auto; margin: 0 1; }
    Fold > .hidden { padding: 0 0 0 2; height: auto; color: $foreground 75%; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,space", "flip", "open or close", show=False)
    ]

    def __init__(self, head: Head) -> None:
        super().__init__()
        self.head = head
        self._body: Static | None = None

    def compose(self):  # noqa: ANN201 - textual's own signature
        yield self.head

    @property
    def is_open(self) -> bool:
        return self._body is not None

    def hidden(self) -> Content:
        raise NotImplementedError

    async def open(self) -> None:
        if self._body is None:
            self._body = Static(self.hidden(), markup=False, classes="hidden")
            await self.mount(self._body)

    async def close(self) -> None:
        body, self._body = self._body, None
        if body is not None:
            await body.remove()

    def renew(self) -> None:
        """What is hidden has changed."""
        if self._body is not None:
            self._body.update(self.hidden())

    async def action_flip(self) -> None:
        await (self.close() if self.is_open else self.open())

    async def on_click(self, event: events.Click) -> None:
        if event.widget is self.head:
            event.stop()
            await self.action_flip()
