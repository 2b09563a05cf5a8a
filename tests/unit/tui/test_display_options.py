"""Display settings on the screen."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from textual.events import Paste

from hermes.cli.verbs.chat import display_options_of
from hermes.config.home import Home
from hermes.config.loader import load_config
from hermes.schema.events import ReasoningDelta
from hermes.schema.messages import Assistant, Reasoning, Stop, Text, User
from hermes.schema.sessions import StoredMessage
from hermes.schema.terminal import RecentHistory
from hermes.testing.clock import FakeClock
from hermes.tui.app import Ui, UiSettings
from hermes.tui.options import DEFAULT_OPTIONS, DisplayOptions
from support.fake_tui_client import FakeTuiClient, answer_events, tool_events
from support.tui_screen import tui_screen

pytestmark = pytest.mark.slow
DIFF = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-one\n+two\n"
SETTINGS = """\
display:
  show_reasoning: false
  reasoning_full: true
  final_response_markdown: raw
  inline_diffs: false
  show_cost: true
  timestamps: true
  bell_on_complete: true
  compact: true
  tool_preview_length: 12
paste_collapse_threshold: 7
paste_collapse_char_threshold: 700
"""


def test_every_setting_is_mapped(tmp_path: Path) -> None:
    home = Home(tmp_path, tmp_path)
    assert display_options_of(load_config(home, {}).config) == DEFAULT_OPTIONS
    home.config.write_text(SETTINGS)
    assert display_options_of(load_config(home, {}).config) == DisplayOptions(
        reasoning=False,
        reasoning_open=True,
        raw=True,
        diffs=False,
        cost=True,
        times=True,
        bell=True,
        compact=True,
        preview_length=12,
        paste_lines=7,
        paste_size=700,
    )


@pytest.mark.parametrize("wanted", [True, False])
async def test_reasoning_is_shown_or_hidden(tmp_path: Path, *, wanted: bool) -> None:
    companion = FakeTuiClient([ReasoningDelta("A thought."), *answer_events("The answer.")])
    async with tui_screen(companion, tmp_path, display=DisplayOptions(reasoning=wanted)) as screen:
        await screen.submit("go")
        await screen.wait_for("The answer.")
        assert ("thought" in screen.text) is wanted


@pytest.mark.parametrize("whole", [True, False])
async def test_reasoning_is_expanded(tmp_path: Path, *, whole: bool) -> None:
    companion = FakeTuiClient([ReasoningDelta("A deep idea."), *answer_events("The answer.")])
    async with tui_screen(
        companion, tmp_path, display=DisplayOptions(reasoning_open=whole)
    ) as screen:
        await screen.submit("go")
        await screen.wait_for("The answer.")
        assert ("A deep idea." in screen.text) is whole


async def test_raw_answer(tmp_path: Path) -> None:
    words = "# Title\n\nSome *text*.\n\n```sh\nls [copy]\n```\n- the end"
    async with tui_screen(
        FakeTuiClient(answer_events(words)), tmp_path, display=DisplayOptions(raw=True)
    ) as screen:
        await screen.submit("go")
        await screen.wait_for("- the end")
        drawn_lines = [line.strip() for line in screen.lines]
        first = drawn_lines.index("# Title")
        assert drawn_lines[first:][:8] == words.split("\n")


async def test_long_raw_answer(tmp_path: Path) -> None:
    lines = [f"{number} {'word ' * 10}".strip() for number in range(100)]
    async with tui_screen(
        FakeTuiClient(answer_events("\n".join(lines))),
        tmp_path,
        display=DisplayOptions(raw=True),
        size=(80, 120),
    ) as screen:
        await screen.submit("go")
        await screen.wait_for("99 word")
        output = [line.strip() for line in screen.lines]
        first = output.index(lines[0])
        assert output[first:][:100] == lines


@pytest.mark.parametrize("wanted", [True, False])
async def test_short_diffs_are_expanded(tmp_path: Path, *, wanted: bool) -> None:
    companion = FakeTuiClient(
        [*tool_events("patch", '{"path": "x"}', DIFF), *answer_events("Done.")]
    )
    async with tui_screen(companion, tmp_path, display=DisplayOptions(diffs=wanted)) as screen:
        await screen.submit("go")
        await screen.wait_for("Done.")
        await screen.wait_until_idle()
        assert ("+two" in screen.text) is wanted
        assert "+1 -1" in screen.text


async def test_preview_limits_the_call(tmp_path: Path) -> None:
    steps = [
        *tool_events("terminal", '{"command": "echo 1234567890"}', "x"),
        *answer_events("Done."),
    ]
    async with tui_screen(
        FakeTuiClient(steps), tmp_path, display=DisplayOptions(preview_length=9)
    ) as screen:
        await screen.submit("go")
        await screen.wait_for("Done.")
        assert "terminal echo 123…" in screen.text


async def test_timestamps(tmp_path: Path) -> None:
    at = datetime(2026, 1, 31, 12, 34, tzinfo=UTC)
    shown = f"{at.astimezone():%H:%M} go"
    async with tui_screen(
        FakeTuiClient(), tmp_path, clock=FakeClock(at), display=DisplayOptions(times=True)
    ) as screen:
        await screen.submit("go")
        await screen.wait_for(shown)
    async with tui_screen(FakeTuiClient(), tmp_path, clock=FakeClock(at)) as screen:
        await screen.submit("go")
        await screen.wait_until_idle()
        assert shown not in screen.text


async def test_compact_spacing(tmp_path: Path) -> None:
    heights: list[int] = []
    for compact in (False, True):
        async with tui_screen(
            FakeTuiClient(), tmp_path, display=DisplayOptions(compact=compact)
        ) as screen:
            await screen.submit("go")
            await screen.wait_for("Plain answer.")
            await screen.wait_until_idle()
            heights.append(screen.ui.chat.transcript.virtual_size.height)
            first = next(place for place, line in enumerate(screen.lines) if " go" in line)
            last = next(at for at, line in enumerate(screen.lines) if "Plain answer." in line)
            heights.append(last - first)
    assert heights[1] > heights[3] == 1


async def test_long_pastes_are_collapsed(tmp_path: Path) -> None:
    async with tui_screen(
        FakeTuiClient(), tmp_path, display=DisplayOptions(paste_lines=2)
    ) as screen:
        screen.ui.chat.prompt.post_message(Paste("a\nb\nc"))
        await screen.wait_for("[pasted text 1: 3 lines]")


class Ringing(Ui):
    rung = 0

    def bell(self) -> None:
        self.rung += 1


@pytest.mark.parametrize("wanted", [True, False])
async def test_a_bell_rings_at_the_end_of_a_turn(tmp_path: Path, *, wanted: bool) -> None:
    taste = DisplayOptions(bell=wanted)
    ui = Ringing(
        FakeTuiClient(), UiSettings(history=tmp_path / "h", clock=FakeClock(), display=taste)
    )
    async with ui.run_test() as pilot:
        while not ui.chat.conversation.open:
            await pilot.pause(0.01)
        await ui.chat.run_turn((), ())
        assert ui.rung == int(wanted)


async def test_timestamps_and_status_bar_are_toggled(tmp_path: Path) -> None:
    companion = FakeTuiClient(answer_events("One."), answer_events("Two."))
    async with tui_screen(companion, tmp_path) as screen:
        assert "bubblewrap" in screen.text
        await screen.submit("/sb")
        await screen.wait_for("/statusbar shows it again")
        assert "bubblewrap" not in screen.text
        await screen.submit("/sb on")
        await screen.wait_for("bubblewrap")
        await screen.submit("/ts on")
        await screen.wait_for("Timestamps are now shown.")
        await screen.submit("/ts")
        await screen.wait_for("Timestamps are now hidden.")
        await screen.submit("/redraw")
        await screen.submit("go")
        await screen.wait_for("One.")


async def test_resumed_session_uses_display_options(tmp_path: Path) -> None:
    at = datetime(2026, 1, 31, 12, 34, tzinfo=UTC)
    thought = Assistant("m2", (Reasoning("A deep idea."), Text("Beans.")), Stop.END)
    question = User("m1", (Text("What grows?"),))
    companion = FakeTuiClient()
    companion.history = RecentHistory(
        rows=(StoredMessage(1, at, "r1", question), StoredMessage(2, at, "r1", thought))
    )
    async with tui_screen(
        companion, tmp_path, display=DisplayOptions(reasoning_open=True)
    ) as screen:
        await screen.submit("/ts on")
        await screen.wait_for("Timestamps are now shown.")
        await screen.submit("/resume s7")
        await screen.wait_for(f"{at.astimezone():%H:%M} What grows?")
        await screen.wait_for("A deep idea.")


async def test_editor_without_suspend_is_refused(tmp_path: Path) -> None:
    async with tui_screen(FakeTuiClient(), tmp_path) as screen:
        await screen.submit("/prompt Dear all,")
        await screen.wait_for("This terminal does not support that.")
