"""`hermes hooks`: list, accept, test and revoke hooks."""

import io
import stat
from pathlib import Path

import pytest

from hermes.cli.arguments import build_parser
from hermes.cli.context import CliContext
from hermes.cli.verbs import hooks
from hermes.cli.verbs.hooks import accept_hooks
from hermes.config.env import Env
from hermes.schema.errors import UsageError

GUARD = """#!/bin/sh
cat > /dev/null
echo '{"decision": "block", "reason": "No."}'
"""


class HooksCli:
    def __init__(self, root: Path) -> None:
        self.home = root / "home"
        self.home.mkdir()
        self.guard = root / "guard"
        self.guard.write_text(GUARD)
        self.guard.chmod(0o700)
        variables = {"HERMES_HOME": str(self.home), "HOME": str(root), "PATH": "/usr/bin:/bin"}
        self.env = Env(variables)
        self.code = 0

    def settings(self, text: str) -> None:
        (self.home / "config.yaml").write_text(text)

    @property
    def context(self) -> CliContext:
        self.out = io.StringIO()
        return CliContext(self.env, None, (io.StringIO(), self.out, io.StringIO()))

    def __call__(self, *words: str) -> str:
        self.code = hooks.run(build_parser("hooks").parse_args(words), self.context)
        return self.out.getvalue()


@pytest.fixture
def cli(tmp_path: Path) -> HooksCli:
    cli = HooksCli(tmp_path)
    cli.settings(f"hooks:\n  pre_tool_call: [{{matcher: terminal, command: {cli.guard}}}]\n")
    return cli


def test_empty_settings_have_no_hooks(cli: HooksCli) -> None:
    cli.settings("")
    assert "No hooks configured" in cli("list")
    assert "No hooks configured" in cli("doctor")
    assert "Nothing new" in cli("accept")
    assert cli.code == 0


def test_hook_can_be_accepted_and_revoked(cli: HooksCli) -> None:
    line = f"pre_tool_call (for terminal), {{}}: {cli.guard}\n"
    assert cli("list") == line.format("not accepted")
    assert "not accepted" in cli("doctor")
    assert cli.code == 1
    assert cli("accept") == f"accepted for pre_tool_call: {cli.guard}\n"
    assert cli("list") == line.format("accepted")
    assert cli("doctor") == "All hooks can run.\n"
    file = cli.home / "shell-hooks-allowlist.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    cli.guard.write_text(GUARD + "# another\n")
    assert cli("list") == line.format("not accepted")
    accept_hooks(cli.context)
    assert cli("list") == line.format("accepted")
    assert cli("revoke", str(cli.guard)) == f"Revoked: {cli.guard}\n"
    assert cli("list") == line.format("not accepted")
    for words in (("revoke",), ("revoke", "x", "--all"), ("revoke", "x")):
        with pytest.raises(UsageError):
            cli(*words)


def test_non_executable_hook_is_reported_with_chmod(cli: HooksCli) -> None:
    cli.guard.chmod(0o600)
    why = f"pre_tool_call: {cli.guard} is not executable: chmod +x {cli.guard}\n"
    assert cli("accept") == f"accepted for pre_tool_call: {cli.guard}\nwarning: {why}"
    assert cli("doctor") == why
    assert cli.code == 1


def test_hooks_can_be_tested(cli: HooksCli) -> None:
    assert cli("test", "pre_tool_call") == (f"{cli.guard}: blocks (decision: block, reason: No.)\n")
    for words in (("test", "tea_time"), ("test", "pre_llm_call")):
        with pytest.raises(UsageError):
            cli(*words)
    with pytest.raises(UsageError):
        cli("test", "pre_tool_call", "--for-tool", "read_file")
    cli.settings("hooks:\n  on_session_end: [{command: 'false'}]\n")
    assert "ended with code 1" in cli("test", "on_session_end")
    assert cli.code == 1


def test_doctor_lists_all_problems(cli: HooksCli) -> None:
    cli.settings(
        "hooks_auto_accept: true\n"
        "model: {openai_runtime: codex_app_server}\n"
        "hooks:\n"
        "  pre_tool_call: [{command: /nowhere/guard}, {command: ./guard}]\n"
        "  pre_verify: [{command: 'true'}]\n"
    )
    output = cli("doctor")
    assert cli.code == 1
    for words in ("/nowhere/guard was not found", "absolute path", "hooks.pre_verify", "codex"):
        assert words in output
