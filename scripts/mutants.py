"""Plant known bugs one by one and check that the tests find each of them.

usage: mutants.py [NAME...]

A mutant is a patch in tests/mutants. The lines before the diff say what the bug does, and end with
`Tests:` and the test files that must fail with it. The same files must pass without it.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "tests" / "mutants"
TIMEOUT = 600


@dataclass(frozen=True)
class Mutant:
    patch: Path
    summary: str
    tests: tuple[str, ...]


def mutants(names: Sequence[str] = ()) -> list[Mutant]:
    patches = sorted(FOLDER.glob("*.patch"))
    if unknown := set(names) - {patch.stem for patch in patches}:
        raise SystemExit(f"There is no mutant {', '.join(sorted(unknown))} in {FOLDER}.")
    return [_read(patch) for patch in patches if not names or patch.stem in names]


def _read(patch: Path) -> Mutant:
    head = patch.read_text(encoding="utf-8").partition("\n--- ")[0].splitlines()
    tests = [line.removeprefix("Tests:").split() for line in head if line.startswith("Tests:")]
    return Mutant(patch, head[0], tuple(tests[0]))


def copy_of_the_project(target: Path) -> None:
    for name in ("src", "tests", "bench", "pyproject.toml"):
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(
                source, target / name, ignore=shutil.ignore_patterns("__pycache__", "mutants")
            )
        else:
            shutil.copy(source, target)


def run_tests(project: Path, tests: Sequence[str]) -> tuple[bool, str]:
    """Return whether the tests passed, and the end of their output."""
    found = subprocess.run(
        [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", *tests],
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(project / "src")},
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    if found.returncode not in (0, 1):
        raise SystemExit(f"The tests could not be run:\n{found.stdout}\n{found.stderr}")
    return found.returncode == 0, found.stdout[-2000:]


def is_found(mutant: Mutant) -> bool:
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        project = Path(folder)
        copy_of_the_project(project)
        subprocess.run(["git", "apply", str(mutant.patch)], cwd=project, check=True)
        passed, _ = run_tests(project, mutant.tests)
        return not passed


def main(names: Sequence[str]) -> int:
    chosen = mutants(names)
    tests = sorted({test for mutant in chosen for test in mutant.tests})
    passed, output = run_tests(ROOT, tests)
    if not passed:
        print(f"The tests fail without any mutant:\n{output}")
        return 1
    missed = 0
    for mutant in chosen:
        found = is_found(mutant)
        missed += not found
        print(
            f"{'found ' if found else 'MISSED'}  {mutant.patch.stem}: {mutant.summary}", flush=True
        )
    print(f"{len(chosen) - missed} of {len(chosen)} planted bugs were found.")
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
