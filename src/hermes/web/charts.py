"""Charts as SVG, drawn on the server: bars, rankings, timelines and meters with their values."""

from collections.abc import Callable, Sequence
from datetime import datetime
from math import floor, log10

from msgspec import Struct

from hermes.web.html import Child, Html, h

WIDTH, HEIGHT, HEAD, FOOT, SCALE = 760, 190, 10, 22, 52
TRACK, LABELS, MAX_LABEL = 26, 170, 24
ROUND = (1, 1.5, 2, 3, 4, 5, 6, 8, 10)
FULL = 0.9
"""Share of a limit above which its bar is a warning."""


class Bar(Struct, frozen=True, kw_only=True):
    """`part` is the share of the value that is drawn in another color."""

    label: str
    value: float
    part: float = 0.0
    title: str = ""


def bar_chart(bars: Sequence[Bar], label: str, amount: Callable[[float], str]) -> Html:
    """Draw bars above their labels; `amount` formats a value of the scale."""
    top = _scale_end(max((bar.value for bar in bars), default=0.0))
    step, every = (WIDTH - SCALE) / max(len(bars), 1), max(1, len(bars) // 10)
    shapes = [
        shape for share in (0.0, 0.5, 1.0) for shape in _grid_line(share, amount(top * share))
    ]
    for index, one in enumerate(bars):
        x, width = SCALE + index * step + step * 0.12, step * 0.76
        shapes.append(_bar(x, width, one.value / top, one.title or one.label))
        if one.part:
            shapes.append(_bar(x, width, one.part / top, one.title, class_="cached"))
        if index % every == 0:
            shapes.append(
                h("text", one.label, x=f"{x:.1f}", y=f"{HEIGHT - 6}", text_anchor="start")
            )
    chart = h(
        "svg", *shapes, viewBox=f"0 0 {WIDTH} {HEIGHT}", class_="chart", role="img",
        aria_label=label,
    )  # fmt: skip
    return _scrolled(chart, label, begins_at_the_end=True)


def _scale_end(highest: float) -> float:
    """The next round number, whose half is round too."""
    if highest <= 0:
        return 1.0
    power = 10.0 ** floor(log10(highest))
    return next(one * power for one in ROUND if one * power >= highest * (1 - 1e-9))


def _grid_line(share: float, amount: str) -> list[Html]:
    """Draw a line across the chart at a share of its height, with its amount."""
    y = HEIGHT - FOOT - share * (HEIGHT - FOOT - HEAD)
    return [
        h("line", x1=f"{SCALE}", x2=f"{WIDTH}", y1=f"{y:.1f}", y2=f"{y:.1f}"),
        h("text", amount, x=f"{SCALE - 6}", y=f"{y + 4:.1f}", text_anchor="end"),
    ]


def _scrolled(chart: Html, label: str, *, begins_at_the_end: bool = False) -> Html:
    """Wrap a chart, which keeps its size on a small screen and scrolls."""
    return h(
        "div", chart, class_="wide", tabindex="0", role="region", aria_label=label,
        dir="rtl" if begins_at_the_end else None,
    )  # fmt: skip


def _bar(x: float, width: float, share: float, title: str, class_: str | None = None) -> Html:
    height = share * (HEIGHT - FOOT - HEAD)
    return h(
        "rect", h("title", title), x=f"{x:.1f}", y=f"{HEIGHT - FOOT - height:.1f}",
        width=f"{width:.1f}", height=f"{height:.1f}", rx="2", class_=class_,
    )  # fmt: skip


def ranking(bars: Sequence[Bar], label: str) -> Html:
    """Draw a bar in each row, between its label and its title."""
    highest = max((bar.value for bar in bars), default=0.0) or 1.0
    rows = [
        h("li", h("span", bar.label, title=bar.label, dir="auto", class_="name"),
          _share(bar, highest), h("span", bar.title))
        for bar in bars
    ]  # fmt: skip
    return h("ul", *rows, class_="ranking", aria_label=label)


def _share(bar: Bar, highest: float) -> Html:
    parts = [
        h("rect", width=f"{100 * value / highest:.1f}", height="10", class_=kind)
        for value, kind in ((bar.value, None), (bar.part, "cached"))
        if value
    ]
    return h("svg", *parts, viewBox="0 0 100 10", preserveAspectRatio="none", aria_hidden="true",
             class_="share")  # fmt: skip


def _short(label: str) -> str:
    return label if len(label) <= MAX_LABEL else label[: MAX_LABEL - 1] + "…"


class Track(Struct, frozen=True, kw_only=True):
    """A row of a timeline; each mark has a position from 0 to 1 and a title."""

    label: str
    marks: Sequence[tuple[float, str]]


class Tick(Struct, frozen=True):
    """The script adds the time to the label, in the browser's zone."""

    label: str
    at: datetime


def timeline(tracks: Sequence[Track], ticks: Sequence[Tick], label: str) -> Html:
    """Draw marks in rows below evenly spaced ticks; the first tick is now."""
    height = TRACK * len(tracks) + FOOT
    span = WIDTH - LABELS - 10
    shapes: list[Child] = []
    for index, tick in enumerate(ticks):
        x = LABELS + span * index / max(len(ticks) - 1, 1)
        anchor = "end" if index == len(ticks) - 1 else "middle" if index else "start"
        shapes += [
            h("line", x1=f"{x:.1f}", x2=f"{x:.1f}", y1="0", y2=f"{height - FOOT}"),
            h(
                "text",
                tick.label,
                x=f"{x:.1f}",
                y=f"{height - 6}",
                text_anchor=anchor,
                data_at=tick.at.isoformat(),
            ),
        ]
    for row, track in enumerate(tracks):
        y = TRACK * row + TRACK / 2
        shapes.append(
            h("text", _short(track.label), h("title", track.label), x="0", y=f"{y + 4:.1f}")
        )
        shapes += [
            h("circle", h("title", title), cx=f"{LABELS + span * at:.1f}", cy=f"{y:.1f}", r="5")
            for at, title in track.marks
        ]
    chart = h(
        "svg", *shapes, viewBox=f"0 0 {WIDTH} {height}", class_="chart", role="img",
        aria_label=label,
    )  # fmt: skip
    return _scrolled(chart, label)


def meter(used: float, limit: float, label: str, value: str) -> Html:
    """Draw how much of a limit is used."""
    share = min(used / limit, 1.0) if limit > 0 else 1.0
    bar = h("rect", width=f"{100 * share:.1f}", height="8",
            class_="full" if share >= FULL else None)  # fmt: skip
    drawn = h("svg", bar, viewBox="0 0 100 8", preserveAspectRatio="none", aria_hidden="true",
              class_="meter")  # fmt: skip
    return h("div", h("p", h("b", label), h("span", value), class_="row"), drawn, class_="panel")
