import os
import subprocess
import sys
from pathlib import Path

import pexpect
import pytest

from support.preloaded_python import run_python_text


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "home"


def environment(root: Path) -> dict[str, str]:
    return {"HERMES_HOME": str(root), "HOME": str(root.parent), "PATH": os.environ["PATH"]}


def hermes(root: Path, *words: str) -> subprocess.CompletedProcess:
    return run_python_text(["-m", "hermes", *words], env=environment(root), timeout=60)


def test_profile_lifecycle(root):
    hermes(root, "config", "set", "model", "base")
    created = hermes(root, "profile", "create", "work", "--clone")
    assert (created.returncode, "as a copy of default" in created.stdout) == (0, True)
    assert hermes(root, "-p", "work", "config", "get", "model").stdout == "base\n"

    hermes(root, "-p", "work", "config", "set", "model", "other")
    assert hermes(root, "config", "get", "model").stdout == "base\n"
    assert hermes(root, "profile", "use", "work").returncode == 0
    assert hermes(root, "config", "get", "model").stdout == "other\n"
    assert hermes(root, "-p", "default", "config", "get", "model").stdout == "base\n"

    assert hermes(root, "profile", "create", "copy", "--clone", "default").returncode == 0
    assert hermes(root, "-p", "copy", "config", "get", "model").stdout == "base\n"
    assert hermes(root, "profile", "rename", "work", "job").returncode == 0
    assert hermes(root, "profile", "list").stdout == (
        f"  default  {root}\n  copy     {root}/profiles/copy\n* job      {root}/profiles/job\n"
    )
    shown = hermes(root, "profile", "show").stdout
    assert "name       job\n" in shown
    assert "model      other\n" in shown

    refused = hermes(root, "profile", "delete", "job")
    assert (refused.returncode, "--yes" in refused.stderr) == (2, True)
    assert (root / "profiles" / "job").is_dir()
    assert hermes(root, "profile", "delete", "job", "--yes").returncode == 0
    assert hermes(root, "profile", "list").stdout.startswith("* default")
    assert hermes(root, "config", "get", "model").stdout == "base\n"


def test_clone_says_which_chat_apps_it_has_and_which_credentials_it_lacks(root):
    root.mkdir(exist_ok=True)
    (root / ".env").write_text("TELEGRAM_BOT_TOKEN=1:a\nIRC_SERVER=irc.example\n")
    created = hermes(root, "profile", "create", "work", "--clone").stdout
    assert "Not copied (each profile needs its own): TELEGRAM_BOT_TOKEN\n" in created
    assert "Its gateway will also connect to: irc." in created


def test_unknown_profile_lists_the_others(root):
    hermes(root, "profile", "create", "work")
    done = hermes(root, "-p", "wrok", "config", "path")
    assert (done.returncode, done.stdout) == (78, "")
    assert "Known profiles: default, work" in done.stderr
    assert "Did you mean work?" in done.stderr


def test_broken_active_profile_can_be_fixed(root):
    hermes(root, "profile", "create", "work")
    (root / "active_profile").write_text("gone\n")
    assert hermes(root, "config", "path").returncode == 78
    assert hermes(root, "profile", "list").returncode == 0
    assert hermes(root, "profile", "use", "work").returncode == 0
    assert hermes(root, "config", "path").stdout == f"{root}/profiles/work/config.yaml\n"


@pytest.mark.parametrize("name", ["Work", "../x", "root", "default"])
def test_invalid_profile_names_are_refused(root, name):
    done = hermes(root, "profile", "create", name)
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)


def test_delete_at_a_terminal_asks_for_the_name(root):
    hermes(root, "profile", "create", "work")
    for typed, end in (("no", "was not deleted"), ("work", "deleted, including")):
        child = pexpect.spawn(
            sys.executable,
            ["-m", "hermes", "profile", "delete", "work"],
            env={**environment(root), "TERM": "dumb"},
            encoding="utf-8",
            timeout=60,
        )
        child.expect("Type work to confirm: ")
        child.sendline(typed)
        child.expect(end)
        child.expect(pexpect.EOF)
    assert not (root / "profiles" / "work").exists()


def test_settings_cannot_control_the_terminal(root):
    root.mkdir(exist_ok=True)
    (root / "config.yaml").write_text('model: "evil\\e]0;owned\\a\\nname  default"\n')
    shown = hermes(root, "profile", "show").stdout
    assert "model      evil␛]0;owned␇ name  default\n" in shown
