"""A conversation on the screen: sending, queueing, interrupting, deciding, leaving."""

import threading
from datetime import timedelta
from pathlib import Path

import pytest
from textual.events import Key, Paste

from companions import PATIENCE, Scripted, answered, called, clarified, leave_asked
from drawn import drawn
from hermes.schema.errors import HermesError
from hermes.schema.events import (
    Answered,
    ReasoningDelta,
    StreamReset,
    TextDelta,
    ToolProgress,
)
from hermes.testing.clock import FakeClock
from hermes.tui.screens.chat import HUSH, Chat
from hermes.tui.widgets.cards import Thinking, ToolCard
from hermes.tui.widgets.code import CodeHead
from hermes.tui.widgets.question import CALM, QuestionCard
from hermes.tui.widgets.words import Answer

pytestmark = pytest.mark.anyio


async def test_enter_sends_and_other_keys_make_new_lines(tmp_path: Path) -> None:
    companion = Scripted()
    async with drawn(companion, tmp_path) as screen:
        await screen.types("a", "ctrl+j")
        await screen.types("b", "shift+enter")
        await screen.types("c\\", "enter")
        await screen.types("d", "enter")
        await screen.rests()
        assert companion.heard == ["a\nb\nc\nd"]
        await screen.pilot.press("up")
        assert screen.ui.chat.prompt.text == "a\nb\nc\nd"


async def test_keys_that_come_in_a_burst_are_taken_as_typed(tmp_path: Path) -> None:
    """Also when the list above could not follow."""
    companion = Scripted()
    async with drawn(companion, tmp_path) as screen:
        await screen.says("/help")
        await screen.rests()
        assert companion.commands == ["/help"]
        await screen.shows("Did /help.")


async def test_a_suggestion_is_taken_by_tab_and_by_mouse(tmp_path: Path) -> None:
    async with drawn(Scripted(), tmp_path) as screen:
        await screen.types("/re", "down", "tab")
        assert screen.ui.chat.prompt.text == "/retry "
        await screen.pilot.press("ctrl+c")
        assert screen.ui.chat.prompt.text == ""
        await screen.types("/mo")
        await screen.shows(" /model")
        place = next(row for row, line in enumerate(screen.lines) if line.startswith(" /model"))
        await screen.pilot.click(offset=(3, place))
        assert screen.ui.chat.prompt.text == "/model "


async def test_what_was_pasted_is_sent_whole(tmp_path: Path) -> None:
    companion = Scripted()
    long = "\r\n".join(f"line {number}" for number in range(50))
    async with drawn(companion, tmp_path) as screen:
        await screen.types("see ")
        screen.ui.post_message(Paste(long))
        await screen.shows("[pasted text 1: 50 lines]")
        await screen.pilot.press("enter")
        await screen.rests()
        assert companion.heard == ["see " + long.replace("\r\n", "\n")]


async def test_what_is_sent_meanwhile_waits_its_turn(tmp_path: Path) -> None:
    companion = Scripted()
    companion.turns = [[TextDelta("Well"), companion.until_stopped], answered("Second.")]
    companion.usually("queue")
    async with drawn(companion, tmp_path) as screen:
        await screen.says("one")
        await screen.shows("Well")
        await screen.says("two")
        await screen.shows("… two")
        await screen.says("three")
        await screen.shows("2 queued")
        await screen.pilot.press("up")
        assert screen.ui.chat.prompt.text == "three"
        await screen.pilot.press("ctrl+c")
        await screen.rests()
        assert companion.heard == ["one"]
        assert screen.ui.chat.prompt.text == "two\nthree"


async def test_sent_at_once_it_takes_the_place_of_what_goes_on(tmp_path: Path) -> None:
    companion = Scripted()
    companion.turns = [[TextDelta("Well"), companion.until_stopped], answered("Instead.")]
    async with drawn(companion, tmp_path) as screen:
        await screen.says("one")
        await screen.shows("Well")
        await screen.types("no, two", "ctrl+s")
        await screen.shows("Instead.")
        await screen.rests()
        assert companion.heard == ["one", "no, two"]


