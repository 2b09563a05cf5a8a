"""`scripts/seeds.sh` never passes for contract tests that were not run."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.cli_process import TEST_TIMEOUT

ROOT = Path(__file__).parents[3]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Beside it there is no folder `shared` yet."""
    folder = tmp_path / "check out"
    shutil.copytree(ROOT / "scripts", folder / "scripts")
    (folder / ".venv").symlink_to(sys.prefix)
    return folder


def _run(checkout: Path, **env: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["sh", "scripts/seeds.sh"],
        cwd=checkout,
        env={"PATH": "/usr/bin:/bin", **env},
        capture_output=True,
        text=True,
        check=False,
        timeout=TEST_TIMEOUT,
    )


def test_without_them_it_says_that_nothing_was_run(checkout: Path) -> None:
    done = _run(checkout)
    assert done.returncode == 0
    assert "NOT RUN" in done.stdout


def test_where_they_are_required_their_absence_is_a_failure(checkout: Path) -> None:
    assert "HERMES_SEEDS=required" in (ROOT / ".ci/run").read_text()
    assert _run(checkout, HERMES_SEEDS="required").returncode != 0


@pytest.mark.parametrize("count", [69, 70])
def test_fewer_than_expected_is_a_failure(checkout: Path, count: int) -> None:
    seeds = checkout.parent / "shared/seeds"
    seeds.mkdir(parents=True)
    listed = (ROOT / "scripts/seeds.txt").read_text().splitlines()
    names = [line for line in listed if line and not line.startswith("#")]
    for name in names:
        (seeds / name).write_text("def test_one():\n    pass\n")
    rest = count - len(names) + 1
    (seeds / names[0]).write_text(
        f"import pytest\n@pytest.mark.parametrize('n', range({rest}))\ndef test_one(n): pass\n"
    )
    done = _run(checkout)
    assert (done.returncode == 0) is (count >= 70), done.stdout
