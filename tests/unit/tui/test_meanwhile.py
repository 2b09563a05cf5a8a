"""Words that are said while a turn runs: they interrupt it, wait for it, or are heard by it."""

from pathlib import Path

import pytest

from companions import Scripted, answered
from drawn import drawn
from hermes.schema.events import TextDelta
from hermes.tui.meanwhile import Manner, manner_of, meant


@pytest.mark.parametrize(
    ("line", "manner", "words"),
    [
        ("the other one", Manner.COLLECT, "the other one"),
        ("/steer the other", Manner.STEER, "the other"),
        ("/queue and then", Manner.QUEUE, "and then"),
        ("/q and then", Manner.QUEUE, "and then"),
        ("/STOP", Manner.INTERRUPT, ""),
        ("/help", Manner.QUEUE, "/help"),
        ("/steer", Manner.QUEUE, "/steer"),
        ("  /etc/hosts is what?", Manner.QUEUE, "  /etc/hosts is what?"),
    ],
)
def test_a_line_says_itself_what_it_does(line: str, manner: Manner, words: str) -> None:
    assert meant(line, Manner.COLLECT) == (manner, words)


def test_without_a_choice_words_interrupt() -> None:
    assert manner_of("") is Manner.INTERRUPT
    assert manner_of("steer") is Manner.STEER


def busy(*after: str) -> Scripted:
    """A turn that goes on until it is stopped, and one for each answer."""
    companion = Scripted()
    going = [TextDelta("Well"), companion.until_stopped]
    companion.turns = [going, *(answered(text) for text in after)]
    return companion


@pytest.mark.anyio
async def test_enter_interrupts_unless_something_else_is_wanted(tmp_path: Path) -> None:
    companion = busy("Instead.", "Then.")
    async with drawn(companion, tmp_path) as screen:
        await screen.says("one")
        await screen.shows("Well")
        await screen.shows("Enter interrupts and says this; Ctrl+G steers, Ctrl+N queues")
        await screen.types("three")
        await screen.shows("Enter interrupts · ")
        await screen.pilot.press("ctrl+n")
        await screen.shows("… three")
        await screen.says("two")
        await screen.rests()
        assert companion.heard == ["one", "two", "three"]
        await screen.shows("Ask anything.")


@pytest.mark.anyio
async def test_what_interrupts_keeps_its_order(tmp_path: Path) -> None:
    companion = busy("Second.", "Third.")
    async with drawn(companion, tmp_path) as screen:
        await screen.says("one")
        await screen.shows("Well")
        screen.ui.chat.talk.add("later", Manner.QUEUE)
        screen.ui.chat.talk.add("two")
        screen.ui.chat.talk.add("three")
        await screen.rests()
        assert companion.heard == ["one", "two", "three", "later"]


@pytest.mark.anyio
@pytest.mark.parametrize("way", ["key", "command", "usual"])
async def test_words_that_steer_stand_where_they_were_heard(tmp_path: Path, way: str) -> None:
    companion = Scripted()
    companion.turns = [[TextDelta("Before."), companion.until_decided, TextDelta("After.")]]
    if way == "usual":
        companion.usually("steer")
    async with drawn(companion, tmp_path) as screen:
        await screen.says("one")
        await screen.shows("Before.")
        typed = "/steer the other" if way == "command" else "the other"
        await screen.types(typed, "ctrl+g" if way == "key" else "enter")
        await screen.shows("After.")
        await screen.rests()
        assert companion.steered == ["the other"]
        assert companion.heard == ["one"]
        text = screen.text
        assert text.index("Before.") < text.index("the other") < text.index("After.")
        assert "↳" not in text


@pytest.mark.anyio
async def test_what_came_too_late_is_said_next(tmp_path: Path) -> None:
    companion = Scripted()
    companion.hears = False
    companion.turns = [[TextDelta("Well"), companion.until_decided], answered("Heard.")]
    async with drawn(companion, tmp_path) as screen:
        await screen.says("one")
        await screen.shows("Well")
        await screen.types("too late", "ctrl+g")
        await screen.shows("Heard.")
        await screen.rests()
        assert companion.steered == ["too late"]
        assert companion.heard == ["one", "too late"]


@pytest.mark.anyio
async def test_whoever_gives_up_has_back_what_was_not_heard(tmp_path: Path) -> None:
    companion = busy()
    companion.hears = False
    async with drawn(companion, tmp_path) as screen:
        await screen.says("one")
        await screen.shows("Well")
        await screen.types("not heard", "ctrl+g")
        await screen.shows("↳ not heard")
        await screen.pilot.press("escape")
        await screen.rests()
        assert companion.heard == ["one"]
        assert screen.ui.chat.prompt.text == "not heard"


@pytest.mark.anyio
async def test_the_command_gives_back_what_waits_as_the_key_does(tmp_path: Path) -> None:
    companion = busy()
    companion.hears = False
    async with drawn(companion, tmp_path) as screen:
        await screen.says("one")
        await screen.shows("Well")
        await screen.types("not heard", "ctrl+g")
        await screen.shows("↳ not heard")
        await screen.types("for later", "ctrl+n")
        await screen.shows("… for later")
        await screen.says("/stop")
        await screen.rests()
        assert companion.heard == ["one"]
        assert companion.commands == []
        assert screen.ui.chat.prompt.text == "not heard\nfor later"


@pytest.mark.anyio
async def test_what_is_collected_gets_one_turn(tmp_path: Path) -> None:
    companion = Scripted()
    companion.turns = [[TextDelta("Well"), companion.until_decided], answered("Both.")]
    companion.usually("collect")
    async with drawn(companion, tmp_path) as screen:
        await screen.says("one")
        await screen.shows("Well")
        for line in ("two", "three", "/help"):
            await screen.says(line)
        await screen.shows("3 queued")
        companion._decided.set()
        await screen.shows("Did /help.")
        assert companion.heard == ["one", "two\nthree"]
        assert companion.commands == ["/help"]
