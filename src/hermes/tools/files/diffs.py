"""What changed in a file, as a unified diff that stays quick on large files."""

from difflib import unified_diff

from hermes.tools.files.text_file import bare, lines_of

CONTEXT = 3
COMPARED = 2_000
"""Changed lines up to which the smallest difference is looked for."""


def unified(before: str | None, after: str | None, name: str) -> str:
    """None stands for a file that does not exist."""
    old = [bare(line) for line in lines_of(before or "")]
    new = [bare(line) for line in lines_of(after or "")]
    labels = (
        "/dev/null" if before is None else f"a/{name}",
        "/dev/null" if after is None else f"b/{name}",
    )
    same_start, same_end = _common(old, new)
    changed = max(len(old), len(new)) - same_start - same_end
    if changed > COMPARED:
        return _coarse(old, new, labels, (same_start, same_end))
    first = max(same_start - CONTEXT, 0)
    last = max(same_end - CONTEXT, 0)
    hunks = list(
        unified_diff(
            old[first : len(old) - last],
            new[first : len(new) - last],
            *labels,
            n=CONTEXT,
            lineterm="",
        )
    )
    return "\n".join(_shift(line, first) for line in hunks)


def _common(old: list[str], new: list[str]) -> tuple[int, int]:
    """How many lines are the same at the beginning and, apart from those, at the end."""
    shorter = min(len(old), len(new))
    start = 0
    while start < shorter and old[start] == new[start]:
        start += 1
    end = 0
    while end < shorter - start and old[-1 - end] == new[-1 - end]:
        end += 1
    return start, end


def _shift(line: str, by: int) -> str:
    """Line numbers count from the beginning of the file, not of the part compared."""
    if not by or not line.startswith("@@ "):
        return line
    _, old, new, _ = line.split(" ", 3)
    return f"@@ -{_moved(old[1:], by)} +{_moved(new[1:], by)} @@"


def _moved(span: str, by: int) -> str:
    start, comma, length = span.partition(",")
    return f"{int(start) + by}{comma}{length}"


def _coarse(old: list[str], new: list[str], labels: tuple[str, str], same: tuple[int, int]) -> str:
    start, end = same
    gone, come = len(old) - start - end, len(new) - start - end
    return "\n".join(
        (
            f"--- {labels[0]}",
            f"+++ {labels[1]}",
            f"@@ -{start + 1},{gone} +{start + 1},{come} @@",
            f"(too much changed to show: {gone:,} lines became {come:,})",
        )
    )
