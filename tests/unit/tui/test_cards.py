"""Tool cards, reasoning and code in the transcript."""

from pathlib import Path

import pytest
from textual.events import Key, Paste

from hermes.schema.events import (
    MessageAdded,
    ReasoningDelta,
    StreamReset,
    TextDelta,
    ToolProgress,
    ToolStarted,
)
from hermes.schema.messages import Assistant, Stop
from hermes.tui.widgets.cards import ThinkingCard, ToolCard
from hermes.tui.widgets.code import CodeHead, markdown_parser
from hermes.tui.widgets.transcript import Answer
from support.fake_tui_client import FakeTuiClient, answer_events, tool_events
from support.tui_screen import tui_screen

pytestmark = pytest.mark.slow


async def test_typing_after_focus_on_a_card_goes_to_the_prompt(tmp_path: Path) -> None:
    """All keys including Enter, however fast they come."""
    companion = FakeTuiClient(
        [*tool_events("terminal", "{}", "x"), *answer_events("```sh\nls\n```")]
    )
    async with tui_screen(companion, tmp_path) as screen:
        await screen.submit("go")
        await screen.wait_until_idle()
        await screen.pilot.click(CodeHead)
        await screen.type_keys("can you", "enter")
        await screen.wait_until(lambda: companion.messages == ["go", "can you"])
        await screen.wait_until_idle()
        screen.ui.chat.set_focus(screen.ui.chat.query(ToolCard).first().header)
        for key in (Key("h", "h"), Key("i", "i"), Key("enter", "\r")):
            screen.ui.post_message(key)
        await screen.wait_until(lambda: companion.messages == ["go", "can you", "hi"])
        await screen.wait_until_idle()
        screen.ui.chat.set_focus(screen.ui.chat.query(ToolCard).first().header)
        await screen.pilot.press("ctrl+d")
        await screen.wait_until(lambda: screen.ui.return_value == 0)


async def test_long_message_is_shown_shortened_and_sent_whole(tmp_path: Path) -> None:
    companion = FakeTuiClient()
    long = "\n".join(f"line {number}" for number in range(5_000))
    async with tui_screen(companion, tmp_path) as screen:
        screen.ui.post_message(Paste(long + "\n"))
        await screen.wait_for("[pasted text 1: 5,000 lines]")
        await screen.pilot.press("enter")
        await screen.wait_for("Plain answer.")
        assert companion.messages == [long + "\n"]
        assert "… 4,988 more lines …" in screen.text
        assert "line 4999" in screen.text


async def test_card_keeps_the_tool_name(tmp_path: Path) -> None:
    failed = tool_events(
        "read_file", '{"path": "a/very/long/path/that/goes/on.py"}', "", failed=True,
        text="There is no such file anywhere, " * 10,
    )  # fmt: skip
    async with tui_screen(FakeTuiClient([*failed]), tmp_path, size=(40, 24)) as screen:
        await screen.submit("look")
        await screen.wait_until_idle()
        await screen.wait_for("✗ read_file a…")
        assert "There is no" in screen.text


async def test_cards_open_by_key_and_mouse(tmp_path: Path) -> None:
    (began, ended) = tool_events("terminal", '{"command": "ls"}', "one\ntwo")
    steps = [ReasoningDelta("Hm"), began, ToolProgress("c1", "half\n"), ended]
    async with tui_screen(FakeTuiClient(steps), tmp_path) as screen:
        await screen.submit("look")
        await screen.wait_for("✓ terminal ls  2 lines")
        await screen.wait_until_idle()
        (card,) = screen.ui.chat.query(ToolCard)
        await screen.pilot.click(card.header)
        await screen.wait_for("$ ls\n   one\n   two")
        card.header.focus()
        await screen.pilot.press("enter")
        await screen.wait_until_gone("$ ls")
        (thought,) = screen.ui.chat.query(ThinkingCard)
        await screen.pilot.click(thought.header)
        await screen.wait_for("   Hm")


