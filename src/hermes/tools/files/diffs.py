"""What changed in a file, as a unified diff that stays quick on large files."""

from difflib import unified_diff

from hermes.tools.files.text_file import bare, lines_of

CONTEXT = 3
COUNTED = 500_000
"""Lines of both sides up to which they are looked at one by one."""
COMPARED = 2_000
"""Changed lines up to which the smallest difference is looked for."""


def unified(before: str | None, after: str | None, name: str) -> str:
    """None stands for a file that does not exist."""
    labels = (
        "/dev/null" if before is None else f"a/{name}",
        "/dev/null" if after is None else f"b/{name}",
    )
    gone, come = (before or "").count("\n"), (after or "").count("\n")
    if gone + come > COUNTED:
        return _coarse(gone, come, labels, 0)
    old = [bare(line) for line in lines_of(before or "")]
    new = [bare(line) for line in lines_of(after or "")]
    same_start, same_end = _common(old, new)
    changed = max(len(old), len(new)) - same_start - same_end
    if changed > COMPARED:
        same = same_start + same_end
        return _coarse(len(old) - same, len(new) - same, labels, same_start)
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


def _coarse(gone: int, come: int, labels: tuple[str, str], start: int) -> str:
    return "\n".join(
        (
            f"--- {labels[0]}",
            f"+++ {labels[1]}",
            f"@@ -{start + 1},{gone} +{start + 1},{come} @@",
            f"(too much changed to show: {gone:,} lines became {come:,})",
        )
    )
