"""`hermes hooks`: see, accept, try and revoke the programs that look on."""

import io
import stat
from pathlib import Path

import pytest

from hermes.cli.context import CliContext
from hermes.cli.parser import Parser
from hermes.cli.verbs import hooks
from hermes.cli.verbs.hooks.actions import accept_hooks, perform
from hermes.config.env import Env
from hermes.schema.errors import UsageError

GUARD = """#!/bin/sh
cat > /dev/null
echo '{"decision": "block", "reason": "No."}'
"""


class Desk:
    def __init__(self, root: Path) -> None:
        self.home = root / "home"
        self.home.mkdir()
        self.guard = root / "guard"
        self.guard.write_text(GUARD)
        self.guard.chmod(0o700)
        given = {"HERMES_HOME": str(self.home), "HOME": str(root), "PATH": "/usr/bin:/bin"}
        self.env = Env(given)
        self.code = 0

    def settings(self, text: str) -> None:
        (self.home / "config.yaml").write_text(text)

    @property
    def context(self) -> CliContext:
        self.out = io.StringIO()
        return CliContext(self.env, None, (io.StringIO(), self.out, io.StringIO()))

    def __call__(self, *words: str) -> str:
        parser = Parser(prog="hermes hooks")
        hooks.add_arguments(parser)
        self.code = perform(parser.parse_args(words), self.context)
        return self.out.getvalue()


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    desk = Desk(tmp_path)
    desk.settings(f"hooks:\n  pre_tool_call: [{{matcher: terminal, command: {desk.guard}}}]\n")
    return desk


def test_without_any(desk: Desk) -> None:
    desk.settings("")
    assert "no hooks" in desk("list")
    assert "no hooks" in desk("doctor")
    assert "nothing new" in desk("accept")
    assert desk.code == 0


def test_from_the_first_look_to_the_last(desk: Desk) -> None:
    line = f"pre_tool_call (for terminal), {{}}: {desk.guard}\n"
    assert desk("list") == line.format("not accepted")
    assert "not accepted as it is now" in desk("doctor")
    assert desk.code == 1
    assert desk("accept") == f"accepted for pre_tool_call: {desk.guard}\n"
    assert desk("list") == line.format("accepted")
    assert desk("doctor") == "The hooks can be run.\n"
    file = desk.home / "shell-hooks-allowlist.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    desk.guard.write_text(GUARD + "# another\n")
    assert desk("list") == line.format("not accepted")
    accept_hooks(desk.context)
    assert desk("list") == line.format("accepted")
    assert desk("revoke", str(desk.guard)) == f"No longer accepted: {desk.guard}\n"
    assert desk("list") == line.format("not accepted")
    for words in (("revoke",), ("revoke", "x", "--all"), ("revoke", "x")):
        with pytest.raises(UsageError):
            desk(*words)


def test_a_file_that_cannot_be_run_is_named_with_the_next_command(desk: Desk) -> None:
    desk.guard.chmod(0o600)
    why = f"pre_tool_call: {desk.guard} is not executable: chmod +x {desk.guard}\n"
    assert desk("accept") == f"accepted for pre_tool_call: {desk.guard}\nwarning: {why}"
    assert desk("doctor") == why
    assert desk.code == 1


def test_trying_them(desk: Desk) -> None:
    assert desk("test", "pre_tool_call") == (
        f"{desk.guard}: blocks (decision: block, reason: No.)\n"
    )
    for words in (("test", "tea_time"), ("test", "pre_llm_call")):
        with pytest.raises(UsageError):
            desk(*words)
    with pytest.raises(UsageError):
        desk("test", "pre_tool_call", "--for-tool", "read_file")
    desk.settings("hooks:\n  on_session_end: [{command: 'false'}]\n")
    assert "ended with code 1" in desk("test", "on_session_end")
    assert desk.code == 1


def test_what_cannot_work_is_named(desk: Desk) -> None:
    desk.settings(
        "hooks_auto_accept: true\n"
        "model: {openai_runtime: codex_app_server}\n"
        "hooks:\n"
        "  pre_tool_call: [{command: /nowhere/guard}, {command: ./guard}]\n"
        "  pre_verify: [{command: 'true'}]\n"
    )
    told = desk("doctor")
    assert desk.code == 1
    for words in ("/nowhere/guard cannot be found", "absolute path", "hooks.pre_verify", "codex"):
        assert words in told
