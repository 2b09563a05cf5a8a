"""Silent replies are recognised and not delivered."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.gateway.replies import SilentReply, silent_reply_kind
from support.cases import cases

MARKERS = ["[SILENT]", "SILENT", "NO_REPLY", "NO REPLY", "[NO_REPLY]", "[NO REPLY]"]


@pytest.mark.parametrize("marker", MARKERS)
@given(
    before=st.text(" \n\t*_`\"'(.!-", max_size=5),
    after=st.text(" \n\t*_`\"').!,;:-\u2026", max_size=5),
)
def test_marker_alone_is_silent(marker: str, before: str, after: str) -> None:
    assert silent_reply_kind(before + marker + after) is SilentReply.MARKER


@cases("marker", MARKERS)
@cases("expected", ["{} and more", "Done. {}", "{}\n\nThe report: 3 errors", "a{}"])
def test_marker_within_text_is_delivered(marker: str, expected: str) -> None:
    assert silent_reply_kind(expected.format(marker)) is None


@pytest.mark.parametrize("reply", ["[silent]", "no_reply", "[No_Reply]", "`[Silent]`"])
def test_bracketed_marker_is_case_insensitive(reply: str) -> None:
    assert silent_reply_kind(reply) is SilentReply.MARKER


@cases("reply", ["Silent", "silent.", "No reply.", "Silence", "no response", "Quiet!"])
def test_ordinary_word_is_an_answer(reply: str) -> None:
    assert silent_reply_kind(reply) is None


@pytest.mark.parametrize("reply", ["", " \n", "\u200b"])
def test_empty_reply_is_not_silent(reply: str) -> None:
    assert silent_reply_kind(reply) is None


@cases(
    "reply",
    [
        *("*(silent)*", "(silent)", "*silence*", "_stays silent_", "**(remains silent)**"),
        *(
            "[no response]",
            "(No reply needed.)",
            "*(nothing to add)*",
            "( silence )",
            "*(Silent.)*",
        ),
        *(".", "\u2026", "...", "\U0001f507", "\U0001f910\ufe0f"),
    ],
)
def test_narrated_silence_is_silent_only_when_enabled(reply: str) -> None:
    assert silent_reply_kind(reply) is SilentReply.NARRATION
    assert silent_reply_kind(reply, narration=False) is None


@cases(
    "reply",
    [
        *("*(smiles)*", "(see above)", "*silently closes the door*", "**Silent Hill**", "No.", "!"),
        *("(silent) but deadly", "*(silent)* Yes.", "\U0001f44d", "..", "*(silent)* " * 9),
    ],
)
def test_other_short_replies_are_delivered(reply: str) -> None:
    assert silent_reply_kind(reply) is None


@given(st.text(max_size=200))
def test_ordinary_text_is_never_silent(text: str) -> None:
    assert silent_reply_kind(f"{text} The backup has finished.") is None
