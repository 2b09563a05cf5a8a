"""Images in messages, commands after `!`, the search in the input history."""

from pathlib import Path

import pytest
from textual.events import Paste

from hermes.schema.messages import SHELL_HEADER
from hermes.tui.images import ImageChips, pasted_image
from support.cases import cases
from support.fake_tui_client import FakeTuiClient
from support.tui_screen import TuiScreen, tui_screen

pytestmark = pytest.mark.slow


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    path = tmp_path / "my photo.png"
    path.write_bytes(b"\x89PNG\r\n\x1a\n")
    return path


async def paste(screen: TuiScreen, text: str) -> None:
    screen.ui.chat.prompt.post_message(Paste(text))
    await screen.pilot.pause()


@pytest.mark.parametrize("form", ["{}", "'{}'", "file://{quoted}", "{escaped}\n"])
def test_dropped_image_is_recognized(photo: Path, form: str) -> None:
    name = str(photo)
    text = form.format(name, quoted=name.replace(" ", "%20"), escaped=name.replace(" ", "\\ "))
    assert pasted_image(text) == photo


@cases("text", ["", "/no/such.png", "see photo.png there", "notes.txt", "'x.png"])
def test_other_pasted_text_is_not_an_image(text: str) -> None:
    assert pasted_image(text) is None


def test_reference_to_an_image_becomes_a_chip(photo: Path) -> None:
    chips = ImageChips()
    found = chips.resolve(f'compare @file:"{photo.name}" with @file:notes.md', str(photo.parent))
    assert found.text == "compare [image 1: my photo.png] with @file:notes.md"
    assert found.paths == (str(photo),)
    (photo.parent / "b.png").touch()
    assert chips.resolve("see @b.png?", str(photo.parent)).text == "see [image 2: b.png]?"


async def test_pasted_image_is_sent_with_its_chip(tmp_path: Path, photo: Path) -> None:
    client = FakeTuiClient()
    async with tui_screen(client, tmp_path) as screen:
        await paste(screen, str(photo))
        await screen.submit("what is this?")
        await screen.wait_until_idle()
        assert "▌ [image 1: my photo.png] what is this?" in screen.text
        client.clipboard = str(photo)
        await screen.pilot.press("ctrl+v")
        await screen.wait_for(" [image 1: my photo.png]\n")
    assert client.messages == ["[image 1: my photo.png] what is this?"]
    assert client.images == [[str(photo)]]


async def test_paste_without_an_image_says_so(tmp_path: Path) -> None:
    async with tui_screen(FakeTuiClient(), tmp_path) as screen:
        await screen.pilot.press("ctrl+v")
        await screen.wait_until(lambda: len(screen.ui._notifications))
        (notification,) = screen.ui._notifications
        assert notification.message == "There is no image in the clipboard."


async def test_shell_output_is_shown_and_sent_with_the_next_message(tmp_path: Path) -> None:
    client = FakeTuiClient()
    async with tui_screen(client, tmp_path) as screen:
        await screen.submit("!make test")
        await screen.wait_for("make test was run")
        await screen.submit("!false")
        await screen.wait_for("✗ ! false  exit code 1")
        assert not client.messages
        await screen.submit("why?")
        await screen.wait_until_idle()
        assert SHELL_HEADER not in screen.text
        await screen.submit("and now?")
        await screen.wait_until_idle()
    first, second = client.messages
    assert first.startswith(f"why? {SHELL_HEADER}")
    assert "$ make test\nmake test was run\n(exit code 0)" in first
    assert second == "and now?"


async def test_ctrl_r_searches_the_input_history(tmp_path: Path) -> None:
    (tmp_path / "cli_history").write_text("water the beds\nlook at the peas\nwater the lawn\n")
    async with tui_screen(FakeTuiClient(), tmp_path) as screen:
        await screen.pilot.press("ctrl+r")
        await screen.wait_for("look at the peas")
        await screen.type_keys("water")
        await screen.wait_until_gone("look at the peas")
        await screen.pilot.press("down", "enter")
        await screen.wait_for("\n water the beds\n")
