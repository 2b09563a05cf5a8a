"""Sending, queueing, interrupting and quitting."""

import threading
from pathlib import Path

import pytest
from textual.events import Paste

from hermes.schema.errors import HermesError
from hermes.schema.events import TextDelta
from hermes.testing.clock import FakeClock
from hermes.tui.keys import JOBS_WINDOW, QUIT_WINDOW
from support.fake_tui_client import CLIENT_TIMEOUT, FakeTuiClient, answer_events, tool_events
from support.tui_screen import TuiScreen, tui_screen

pytestmark = pytest.mark.slow


async def test_enter_sends_and_other_keys_make_new_lines(tmp_path: Path) -> None:
    companion = FakeTuiClient()
    async with tui_screen(companion, tmp_path) as screen:
        await screen.type_keys("a", "ctrl+j")
        await screen.type_keys("b", "shift+enter")
        await screen.type_keys("c\\", "enter")
        await screen.type_keys("d", "enter")
        await screen.wait_until_idle()
        assert companion.messages == ["a\nb\nc\nd"]
        await screen.pilot.press("up")
        assert screen.ui.chat.prompt.text == "a\nb\nc\nd"


async def test_keys_that_come_in_a_burst_are_taken_as_typed(tmp_path: Path) -> None:
    """Even if the suggestions lag behind."""
    companion = FakeTuiClient()
    async with tui_screen(companion, tmp_path) as screen:
        await screen.submit("/help")
        await screen.wait_until_idle()
        assert companion.commands == ["/help"]
        await screen.wait_for("Did /help.")


async def test_a_suggestion_is_taken_by_tab_and_by_mouse(tmp_path: Path) -> None:
    async with tui_screen(FakeTuiClient(), tmp_path) as screen:
        await screen.type_keys("/re", "down", "tab")
        assert screen.ui.chat.prompt.text == "/retry "
        await screen.pilot.press("ctrl+c")
        assert screen.ui.chat.prompt.text == ""
        await screen.type_keys("/mo")
        await screen.wait_for(" /model")
        place = next(row for row, line in enumerate(screen.lines) if line.startswith(" /model"))
        await screen.pilot.click(offset=(3, place))
        assert screen.ui.chat.prompt.text == "/model "


async def test_pasted_text_is_sent_whole(tmp_path: Path) -> None:
    companion = FakeTuiClient()
    long = "\r\n".join(f"line {number}" for number in range(50))
    async with tui_screen(companion, tmp_path) as screen:
        await screen.type_keys("see ")
        screen.ui.post_message(Paste(long))
        await screen.wait_for("[pasted text 1: 50 lines]")
        await screen.pilot.press("enter")
        await screen.wait_until_idle()
        assert companion.messages == ["see " + long.replace("\r\n", "\n")]


async def test_message_during_a_turn_is_queued(tmp_path: Path) -> None:
    companion = FakeTuiClient()
    companion.turns = [[TextDelta("Well"), companion.wait_until_stopped], answer_events("Second.")]
    companion.set_busy_mode("queue")
    async with tui_screen(companion, tmp_path) as screen:
        await screen.submit("one")
        await screen.wait_for("Well")
        await screen.submit("two")
        await screen.wait_for("… two")
        await screen.submit("three")
        await screen.wait_for("2 queued")
        await screen.pilot.press("up")
        assert screen.ui.chat.prompt.text == "three"
        await screen.pilot.press("ctrl+c")
        await screen.wait_until_idle()
        assert companion.messages == ["one"]
        assert screen.ui.chat.prompt.text == "two\nthree"


async def test_interrupting_message_replaces_the_turn(tmp_path: Path) -> None:
    companion = FakeTuiClient()
    companion.turns = [[TextDelta("Well"), companion.wait_until_stopped], answer_events("Instead.")]
    async with tui_screen(companion, tmp_path) as screen:
        await screen.submit("one")
        await screen.wait_for("Well")
        await screen.type_keys("no, two", "ctrl+s")
        await screen.wait_for("Instead.")
        await screen.wait_until_idle()
        assert companion.messages == ["one", "no, two"]


