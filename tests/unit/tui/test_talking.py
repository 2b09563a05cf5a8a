"""Sending, queueing, interrupting and quitting."""

import threading
from pathlib import Path

import pytest
from textual.events import Paste

from hermes.schema.errors import HermesError
from hermes.schema.events import TextDelta
from hermes.testing.clock import FakeClock
from hermes.tui.screens.key_timing import QUIT_WINDOW
from support.fake_tui_client import CLIENT_TIMEOUT, FakeTuiClient, answer_events, tool_events
from support.tui_screen import tui_screen

pytestmark = pytest.mark.anyio


async def test_enter_sends_and_other_keys_make_new_lines(tmp_path: Path) -> None:
    companion = FakeTuiClient()
    async with tui_screen(companion, tmp_path) as screen:
        await screen.types("a", "ctrl+j")
        await screen.types("b", "shift+enter")
        await screen.types("c\\", "enter")
        await screen.types("d", "enter")
        await screen.rests()
        assert companion.heard == ["a\nb\nc\nd"]
        await screen.pilot.press("up")
        assert screen.ui.chat.prompt.text == "a\nb\nc\nd"


async def test_keys_that_come_in_a_burst_are_taken_as_typed(tmp_path: Path) -> None:
    """Even if the suggestions lag behind."""
    companion = FakeTuiClient()
    async with tui_screen(companion, tmp_path) as screen:
        await screen.says("/help")
        await screen.rests()
        assert companion.commands == ["/help"]
        await screen.shows("Did /help.")


async def test_a_suggestion_is_taken_by_tab_and_by_mouse(tmp_path: Path) -> None:
    async with tui_screen(FakeTuiClient(), tmp_path) as screen:
        await screen.types("/re", "down", "tab")
        assert screen.ui.chat.prompt.text == "/retry "
        await screen.pilot.press("ctrl+c")
        assert screen.ui.chat.prompt.text == ""
        await screen.types("/mo")
        await screen.shows(" /model")
        place = next(row for row, line in enumerate(screen.lines) if line.startswith(" /model"))
        await screen.pilot.click(offset=(3, place))
        assert screen.ui.chat.prompt.text == "/model "


async def test_pasted_text_is_sent_whole(tmp_path: Path) -> None:
    companion = FakeTuiClient()
    long = "\r\n".join(f"line {number}" for number in range(50))
    async with tui_screen(companion, tmp_path) as screen:
        await screen.types("see ")
        screen.ui.post_message(Paste(long))
        await screen.shows("[pasted text 1: 50 lines]")
        await screen.pilot.press("enter")
        await screen.rests()
        assert companion.heard == ["see " + long.replace("\r\n", "\n")]


async def test_message_during_a_turn_is_queued(tmp_path: Path) -> None:
    companion = FakeTuiClient()
    companion.turns = [[TextDelta("Well"), companion.wait_until_stopped], answer_events("Second.")]
    companion.set_busy_mode("queue")
    async with tui_screen(companion, tmp_path) as screen:
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


async def test_interrupting_message_replaces_the_turn(tmp_path: Path) -> None:
    companion = FakeTuiClient()
    companion.turns = [[TextDelta("Well"), companion.wait_until_stopped], answer_events("Instead.")]
    async with tui_screen(companion, tmp_path) as screen:
        await screen.says("one")
        await screen.shows("Well")
        await screen.types("no, two", "ctrl+s")
        await screen.shows("Instead.")
        await screen.rests()
        assert companion.heard == ["one", "no, two"]


async def test_escape_interrupts_and_the_conversation_continues(tmp_path: Path) -> None:
    companion = FakeTuiClient()
    (began, _) = tool_events("terminal", '{"command": "sleep"}', "")
    companion.turns = [[began, companion.wait_until_stopped]]
    async with tui_screen(companion, tmp_path) as screen:
        await screen.says("one")
        await screen.shows("● terminal sleep  running")
        await screen.pilot.press("escape")
        await screen.shows("Interrupted.")
        await screen.shows("✗ terminal sleep  interrupted")
        await screen.rests()
        await screen.says("two")
        await screen.shows("Plain answer.")


async def test_message_after_an_interrupt_is_sent(tmp_path: Path) -> None:
    """Even while the interrupted turn has not ended yet."""
    companion = FakeTuiClient()
    companion.turns = [
        [TextDelta("Well"), companion.wait_until_stopped, companion.wait_until_decided]
    ]
    async with tui_screen(companion, tmp_path) as screen:
        await screen.says("one")
        await screen.shows("Well")
        screen.ui.chat.talk.interrupt()
        screen.ui.chat.talk.add("two")
        await screen.shows("Plain answer.")
        assert companion.heard == ["one", "two"]


async def test_ctrl_c_twice_quits(tmp_path: Path) -> None:
    async with tui_screen(FakeTuiClient(), tmp_path) as screen:
        await screen.pilot.press("ctrl+c")
        assert screen.ui.return_value is None
        await screen.pilot.press("ctrl+c")
    assert screen.ui.return_value == 130


