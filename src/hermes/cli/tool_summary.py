"""Summarize tool calls and their results for display."""

from msgspec import Struct

from hermes.kit.numbered_diff import DiffLine, numbered_diff
from hermes.kit.text import one_line, plural
from hermes.schema.messages import Result, text_of
from hermes.tui.display_text import failure_text

MAX_DIFF_LINES = 40
FIRST_LINES = 4
LAST_LINES = 6
_MAX_LINE = 400


class ResultSummary(Struct, frozen=True):
    """A headline and optional detail lines."""

    head: str
    lines: tuple[str, ...] = ()
    diff: tuple[DiffLine, ...] = ()
    folded: bool = False
    """Whether `lines` contains only a part of the output."""


def describe_result(result: Result, tool: str = "", hint: str = "") -> ResultSummary:
    """`hint` says how to see the rest of a long output."""
    head = failure_text(result, tool) if result.failed else ""
    lines = result.shown.splitlines()
    if result.shown.startswith("--- "):
        return _diff_summary(lines[2:], head, hint)
    if not lines:
        return ResultSummary(head or _unless_json(text_of(result)))
    shown = _first_and_last(lines, hint)
    first, *others = [*([head] if head else []), *shown]
    return ResultSummary(first, tuple(others), folded=len(shown) < len(lines))


def _unless_json(text: str) -> str:
    """The text on one line; empty for JSON, which is meant for the model."""
    return "" if text.startswith("{") else one_line(text, _MAX_LINE)


def _diff_summary(lines: list[str], head: str, hint: str) -> ResultSummary:
    added = sum(line.startswith("+") for line in lines)
    removed = sum(line.startswith("-") for line in lines)
    numbered = numbered_diff("\n".join(lines))
    more = len(numbered) - MAX_DIFF_LINES
    rest = DiffLine(f"… {plural(more, 'more line')}{hint and f'; {hint}'}")
    shown = [*numbered[:MAX_DIFF_LINES], *([rest] if more > 0 else [])]
    return ResultSummary(head or f"+{added} -{removed}", diff=tuple(shown), folded=more > 0)


def _first_and_last(lines: list[str], hint: str) -> list[str]:
    """The first and last lines, with the number of omitted lines between them."""
    omitted = len(lines) - FIRST_LINES - LAST_LINES
    if omitted <= 1:
        return lines
    fold = f"… {omitted:,} lines{hint and f'; {hint}'} …"
    return [*lines[:FIRST_LINES], fold, *lines[-LAST_LINES:]]