async def test_escape_interrupts_and_the_conversation_continues(tmp_path: Path) -> None:
    companion = FakeTuiClient()
    (began, _) = tool_events("terminal", '{"command": "sleep"}', "")
    companion.turns = [[began, companion.wait_until_stopped]]
    async with tui_screen(companion, tmp_path) as screen:
        await screen.submit("one")
        await screen.wait_for("● terminal sleep  running")
        await screen.pilot.press("escape")
        await screen.wait_for("Interrupted.")
        await screen.wait_for("✗ terminal sleep  interrupted")
        await screen.wait_until_idle()
        await screen.submit("two")
        await screen.wait_for("Plain answer.")


async def test_message_after_an_interrupt_is_sent(tmp_path: Path) -> None:
    """Even while the interrupted turn has not ended yet."""
    companion = FakeTuiClient()
    companion.turns = [
        [TextDelta("Well"), companion.wait_until_stopped, companion.wait_until_decided]
    ]
    async with tui_screen(companion, tmp_path) as screen:
        await screen.submit("one")
        await screen.wait_for("Well")
        screen.ui.chat.conversation.interrupt()
        screen.ui.chat.conversation.add("two")
        await screen.wait_for("Plain answer.")
        assert companion.messages == ["one", "two"]


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
        await screen.submit("one")
        await screen.wait_for("Well")
        await screen.type_keys("two", "ctrl+n")
        await screen.pilot.press("ctrl+c")
        await screen.wait_until(lambda: screen.ui.chat.prompt.text == "two")
        await screen.wait_until_idle()
        await clock.advance(QUIT_WINDOW)
        await screen.pilot.press("ctrl+c")
        assert screen.ui.chat.prompt.text == ""
        await screen.pilot.press("ctrl+c", "ctrl+c")
    assert screen.ui.return_value == 130


async def test_long_reply_is_shown_from_its_start(tmp_path: Path) -> None:
    async with tui_screen(FakeTuiClient(), tmp_path) as screen:
        await screen.submit("/history")
        await screen.wait_for("more below")
        await screen.wait_for("command 0")
        await screen.submit("/help")
        await screen.wait_for("Did /help.")
        await screen.wait_until_gone("more below")


async def test_quit_during_a_turn_does_not_wait(tmp_path: Path) -> None:
    companion = FakeTuiClient()
    companion.turns = [
        [TextDelta("Well"), companion.wait_until_stopped, *answer_events("late\n\n" * 50)]
    ]
    async with tui_screen(companion, tmp_path) as screen:
        await screen.submit("one")
        await screen.wait_for("Well")
        screen.ui.chat.action_stop_or_quit()
        screen.ui.chat.action_stop_or_quit()
        await screen.wait_until(lambda: screen.ui.return_value is not None)
    assert screen.ui.return_value == 130


@pytest.mark.parametrize("keys", [("ctrl+d",), (*"/quit", "enter"), ("ctrl+q",)])
async def test_other_ways_to_quit(tmp_path: Path, keys: tuple[str, ...]) -> None:
    async with tui_screen(FakeTuiClient(), tmp_path) as screen:
        await screen.submit("hello")
        await screen.wait_until_idle()
        await screen.pilot.press(*("slash" if key == "/" else key for key in keys))
        await screen.wait_until(lambda: screen.ui.return_value is not None)
    assert screen.ui.return_value == 0
    assert "> hello\nPlain answer." in screen.ui.text


async def test_errors_are_shown_and_the_conversation_continues(tmp_path: Path) -> None:
    companion = FakeTuiClient()
    companion.failure = HermesError("The key is wrong.", hint="hermes config set KEY")
    async with tui_screen(companion, tmp_path) as screen:
        await screen.submit("hello")
        await screen.wait_for("The key is wrong.\n hermes config set KEY")
        companion.failure = None
        await screen.submit("again")
        await screen.wait_for("Plain answer.")


async def test_stopping_notice_disappears(tmp_path: Path) -> None:
    companion = FakeTuiClient()
    go_on = threading.Event()
    companion.turns = [[TextDelta("Well"), lambda: go_on.wait(CLIENT_TIMEOUT)]]
    async with tui_screen(companion, tmp_path) as screen:
        await screen.submit("one")
        await screen.wait_for("Well")
        await screen.pilot.press("ctrl+c")
        await screen.wait_until(lambda: len(screen.ui._notifications))
        go_on.set()
        await screen.wait_for("Interrupted.")
        await screen.wait_until(lambda: not len(screen.ui._notifications))