async def test_second_ctrl_c_does_not_quit_with_new_input(tmp_path: Path) -> None:
    """The first stops a turn and returns queued input; the second clears the line."""
    companion, clock = FakeTuiClient(), FakeClock()
    companion.turns = [[TextDelta("Well"), companion.wait_until_stopped]]
    async with tui_screen(companion, tmp_path, clock=clock) as screen:
        await screen.says("one")
        await screen.shows("Well")
        await screen.types("two", "ctrl+n")
        await screen.pilot.press("ctrl+c")
        await screen.until(lambda: screen.ui.chat.prompt.text == "two")
        await screen.rests()
        await clock.advance(QUIT_WINDOW)
        await screen.pilot.press("ctrl+c")
        assert screen.ui.chat.prompt.text == ""
        await screen.pilot.press("ctrl+c", "ctrl+c")
    assert screen.ui.return_value == 130


async def test_long_reply_is_shown_from_its_start(tmp_path: Path) -> None:
    async with tui_screen(FakeTuiClient(), tmp_path) as screen:
        await screen.says("/history")
        await screen.shows("more below")
        await screen.shows("command 0")
        await screen.says("/help")
        await screen.shows("Did /help.")
        await screen.hides("more below")


async def test_quit_during_a_turn_does_not_wait(tmp_path: Path) -> None:
    companion = FakeTuiClient()
    companion.turns = [
        [TextDelta("Well"), companion.wait_until_stopped, *answer_events("late\n\n" * 50)]
    ]
    async with tui_screen(companion, tmp_path) as screen:
        await screen.says("one")
        await screen.shows("Well")
        screen.ui.chat.action_stop_or_leave()
        screen.ui.chat.action_stop_or_leave()
        await screen.until(lambda: screen.ui.return_value is not None)
    assert screen.ui.return_value == 130


@pytest.mark.parametrize("keys", [("ctrl+d",), (*"/quit", "enter"), ("ctrl+q",)])
async def test_other_ways_to_quit(tmp_path: Path, keys: tuple[str, ...]) -> None:
    async with tui_screen(FakeTuiClient(), tmp_path) as screen:
        await screen.says("hello")
        await screen.rests()
        await screen.pilot.press(*("slash" if key == "/" else key for key in keys))
        await screen.until(lambda: screen.ui.return_value is not None)
    assert screen.ui.return_value == 0
    assert "> hello\nPlain answer." in screen.ui.text


async def test_errors_are_shown_and_the_conversation_continues(tmp_path: Path) -> None:
    companion = FakeTuiClient()
    companion.failure = HermesError("The key is wrong.", hint="hermes config set KEY")
    async with tui_screen(companion, tmp_path) as screen:
        await screen.says("hello")
        await screen.shows("The key is wrong.\n hermes config set KEY")
        companion.failure = None
        await screen.says("again")
        await screen.shows("Plain answer.")


async def test_stopping_notice_disappears(tmp_path: Path) -> None:
    companion = FakeTuiClient()
    go_on = threading.Event()
    companion.turns = [[TextDelta("Well"), lambda: go_on.wait(CLIENT_TIMEOUT)]]
    async with tui_screen(companion, tmp_path) as screen:
        await screen.says("one")
        await screen.shows("Well")
        await screen.pilot.press("ctrl+c")
        await screen.until(lambda: len(screen.ui._notifications))
        go_on.set()
        await screen.shows("Interrupted.")
        await screen.until(lambda: not len(screen.ui._notifications))


async def test_new_session_resets_usage(tmp_path: Path) -> None:
    async with tui_screen(FakeTuiClient(answer_events("Well.")), tmp_path) as screen:
        await screen.says("one")
        await screen.shows("9%")
        await screen.says("/new")
        await screen.shows("New session s2.")
        await screen.hides("9%")


async def test_incoming_report_starts_a_turn(tmp_path: Path) -> None:
    companion = FakeTuiClient(answer_events("The job is done."))
    async with tui_screen(companion, tmp_path) as screen:
        companion.fresh = True
        await screen.shows("The job is done.")
        assert companion.heard == [""]


async def test_session_is_found_and_resumed(tmp_path: Path) -> None:
    companion = FakeTuiClient()
    async with tui_screen(companion, tmp_path) as screen:
        await screen.says("/resume")
        await screen.shows("Plan the garden")
        await screen.types("fence")
        await screen.hides("Plan the garden")
        await screen.pilot.press("enter")
        await screen.shows("Resumed session s7.")
        assert companion.commands == ["/resume s8"]


async def test_model_is_chosen(tmp_path: Path) -> None:
    companion = FakeTuiClient()
    async with tui_screen(companion, tmp_path) as screen:
        await screen.says("/model")
        await screen.shows("openai/gpt-5-mini")
        await screen.shows("in use")
        await screen.pilot.press("up", "enter")
        await screen.shows("Did /model gpt-5 --provider openai.")
        await screen.pilot.press("f2")
        await screen.shows("connection refused")
        await screen.pilot.press("escape")
        await screen.hides("connection refused")
        assert len(companion.commands) == 1


async def test_commands_clear_submit_or_are_plain_text(tmp_path: Path) -> None:
    companion = FakeTuiClient()
    async with tui_screen(companion, tmp_path) as screen:
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
