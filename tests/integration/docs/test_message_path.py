"""`docs/architecture.md` describes the path of a message as the program runs it."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hermes.testing.fake_openai.script import Reply, Script
from support.cli_process import TEST_TIMEOUT, fake_model_process

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
MAX_FUNCTIONS, MAX_MODULES = 450, 90
"""What the first `-z hi` of a home may enter; slow machines add updates of the search index."""
MODULE = re.compile(r"(?<![\w/])[a-z_]+/[\w/]*\w\.py\b")


def documented_stack(title: str) -> list[str]:
    """The functions listed below a title, as `module function`."""
    block = PAGE.partition(f"### {title}\n")[2].partition("```text\n")[2].partition("```")[0]
    return [" ".join(line.split()[:2]) for line in block.splitlines()]


@pytest.mark.slow
def test_documented_stacks_are_those_of_a_run(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    command = [sys.executable, "-m", "bench.walk_process", str(report), "-", "-z", "hi"]
    with fake_model_process(tmp_path / "model", Script(default=Reply("Hi."))) as model:
        env = {
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "HERMES_HOME": str(tmp_path / "home"),
            "OPENAI_BASE_URL": model.url,
            "OPENAI_API_KEY": "sk-x",
            "HERMES_INFERENCE_PROVIDER": "openai",
            "HERMES_INFERENCE_MODEL": "mock",
        }
        subprocess.run(
            command, env=env, cwd=ROOT, stdin=subprocess.DEVNULL, timeout=TEST_TIMEOUT, check=True
        )
    walk = json.loads(report.read_bytes())
    modules = {name.partition(":")[0] for name in walk["functions"]}
    assert len(walk["functions"]) <= MAX_FUNCTIONS
    assert len(modules) <= MAX_MODULES
    stacks = walk["stacks"]
    for moment, title in (
        ("stored", "The stack when the request is stored"),
        ("asked", "The stack when the model is asked"),
    ):
        frames = [frame.replace(".<locals>", "").split(":") for frame in stacks[moment]]
        found = [f"{module.replace('.', '/')}.py {function}" for module, function, _ in frames]
        assert documented_stack(title) == found


def test_modules_named_in_the_page_exist() -> None:
    named = set(MODULE.findall(PAGE))
    assert len(named) > 50
    roots = (ROOT / "src" / "hermes", ROOT)
    assert [one for one in sorted(named) if not any((root / one).exists() for root in roots)] == []
