"""The patches of `make mutants` still apply, and name tests that exist."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PATCHES = sorted((ROOT / "tests" / "mutants").glob("*.patch"))


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.stem)
def test_patch_applies_and_names_its_tests(patch: Path) -> None:
    subprocess.run(["git", "apply", "--check", str(patch)], cwd=ROOT, check=True)
    (line,) = [line for line in patch.read_text().splitlines() if line.startswith("Tests: ")]
    tests = line.removeprefix("Tests: ").split()
    assert tests
    assert all((ROOT / test).exists() for test in tests)
