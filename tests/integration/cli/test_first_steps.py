"""The commands of docs/first-steps.md work as written."""

import re
import subprocess
from pathlib import Path

import pytest

from hermes.testing.fake_openai import Reply, Script
from support.cli_process import HERMES_PROGRAM, TEST_TIMEOUT, FakeModelProcess, HermesCli

GUIDE = Path(__file__).parents[3] / "docs" / "first-steps.md"
BLOCKS = re.findall(r"```sh\n(.*?)```", GUIDE.read_text(), re.DOTALL)
SCRIPT = Script(models=("mock",), default=Reply("Two files."))


def test_guide_contains_commands() -> None:
    assert len(BLOCKS) == 5


@pytest.mark.parametrize("block", BLOCKS)
def test_commands_of_the_guide_work(block: str, tmp_path: Path, model: FakeModelProcess) -> None:
    hermes = HermesCli(tmp_path, model.url)
    hermes.env |= {
        "PATH": f"{Path(HERMES_PROGRAM).parent}:{hermes.env['PATH']}",
        "MY_KEY": "sk-of-this-guide-0123456789",
        "LM_BASE_URL": model.url,
        "OPENROUTER_BASE_URL": model.url,
        "ANTHROPIC_BASE_URL": model.url,
    }
    lines = [re.sub(r"\s+#.*", "", line).strip() for line in block.splitlines()]
    for line in filter(None, lines):
        done = subprocess.run(
            ["sh", "-c", line], cwd=hermes.work, env=hermes.env, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=TEST_TIMEOUT, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        assert "Traceback" not in done.stderr
