"""The terminal UI in a real terminal: screen content, keys and clicks."""

import base64
from pathlib import Path

import pytest

from hermes.testing.fake_openai import Call, Fault, Reply, Rule, Script
from support.cli_process import FakeModelProcess, HermesCli
from support.terminal_emulator import terminal_program

READY = "Ask anything."
DELETE = {"command": "rm -rf build", "escalate": "outside", "reason": "to build anew"}
ANSWER = "Two beds, as *you* know.\n\n```sh\nwater --all\n```\n\nThat is all."
SCRIPT = Script(
    rules=[
        Rule("look", [Reply("", [Call("terminal", {"command": "cat beds.txt"})]), Reply(ANSWER)]),
        Rule("delete", [Reply("", [Call("terminal", DELETE)]), Reply("It is gone.")]),
        Rule("hang", [Reply("first words, then none", fault=Fault("hang", after=3), chunk=6)]),
    ],
    models=("mock", "other"),
)
LIGHT, DARK = "2;251;251;249", "2;22;23;29"
"""Background colours of the two themes."""


@pytest.fixture
def hermes(tmp_path: Path, model: FakeModelProcess) -> HermesCli:
    hermes = HermesCli(tmp_path, model.url)
    hermes.env["COLORTERM"] = "truecolor"
    hermes.configure("approvals:\n  mode: manual\n")
    (hermes.work / "build").mkdir()
    (hermes.work / "beds.txt").write_text("beans in the first\npeas in the second\n")
    return hermes


def test_session_and_its_continuation(hermes: HermesCli) -> None:
    with terminal_program(hermes) as at:
        at.wait_for_text(READY)
        at.keys("look\r")
        at.wait_for_text("That is all.")
        at.wait_for_text(READY)
        assert "peas" not in at.text
        at.click_and_wait("terminal cat beds.txt", "   peas in the second")
        assert "   $ cat beds.txt" in at.text
        copied = base64.b64encode(b"water --all").decode()
        at.click("[copy]", lambda: f"52;c;{copied}" in at.screen.escapes)
        at.keys("delete\r")
        at.wait_for_text("Allow once")
        assert "Auto-denied" not in at.text
        assert "2;● hermes: approval needed: rm -rf build" in at.screen.escapes
        at.click_and_wait("Allow once", "→ allowed once")
        at.wait_for_text("It is gone.")
        at.wait_for_text(READY)
        assert not (hermes.work / "build").exists()
        at.keys("hang\r")
        at.wait_for_text("first words")
        at.keys("\x1b")
        at.wait_for_text("Interrupted.")
        assert at.screen.background(0, 0) == DARK
        at.click_and_wait("terminal rm -rf build", "$ rm -rf build")
        at.keys("\x04")
        assert at.wait_exit() == 0
    with terminal_program(hermes, "-c", COLORFGBG="0;15") as at:
        at.wait_for_text("Interrupted.")
        at.wait_for_text(READY)
        assert at.screen.background(0, 0) == LIGHT
        at.wait_for_text("✓ terminal rm -rf build")
        at.keys("\x1b[5~")
        at.wait_for_text("✓ terminal cat beds.txt")
        at.wait_for_text("↓ more below")
        at.click_and_wait("terminal cat beds.txt", "   peas in the second")
        at.keys("\x14")
        at.wait_until(lambda: at.screen.background(0, 0) == DARK)
        at.keys("\x1a")
        at.wait_for_text("There is no shell to return to")
        at.keys("\x04")
        assert at.wait_exit() == 0
        assert "cat beds.txt" not in at.text


def test_first_start_without_model_and_colours(tmp_path: Path, model: FakeModelProcess) -> None:
    hermes = HermesCli(tmp_path, "")
    for name in [name for name in hermes.env if name.startswith(("OPENAI", "HERMES_INFERENCE"))]:
        del hermes.env[name]
    with terminal_program(hermes, NO_COLOR="1") as at:
        at.wait_for_text("Number or name [")
        at.keys("custom\r")
        at.wait_for_text("Server address")
        at.keys(f"{model.url}\r")
        at.wait_for_text("Number or name [mock]")
        at.keys("\r")
        at.wait_for_text(READY)
        at.keys("hello\r")
        at.wait_for_text("▌ hello")
        at.wait_for_text("Hello from the mock model.")
        assert not at.screen.coloured
        at.wait_for_text(READY)
        at.keys("\x04")
        assert at.wait_exit() == 0
