"""Completion scripts in real shells with the real command."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.stored_sessions import simple_session, write_store

BASH = """
source "$SCRIPT"
COMP_WORDS=("$@")
COMP_CWORD=$(( $# - 1 ))
_hermes hermes
printf '%s\\n' "${COMPREPLY[@]}"
"""


class Shell:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        program = folder / "bin" / "hermes"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m hermes "$@"\n')
        program.chmod(0o755)
        self.env = {
            **os.environ,
            "HERMES_HOME": str(self.home),
            "PATH": f"{program.parent}:{os.environ['PATH']}",
        }

    def script(self, shell: str) -> Path:
        path = self.folder / f"hermes.{shell}"
        path.write_text(self.run("hermes", "completion", shell))
        return path

    def run(self, *argv: str, **env: str) -> str:
        done = subprocess.run(
            argv,
            env={**self.env, **env},
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        assert done.stderr == ""
        return done.stdout

    def bash(self, *words: str) -> list[str]:
        path = self.folder / "hermes.bash"
        script = path if path.exists() else self.script("bash")
        offered = self.run("bash", "-c", BASH, "bash", *words, SCRIPT=str(script))
        return [line for line in offered.splitlines() if line]


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def test_bash_completes_commands_actions_flags_and_choices(shell: Shell) -> None:
    assert shell.bash("hermes", "se") == ["setup", "sessions", "send"]
    assert {"chat", "sessions", "completion"} <= set(shell.bash("hermes", ""))
    assert shell.bash("hermes", "sessions", "e") == ["export"]
    assert shell.bash("hermes", "sessions", "list", "--si") == ["--since"]
    assert shell.bash("hermes", "sessions", "list", "--source", "cli", "--older") == [
        "--older-than"
    ]
    assert shell.bash("hermes", "sessions", "export", "--format", "") == ["jsonl", "md", "html"]
    assert shell.bash("hermes", "sessions", "export", "--format", "=", "j") == ["jsonl"]
    assert shell.bash("hermes", "completion", "z") == ["zsh"]
    assert shell.bash("hermes", "-m", "sessions", "ses") == ["sessions"]
    assert shell.bash("hermes", "-c", "sessions", "li") == ["list"]
    assert shell.bash("hermes", "sessions", "list", "--limit", "") == []


def test_bash_completes_providers_toolsets_and_settings(shell: Shell) -> None:
    assert shell.bash("hermes", "setup", "--provider", "oll") == ["ollama"]
    assert "anthropic" in shell.bash("hermes", "auth", "add", "")
    assert shell.bash("hermes", "tools", "disable", "term") == ["terminal"]
    assert shell.bash("hermes", "tools", "enable", "terminal", "memo") == ["memory"]
    assert shell.bash("hermes", "config", "set", "display.busy") == ["display.busy_input_mode"]
    assert "agent.max_turns" in shell.bash("hermes", "config", "unset", "agent.")
    assert shell.bash("hermes", "config", "set", "display.busy_input_mode", "") == []


def test_bash_completes_files_and_folders(shell: Shell) -> None:
    (shell.folder / "a|file with spaces.jsonl").touch()
    (shell.folder / "a-folder").mkdir()
    assert shell.bash("hermes", "sessions", "import", "a|") == ["a|file with spaces.jsonl"]
    assert shell.bash("hermes", "chat", "--cwd", "a") == ["a-folder"]


def test_bash_completes_sessions_and_profiles(shell: Shell) -> None:
    assert shell.bash("hermes", "sessions", "show", "") == []
    assert not shell.home.exists()
    write_store(
        shell.home / "hermes.db",
        *simple_session("20260131_120000_aaaaaa", title="A\ttab and \x1b[31m"),
        *simple_session("20250131_120000_bbbbbb"),
        *simple_session("no; rm -rf $(here)"),
    )
    (shell.home / "profiles" / "work").mkdir(parents=True)
    write_store(
        shell.home / "profiles" / "work" / "hermes.db", *simple_session("20240131_120000_cccccc")
    )
    assert sorted(shell.bash("hermes", "sessions", "delete", "x", "")) == [
        "20250131_120000_bbbbbb",
        "20260131_120000_aaaaaa",
    ]
    assert shell.bash("hermes", "-r", "2026") == ["20260131_120000_aaaaaa"]
    assert shell.bash("hermes", "-p", "") == ["default", "work"]
    assert shell.bash("hermes", "-p", "work", "-r", "") == ["20240131_120000_cccccc"]


def test_completion_is_silent_with_a_broken_home(shell: Shell) -> None:
    shell.home.mkdir()
    (shell.home / "hermes.db").write_bytes(b"this is no database, and it is long enough" * 100)
    assert shell.bash("hermes", "sessions", "show", "") == []


def test_every_installed_shell_parses_its_script(shell: Shell) -> None:
    known = ("bash", "zsh", "fish")
    installed = [name for name in known if shutil.which(name)]
    assert "bash" in installed
    for name in installed:
        shell.run(name, "-n", str(shell.script(name)))