async def test_escape_interrupts_and_the_talk_goes_on(tmp_path: Path) -> None:
    companion = Scripted()
    (began, _) = called("terminal", '{"command": "sleep"}', "")
    companion.turns = [[began, companion.until_stopped]]
    async with drawn(companion, tmp_path) as screen:
        await screen.says("one")
        await screen.shows("● terminal sleep  running")
        await screen.pilot.press("escape")
        await screen.shows("Interrupted.")
        await screen.shows("✗ terminal sleep  interrupted")
        await screen.rests()
        await screen.says("two")
        await screen.shows("Plain answer.")


async def test_what_is_sent_after_an_interrupt_is_said(tmp_path: Path) -> None:
    """Also while the turn that was interrupted has not ended yet."""
    companion = Scripted()
    companion.turns = [[TextDelta("Well"), companion.until_stopped, companion.until_decided]]
    async with drawn(companion, tmp_path) as screen:
        await screen.says("one")
        await screen.shows("Well")
        screen.ui.chat.talk.interrupt()
        screen.ui.chat.talk.add("two")
        await screen.shows("Plain answer.")
        assert companion.heard == ["one", "two"]


async def test_ctrl_c_twice_leaves(tmp_path: Path) -> None:
    async with drawn(Scripted(), tmp_path) as screen:
        await screen.pilot.press("ctrl+c")
        assert screen.ui.return_value is None
        await screen.pilot.press("ctrl+c")
    assert screen.ui.return_value == 130


async def test_who_leaves_in_the_middle_does_not_wait(tmp_path: Path) -> None:
    companion = Scripted()
    companion.turns = [[TextDelta("Well"), companion.until_stopped, *answered("late\n\n" * 50)]]
    async with drawn(companion, tmp_path) as screen:
        await screen.says("one")
        await screen.shows("Well")
        screen.ui.chat.action_stop_or_leave()
        screen.ui.chat.action_stop_or_leave()
        await screen.until(lambda: screen.ui.return_value is not None)
    assert screen.ui.return_value == 130


@pytest.mark.parametrize("keys", [("ctrl+d",), (*"/quit", "enter"), ("ctrl+q",)])
async def test_other_ways_to_leave(tmp_path: Path, keys: tuple[str, ...]) -> None:
    async with drawn(Scripted(), tmp_path) as screen:
        await screen.says("hello")
        await screen.rests()
        await screen.pilot.press(*("slash" if key == "/" else key for key in keys))
        await screen.until(lambda: screen.ui.return_value is not None)
    assert screen.ui.return_value == 0
    assert "> hello\nPlain answer." in screen.ui.text


async def test_other_failures_are_told_and_the_talk_goes_on(tmp_path: Path) -> None:
    companion = Scripted()
    companion.failure = HermesError("The key is wrong.", hint="hermes config set KEY")
    async with drawn(companion, tmp_path) as screen:
        await screen.says("hello")
        await screen.shows("The key is wrong.\n hermes config set KEY")
        companion.failure = None
        await screen.says("again")
        await screen.shows("Plain answer.")


@pytest.mark.parametrize(
    ("keys", "answer", "told"),
    [
        (("o",), "once", "allowed once"),
        (("a",), "always", "allowed always"),
        (("enter",), "deny", "denied"),
        (("up", "up", "enter"), "session", "allowed for this session"),
    ],
)
async def test_leave_is_given_by_a_key(
    tmp_path: Path, keys: tuple[str, ...], answer: str, told: str
) -> None:
    companion, clock = Scripted(), FakeClock()
    began, done = called("terminal", '{"command": "make"}', "")
    asked = [began, leave_asked(origin="Ann on telegram"), companion.until_decided, done]
    companion.turns = [[*asked, *answered("That was it.")]]
    async with drawn(companion, tmp_path, clock=clock) as screen:
        await screen.says("build")
        await screen.until(lambda: has_focus_in(screen.ui.chat, QuestionCard))
        assert "asked by Ann on telegram" in screen.text
        await clock.advance(CALM)
        await screen.pilot.press(*keys)
        await screen.shows("That was it.")
        assert companion.answers == [("q1", answer)]
        assert f"→ {told}" in screen.text
        assert "why:" not in screen.text
        # The person's time is not the call's.
        assert " s\n" not in screen.text
        assert screen.ui.chat.prompt.has_focus


