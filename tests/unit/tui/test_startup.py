"""The screen opens before the client: input waits, and connection errors are shown."""

from pathlib import Path

import pytest

from hermes.schema.errors import ConfigError, HermesError
from hermes.testing.clock import FakeClock
from hermes.tui.app import UiSettings, run_ui
from support.fake_tui_client import FakeTuiClient
from support.tui_screen import tui_screen

pytestmark = pytest.mark.slow


def absent() -> FakeTuiClient:
    """A client that is not open yet."""
    companion = FakeTuiClient()
    companion.reachable.clear()
    return companion


async def test_input_before_open_is_sent_later(tmp_path: Path) -> None:
    companion = absent()
    async with tui_screen(companion, tmp_path, starting=True) as screen:
        await screen.wait_for("starting…")
        assert "Ask anything." in screen.text
        assert "no model" not in screen.text
        assert "no sandbox" not in screen.text
        await screen.submit("first")
        await screen.submit("/help")
        await screen.type_keys("and half")
        await screen.wait_for("… first")
        assert companion.messages == []
        companion.reachable.set()
        await screen.wait_until_idle()
        await screen.wait_for("Did /help.")
        assert companion.messages == ["first"]
        assert screen.ui.chat.prompt.text == "and half"
        assert "starting…" not in screen.text
        assert "hermes · openai/gpt-5-mini · /srv/garden" in screen.text


async def test_waiting_input_can_be_recalled(tmp_path: Path) -> None:
    companion = absent()
    async with tui_screen(companion, tmp_path, starting=True) as screen:
        await screen.submit("first")
        await screen.pilot.press("up")
        await screen.wait_until(lambda: screen.ui.chat.prompt.text == "first")
        await screen.submit(" and more")
        await screen.pilot.press("ctrl+c")
        await screen.wait_until(lambda: screen.ui.chat.prompt.text == "first and more")
        companion.reachable.set()
        await screen.wait_until_gone("starting…")
        assert companion.messages == []


async def test_picker_waits_for_the_client(tmp_path: Path) -> None:
    companion = absent()
    async with tui_screen(companion, tmp_path, starting=True) as screen:
        await screen.pilot.press("f3")
        await screen.wait_for("starting…")
        companion.reachable.set()
        await screen.wait_for("Plan the garden")


async def test_commands_complete_once_known(tmp_path: Path) -> None:
    companion = absent()
    async with tui_screen(companion, tmp_path, starting=True) as screen:
        await screen.type_keys("/he")
        companion.reachable.set()
        await screen.wait_for("/help")


async def test_quit_during_start_does_not_wait(tmp_path: Path) -> None:
    companion = absent()
    async with tui_screen(companion, tmp_path, starting=True) as screen:
        await screen.pilot.press("ctrl+d")
        await screen.wait_until(lambda: screen.ui.return_value == 0)
    companion.reachable.set()


async def test_open_error_is_shown_and_input_is_kept(tmp_path: Path) -> None:
    companion = absent()
    companion.open_error = ConfigError("the home is broken", hint="mend it")
    async with tui_screen(companion, tmp_path, starting=True) as screen:
        await screen.submit("first")
        await screen.type_keys("second")
        await screen.wait_for("… first")
        companion.reachable.set()
        await screen.wait_until(lambda: screen.ui.return_value is not None)
    assert screen.ui.return_value == ConfigError.exit_code
    assert screen.ui.exit_error is companion.open_error
    assert screen.ui.text == "> first\n> second"


def test_internal_error_is_raised_unchanged(tmp_path: Path) -> None:
    companion = FakeTuiClient()
    companion.open_error = OSError(28, "No space left on device")
    setting = UiSettings(history=tmp_path / "history", clock=FakeClock(), headless=True)
    with pytest.raises(OSError, match="No space left") as caught:
        run_ui(companion, setting)
    assert not isinstance(caught.value, HermesError)
