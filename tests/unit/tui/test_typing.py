"""What helps to type: completion, history, and long texts kept short."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.tui.completion import suggestions
from hermes.tui.history import History
from hermes.tui.pastes import Pastes

COMMANDS = {"help": "Show all.", "model": "", "compress": "", "resume": ""}


def labels(before: str, folder: Path | str = "/nowhere") -> list[str]:
    return [one.label for one in suggestions(before, COMMANDS, str(folder))]


def test_commands_that_begin_so_come_first() -> None:
    assert labels("/") == ["/help", "/model", "/compress", "/resume"]
    assert labels("/re") == ["/resume", "/compress"]
    (one,) = suggestions("/he", COMMANDS, "/")
    assert (one.text, one.replaces, one.about) == ("/help ", 3, "Show all.")


def test_only_the_first_word_is_a_command() -> None:
    assert labels("/help mo") == []
    assert labels("and /mo") == []


def test_files_after_an_at(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "app.py").touch()
    (tmp_path / "notes.md").touch()
    (tmp_path / ".hidden").touch()
    (tmp_path / "with space").touch()
    (tmp_path / "steer\x1bing").touch()
    assert labels("look at @", tmp_path) == ["@notes.md", "@src/"]
    assert labels("@no", tmp_path) == ["@notes.md"]
    assert labels("@.", tmp_path) == ["@.hidden"]
    (one,) = suggestions("see @src/a", (), str(tmp_path))
    assert (one.text, one.replaces) == ("@src/app.py ", 6)
    assert labels("@none/", tmp_path) == []
    assert labels("mail@", tmp_path) == []


def test_history_is_shared_with_the_plain_chat(tmp_path: Path) -> None:
    path = tmp_path / "cli_history"
    path.write_text("first\nsecond\n")
    history = History(path)
    history.keep("two\nlines")
    history.keep("two\nlines")
    assert path.read_text() == "first\nsecond\ntwo lines\n"
    assert history.back("draft") == "two\nlines"
    assert history.back("two\nlines") == "second"
    assert history.forth() == "two\nlines"
    assert history.forth() == "draft"
    assert history.forth() is None


def test_a_history_that_cannot_be_written_is_kept_for_now(tmp_path: Path) -> None:
    history = History(tmp_path / "none" / "cli_history")
    history.keep("words")
    assert history.back("") == "words"
    assert history.back("words") is None


def test_what_only_this_user_may_read(tmp_path: Path) -> None:
    History(tmp_path / "h").keep("secret")
    assert (tmp_path / "h").stat().st_mode & 0o777 == 0o600


def test_long_texts_become_a_mark_and_come_back_whole() -> None:
    pastes = Pastes()
    assert pastes.shortened("a few words") == "a few words"
    lines = "line\n" * 10
    mark = pastes.shortened(lines)
    assert mark == "[pasted text 1: 10 lines]"
    assert pastes.shortened("x" * 3000) == "[pasted text 2: 3,000 characters]"
    assert pastes.whole(f"see {mark}!") == f"see {lines}!"
    assert pastes.whole("the mark was deleted") == "the mark was deleted"


@pytest.mark.slow
@given(st.lists(st.text(min_size=2001, max_size=2100), min_size=1, max_size=3))
def test_what_was_pasted_is_never_read_as_a_mark(texts: list[str]) -> None:
    pastes = Pastes()
    evil = ["[pasted text 1: 2,001 characters]" + text for text in texts]
    marks = [pastes.shortened(text) for text in evil]
    assert pastes.whole(" ".join(marks)) == " ".join(evil)