async def test_who_types_after_a_card_was_looked_at_says_it(tmp_path: Path) -> None:
    """All of it, and Enter too, wherever the focus was and however fast the keys come."""
    companion = Scripted([*called("terminal", "{}", "x"), *answered("```sh\nls\n```")])
    async with drawn(companion, tmp_path) as screen:
        await screen.says("go")
        await screen.rests()
        await screen.pilot.click(CodeHead)
        await screen.types("can you", "enter")
        await screen.until(lambda: companion.heard == ["go", "can you"])
        await screen.rests()
        screen.ui.chat.set_focus(screen.ui.chat.query(ToolCard).first().head)
        for key in (Key("h", "h"), Key("i", "i"), Key("enter", "\r")):
            screen.ui.post_message(key)
        await screen.until(lambda: companion.heard == ["go", "can you", "hi"])
        await screen.rests()
        screen.ui.chat.set_focus(screen.ui.chat.query(ToolCard).first().head)
        await screen.pilot.press("ctrl+d")
        await screen.until(lambda: screen.ui.return_value == 0)


async def test_a_long_question_is_shown_short_and_sent_whole(tmp_path: Path) -> None:
    companion = Scripted()
    long = "\n".join(f"line {number}" for number in range(5_000))
    async with drawn(companion, tmp_path) as screen:
        screen.ui.post_message(Paste(long + "\n"))
        await screen.shows("[pasted text 1: 5,000 lines]")
        await screen.pilot.press("enter")
        await screen.shows("Plain answer.")
        assert companion.heard == [long + "\n"]
        assert "… 4,988 more lines …" in screen.text
        assert "line 4999" in screen.text


async def test_leave_is_given_by_a_click(tmp_path: Path) -> None:
    companion = Scripted()
    companion.turns = [[leave_asked(), companion.until_decided, *answered("That was it.")]]
    async with drawn(companion, tmp_path) as screen:
        await screen.says("build")
        await screen.shows("Allow for this session")
        place = next(row for row, line in enumerate(screen.lines) if "for this session" in line)
        await screen.pilot.click(offset=(8, place))
        await screen.shows("That was it.")
        assert companion.answers == [("q1", "session")]


async def test_keys_in_a_hurry_decide_nothing(tmp_path: Path) -> None:
    companion, clock = Scripted(), FakeClock()
    companion.turns = [[leave_asked(), companion.until_decided]]
    async with drawn(companion, tmp_path, clock=clock) as screen:
        await screen.says("build")
        await screen.until(lambda: has_focus_in(screen.ui.chat, QuestionCard))
        await screen.pilot.press("o", "enter", "a")
        assert companion.answers == []
        companion.interrupt()
        await screen.shows("→ not answered")
        await screen.until(lambda: screen.ui.chat.prompt.has_focus)


async def test_a_question_counts_down_and_a_key_too_late_says_nothing(tmp_path: Path) -> None:
    companion, clock = Scripted(), FakeClock()
    asked = leave_asked(until=clock.now() + timedelta(seconds=60), origin="you, in the terminal")
    lapsed = Answered("q1", "")
    companion.turns = [[asked, companion.until_decided, lapsed, companion.until_stopped]]
    async with drawn(companion, tmp_path, clock=clock) as screen:
        prompt = screen.ui.chat.prompt
        await screen.says("build")
        await screen.until(lambda: has_focus_in(screen.ui.chat, QuestionCard))
        await screen.shows("60 s left, then it is not done")
        assert "asked by" not in screen.text
        await clock.advance(13)
        await screen.shows("47 s left")
        await clock.advance(47)
        companion._decided.set()
        await screen.shows("Nobody answered within 60 s: not done")
        assert "left, then" not in screen.text
        await screen.until(lambda: prompt.has_focus)
        await screen.pilot.press("d")
        assert prompt.text == ""
        await clock.advance(HUSH)
        await screen.types("do")
        assert prompt.text == "do"
        assert companion.answers == []
        companion.interrupt()
        await screen.rests()