async def test_todo_card_shows_progress_and_no_arguments(tmp_path: Path) -> None:
    todos = '{"todos": [{"id": "1", "content": "Sow", "status": "completed"}]}'
    async with tui_screen(
        FakeTuiClient([*tool_events("todo", todos, "[x] Sow\n[ ] Water")]), tmp_path
    ) as screen:
        await screen.submit("plan")
        await screen.wait_for("✓ todo  1 of 2 done\n")
        await screen.pilot.press("ctrl+o")
        await screen.wait_for("   [x] Sow\n   [ ] Water")
        await screen.wait_until_gone('"todos"')
        await screen.wait_until_gone("todos:")


async def test_typing_goes_to_the_prompt_from_any_focus(tmp_path: Path) -> None:
    async with tui_screen(FakeTuiClient(tool_events("terminal", "{}", "x")), tmp_path) as screen:
        await screen.submit("look")
        await screen.wait_until_idle()
        (card,) = screen.ui.chat.query(ToolCard)
        card.header.focus()
        await screen.type_keys("hello")
        assert screen.ui.chat.prompt.text == "hello"


async def test_code_is_copied_by_key_and_mouse(tmp_path: Path) -> None:
    text = "```py\nfirst = 1\n```\n\nand\n\n```sh\nls -la\n```\n"
    async with tui_screen(FakeTuiClient(answer_events(text)), tmp_path) as screen:
        await screen.submit("code")
        await screen.wait_until_idle()
        await screen.pilot.press("ctrl+y")
        await screen.wait_until(lambda: screen.ui.clipboard == "ls -la")
        place = next(row for row, line in enumerate(screen.lines) if line.endswith("[copy]"))
        await screen.pilot.click(offset=(74, place))
        await screen.wait_until(lambda: screen.ui.clipboard == "first = 1")


async def test_restarted_answer_replaces_the_first(tmp_path: Path) -> None:
    steps = [TextDelta("Wrong beg"), StreamReset("the link was cut"), *answer_events("Right.")]
    async with tui_screen(FakeTuiClient(steps), tmp_path) as screen:
        await screen.submit("hello")
        await screen.wait_for("Right.")
        await screen.wait_until_idle()
        assert "Wrong beg" not in screen.text
        assert "the link was cut; restarting the answer." in screen.text


async def test_lost_deltas_are_restored_from_the_message(tmp_path: Path) -> None:
    steps = [*answer_events("All of the words.")[1:]]
    async with tui_screen(FakeTuiClient(steps), tmp_path) as screen:
        await screen.submit("hello")
        await screen.wait_for("All of the words.")
        await screen.wait_until_idle()
        assert len(screen.ui.chat.query(Answer)) == 1


async def test_call_that_was_not_started_is_shown(tmp_path: Path) -> None:
    started, ended = tool_events("frobnicate", "{}", "", failed=True, text="Unknown tool.")
    assert isinstance(started, ToolStarted)
    steps = [MessageAdded(Assistant("m", (started.call,), Stop.TOOLS)), ended]
    async with tui_screen(FakeTuiClient([*steps, *answer_events("Well.")]), tmp_path) as screen:
        await screen.submit("hello")
        await screen.wait_until_idle()
        assert "✗ frobnicate  Unknown tool." in screen.text


async def test_diff_has_line_numbers_of_the_file(tmp_path: Path) -> None:
    diff = (
        "--- a/x.py\n+++ b/x.py\n@@ -9,3 +9,3 @@ def f():\n one\n-two\n+zwei\n three\n"
        "@@ -39,0 +40 @@\n+more\n"
    )
    edit = tool_events("patch", '{"path": "x.py"}', diff)
    async with tui_screen(FakeTuiClient([*edit]), tmp_path) as screen:
        await screen.submit("edit")
        await screen.wait_until_idle()
        for line in (" 9  one", "10 -two", "10 +zwei", "11  three", "⋮", "40 +more"):
            assert line in screen.text


async def test_language_that_arrives_in_pieces_is_shown_whole(tmp_path: Path) -> None:
    pieces = [TextDelta("```p"), TextDelta("ython\n"), TextDelta("x = 1\n```\n")]
    async with tui_screen(FakeTuiClient([*pieces]), tmp_path) as screen:
        await screen.submit("go")
        await screen.wait_for("python")


def test_only_full_addresses_become_links() -> None:
    (_, inline, _) = markdown_parser().parse("See calc.py, README.md and https://example.com/x.")
    links = [token for token in inline.children or () if token.type == "link_open"]
    assert [token.attrs["href"] for token in links] == ["https://example.com/x"]
