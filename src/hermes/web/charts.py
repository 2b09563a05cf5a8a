"""Charts as SVG, drawn on the server: bars, rankings, timelines and meters with their values."""

from collections.abc import Sequence

from msgspec import Struct

from hermes.web.html import Child, Html, h

WIDTH, HEIGHT, FOOT = 760, 180, 22
TRACK, LABELS, VALUES, MAX_LABEL = 26, 170, 150, 24
FULL = 0.9
"""The share of a limit from which on its bar is a warning."""


class Bar(Struct, frozen=True, kw_only=True):
    """`part` is the share of the value that is drawn in another color."""

    label: str
    value: float
    part: float = 0.0
    title: str = ""


def bar_chart(bars: Sequence[Bar], label: str) -> Html:
    highest = max((one.value for one in bars), default=0.0) or 1.0
    step = WIDTH / max(len(bars), 1)
    shapes: list[Child] = []
    every = max(1, len(bars) // 10)
    for place, one in enumerate(bars):
        x, width = place * step + step * 0.12, step * 0.76
        shapes.append(_bar(x, width, one.value / highest, one.title or one.label))
        if one.part:
            shapes.append(_bar(x, width, one.part / highest, one.title, class_="cached"))
        if place % every == 0:
            shapes.append(
                h("text", one.label, x=f"{x:.1f}", y=f"{HEIGHT - 6}", text_anchor="start")
            )
    ground = HEIGHT - FOOT
    shapes.append(h("line", x1="0", x2=f"{WIDTH}", y1=f"{ground}", y2=f"{ground}"))
    chart = h(
        "svg", *shapes, viewBox=f"0 0 {WIDTH} {HEIGHT}", class_="chart", role="img",
        aria_label=label,
    )  # fmt: skip
    return _scrolled(chart, label, begins_at_the_end=True)


def _scrolled(chart: Html, label: str, *, begins_at_the_end: bool = False) -> Html:
    """A chart keeps its size on a small screen, and is scrolled there."""
    return h(
        "div", chart, class_="wide", tabindex="0", role="region", aria_label=label,
        dir="rtl" if begins_at_the_end else None,
    )  # fmt: skip


def _bar(x: float, width: float, share: float, title: str, class_: str | None = None) -> Html:
    height = share * (HEIGHT - FOOT - 4)
    return h(
        "rect", h("title", title), x=f"{x:.1f}", y=f"{HEIGHT - FOOT - height:.1f}",
        width=f"{width:.1f}", height=f"{height:.1f}", rx="2", class_=class_,
    )  # fmt: skip


def ranking(bars: Sequence[Bar], label: str) -> Html:
    """Bars from the left, one in each row; the label of a bar is before it, its title after it."""
    highest = max((one.value for one in bars), default=0.0) or 1.0
    span, shapes = WIDTH - LABELS - VALUES, list[Child]()
    for row, one in enumerate(bars):
        y = TRACK * row + 6
        middle = f"{y + 11:.0f}"
        shapes.append(h("text", _short(one.label), h("title", one.label), x="0", y=middle))
        for value, kind in ((one.value, None), (one.part, "cached")):
            if value:
                shapes.append(
                    h("rect", h("title", one.title), x=f"{LABELS}", y=f"{y}", height="14", rx="2",
                      width=f"{span * value / highest:.1f}", class_=kind)
                )  # fmt: skip
        end = LABELS + span * one.value / highest + 6
        shapes.append(h("text", one.title, x=f"{end:.1f}", y=middle))
    chart = h("svg", *shapes, viewBox=f"0 0 {WIDTH} {TRACK * len(bars) + 4}", class_="chart",
              role="img", aria_label=label)  # fmt: skip
    return _scrolled(chart, label)


def _short(label: str) -> str:
    return label if len(label) <= MAX_LABEL else label[: MAX_LABEL - 1] + "…"


class Track(Struct, frozen=True, kw_only=True):
    """A row of a timeline; each mark has a place from 0 to 1 and a title."""

    label: str
    marks: Sequence[tuple[float, str]]


def timeline(tracks: Sequence[Track], ticks: Sequence[str], label: str) -> Html:
    """Marks in rows below equally distant ticks; the first tick is now."""
    height = TRACK * len(tracks) + FOOT
    span = WIDTH - LABELS - 10
    shapes: list[Child] = []
    for place, tick in enumerate(ticks):
        x = LABELS + span * place / max(len(ticks) - 1, 1)
        anchor = "end" if place == len(ticks) - 1 else "middle" if place else "start"
        shapes += [
            h("line", x1=f"{x:.1f}", x2=f"{x:.1f}", y1="0", y2=f"{height - FOOT}"),
            h("text", tick, x=f"{x:.1f}", y=f"{height - 6}", text_anchor=anchor),
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
    """A bar that shows how much of a limit is used."""
    share = min(used / limit, 1.0) if limit > 0 else 1.0
    bar = h("rect", width=f"{100 * share:.1f}", height="8",
            class_="full" if share >= FULL else None)  # fmt: skip
    drawn = h("svg", bar, viewBox="0 0 100 8", preserveAspectRatio="none", aria_hidden="true",
              class_="meter")  # fmt: skip
    return h("div", h("p", h("b", label), h("span", value), class_="row"), drawn, class_="panel")
