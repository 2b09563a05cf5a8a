"""An @ reference from completion to the model request and back."""

from pathlib import Path

from hermes.testing.fake_openai import Reply, Script
from support.cli_process import FakeModelProcess, HermesCli
from support.terminal_emulator import terminal_program

READY = "Ask anything."
SCRIPT = Script(default=Reply("So it says."))


def test_file_is_completed_and_attached(tmp_path: Path, model: FakeModelProcess) -> None:
    hermes = HermesCli(tmp_path, model.url)
    (hermes.work / "garden notes").mkdir()
    (hermes.work / "garden notes" / "beds.txt").write_text("beans in the first\n")
    with terminal_program(hermes) as at:
        at.wait_for_text(READY)
        at.wait_for_text("openai/mock")
        at.keys("REFER to @gard")
        at.wait_for_text('@file:"garden notes/"')
        at.keys("\t")
        at.wait_for_text('@file:"garden notes/beds.txt"')
        at.keys("\t")
        at.wait_for_text('REFER to @file:"garden notes/beds.txt"')
        at.keys("now\r")
        at.wait_for_text("So it says.")
        at.wait_for_text(READY)
        at.keys("/retry\r")
        at.wait_until(lambda: len(model.requests("REFER")) == 2)
        at.wait_for_text(READY)
        at.keys("\x04")
        assert at.wait_exit() == 0
    for request in model.requests("REFER"):
        content = str(request["messages"][-1]["content"])
        assert content.count('@file:"garden notes/beds.txt" now') == 1
        assert content.count("beans in the first") == 1
    with terminal_program(hermes, "-c") as at:
        at.wait_for_text("So it says.")
        at.wait_for_text(READY)
        assert "beans in the first" not in at.text
        assert "stand for" not in at.text
        at.keys("\x04")
        assert at.wait_exit() == 0
    shown = hermes("sessions", "show", session_of(hermes)).out
    assert "attached: @file:garden notes/beds.txt" in shown
    assert "beans in the first" not in shown
    assert "beans in the first" in hermes("sessions", "show", session_of(hermes), "--full").out


def session_of(hermes: HermesCli) -> str:
    (session,) = hermes("sessions", "list", "--json").events
    assert "stand for" not in session["preview"]
    return session["id"]
