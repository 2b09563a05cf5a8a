"""The guide to the gateway, followed from the first command to the last, in one home."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.cli_process import TEST_TIMEOUT, RunningCli, reserved_port, wait_for_data

ROOT = Path(__file__).parents[3]
GUIDE = (ROOT / "docs" / "gateway.md").read_text()
BIN = Path(sys.executable).parent
PORT = "8644"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL)


@pytest.fixture
def env(tmp_path: Path) -> Iterator[dict[str, str]]:
    """An empty home and a model that answers; whatever gateway is left at the end is killed."""
    command = [sys.executable, "-m", "hermes.testing.fake_openai", "--port", "0"]
    with reserved_port() as port, subprocess.Popen(command, stdout=subprocess.PIPE) as server:
        variables = {
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "HOME": str(tmp_path),
            "HERMES_HOME": str(tmp_path / "home"),
            "OPENAI_BASE_URL": wait_for_data(server.stdout.fileno()).decode().strip(),
            "OPENAI_API_KEY": "not-a-real-key",
            "HERMES_INFERENCE_PROVIDER": "openai",
            "HERMES_INFERENCE_MODEL": "mock",
            "WEBHOOK_PORT": str(port),
        }
        try:
            yield variables
            follow("hermes gateway stop --force", variables)
        finally:
            server.kill()


def follow(script: str, env: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    """A block is one script, so that a later line may use what an earlier one has set."""
    return subprocess.run(
        ["sh", "-e", "-c", script],
        env=env,
        cwd=env["HOME"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=TEST_TIMEOUT,
    )


def test_the_guide_can_be_followed(env: dict[str, str]) -> None:
    output = ""
    for script in blocks("sh"):
        done = follow(script.replace(PORT, env["WEBHOOK_PORT"]), env)
        assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
        assert "Traceback" not in done.stderr
        output += done.stdout
    assert "serves   default, work" in output
    assert output.count('"status":"accepted","route":"build"') == 2
    assert '"delivery_id":"build-7"' in output


@pytest.mark.parametrize("number", range(len(blocks("yaml"))))
def test_the_settings_in_it_are_right(number: int, env: dict[str, str]) -> None:
    home = Path(env["HERMES_HOME"])
    home.mkdir()
    (home / "config.yaml").write_text(blocks("yaml")[number])
    checked = follow("hermes config check", env)
    assert (checked.returncode, checked.stderr) == (0, ""), checked.stdout


def test_foreground_output_matches_the_guide(env: dict[str, str]) -> None:
    command = [str(BIN / "hermes"), "gateway", "run"]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as one:
        gateway = RunningCli(one)
        gateway.wait_for("Ctrl+C stops it.")
        gateway.wait_for("No platforms enabled")
        gateway.wait_for("agent.log")
        ended = gateway.send_signal(2)
    assert ended.out.endswith("Stopping; press Ctrl+C again to stop immediately.\n")
    assert ended.code == 130
