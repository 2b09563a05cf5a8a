"""Fast streams, long conversations, small and resized terminals."""

from pathlib import Path

import pytest

from hermes.schema.events import TextDelta
from hermes.tui.markdown_stream import LIST_SPLIT_SIZE
from hermes.tui.widgets.code import Code, Prose
from hermes.tui.widgets.transcript import MAX_WIDGETS, Answer, ArchivedText, UserMessage
from support.fake_tui_client import FakeTuiClient, answer_events, tool_events
from support.tui_screen import tui_screen

pytestmark = pytest.mark.slow

DELTAS = 12_000


async def test_fast_stream_is_drawn_in_few_steps_and_keys_still_work(tmp_path: Path) -> None:
    """The parser runs less often than deltas arrive, and never on the whole text."""
    companion = FakeTuiClient()
    words = [TextDelta("word\n\n" if number % 400 == 0 else "word ") for number in range(DELTAS)]
    companion.turns = [[*words, companion.wait_until_stopped]]
    async with tui_screen(companion, tmp_path) as screen:
        await screen.submit("go")
        await screen.type_keys("typed meanwhile")
        await screen.wait_until(lambda: screen.ui.chat.prompt.text == "typed meanwhile")
        await screen.wait_until(lambda: _length(screen.ui.chat.query(Answer)) > DELTAS * 5)
        (answer,) = screen.ui.chat.query(Answer)
        assert answer.parse_count < DELTAS / 20
        assert max(len(prose.source) for prose in answer.query(Prose)) < 10_000
        await screen.pilot.press("escape")
        await screen.wait_until_idle()


async def test_growing_list_is_not_redrawn_as_a_whole(tmp_path: Path) -> None:
    async with tui_screen(FakeTuiClient(), tmp_path) as screen:
        answer = Answer()
        await screen.ui.chat.transcript.add(answer)
        items = [f"{number}. item {number} of many, {'and more ' * 5}." for number in range(1, 19)]
        for item in items:
            await answer.add(item + "\n")
        await screen.wait_for(items[-1])
        assert max(len(prose.source) for prose in answer.query(Prose)) < 2 * LIST_SPLIT_SIZE
        lines = [line.strip(" ▁▂▃▄▅▆▇█▎") for line in screen.lines if "item" in line]
        assert lines == items[-len(lines) :]
        assert sum(len(line) for line in lines) > LIST_SPLIT_SIZE
        first = screen.lines.index(next(line for line in screen.lines if "item" in line))
        assert all("item" in line for line in screen.lines[first : first + len(lines)])


def _length(answers) -> int:
    return sum(len(answer.text) for answer in answers)


async def test_long_conversation_is_archived_as_text(tmp_path: Path) -> None:
    companion = FakeTuiClient()
    async with tui_screen(companion, tmp_path) as screen:
        chat = screen.ui.chat
        for number in range(MAX_WIDGETS):
            await chat.show_note(f"note {number}", "")
        await screen.submit("one more")
        await screen.wait_until_idle()
        assert len(chat.transcript.children) <= MAX_WIDGETS
        assert len(chat.transcript.query(ArchivedText)) == 1
        assert "note 0\nnote 1\n" in chat.transcript.plain_text()
        chat.transcript.scroll_home(animate=False)
        await screen.wait_for("note 0")
        assert "↓ more below" in screen.text
        await screen.pilot.press("ctrl+end")
        await screen.wait_for("Plain answer.")
        await screen.wait_until_gone("↓ more below")


async def test_new_output_does_not_scroll_a_reader_down(tmp_path: Path) -> None:
    companion = FakeTuiClient()
    more = [TextDelta(f"line {number}\n\n") for number in range(50)]
    companion.turns = [answer_events("first\n\n" * 40), [*more, companion.wait_until_stopped]]
    async with tui_screen(companion, tmp_path) as screen:
        await screen.submit("one")
        await screen.wait_until_idle()
        await screen.submit("two")
        await screen.wait_for("line")
        await screen.pilot.press("pageup", "pageup", "pageup")
        await screen.wait_for("↓ more below")
        place = screen.ui.chat.transcript.scroll_y
        companion.interrupt()
        await screen.wait_until_idle()
        assert screen.ui.chat.transcript.scroll_y == place


@pytest.mark.parametrize("line", ["/help", "/nonsense"])
async def test_command_reply_is_scrolled_into_view(tmp_path: Path, line: str) -> None:
    companion = FakeTuiClient(answer_events("first\n\n" * 40))
    async with tui_screen(companion, tmp_path) as screen:
        await screen.submit("one")
        await screen.wait_until_idle()
        await screen.pilot.press("pageup", "pageup", "pageup")
        await screen.wait_for("↓ more below")
        await screen.submit(line)
        await screen.wait_until_gone("↓ more below")
        await screen.wait_for("first")


@pytest.mark.parametrize("size", [(40, 10), (20, 6), (200, 60)])
async def test_screen_follows_terminal_size(tmp_path: Path, size: tuple[int, int]) -> None:
    steps = [*tool_events("terminal", '{"command": "ls -la /a/long/path/to/somewhere"}', "x")]
    async with tui_screen(
        FakeTuiClient([*steps, *answer_events("# Head\n\nwords " * 30)]), tmp_path
    ) as screen:
        await screen.submit("go")
        await screen.wait_until_idle()
        await screen.pilot.resize_terminal(*size)
        await screen.pilot.pause()
        assert len(screen.lines) == size[1]
        await screen.type_keys("ok")
        await screen.wait_for(" ok")
        await screen.pilot.press("enter")
        await screen.wait_for("Plain answer.")


async def test_control_sequences_and_markup_are_not_interpreted(tmp_path: Path) -> None:
    """Neither by the terminal nor by Textual's markup."""
    evil = "[/b][@click=app.quit]x[/] \x1b[31mred\x07 \u202eturned \x9b2J"
    table = f"| {evil} | b |\n|---|---|\n| {evil} | c |\n"
    steps = [
        *tool_events("terminal", '{"command": "[/b] \\u001b[2J"}', evil, failed=True),
        *answer_events(f"{evil}\n\n- {evil}\n\n```{evil}\n{evil}\n```\n\n{table}"),
    ]
    async with tui_screen(FakeTuiClient(steps), tmp_path, size=(80, 40)) as screen:
        await screen.submit("[/b] go")
        await screen.wait_until_idle()
        await screen.pilot.press("ctrl+o", "ctrl+y")
        await screen.pilot.hover(offset=(10, 30))
        await screen.pilot.pause()
        assert not set(screen.text) & set("\x1b\x07\u202e\x9b")
        assert screen.text.count("[@click=app.quit]x[/]") >= 6
    assert screen.ui.return_value is None


async def test_no_color_uses_symbols(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with tui_screen(FakeTuiClient(tool_events("terminal", "{}", "x")), tmp_path) as screen:
        await screen.submit("hello")
        await screen.wait_until_idle()
        assert "✓ terminal" in screen.text
        assert "▌ hello" in screen.text
    assert screen.ui.no_color


async def test_dark_and_light_themes(tmp_path: Path) -> None:
    answer = answer_events("```python\nx = 1\n```")
    async with tui_screen(FakeTuiClient(answer), tmp_path, theme="light") as screen:
        assert screen.ui.theme == "hermes-light"
        await screen.submit("code")
        await screen.wait_until_idle()
        code, message = screen.ui.chat.query_one(Code), screen.ui.chat.query_one(UserMessage)
        assert code.styles.background == message.styles.background
        await screen.pilot.press("ctrl+t")
        assert screen.ui.theme == "hermes-dark"
