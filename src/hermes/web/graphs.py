"""Draw a dependency graph as SVG, from left to right."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

from msgspec import Struct

from hermes.web.html import Child, Html, h

BOX_WIDTH, BOX_HEIGHT = 190, 44
GAP_X, GAP_Y = 60, 16
MARGIN = 6
MAX_LABEL = 22


class Node(Struct, frozen=True, kw_only=True):
    """`kind` chooses its color; `note` is shown below the label."""

    id: str
    label: str
    note: str
    kind: str
    href: str
    is_current: bool = False


Edges = Sequence[tuple[str, str]]
"""Pairs of ids; the first one comes first."""


def related(start: str, edges: Edges, limit: int) -> list[str]:
    """Return all nodes connected with a node, directly or indirectly, nearest first."""
    neighbours: defaultdict[str, list[str]] = defaultdict(list)
    for first, second in edges:
        neighbours[first].append(second)
        neighbours[second].append(first)
    found = [start]
    for one in found:
        found += [other for other in neighbours[one] if other not in found][: limit - len(found)]
    return found


def graph(nodes: Sequence[Node], edges: Edges, label: str) -> Html:
    """Draw nodes as linked boxes, in columns by their longest path, with a curve for every edge."""
    known = {node.id for node in nodes}
    edges = [pair for pair in edges if known.issuperset(pair)]
    positions = _positions([node.id for node in nodes], edges)
    columns = 1 + max((x for x, _ in positions.values()), default=0)
    rows = 1 + max((y for _, y in positions.values()), default=0)
    width = columns * (BOX_WIDTH + GAP_X) - GAP_X + 2 * MARGIN
    height = rows * (BOX_HEIGHT + GAP_Y) - GAP_Y + 2 * MARGIN
    shapes: list[Child] = [_curve(positions[first], positions[second]) for first, second in edges]
    # The Tab key moves through them in this order.
    ordered = sorted(nodes, key=lambda one: positions[one.id])
    shapes += [_box(one, *positions[one.id]) for one in ordered]
    picture = h(
        "svg", *shapes, viewBox=f"0 0 {width} {height}", width=f"{width}", height=f"{height}",
        class_="graph", role="group", aria_label=label,
    )  # fmt: skip
    return h("div", picture, class_="wide", tabindex="0", role="region", aria_label=label)


def _positions(ids: Sequence[str], edges: Edges) -> Mapping[str, tuple[int, int]]:
    """Return the column and row of each node; nodes are placed near their dependencies."""
    before: defaultdict[str, list[str]] = defaultdict(list)
    for first, second in edges:
        before[second].append(first)
    columns = _columns(ids, before)
    rows: dict[str, int] = {}
    for column in range(1 + max(columns.values(), default=0)):
        members = [id_ for id_ in ids if columns[id_] == column]
        members.sort(key=lambda one: _center(before[one], rows))
        rows |= {one: row for row, one in enumerate(members)}
    return {id_: (columns[id_], rows[id_]) for id_ in ids}


def _columns(ids: Iterable[str], before: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Return the longest path length to each node; cycles are cut where found."""
    columns: dict[str, int] = {}
    for start in ids:
        stack = [(start, False)]
        opened = set[str]()
        while stack:
            one, is_done = stack.pop()
            if is_done:
                columns[one] = 1 + max((columns.get(p, -1) for p in before[one]), default=-1)
            elif one not in columns and one not in opened:
                opened.add(one)
                stack.append((one, True))
                stack += [(p, False) for p in before[one]]
    return columns


def _center(before: Sequence[str], rows: Mapping[str, int]) -> float:
    known = [rows[one] for one in before if one in rows]
    return fmean(known) if known else 0.0


def _corner(column: int, row: int) -> tuple[int, int]:
    return MARGIN + column * (BOX_WIDTH + GAP_X), MARGIN + row * (BOX_HEIGHT + GAP_Y)


def _curve(first: tuple[int, int], second: tuple[int, int]) -> Html:
    x1, y1 = _corner(*first)
    x2, y2 = _corner(*second)
    x1, y1, y2 = x1 + BOX_WIDTH, y1 + BOX_HEIGHT // 2, y2 + BOX_HEIGHT // 2
    middle = (x1 + x2) // 2
    return h("path", d=f"M{x1} {y1}C{middle} {y1} {middle} {y2} {x2} {y2}")


def _box(node: Node, column: int, row: int) -> Html:
    x, y = _corner(column, row)
    short = node.label if len(node.label) <= MAX_LABEL else node.label[: MAX_LABEL - 1] + "…"
    return h(
        "a",
        h("title", f"{node.label} ({node.note})"),
        h("rect", x=x, y=y, width=BOX_WIDTH, height=BOX_HEIGHT, rx="8"),
        h("text", short, x=x + 12, y=y + 19),
        h("text", node.note, x=x + 12, y=y + 35, class_="note"),
        href=node.href,
        class_=f"node {node.kind}",
        aria_current="true" if node.is_current else None,
    )
