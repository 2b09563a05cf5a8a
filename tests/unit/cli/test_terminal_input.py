"""The prompt of the line-mode chat: completion and interruption by messages."""

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
    style = Style(StringIO(), {})
    with LineEditor(folder / "history", ["help", "history"], style, str(folder)):
        complete = readline.get_completer()
        assert complete is not None
        found = (complete(typed, state) for state in count())
        return [one for one in takewhile(lambda one: one is not None, found) if one]


def test_completion_keeps_the_typed_text(folder: Path) -> None:
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


class InterruptedEditor(LineEditor):
    """Polls for news while a line is being added to the history."""

    def add_to_history(self, line: str) -> None:
        signal.raise_signal(signal.SIGALRM)
        super().add_to_history(line)


@pytest.mark.timeout(method="thread")
def test_news_do_not_discard_a_typed_line(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", StringIO("one\\\ntwo\n"))
    style = Style(StringIO(), {})
    with InterruptedEditor(folder / "history", [], style, str(folder)) as editor:
        assert editor.read(lambda: True) == "one\ntwo"
