"""Messages during a turn: interrupt, queue, steer, collect."""

from pathlib import Path

import pytest

from hermes.schema.events import TextDelta
from hermes.tui.options import BusyMode, mode_of_line, parse_busy_mode
from support.fake_tui_client import FakeTuiClient, answer_events
from support.tui_screen import tui_screen

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("line", "busy_mode", "words"),
    [
        ("the other one", BusyMode.COLLECT, "the other one"),
        ("/steer the other", BusyMode.STEER, "the other"),
        ("/queue and then", BusyMode.QUEUE, "and then"),
        ("/q and then", BusyMode.QUEUE, "and then"),
        ("/STOP", BusyMode.INTERRUPT, ""),
        ("/help", BusyMode.QUEUE, "/help"),
        ("/steer", BusyMode.QUEUE, "/steer"),
        ("  /etc/hosts is what?", BusyMode.QUEUE, "  /etc/hosts is what?"),
    ],
)
def test_mode_of_line(line: str, busy_mode: BusyMode, words: str) -> None:
    assert mode_of_line(line, BusyMode.COLLECT) == (busy_mode, words)


def test_default_mode_interrupts() -> None:
    assert parse_busy_mode("") is BusyMode.INTERRUPT
    assert parse_busy_mode("steer") is BusyMode.STEER


def busy(*after: str) -> FakeTuiClient:
    """A turn that runs until stopped, and one for each answer."""
    companion = FakeTuiClient()
    going = [TextDelta("Well"), companion.wait_until_stopped]
    companion.turns = [going, *(answer_events(text) for text in after)]
    return companion


async def test_enter_interrupts_by_default(tmp_path: Path) -> None:
    companion = busy("Instead.", "Then.")
    async with tui_screen(companion, tmp_path) as screen:
        await screen.submit("one")
        await screen.wait_for("Well")
        await screen.wait_for("Enter interrupts and sends this; Ctrl+G steers, Ctrl+N queues")
        await screen.type_keys("three")
        await screen.wait_for("Enter interrupts · ")
        await screen.pilot.press("ctrl+n")
        await screen.wait_for("… three")
        await screen.submit("two")
        await screen.wait_until_idle()
        assert companion.messages == ["one", "two", "three"]
        await screen.wait_for("Ask anything.")


async def test_interrupting_messages_keep_their_order(tmp_path: Path) -> None:
    companion = busy("Second.", "Third.")
    async with tui_screen(companion, tmp_path) as screen:
        await screen.submit("one")
        await screen.wait_for("Well")
        screen.ui.chat.conversation.add("later", BusyMode.QUEUE)
        screen.ui.chat.conversation.add("two")
        screen.ui.chat.conversation.add("three")
        await screen.wait_until_idle()
        assert companion.messages == ["one", "two", "three", "later"]


@pytest.mark.parametrize("way", ["key", "command", "usual"])
async def test_steering_message_is_shown_where_received(tmp_path: Path, way: str) -> None:
    companion = FakeTuiClient()
    companion.turns = [[TextDelta("Before."), companion.wait_until_decided, TextDelta("After.")]]
    if way == "usual":
        companion.set_busy_mode("steer")
    async with tui_screen(companion, tmp_path) as screen:
        await screen.submit("one")
        await screen.wait_for("Before.")
        typed = "/steer the other" if way == "command" else "the other"
        await screen.type_keys(typed, "ctrl+g" if way == "key" else "enter")
        await screen.wait_for("After.")
        await screen.wait_until_idle()
        assert companion.steered == ["the other"]
        assert companion.messages == ["one"]
        text = screen.text
        assert text.index("Before.") < text.index("the other") < text.index("After.")
        assert "↳" not in text


async def test_unreceived_steering_is_sent_next(tmp_path: Path) -> None:
    companion = FakeTuiClient()
    companion.accepts_steering = False
    companion.turns = [[TextDelta("Well"), companion.wait_until_decided], answer_events("Heard.")]
    async with tui_screen(companion, tmp_path) as screen:
        await screen.submit("one")
        await screen.wait_for("Well")
        await screen.type_keys("too late", "ctrl+g")
        await screen.wait_for("Heard.")
        await screen.wait_until_idle()
        assert companion.steered == ["too late"]
        assert companion.messages == ["one", "too late"]


async def test_interrupt_returns_unreceived_steering(tmp_path: Path) -> None:
    companion = busy()
    companion.accepts_steering = False
    async with tui_screen(companion, tmp_path) as screen:
        await screen.submit("one")
        await screen.wait_for("Well")
        await screen.type_keys("not heard", "ctrl+g")
        await screen.wait_for("↳ not heard")
        await screen.pilot.press("escape")
        await screen.wait_until_idle()
        assert companion.messages == ["one"]
        assert screen.ui.chat.prompt.text == "not heard"


async def test_stop_command_returns_queued_input(tmp_path: Path) -> None:
    companion = busy()
    companion.accepts_steering = False
    async with tui_screen(companion, tmp_path) as screen:
        await screen.submit("one")
        await screen.wait_for("Well")
        await screen.type_keys("not heard", "ctrl+g")
        await screen.wait_for("↳ not heard")
        await screen.type_keys("for later", "ctrl+n")
        await screen.wait_for("… for later")
        await screen.submit("/stop")
        await screen.wait_until_idle()
        assert companion.messages == ["one"]
        assert companion.commands == []
        assert screen.ui.chat.prompt.text == "not heard\nfor later"


async def test_collected_messages_share_one_turn(tmp_path: Path) -> None:
    companion = FakeTuiClient()
    companion.turns = [[TextDelta("Well"), companion.wait_until_decided], answer_events("Both.")]
    companion.set_busy_mode("collect")
    async with tui_screen(companion, tmp_path) as screen:
        await screen.submit("one")
        await screen.wait_for("Well")
        for line in ("two", "three", "/help"):
            await screen.submit(line)
        await screen.wait_for("3 queued")
        companion._decided.set()
        await screen.wait_for("Did /help.")
        assert companion.messages == ["one", "two\nthree"]
        assert companion.commands == ["/help"]