async def test_new_session_resets_usage(tmp_path: Path) -> None:
    async with tui_screen(FakeTuiClient(answer_events("Well.")), tmp_path) as screen:
        await screen.submit("one")
        await screen.wait_for("9%")
        await screen.submit("/new")
        await screen.wait_for("New session s2.")
        await screen.wait_until_gone("9%")


async def test_incoming_report_starts_a_turn(tmp_path: Path) -> None:
    companion = FakeTuiClient(answer_events("The job is done."))
    async with tui_screen(companion, tmp_path) as screen:
        companion.report_waiting = True
        await screen.wait_for("The job is done.")
        assert companion.messages == [""]


async def test_session_is_found_and_resumed(tmp_path: Path) -> None:
    companion = FakeTuiClient()
    async with tui_screen(companion, tmp_path) as screen:
        await screen.submit("/resume")
        await screen.wait_for("Plan the garden")
        await screen.type_keys("fence")
        await screen.wait_until_gone("Plan the garden")
        await screen.pilot.press("enter")
        await screen.wait_for("Resumed session s7.")
        assert companion.commands == ["/resume s8"]


async def test_model_is_chosen(tmp_path: Path) -> None:
    companion = FakeTuiClient()
    async with tui_screen(companion, tmp_path) as screen:
        await screen.submit("/model")
        await screen.wait_for("openai/gpt-5-mini")
        await screen.wait_for("in use")
        await screen.pilot.press("up", "enter")
        await screen.wait_for("Did /model gpt-5 --provider openai.")
        await screen.pilot.press("f2")
        await screen.wait_for("connection refused")
        await screen.pilot.press("escape")
        await screen.wait_until_gone("connection refused")
        assert len(companion.commands) == 1


async def test_commands_clear_submit_or_are_plain_text(tmp_path: Path) -> None:
    companion = FakeTuiClient()
    async with tui_screen(companion, tmp_path) as screen:
        await screen.submit("/retry ")
        await screen.wait_for("▌ the same again")
        await screen.wait_until_idle()
        await screen.submit("/path/to it")
        await screen.wait_until_idle()
        assert companion.messages == ["the same again"]
        await screen.submit("/path is it")
        await screen.wait_until_idle()
        assert companion.messages == ["the same again", "/path is it"]
        await screen.submit("/clear ")
        await screen.wait_for("New session s2.")
        assert "the same again" not in screen.text


@pytest.mark.parametrize("keys", [("ctrl+d",), (*"/quit", "enter"), ("ctrl+q",)])
async def test_quitting_warns_before_it_ends_background_tasks(
    tmp_path: Path, keys: tuple[str, ...]
) -> None:
    companion, clock = FakeTuiClient(), FakeClock()
    companion.unfinished_jobs = 1
    warning = "1 background task is still running; quitting ends it."
    async with tui_screen(companion, tmp_path, clock=clock) as screen:
        pressed = ["slash" if key == "/" else key for key in keys]
        for _ in range(2):
            await screen.pilot.press(*pressed)
            await screen.wait_until(lambda: has_notice(screen, warning))
            await screen.wait_until_idle()
            assert screen.ui.return_value is None
            screen.ui.clear_notifications()
            await clock.advance(JOBS_WINDOW)
        await screen.pilot.press(*pressed)
        await screen.wait_until(lambda: has_notice(screen, warning))
        await screen.wait_until_idle()
        await screen.pilot.press(*pressed)
        await screen.wait_until(lambda: screen.ui.return_value is not None)
    assert screen.ui.return_value == 0


async def test_ctrl_c_after_a_stopped_turn_warns_of_background_tasks(tmp_path: Path) -> None:
    companion = FakeTuiClient()
    companion.turns = [[TextDelta("Well"), companion.wait_until_stopped]]
    companion.unfinished_jobs = 2
    async with tui_screen(companion, tmp_path) as screen:
        await screen.submit("one")
        await screen.wait_for("Well")
        await screen.pilot.press("ctrl+c")
        await screen.wait_until_idle()
        await screen.pilot.press("ctrl+c")
        assert has_notice(screen, "2 background tasks are still running; quitting ends them.")
        assert screen.ui.return_value is None
        await screen.pilot.press("ctrl+c")
        await screen.wait_until(lambda: screen.ui.return_value is not None)
    assert screen.ui.return_value == 130


def has_notice(screen: TuiScreen, words: str) -> bool:
    return any(words in notice.message for notice in screen.ui._notifications)