async def test_other_keys_are_words_at_once_when_a_question_is_over(tmp_path: Path) -> None:
    companion, clock = Scripted(), FakeClock()
    asked = leave_asked(until=clock.now() + timedelta(seconds=60))
    lapsed = Answered("q1", "")
    companion.turns = [[asked, companion.until_decided, lapsed, companion.until_stopped]]
    async with drawn(companion, tmp_path, clock=clock) as screen:
        await screen.says("build")
        await screen.until(lambda: has_focus_in(screen.ui.chat, QuestionCard))
        companion._decided.set()
        await screen.shows("Nobody answered within")
        await screen.until(lambda: screen.ui.chat.prompt.has_focus)
        await screen.types("no dog")
        assert screen.ui.chat.prompt.text == "no dog"
        companion.interrupt()
        await screen.rests()


async def test_what_was_said_about_stopping_goes_when_it_has_stopped(tmp_path: Path) -> None:
    companion = Scripted()
    go_on = threading.Event()
    companion.turns = [[TextDelta("Well"), lambda: go_on.wait(PATIENCE)]]
    async with drawn(companion, tmp_path) as screen:
        await screen.says("one")
        await screen.shows("Well")
        await screen.pilot.press("ctrl+c")
        await screen.until(lambda: len(screen.ui._notifications))
        go_on.set()
        await screen.shows("Interrupted.")
        await screen.until(lambda: not len(screen.ui._notifications))


async def test_a_new_session_is_not_full(tmp_path: Path) -> None:
    async with drawn(Scripted(answered("Well.")), tmp_path) as screen:
        await screen.says("one")
        await screen.shows("9%")
        await screen.says("/new")
        await screen.shows("New session s2.")
        await screen.hides("9%")


async def test_a_message_is_cut_before_the_name_of_its_tool(tmp_path: Path) -> None:
    failed = called(
        "read_file", '{"path": "a/very/long/path/that/goes/on.py"}', "", failed=True,
        text="There is no such file anywhere, " * 10,
    )  # fmt: skip
    async with drawn(Scripted([*failed]), tmp_path, size=(40, 24)) as screen:
        await screen.says("look")
        await screen.rests()
        await screen.shows("✗ read_file a…")
        assert "There is no" in screen.text


async def test_whoever_types_is_not_disturbed_by_a_question(tmp_path: Path) -> None:
    companion, clock = Scripted(), FakeClock()
    companion.turns = [[companion.until_decided, leave_asked(), companion.until_decided]]
    async with drawn(companion, tmp_path, clock=clock) as screen:
        await screen.says("build")
        await screen.types("so")
        companion._decided.set()
        await screen.shows("Allow once")
        await clock.advance(CALM)
        await screen.types("on")
        assert screen.ui.chat.prompt.text == "soon"
        assert companion.answers == []
        companion.interrupt()
        await screen.rests()


@pytest.mark.parametrize(("typed", "answer"), [("2", "blue"), ("green", "green")])
async def test_a_question_is_answered_by_number_or_words(
    tmp_path: Path, typed: str, answer: str
) -> None:
    companion, clock = Scripted(), FakeClock()
    companion.turns = [[clarified("red", "blue"), companion.until_decided, *answered("Nice.")]]
    async with drawn(companion, tmp_path, clock=clock) as screen:
        await screen.says("paint")
        await screen.until(lambda: has_focus_in(screen.ui.chat, QuestionCard))
        await clock.advance(CALM)
        if typed != "2":
            await screen.pilot.press("escape")
        await screen.types(typed, *(("enter",) if typed != "2" else ()))
        await screen.shows("Nice.")
        assert companion.answers == [("q2", answer)]
        assert companion.heard == ["paint"]


async def test_cards_open_by_key_and_mouse(tmp_path: Path) -> None:
    (began, ended) = called("terminal", '{"command": "ls"}', "one\ntwo")
    steps = [ReasoningDelta("Hm"), began, ToolProgress("c1", "half\n"), ended]
    async with drawn(Scripted(steps), tmp_path) as screen:
        await screen.says("look")
        await screen.shows("✓ terminal ls  2 lines")
        await screen.rests()
        (card,) = screen.ui.chat.query(ToolCard)
        await screen.pilot.click(card.head)
        await screen.shows("$ ls\n   one\n   two")
        card.head.focus()
        await screen.pilot.press("enter")
        await screen.hides("$ ls")
        (thought,) = screen.ui.chat.query(Thinking)
        await screen.pilot.click(thought.head)
        await screen.shows("   Hm")


