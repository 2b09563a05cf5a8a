"""Markdown at a terminal, in pieces as it arrives."""

import re
from io import StringIO

import pytest

from hermes.cli.markdown import MarkdownPrinter
from hermes.cli.output import Style

SOURCE = """\
# A plan
Three **bold words** with `code`, and text that is long enough to be wrapped [here](http://a.b).

1. first
2. second
   - nested

   more of the second

```python
x = 1
```

| tool | calls |
|---|---|
| shell | 2 |

> quoted
"""
SHOWN = """\
A plan
Three bold words with code, and text
that is long enough to be wrapped here
(http://a.b).

1. first
2. second
   ◦ nested

   more of the second

  ┌ python
  │ x = 1

tool   calls
─────  ─────
shell  2

│ quoted
"""


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


class NarrowStyle(Style):
    columns = 40  # pyright: ignore[reportAssignmentType, reportIncompatibleMethodOverride]


def printer() -> MarkdownPrinter:
    return MarkdownPrinter(NarrowStyle(Terminal(), {"TERM": "xterm"}))


def without_escapes(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_answer_looks_the_same_however_it_arrives(size: int) -> None:
    markdown = printer()
    pieces = [SOURCE[place : place + size] for place in range(0, len(SOURCE), size)]
    shown = "".join(map(markdown.feed, pieces)) + markdown.flush()
    assert without_escapes(shown) == SHOWN
    assert "\x1b[1mbold\x1b[0m" in shown
    assert "\x1b[36mcode\x1b[0m" in shown


def test_code_is_shown_line_by_line_and_text_when_it_is_complete() -> None:
    markdown = printer()
    assert markdown.feed("Some te") == ""
    assert markdown.pending == "Some te"
    assert without_escapes(markdown.feed("xt.\n\nNext")) == "Some text.\n"
    assert without_escapes(markdown.feed("\n```\na\nb")) == "\nNext\n  │ a\n"
    assert without_escapes(markdown.flush()) == "  │ b\n"
    assert markdown.flush() == ""
