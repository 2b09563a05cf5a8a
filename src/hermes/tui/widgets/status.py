"""The status bar, and the list of pending input above the prompt."""

from collections.abc import Sequence

from msgspec import Struct
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from hermes.kit.terminal_text import display_width, fit, single_line

_BAR_WIDTH = 8
_WARN_SHARE = 0.8
"""Share of the window above which the bar warns."""


class StatusInfo(Struct, frozen=True, kw_only=True):
    """The content of the status bar."""

    starting: bool = False  # model and sandbox are not known yet
    activity: str = ""
    model: str = ""
    used_tokens: int = 0  # tokens
    window: int = 0  # tokens
    cost: float | None = None  # dollars
    seconds: float | None = None  # duration of the turn
    sandbox: str = ""  # the sandbox
    yolo: bool = False  # approvals are off
    background_jobs: int = 0  # background jobs
    enter_hint: str = ""  # what Enter does
    queued: int = 0
    more_below: bool = False  # there is more below


class StatusBar(Widget):
    DEFAULT_CSS = "StatusBar { height: 1; width: 1fr; background: $panel; padding: 0 1; }"

    def __init__(self) -> None:
        super().__init__()
        self._info = StatusInfo()

    def show_info(self, info: StatusInfo) -> None:
        if info != self._info:
            self._info = info
            self.refresh()

    def render(self) -> Content:
        return status_line(self._info, self.size.width)


def status_line(info: StatusInfo, width: int) -> Content:
    """Choose the most important parts that fit; show them in a fixed order."""
    parts = _status_parts(info)
    kept: list[int] = []
    room = width
    for index in sorted(range(len(parts)), key=lambda index: parts[index][0]):
        needed = display_width(parts[index][1]) + (3 if kept else 0)
        if needed > room:
            break
        kept.append(index)
        room -= needed
    shown = [Content.styled(parts[index][1], parts[index][2]) for index in sorted(kept)]
    if not shown and parts:
        return Content(fit(parts[0][1], width))
    return Content.styled(" · ", "dim").join(shown)


def _status_parts(info: StatusInfo) -> list[tuple[int, str, str]]:
    """Parts as (rank, text, style)."""
    parts = _activity_parts(info)
    if not info.starting:
        parts.append((2, info.model.rpartition("/")[2] or "no model", "bold"))
    if info.window and info.used_tokens:
        share = min(info.used_tokens / info.window, 1.0)
        filled = round(share * _BAR_WIDTH)
        text = f"{'█' * filled}{'░' * (_BAR_WIDTH - filled)} {share:.0%}"
        parts.append((3, text, "$warning" if share >= _WARN_SHARE else "$success"))
    if info.cost is not None:
        parts.append((4, format_cost(info.cost), ""))
    if not info.starting:
        parts.append((5, info.sandbox or "no sandbox", "" if info.sandbox else "$warning"))
    if info.yolo:
        parts.append((1, "yolo", "bold $error"))
    parts.append((6, "F1 help", "dim"))
    return parts


def _activity_parts(info: StatusInfo) -> list[tuple[int, str, str]]:
    parts: list[tuple[int, str, str]] = []
    if info.starting:
        parts.append((0, "starting…", "bold $accent"))
    if info.activity:
        time = "" if info.seconds is None else f" {format_duration(info.seconds)}"
        parts.append((0, info.activity + time, "bold $accent"))
    if info.enter_hint:
        parts.append((3, info.enter_hint, "dim"))
    if info.background_jobs:
        parts.append((2, f"{info.background_jobs} in background", "$accent"))
    if info.queued:
        parts.append((1, f"{info.queued} queued", "$warning"))
    if info.more_below:
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
"""Lines shown; the last ones win."""


class PendingInput(Static):
    DEFAULT_CSS = """
    PendingInput { height: auto; max-height: 3; padding: 0 1; color: $warning; display: none; }
    PendingInput.shown { display: block; }
    """

    def __init__(self) -> None:
        super().__init__(markup=False)

    def show_lines(self, steering: Sequence[str], queued: Sequence[str]) -> None:
        """Show steering messages, then queued ones."""
        lines = [f"↳ {single_line(one)}" for one in steering]
        lines += [f"… {single_line(one)}" for one in queued]
        self.set_class(bool(lines), "shown")
        if lines:
            room = max(self.screen.size.width - 4, 8)
            self.update(Content("\n".join(fit(line, room) for line in lines[-_MAX_PENDING:])))
