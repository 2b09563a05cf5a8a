"""What `make` says to a Python that is too old, before anything is made."""

import subprocess
import sys
from pathlib import Path

from support.cli_process import TEST_TIMEOUT

ROOT = Path(__file__).parents[3]
PRETENDED = """\
#!/bin/sh
'''exec' "{python}" "$0" "$@"
' '''
import subprocess, sys
code = "import sys; sys.version_info = {version}; exec(sys.argv.pop(1))"
if sys.argv[1] == "-c":
    sys.exit(subprocess.run([{python!r}, "-c", code, sys.argv[2]]).returncode)
print("asked for", *sys.argv[1:])
"""


def made_with(version: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    python = folder / "python"
    python.write_text(PRETENDED.format(python=sys.executable, version=version))
    python.chmod(0o755)
    venv = folder / "venv"
    return subprocess.run(
        ["make", "-s", f"PYTHON={python}", f"VENV={venv}", f"{venv}/.python"],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=TEST_TIMEOUT,
    )  # fmt: skip


def test_an_old_python_is_named_with_the_next_command(tmp_path: Path) -> None:
    done = made_with("(3, 10, 14)", tmp_path)
    assert done.returncode != 0
    assert "Hermes needs Python 3.11 or newer" in done.stdout
    assert "make PYTHON=python3.12" in done.stdout
    assert "asked for" not in done.stdout
    assert not (tmp_path / "venv").exists()


def test_help_names_targets_that_are_there() -> None:
    done = subprocess.run(
        ["make", "-s", "help"],
        cwd=ROOT, capture_output=True, text=True, check=True, timeout=TEST_TIMEOUT,
    )  # fmt: skip
    named = [line.split()[1] for line in done.stdout.splitlines()]
    assert {"run", "test"} < set(named)
    makefile = (ROOT / "Makefile").read_text()
    assert [one for one in named if f"\n{one}:" not in makefile] == []


def test_oldest_supported_python_is_accepted(tmp_path: Path) -> None:
    (tmp_path / "venv").mkdir()
    done = made_with("(3, 11, 0)", tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"asked for -m venv {tmp_path}/venv" in done.stdout
