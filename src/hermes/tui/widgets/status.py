"""The last line: what is going on, the model, how full it is, the cost, what holds it back."""

from collections.abc import Sequence

from msgspec import Struct
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from hermes.kit.terminal_text import display_width, fit, single_line

_BAR_WIDTH = 8
_WARN_SHARE = 0.8
"""The share from which on the bar warns."""


class StatusInfo(Struct, frozen=True, kw_only=True):
    """`used` and `window` are tokens, `cost` dollars, `seconds` since the turn began.

    While it is `starting` nothing is known of the model and of what holds it back. With `yolo`
    nothing is asked for; `behind` is how much goes on in the background, `enter` what Enter does.
    """

    starting: bool = False

    doing: str = ""
    model: str = ""
    used: int = 0
    window: int = 0
    cost: float | None = None
    seconds: float | None = None
    sandbox: str = ""
    yolo: bool = False
    background_jobs: int = 0
    enter: str = ""
    queued: int = 0
    below: bool = False


class StatusBar(Widget):
    DEFAULT_CSS = "StatusBar { height: 1; width: 1fr; background: $panel; padding: 0 1; }"

    def __init__(self) -> None:
        super().__init__()
        self._facts = StatusInfo()

    def show_info(self, facts: StatusInfo) -> None:
        if facts != self._facts:
            self._facts = facts
            self.refresh()

    def render(self) -> Content:
        return status_line(self._facts, self.size.width)


def status_line(facts: StatusInfo, width: int) -> Content:
    """What fits, the more important first; shown in an order that does not jump about."""
    parts = _status_parts(facts)
    kept: list[int] = []
    room = width
    for place in sorted(range(len(parts)), key=lambda place: parts[place][0]):
        need = display_width(parts[place][1]) + (3 if kept else 0)
        if need > room:
            break
        kept.append(place)
        room -= need
    shown = [Content.styled(parts[place][1], parts[place][2]) for place in sorted(kept)]
    if not shown and parts:
        return Content(fit(parts[0][1], width))
    return Content.styled(" · ", "dim").join(shown)


def _status_parts(facts: StatusInfo) -> list[tuple[int, str, str]]:
    """Each with its rank and its style."""
    parts = _activity_parts(facts)
    if not facts.starting:
        parts.append((2, facts.model.rpartition("/")[2] or "no model", "bold"))
    if facts.window and facts.used:
        share = min(facts.used / facts.window, 1.0)
        filled = round(share * _BAR_WIDTH)
        text = f"{'█' * filled}{'░' * (_BAR_WIDTH - filled)} {share:.0%}"
        parts.append((3, text, "$warning" if share >= _WARN_SHARE else "$success"))
    if facts.cost is not None:
        parts.append((4, format_cost(facts.cost), ""))
    if not facts.starting:
        wall = facts.sandbox or "no sandbox"
        parts.append((5, wall, "" if facts.sandbox else "$warning"))
    if facts.yolo:
        parts.append((1, "yolo", "bold $error"))
    parts.append((6, "F1 help", "dim"))
    return parts


def _activity_parts(facts: StatusInfo) -> list[tuple[int, str, str]]:
    parts: list[tuple[int, str, str]] = []
    if facts.starting:
        parts.append((0, "starting…", "bold $accent"))
    if facts.doing:
        time = "" if facts.seconds is None else f" {format_duration(facts.seconds)}"
        parts.append((0, facts.doing + time, "bold $accent"))
    if facts.enter:
        parts.append((3, facts.enter, "dim"))
    if facts.background_jobs:
        parts.append((2, f"{facts.background_jobs} in background", "$accent"))
    if facts.queued:
        parts.append((1, f"{facts.queued} queued", "$warning"))
    if facts.below:
        parts.append((1, "↓ more below", "$warning"))
    return parts


def format_duration(seconds: float) -> str:
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes}:{rest:02d}" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02d} h"


def format_cost(dollars: float) -> str:
    return f"${dollars:.4f}" if 0 < dollars < 0.01 else f"${dollars:.2f}"


_MAX_PENDING = 3
"""Lines at once; the last ones count."""


class PendingInput(Static):
    DEFAULT_CSS = """
    PendingInput { height: auto; max-height: 3; padding: 0 1; color: $warning; display: none; }
    PendingInput.shown { display: block; }
    """

    def __init__(self) -> None:
        super().__init__(markup=False)

    def show_lines(self, steering: Sequence[str], queued: Sequence[str]) -> None:
        """What the turn will hear at its next step, then what waits for its end."""
        marked = [f"↳ {single_line(one)}" for one in steering] + [
            f"… {single_line(one)}" for one in queued
        ]
        self.set_class(bool(marked), "shown")
        if marked:
            room = max(self.screen.size.width - 4, 8)
            self.update(Content("\n".join(fit(one, room) for one in marked[-_MAX_PENDING:])))
