"""Questions are answered by key, click or text, but not by accident."""

from datetime import timedelta
from pathlib import Path

import pytest

from hermes.schema.events import QuestionAnswered
from hermes.testing.clock import FakeClock
from hermes.tui.chat_screen import Chat
from hermes.tui.keys import DEBOUNCE_SECONDS
from hermes.tui.widgets.question import KEY_PAUSE, QuestionCard
from support.fake_tui_client import (
    FakeTuiClient,
    answer_events,
    approval_asked,
    clarify_asked,
    tool_events,
)
from support.tui_screen import tui_screen

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("keys", "answer", "shown"),
    [
        (("o",), "once", "allowed once"),
        (("a",), "always", "allowed always"),
        (("enter",), "deny", "denied"),
        (("up", "up", "enter"), "session", "allowed for this session"),
    ],
)
async def test_approval_by_key(
    tmp_path: Path, keys: tuple[str, ...], answer: str, shown: str
) -> None:
    companion, clock = FakeTuiClient(), FakeClock()
    began, done = tool_events("terminal", '{"command": "make"}', "")
    events = [began, approval_asked(origin="Ann on telegram"), companion.wait_until_decided, done]
    companion.turns = [[*events, *answer_events("That was it.")]]
    async with tui_screen(companion, tmp_path, clock=clock) as screen:
        await screen.submit("build")
        await screen.wait_until(lambda: has_focus_in(screen.ui.chat, QuestionCard))
        assert "asked by Ann on telegram" in screen.text
        await clock.advance(KEY_PAUSE)
        await screen.pilot.press(*keys)
        await screen.wait_for("That was it.")
        assert companion.answers == [("q1", answer)]
        assert f"→ {shown}" in screen.text
        assert "why:" not in screen.text
        # The person's time is not the call's.
        assert " s\n" not in screen.text
        assert screen.ui.chat.prompt.has_focus


async def test_approval_by_click(tmp_path: Path) -> None:
    companion = FakeTuiClient()
    companion.turns = [
        [approval_asked(), companion.wait_until_decided, *answer_events("That was it.")]
    ]
    async with tui_screen(companion, tmp_path) as screen:
        await screen.submit("build")
        await screen.wait_for("Allow for this session")
        place = next(row for row, line in enumerate(screen.lines) if "for this session" in line)
        await screen.pilot.click(offset=(8, place))
        await screen.wait_for("That was it.")
        assert companion.answers == [("q1", "session")]


async def test_keys_without_pause_are_ignored(tmp_path: Path) -> None:
    companion, clock = FakeTuiClient(), FakeClock()
    companion.turns = [[approval_asked(), companion.wait_until_decided]]
    async with tui_screen(companion, tmp_path, clock=clock) as screen:
        await screen.submit("build")
        await screen.wait_until(lambda: has_focus_in(screen.ui.chat, QuestionCard))
        await screen.pilot.press("o", "enter", "a")
        assert companion.answers == []
        companion.interrupt()
        await screen.wait_for("→ not answered")
        await screen.wait_until(lambda: screen.ui.chat.prompt.has_focus)


async def test_question_counts_down_and_late_key_is_ignored(tmp_path: Path) -> None:
    companion, clock = FakeTuiClient(), FakeClock()
    question = approval_asked(
        until=clock.now() + timedelta(seconds=60), origin="you, in the terminal"
    )
    lapsed = QuestionAnswered("q1", "")
    companion.turns = [
        [question, companion.wait_until_decided, lapsed, companion.wait_until_stopped]
    ]
    async with tui_screen(companion, tmp_path, clock=clock) as screen:
        prompt = screen.ui.chat.prompt
        await screen.submit("build")
        await screen.wait_until(lambda: has_focus_in(screen.ui.chat, QuestionCard))
        await screen.wait_for("Auto-denied in 60 s")
        assert "asked by" not in screen.text
        await clock.advance(13)
        await screen.wait_for("Auto-denied in 47 s")
        await clock.advance(47)
        companion._decided.set()
        await screen.wait_for("No answer within 60 s: denied")
        assert "Auto-denied in" not in screen.text
        await screen.wait_until(lambda: prompt.has_focus)
        await screen.pilot.press("d")
        assert prompt.text == ""
        await clock.advance(DEBOUNCE_SECONDS)
        await screen.type_keys("do")
        assert prompt.text == "do"
        assert companion.answers == []
        companion.interrupt()
        await screen.wait_until_idle()


