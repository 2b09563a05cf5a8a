"""Show a diff with line numbers and colors."""

from textual.content import Content

from hermes.kit.numbered_diff import DiffLine, numbered_diff

_STYLES = {"+": "$success", "-": "$error", " ": "$foreground 75%"}
_HEADINGS = ("diff ", "--- ", "+++ ", "New files:")


def colored_diff(text: str) -> Content:
    return Content("\n").join(map(_colored, numbered_diff(text.rstrip("\n"))))


def _colored(line: DiffLine) -> Content:
    other = "bold" if line.text.startswith(_HEADINGS) else "dim"
    return Content.assemble((line.gutter, "dim"), (line.text, _STYLES.get(line.sign, other)))
