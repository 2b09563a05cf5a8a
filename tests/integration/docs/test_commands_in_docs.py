"""Every command that the documentation shows is run as it stands there."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pexpect
import pytest

from processes import PATIENCE, wait_for_data

ROOT = Path(__file__).parents[3]
PAGES = [
    ROOT / "README.md", ROOT / "examples/README.md", ROOT / "CONTRIBUTING.md",
    ROOT / "docs/learning.md", ROOT / "docs/mcp.md",
]  # fmt: skip
BIN = Path(sys.executable).parent
TALKS = {"hermes", "hermes -c"}
"""Commands that wait for a person."""


def blocks() -> list[tuple[str, list[str]]]:
    found = []
    for page in PAGES:
        for number, text in enumerate(re.findall(r"```sh\n(.*?)```", page.read_text(), re.DOTALL)):
            lines = [re.sub(r"\s+#.*", "", line).strip() for line in text.splitlines()]
            found.append((f"{page.name}-{number}", [line for line in lines if line]))
    return found


@pytest.fixture
def place(tmp_path, mock_model):
    """A checkout to stand in, an empty home, a model that answers, and a session to go on with.

    A gateway that is left running is killed at the end.
    """
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    (checkout / "examples").symlink_to(ROOT / "examples")
    (checkout / ".venv").symlink_to(BIN.parent)
    env = {
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "HERMES_HOME": str(tmp_path / "home"),
        "OPENAI_BASE_URL": mock_model,
        "OPENAI_API_KEY": "not-a-real-key",
        "HERMES_INFERENCE_PROVIDER": "openai",
        "HERMES_INFERENCE_MODEL": "mock",
        "TERM": "dumb",
        "WEBHOOK_PORT": "0",
        "API_SERVER_PORT": "0",
    }
    for command in ("git init -q", "hermes -z 'about that regex'"):
        subprocess.run(
            ["sh", "-c", command],
            cwd=checkout,
            env=env,
            check=True,
            capture_output=True,
            timeout=PATIENCE,
        )
    yield checkout, env
    stop = [BIN / "hermes", "gateway", "stop", "--force"]
    subprocess.run(stop, env=env, check=False, capture_output=True, timeout=PATIENCE)


@pytest.fixture(scope="module")
def mock_model():
    command = [sys.executable, "-m", "hermes.testing.mock_openai", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            yield wait_for_data(server.stdout.fileno()).decode().strip()
        finally:
            server.kill()


@pytest.mark.parametrize(("name", "lines"), blocks(), ids=[name for name, _ in blocks()])
def test_the_commands_work(name, lines, place):
    checkout, env = place
    for line in lines:
        if line.startswith("make "):
            target = line.split()[1]
            assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE), line
        elif line in TALKS:
            chat = pexpect.spawn("sh", ["-c", line], cwd=str(checkout), env=env, timeout=120)
            chat.expect("Ctrl\\+D leaves")
            chat.expect("> ")
            chat.sendeof()
            chat.expect(pexpect.EOF)
            assert chat.wait() == 0, line
        else:
            done = subprocess.run(
                ["sh", "-c", line],
                cwd=checkout,
                env=env,
                capture_output=True,
                text=True,
                check=False,
                stdin=subprocess.DEVNULL,
                timeout=PATIENCE,
            )
            assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
            assert "Traceback" not in done.stderr


def test_the_python_in_the_readme_runs(place):
    checkout, env = place
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=checkout,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "Hello from the mock model.\n"
