"""The line of the plain chat: Tab offers never less than was typed, and no news take it away."""

import readline
import signal
import sys
from io import StringIO
from itertools import count, takewhile
from pathlib import Path

import pytest

from hermes.cli.output import Style
from hermes.cli.verbs.chat.terminal_input import LineEditor


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "examples").mkdir()
    for name in ("one.md", "only.md", "two.md"):
        (tmp_path / "examples" / name).touch()
    return tmp_path


def offered(folder: Path, typed: str) -> list[str]:
    style = Style(StringIO(), None, None)
    with LineEditor(folder / "history", ["help", "history"], style, str(folder)):
        complete = readline.get_completer()
        assert complete is not None
        found = (complete(typed, place) for place in count())
        return [one for one in takewhile(lambda one: one is not None, found) if one]


def test_what_is_typed_stays(folder: Path) -> None:
    assert offered(folder, "/hel") == ["/help "]
    assert offered(folder, "@exa") == ["@file:examples/"]
    assert offered(folder, "@file:examples/") == [
        "@file:examples/one.md ",
        "@file:examples/only.md ",
        "@file:examples/two.md ",
    ]
    assert offered(folder, "@examples/on") == ["@file:examples/one.md ", "@file:examples/only.md "]
    assert offered(folder, "@examples/O") == []
    assert offered(folder, "@di") == ["@diff "]


class Disturbed(LineEditor):
    """Whoever looks for news does so when a line is just being kept."""

    def keep(self, line: str) -> None:
        signal.raise_signal(signal.SIGALRM)
        super().keep(line)


@pytest.mark.timeout(method="thread")
def test_news_take_no_line_away(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", StringIO("one\\\ntwo\n"))
    style = Style(StringIO(), None, None)
    with Disturbed(folder / "history", [], style, str(folder)) as editor:
        assert editor.read(lambda: True) == "one\ntwo"
