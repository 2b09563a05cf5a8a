"""Background commands and the editor at a real terminal."""

from pathlib import Path

from hermes.testing.fake_openai.script import Reply, Rule, Script
from support.cli_process import HermesCli, fake_model_process

SCRIPT = Script(
    rules=[
        Rule("has ended", [Reply("The report says 42.")]),
        Rule("count the lines", [Reply("There are 42 lines.")]),
        Rule("Dear all", [Reply("A nice letter.")]),
    ]
)
EDITOR = '#!/bin/sh\necho "and so on" >> "$1"\n'


def test_background_command_and_editor(tmp_path: Path) -> None:
    editor = tmp_path / "editor"
    editor.write_text(EDITOR)
    editor.chmod(0o700)
    with fake_model_process(tmp_path / "model", SCRIPT) as model:
        hermes = HermesCli(tmp_path, model.url)
        with hermes.terminal(VISUAL=str(editor)) as child:
            child.expect_exact("Type a message")
            # Before the first message: its result starts the session.
            child.sendline("/bg count the lines")
            child.expect_exact("Started ")
            child.expect_exact("The report says 42.")
            child.sendline("/prompt Dear all,")
            child.expect_exact("A nice letter.")
            child.sendline("/ts on")
            child.expect_exact("Timestamps on.")
            child.sendline("/sb")
            child.expect_exact("The line-mode chat has no status bar.")
            child.sendline("/quit")
            child.expect_exact("Resume: hermes")
        (letter,) = model.requests("and so on")[:1]
        assert letter["messages"][-1]["content"] == "Dear all,\nand so on"
