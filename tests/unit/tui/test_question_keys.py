"""Approval requests keep the keyboard focus; typed text decides only if it is a clear choice."""

from pathlib import Path

import pytest

from hermes.testing.clock import FakeClock
from hermes.tui.widgets.question import KEY_PAUSE, Choices
from support.fake_tui_client import FakeTuiClient, answer_events, approval_asked
from support.tui_screen import TuiScreen, tui_screen

pytestmark = pytest.mark.slow


def asking() -> FakeTuiClient:
    companion = FakeTuiClient()
    companion.turns = [
        [approval_asked(), companion.wait_until_decided, *answer_events("That was it.")]
    ]
    return companion


async def asked(screen: TuiScreen, clock: FakeClock) -> None:
    await screen.submit("build")
    await screen.wait_until(lambda: isinstance(screen.ui.chat.focused, Choices))
    await screen.wait_for("Answer the question above by key; Esc or Tab to type here")
    await clock.advance(KEY_PAUSE)


@pytest.mark.parametrize(
    ("keys", "answer"),
    [(("down",), "deny"), (("up", "up", "up", "up"), "once"), (("up", "down", "down"), "deny")],
)
async def test_choices_do_not_wrap_around(
    tmp_path: Path, keys: tuple[str, ...], answer: str
) -> None:
    companion, clock = asking(), FakeClock()
    async with tui_screen(companion, tmp_path, clock=clock) as screen:
        await asked(screen, clock)
        await screen.pilot.press(*keys, "enter")
        await screen.wait_for("That was it.")
        assert companion.answers == [("q1", answer)]


async def test_invalid_letter_keeps_the_focus(tmp_path: Path) -> None:
    companion, clock = asking(), FakeClock()
    async with tui_screen(companion, tmp_path, clock=clock) as screen:
        await asked(screen, clock)
        await screen.pilot.press("x", "space", "7")
        await screen.wait_for("o once, s session, a always, d deny; Tab to type")
        assert screen.ui.chat.prompt.text == ""
        await clock.advance(KEY_PAUSE)
        await screen.pilot.press("d")
        await screen.wait_for("That was it.")
        assert companion.answers == [("q1", "deny")]
        assert "Tab to type" not in screen.text


async def test_letters_of_a_typed_word_do_not_decide(tmp_path: Path) -> None:
    """Its letters include keys that would approve."""
    companion, clock = asking(), FakeClock()
    async with tui_screen(companion, tmp_path, clock=clock) as screen:
        await asked(screen, clock)
        for letter in "/soda":
            await screen.pilot.press(letter)
            await clock.advance(KEY_PAUSE / 2)
        assert companion.answers == []
        await clock.advance(KEY_PAUSE)
        await screen.pilot.press("d")
        await screen.wait_for("That was it.")
        assert companion.answers == [("q1", "deny")]


@pytest.mark.parametrize(
    ("words", "answer"),
    [("yes", "once"), ("No.", "deny"), ("deny", "deny"), ("session", "session"), ("a", "always")],
)
async def test_typed_answers_match_the_plain_chat(tmp_path: Path, words: str, answer: str) -> None:
    companion, clock = asking(), FakeClock()
    async with tui_screen(companion, tmp_path, clock=clock) as screen:
        await asked(screen, clock)
        await screen.pilot.press("tab")
        await screen.wait_for("yes or no, then Enter; Shift+Tab goes to the question, Esc stops")
        await screen.submit(words)
        await screen.wait_for("That was it.")
        assert companion.answers == [("q1", answer)]
        assert companion.messages == ["build"]


async def test_rest_of_a_deciding_word_is_ignored(tmp_path: Path) -> None:
    companion, clock = asking(), FakeClock()
    async with tui_screen(companion, tmp_path, clock=clock) as screen:
        await asked(screen, clock)
        await screen.submit("deny")
        await screen.wait_for("That was it.")
        await screen.wait_until_idle()
        assert companion.answers == [("q1", "deny")]
        assert companion.messages == ["build"]
        await screen.type_keys("yes, and")
        assert screen.ui.chat.prompt.text == "yes, and"


async def test_words_that_decide_nothing_are_asked_about_again(tmp_path: Path) -> None:
    companion, clock = asking(), FakeClock()
    async with tui_screen(companion, tmp_path, clock=clock) as screen:
        await asked(screen, clock)
        await screen.pilot.press("escape")
        await screen.submit("maybe later")
        await screen.wait_for("is not a choice")
        assert (
            "▌  d  Deny\n▌ 'maybe later' is not a choice: o once, s session, a always, d deny\n"
        ) in screen.text
        assert screen.ui.chat.prompt.text == "maybe later"
        assert companion.answers == []
        await screen.pilot.press("shift+tab", "o")
        await screen.wait_for("That was it.")
        assert companion.answers == [("q1", "once")]
        assert companion.messages == ["build"]


async def test_text_begun_before_the_question_does_not_answer_it(tmp_path: Path) -> None:
    companion, clock = FakeTuiClient(), FakeClock()
    companion.turns = [
        [companion.wait_until_decided, approval_asked(), companion.wait_until_stopped]
    ]
    async with tui_screen(companion, tmp_path, clock=clock) as screen:
        await screen.submit("build")
        await screen.type_keys("ye")
        companion._decided.set()
        await screen.wait_for("Allow once")
        await clock.advance(KEY_PAUSE)
        await screen.type_keys("s", "enter")
        await screen.wait_until(lambda: companion.messages == ["build", "yes"])
        await screen.wait_until_idle()
        assert companion.answers == []


async def test_command_does_not_count_as_an_answer(tmp_path: Path) -> None:
    companion, clock = asking(), FakeClock()
    async with tui_screen(companion, tmp_path, clock=clock) as screen:
        await asked(screen, clock)
        await screen.pilot.press("escape")
        await screen.submit("/stop")
        await screen.wait_for("→ not answered")
        await screen.wait_until_idle()
        assert companion.answers == []
        assert companion.messages == ["build"]