async def test_what_is_to_be_done_is_open_to_read(tmp_path: Path) -> None:
    todos = '{"todos": [{"id": "1", "content": "Sow", "status": "completed"}]}'
    async with drawn(Scripted([*called("todo", todos, "[x] Sow\n[ ] Water")]), tmp_path) as screen:
        await screen.says("plan")
        await screen.shows("✓ todo  2 lines\n   [x] Sow\n   [ ] Water")
        await screen.hides('"todos"')
        await screen.hides("todos:")


async def test_typing_goes_to_the_prompt_wherever_one_is(tmp_path: Path) -> None:
    async with drawn(Scripted(called("terminal", "{}", "x")), tmp_path) as screen:
        await screen.says("look")
        await screen.rests()
        (card,) = screen.ui.chat.query(ToolCard)
        card.head.focus()
        await screen.types("hello")
        assert screen.ui.chat.prompt.text == "hello"


async def test_code_is_copied_by_key_and_mouse(tmp_path: Path) -> None:
    text = "```py\nfirst = 1\n```\n\nand\n\n```sh\nls -la\n```\n"
    async with drawn(Scripted(answered(text)), tmp_path) as screen:
        await screen.says("code")
        await screen.rests()
        await screen.pilot.press("ctrl+y")
        await screen.until(lambda: screen.ui.clipboard == "ls -la")
        place = next(row for row, line in enumerate(screen.lines) if line.endswith("[copy]"))
        await screen.pilot.click(offset=(74, place))
        await screen.until(lambda: screen.ui.clipboard == "first = 1")


async def test_an_answer_that_starts_over_is_taken_back(tmp_path: Path) -> None:
    steps = [TextDelta("Wrong beg"), StreamReset("the link was cut"), *answered("Right.")]
    async with drawn(Scripted(steps), tmp_path) as screen:
        await screen.says("hello")
        await screen.shows("Right.")
        await screen.rests()
        assert "Wrong beg" not in screen.text
        assert "the link was cut; the answer starts again." in screen.text


async def test_words_that_got_lost_are_in_the_message(tmp_path: Path) -> None:
    steps = [*answered("All of the words.")[1:]]
    async with drawn(Scripted(steps), tmp_path) as screen:
        await screen.says("hello")
        await screen.shows("All of the words.")
        await screen.rests()
        assert len(screen.ui.chat.query(Answer)) == 1


async def test_what_comes_in_by_itself_is_asked_about(tmp_path: Path) -> None:
    companion = Scripted(answered("The job is done."))
    async with drawn(companion, tmp_path) as screen:
        companion.fresh = True
        await screen.shows("The job is done.")
        assert companion.heard == [""]


async def test_a_session_is_found_and_gone_back_to(tmp_path: Path) -> None:
    companion = Scripted()
    async with drawn(companion, tmp_path) as screen:
        await screen.says("/resume")
        await screen.shows("Plan the garden")
        await screen.types("fence")
        await screen.hides("Plan the garden")
        await screen.pilot.press("enter")
        await screen.shows("Back in session s7.")
        assert companion.commands == ["/resume s8"]


async def test_a_model_is_chosen_and_named(tmp_path: Path) -> None:
    companion = Scripted()
    async with drawn(companion, tmp_path) as screen:
        await screen.says("/model")
        await screen.shows("openai/gpt-5-mini")
        await screen.shows("in use")
        await screen.pilot.press("up", "enter")
        await screen.shows("Did /model gpt-5 --provider openai.")
        await screen.pilot.press("f2")
        await screen.shows("nobody listens there")
        await screen.pilot.press("escape")
        await screen.hides("nobody listens there")
        assert len(companion.commands) == 1


async def test_commands_may_clear_ask_or_be_words(tmp_path: Path) -> None:
    companion = Scripted()
    async with drawn(companion, tmp_path) as screen:
        await screen.says("/retry ")
        await screen.shows("▌ the same again")
        await screen.rests()
        await screen.says("/path/to it")
        await screen.rests()
        assert companion.heard == ["the same again"]
        await screen.says("/path is it")
        await screen.rests()
        assert companion.heard == ["the same again", "/path is it"]
        await screen.says("/clear ")
        await screen.shows("New session s2.")
        assert "the same again" not in screen.text


def has_focus_in(chat: Chat, kind: type) -> bool:
    return any(isinstance(one, kind) for one in (chat.focused or chat).ancestors_with_self)