async def test_other_keys_are_typed_after_a_question_expired(tmp_path: Path) -> None:
    companion, clock = FakeTuiClient(), FakeClock()
    question = approval_asked(until=clock.now() + timedelta(seconds=60))
    lapsed = QuestionAnswered("q1", "")
    companion.turns = [
        [question, companion.wait_until_decided, lapsed, companion.wait_until_stopped]
    ]
    async with tui_screen(companion, tmp_path, clock=clock) as screen:
        await screen.submit("build")
        await screen.wait_until(lambda: has_focus_in(screen.ui.chat, QuestionCard))
        companion._decided.set()
        await screen.wait_for("No answer within")
        await screen.wait_until(lambda: screen.ui.chat.prompt.has_focus)
        await screen.type_keys("no dog")
        assert screen.ui.chat.prompt.text == "no dog"
        companion.interrupt()
        await screen.wait_until_idle()


async def test_question_does_not_interrupt_typing(tmp_path: Path) -> None:
    companion, clock = FakeTuiClient(), FakeClock()
    companion.turns = [
        [companion.wait_until_decided, approval_asked(), companion.wait_until_decided]
    ]
    async with tui_screen(companion, tmp_path, clock=clock) as screen:
        await screen.submit("build")
        await screen.type_keys("so")
        companion._decided.set()
        await screen.wait_for("Allow once")
        await clock.advance(KEY_PAUSE)
        await screen.type_keys("on")
        assert screen.ui.chat.prompt.text == "soon"
        assert companion.answers == []
        companion.interrupt()
        await screen.wait_until_idle()


@pytest.mark.parametrize(("typed", "answer"), [("2", "blue"), ("green", "green")])
async def test_question_is_answered_by_number_or_text(
    tmp_path: Path, typed: str, answer: str
) -> None:
    companion, clock = FakeTuiClient(), FakeClock()
    companion.turns = [
        [clarify_asked("red", "blue"), companion.wait_until_decided, *answer_events("Nice.")]
    ]
    async with tui_screen(companion, tmp_path, clock=clock) as screen:
        await screen.submit("paint")
        await screen.wait_until(lambda: has_focus_in(screen.ui.chat, QuestionCard))
        await clock.advance(KEY_PAUSE)
        if typed != "2":
            await screen.pilot.press("escape")
        await screen.type_keys(typed, *(("enter",) if typed != "2" else ()))
        await screen.wait_for("Nice.")
        assert companion.answers == [("q2", answer)]
        assert companion.messages == ["paint"]


async def test_question_of_several_lines_keeps_them(tmp_path: Path) -> None:
    client = FakeTuiClient()
    text = (
        "The MCP server play asks: a survey\n\nName (1 of 10)\n\x1b[2JAnswer “decline” to refuse."
    )
    client.turns = [[clarify_asked(text=text), client.wait_until_decided]]
    async with tui_screen(client, tmp_path) as screen:
        await screen.submit("ask")
        await screen.wait_for("decline")
        shown = [line.strip("▌ ") for line in screen.text.splitlines()]
        first = shown.index("The MCP server play asks: a survey")
        assert shown[first + 1] == "Name (1 of 10)"
        assert "\x1b" not in shown[first + 2]
        client.interrupt()
        await screen.wait_until_idle()


def has_focus_in(chat: Chat, kind: type) -> bool:
    return any(isinstance(one, kind) for one in (chat.focused or chat).ancestors_with_self)
