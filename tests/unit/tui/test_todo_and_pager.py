"""The pinned todo list, and long output in a folded card and in the pager."""

from pathlib import Path

import pytest
from textual.content import Content

from hermes.tui.widgets.todo import TodoPanel
from support.fake_tui_client import FakeTuiClient, answer_events, tool_events
from support.tui_screen import TuiScreen, tui_screen

pytestmark = pytest.mark.slow

LIST = "[x] sow\n[>] water\n[ ] harvest"
LONG = "\n".join(f"row {number}" for number in range(100))


def panel(screen: TuiScreen) -> str:
    one = screen.ui.chat.query_one(TodoPanel)
    shown = one.content
    return shown.plain if one.display and isinstance(shown, Content) else ""


async def test_todo_list_is_pinned_until_it_is_done(tmp_path: Path) -> None:
    done = LIST.replace("[>]", "[x]").replace("[ ]", "[x]")
    client = FakeTuiClient(
        [*tool_events("todo", "{}", LIST), *answer_events("Working.")],
        [*tool_events("todo", "{}", done, call="c2"), *answer_events("All done.")],
    )
    client.turns[0] = [*client.turns[0], client.wait_until_decided]
    async with tui_screen(client, tmp_path) as screen:
        await screen.submit("garden")
        await screen.wait_for("Working.")
        assert panel(screen) == "Todo · 1 of 3 done\n✓ sow\n▸ water\n○ harvest"
        assert "✓ todo  1 of 3 done" in screen.text
        client.interrupt()
        await screen.wait_until_idle()
        assert panel(screen) == "Todo · 1 of 3 done · next: water"
        await screen.submit("go on")
        await screen.wait_until_idle()
        assert panel(screen) == ""


async def test_new_session_has_no_todo_list(tmp_path: Path) -> None:
    client = FakeTuiClient([*tool_events("todo", "{}", LIST), *answer_events("Working.")])
    async with tui_screen(client, tmp_path) as screen:
        await screen.submit("garden")
        await screen.wait_until_idle()
        await screen.submit("/new")
        await screen.wait_until_idle()
        client.state = client.state.__class__(session="s3")
        await screen.submit("/new")
        await screen.wait_until_idle()
        assert panel(screen) == ""


async def test_long_output_is_folded_and_shown_in_the_pager(tmp_path: Path) -> None:
    client = FakeTuiClient(
        [*tool_events("terminal", '{"command": "ls"}', LONG), *answer_events("x")]
    )
    async with tui_screen(client, tmp_path, size=(80, 40)) as screen:
        await screen.submit("list")
        await screen.wait_until_idle()
        await screen.pilot.press("ctrl+o")
        await screen.wait_for("… 81 lines; open again for all of them …")
        assert "row 12\n" in screen.text
        assert "row 50\n" not in screen.text
        await screen.pilot.press("ctrl+o")
        await screen.wait_for("terminal ls · 101 lines")
        await screen.pilot.press("G")
        await screen.wait_for("row 99")
        assert "row 50" not in screen.text
        await screen.pilot.press("g", "space")
        await screen.wait_for("row 50")
        await screen.pilot.press("q")
        await screen.wait_for("Ask anything")
        assert "open again" not in screen.text
        await screen.submit("/output")
        await screen.wait_for("terminal ls · 101 lines")
        await screen.pilot.press("q")
        await screen.submit("/output 2")
        await screen.wait_for("There is no such long output.")
