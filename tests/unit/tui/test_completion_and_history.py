"""Completion, input history and collapsed pastes."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.commands.completion import suggestions
from hermes.tools.references import find_references
from hermes.tui.input_history import InputHistory
from hermes.tui.widgets.prompt import PastedTexts

KINDS = ["@file:", "@folder:", "@diff", "@staged", "@git:", "@url:"]
COMMANDS = {"help": "Show all.", "model": "", "compress": "", "resume": ""}


def labels(before: str, folder: Path | str = "/nowhere") -> list[str]:
    return [one.label for one in suggestions(before, COMMANDS, str(folder))]


def test_commands_with_the_prefix_come_first() -> None:
    assert labels("/") == ["/help", "/model", "/compress", "/resume"]
    assert labels("/re") == ["/resume", "/compress"]
    (one,) = suggestions("/he", COMMANDS, "/")
    assert (one.text, one.replaces, one.about) == ("/help ", 3, "Show all.")


def test_only_the_first_word_is_a_command() -> None:
    assert labels("/help mo") == []
    assert labels("and /mo") == []


def test_files_are_suggested_after_an_at(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "app.py").touch()
    (tmp_path / "notes.md").touch()
    (tmp_path / ".hidden").touch()
    (tmp_path / "steer\x1bing").touch()
    (tmp_path / 'quo"ted').touch()
    assert labels("look at @", tmp_path) == [*KINDS, "@file:notes.md", "@file:src/"]
    assert labels("(@no", tmp_path) == ["@file:notes.md"]
    assert labels("@.", tmp_path) == ["@file:.hidden"]
    for typed in ("@src/a", "@file:src/a"):
        (one,) = suggestions(f"see {typed}", (), str(tmp_path))
        assert (one.text, one.replaces) == ("@file:src/app.py ", len(typed))
    assert labels("@file:src/", tmp_path) == ["@file:src/app.py", "@folder:src/"]
    assert labels("@folder:", tmp_path) == ["@folder:src/"]
    assert labels("@folder:src/", tmp_path) == []
    for nothing in ("@none/", "mail@", "@file:src/app.py", "@diff", "@git:3", "@url:http://x"):
        assert labels(nothing, tmp_path) == []


def test_names_with_spaces_and_punctuation_are_quoted(tmp_path: Path) -> None:
    (tmp_path / "my dir").mkdir()
    (tmp_path / "my dir" / "a b.txt").touch()
    (tmp_path / "end.").touch()
    (one,) = suggestions("@my", {}, str(tmp_path))
    assert (one.label, one.text) == ('@file:"my dir/"', '@file:"my dir/')
    inside = suggestions(f"see {one.text}", {}, str(tmp_path))
    assert [each.text for each in inside] == ['@file:"my dir/a b.txt" ', '@folder:"my dir/" ']
    assert {each.replaces for each in inside} == {len(one.text)}
    (one,) = suggestions("@end", {}, str(tmp_path))
    assert one.text == '@file:"end." '


def test_suggestions_match_attachments(tmp_path: Path) -> None:
    for name in ("notes.md", "two words", "odd)."):
        (tmp_path / name).touch()
    (tmp_path / "src").mkdir()
    offered = [*suggestions("@", {}, str(tmp_path)), *suggestions("@file:src/", {}, str(tmp_path))]
    ends = {"@file:": "notes.md", "@folder:": "src", "@git:": "2", "@url:": "http://x"}
    found = [find_references(one.text + ends.get(one.text, "")) for one in offered]
    named = {(one.kind, one.what) for (one,) in found}
    assert {kind for kind, _ in named} == {"file", "folder", "diff", "staged", "git", "url"}
    assert {what for kind, what in named if kind == "file"} >= {"notes.md", "two words", "odd)."}


def test_history_is_shared_with_the_plain_chat(tmp_path: Path) -> None:
    path = tmp_path / "cli_history"
    path.write_text("first\nsecond\n")
    history = InputHistory(path)
    history.add("two\nlines")
    history.add("two\nlines")
    assert path.read_text() == "first\nsecond\ntwo lines\n"
    assert history.back("draft") == "two\nlines"
    assert history.back("two\nlines") == "second"
    assert history.forward() == "two\nlines"
    assert history.forward() == "draft"
    assert history.forward() is None


def test_unwritable_history_is_kept_in_memory(tmp_path: Path) -> None:
    history = InputHistory(tmp_path / "none" / "cli_history")
    history.add("words")
    assert history.back("") == "words"
    assert history.back("words") is None


def test_history_file_is_private(tmp_path: Path) -> None:
    InputHistory(tmp_path / "h").add("secret")
    assert (tmp_path / "h").stat().st_mode & 0o777 == 0o600


def test_long_paste_is_collapsed_and_restored() -> None:
    pastes = PastedTexts(5, 2000)
    assert pastes.shortened("a few words") == "a few words"
    lines = "line\n" * 10
    mark = pastes.shortened(lines)
    assert mark == "[pasted text 1: 10 lines]"
    assert pastes.shortened("x" * 3000) == "[pasted text 2: 3,000 characters]"
    assert pastes.expanded(f"see {mark}!") == f"see {lines}!"
    assert pastes.expanded("the mark was deleted") == "the mark was deleted"


def test_paste_limits_are_configurable() -> None:
    assert PastedTexts(2, 0).shortened("a\nb\nc") == "[pasted text 1: 3 lines]"
    assert PastedTexts(2, 0).shortened("x" * 9000) == "x" * 9000
    assert PastedTexts(0, 10).shortened("x" * 11) == "[pasted text 1: 11 characters]"
    assert PastedTexts(0, 0).shortened("a\n" * 9000) == "a\n" * 9000


@pytest.mark.slow
@given(st.lists(st.text(min_size=2001, max_size=2100), min_size=1, max_size=3))
def test_pasted_text_is_never_read_as_a_placeholder(texts: list[str]) -> None:
    pastes = PastedTexts(5, 2000)
    evil = ["[pasted text 1: 2,001 characters]" + text for text in texts]
    marks = [pastes.shortened(text) for text in evil]
    assert pastes.expanded(" ".join(marks)) == " ".join(evil)
