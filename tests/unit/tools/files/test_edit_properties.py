"""Properties of edits: exact ones equal `str.replace`, patches reproduce their target."""

from contextlib import suppress
from difflib import SequenceMatcher, unified_diff
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hermes.schema.errors import ToolError
from hermes.tools.files import fuzzy_match
from hermes.tools.files.drafts import TextFormat, decode_text, diff_text, split_lines
from hermes.tools.files.v4a import Add, Update, apply_update, parse_patch
from support.examples import at_most

TEXT = st.text(st.sampled_from("ab \n\t"), max_size=40)
LINES = st.lists(st.text(st.sampled_from("xyz -+@ "), max_size=6), max_size=12)


@given(TEXT, st.text(st.sampled_from("ab \n\t"), min_size=1, max_size=4), TEXT, TEXT)
def test_exact_replacement_is_str_replace(before: str, old: str, after: str, new: str):
    text = before + old + after
    found = fuzzy_match.find_matches(text, old, new)
    assert found is not None
    assert found.strategy == "exact"
    assert fuzzy_match.apply_edits(text, found.edits) == text.replace(old, new)


@given(TEXT, TEXT.filter(str.strip))
def test_loose_match_differs_only_in_whitespace(text: str, old: str):
    found = fuzzy_match.find_matches(text, old, "")
    if found is not None and found.strategy != "first and last line matched":
        for place in found.edits:
            assert text[place.start : place.end].split() == old.split()


@given(TEXT)
def test_joined_lines_are_the_text(text: str):
    assert "".join(split_lines(text)) == text
    assert all(line.count("\n") <= 1 for line in split_lines(text))


@given(
    st.text(st.sampled_from("aäß\r\n"), max_size=30),
    st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-32", "latin-1"]),
)
def test_decoding_and_encoding_changes_nothing(text: str, encoding: str):
    data = text.encode(encoding)
    path = Path("f")
    plain, dress = decode_text(data, path)
    assert dress.encode_text(plain, path) == data


@given(TEXT)
def test_line_ends_convert_both_ways(text: str):
    windows = TextFormat(newline="\r\n").with_newlines(text)
    assert windows.count("\r\n") == text.count("\n")
    assert TextFormat().with_newlines(windows) == text


def numbered(draw: st.DrawFn) -> tuple[list[str], list[str]]:
    """Two versions of a file in which no line occurs twice."""
    before = [f"{n} {line}" for n, line in enumerate(draw(LINES))]
    after: list[str] = []
    for n, line in enumerate(before):
        match draw(st.sampled_from(["keep", "keep", "drop", "change", "insert"])):
            case "keep":
                after.append(line)
            case "change":
                after.append(f"{line} changed")
            case "insert":
                after += [line, f"new after {n}"]
            case _:
                continue
    return before, after


VERSIONS = st.composite(numbered)()


def as_patch(before: list[str], after: list[str], context: int) -> str:
    hunks = list(unified_diff(before, after, lineterm="", n=context))[2:]
    body = ["@@" if line.startswith("@@") else line for line in hunks]
    return "\n".join(["*** Begin Patch", "*** Update File: f", *body, "*** End Patch"])


@pytest.mark.slow
@at_most(200)
@given(VERSIONS, st.integers(1, 3), st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_generated_patch_reproduces_its_target(versions, context: int, newline: str, closed: bool):
    before, after = versions
    assume(before != after)
    end = newline if closed else ""
    text = newline.join(before) + (end if before else "")
    (update,) = parse_patch(as_patch(before, after, context))
    assert isinstance(update, Update)
    removed_all_context = any(not hunk.wanted for hunk in update.hunks)
    assume(not removed_all_context)
    assert apply_update(text, update, newline).text == newline.join(after) + (end if after else "")


@given(LINES.filter(lambda lines: bool(lines) and bool(lines[-1])))
def test_added_file_has_the_given_lines(lines: list[str]):
    patch = "\n".join(
        ["*** Begin Patch", "*** Add File: f", *(f"+{x}" for x in lines), "*** End Patch"]
    )
    assert parse_patch(patch) == [Add("f", "".join(f"{line}\n" for line in lines))]


@given(st.text(max_size=200))
def test_parser_never_crashes(text: str):
    for patch in (text, f"*** Begin Patch\n{text}\n*** End Patch"):
        with suppress(ToolError):
            assert parse_patch(patch)


@given(VERSIONS)
def test_diff_is_exact(versions):
    before, after = versions
    shown = diff_text("\n".join(before), "\n".join(after), "f").splitlines()[2:]
    gone = [line[1:] for line in shown if line.startswith("-")]
    come = [line[1:] for line in shown if line.startswith("+")]
    blocks = SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    assert sorted(gone) == sorted(
        x for op, i, j, _, _ in blocks if op != "equal" for x in before[i:j]
    )
    assert sorted(come) == sorted(
        x for op, _, _, i, j in blocks if op != "equal" for x in after[i:j]
    )


@given(VERSIONS)
def test_diff_line_numbers_count_from_the_file_start(versions):
    before, after = versions
    prefix = [f"same {n}" for n in range(50)]
    ours = diff_text("\n".join(prefix + before), "\n".join(prefix + after), "f").splitlines()
    plain = list(unified_diff(prefix + before, prefix + after, "a/f", "b/f", lineterm=""))
    assert [line for line in ours if line.startswith("@@")] == [
        line for line in plain if line.startswith("@@")
    ]


def test_huge_change_is_summarized():
    before = "".join(f"{n}\n" for n in range(5_000))
    after = "".join(f"x{n}\n" for n in range(4_000))
    assert "5,000 lines became 4,000" in diff_text(before, after, "f")


@pytest.mark.parametrize("first", [" def g():\n", ""], ids=["repeated", "once"])
def test_heading_may_repeat_as_first_line(first: str):
    text = "def f():\n    pass\n\ndef g():\n    pass\n"
    hunk = f"@@ def g():\n{first}-    pass\n+    return 1\n"
    (update,) = parse_patch(f"*** Begin Patch\n*** Update File: f\n{hunk}*** End Patch")
    assert isinstance(update, Update)
    assert apply_update(text, update, "\n").text == "def f():\n    pass\n\ndef g():\n    return 1\n"


@pytest.mark.parametrize("heading", ["@@ -1,2 +1,2 @@", "@@ -1 +1 @@", "@@"])
def test_headings_of_unified_diffs_are_accepted(heading: str):
    (update,) = parse_patch(
        f"*** Begin Patch\n*** Update File: f\n{heading}\n-a\n+b\n*** End Patch"
    )
    assert isinstance(update, Update)
    assert update.hunks[0].heading == ""


def test_hunk_without_context_appends_to_the_file():
    (update,) = parse_patch("*** Begin Patch\n*** Update File: f\n@@\n+last\n*** End Patch")
    assert isinstance(update, Update)
    assert apply_update("a\nb", update, "\n").text == "a\nb\nlast"


def test_end_of_file_marker_selects_the_last_match():
    patch = "*** Begin Patch\n*** Update File: f\n@@\n x\n-y\n+z\n*** End of File\n*** End Patch"
    (update,) = parse_patch(patch)
    assert isinstance(update, Update)
    assert apply_update("x\ny\nx\ny\n", update, "\n").text == "x\ny\nx\nz\n"
