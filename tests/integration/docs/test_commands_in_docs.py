"""Every command that the documentation shows is run as it stands there."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pexpect
import pytest

from hermes.models.embedded.weights import find_weights, folder_under
from support.cli_process import HERMES_PROGRAM, TEST_TIMEOUT, wait_for_data
from support.preloaded_python import PreloadedPython, run_python, write_preloaded_command

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
TESTED_ELSEWHERE = {
    "channels/README.md": "tests/integration/channels/test_http_emulator.py",
    "api.md": "tests/integration/docs/test_api_guide.py",
    "gateway.md": "tests/integration/docs/test_gateway_guide.py",
    "first-steps.md": "tests/integration/cli/test_first_steps.py",
}
FOREIGN = {"signal-cli daemon --http 127.0.0.1:8080 --receive-mode=on-connection"}
"""Programs that need an account elsewhere; tests have an emulator in their place."""
GUIDES = sorted([*DOCS.glob("*.md"), *DOCS.glob("channels/*.md")])
PAGES = [
    *(ROOT / name for name in ("README.md", "examples/README.md", "CONTRIBUTING.md")),
    *(page for page in GUIDES if page.relative_to(DOCS).as_posix() not in TESTED_ELSEWHERE),
]
FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
NOT_RUN = {"", "bash", "console", "shell", "text", "zsh"}
COMMAND = re.compile(
    r"^\s*(?:\$ )?(?:\S*/)?(?:hermes|make|rm|git|pipx?|uv|npx?|docker|systemctl|ssh|sh|cat|echo"
    r"|export|curl|python3?|signal-cli) ",
    re.MULTILINE,
)
BIN = Path(sys.executable).parent
TALKS = {"hermes", "hermes -c"}
"""Commands that wait for a person."""


def blocks() -> list[tuple[str, list[str]]]:
    found = []
    for page in PAGES:
        for number, text in enumerate(re.findall(r"```sh\n(.*?)```", page.read_text(), re.DOTALL)):
            lines = [re.sub(r"\s+#.*", "", line).strip() for line in text.splitlines()]
            name = page.relative_to(ROOT).as_posix()
            found.append((f"{name}-{number}", [line for line in lines if line]))
    return found


def pretend(home: Path) -> None:
    """As if the embedded models had been fetched; nobody asks them anything here."""
    place = folder_under(home)
    (place.engine_folder / "xllamacpp").mkdir(parents=True)
    for name in ("qwen2.5-coder-1.5b", "qwen2.5-coder-0.5b"):
        weights = find_weights(name)
        with place.weights_path(weights).open("wb") as file:
            file.truncate(weights.size)


@pytest.fixture
def place(tmp_path, mock_model, fast_program):
    """A checkout to stand in, an empty home, a model that answers, and a session to go on with.

    A gateway that is left running is killed at the end.
    """
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    (checkout / "examples").symlink_to(ROOT / "examples")
    (checkout / ".venv").symlink_to(BIN.parent)
    env = {
        "PATH": f"{fast_program}:{BIN}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "HERMES_HOME": str(tmp_path / ".hermes"),
        "OPENAI_BASE_URL": mock_model,
        "OPENAI_API_KEY": "not-a-real-key",
        "HERMES_INFERENCE_PROVIDER": "openai",
        "HERMES_INFERENCE_MODEL": "mock",
        "TERM": "dumb",
        "WEBHOOK_PORT": "0",
        "API_SERVER_PORT": "0",
    }
    pretend(tmp_path / ".hermes")
    for command in ("git init -q", "hermes -z 'about that regex'"):
        subprocess.run(
            ["sh", "-c", command],
            cwd=checkout,
            env=env,
            check=True,
            capture_output=True,
            timeout=TEST_TIMEOUT,
        )
    yield checkout, env
    stop = [HERMES_PROGRAM, "gateway", "stop", "--force"]
    run_python(stop, env=env, timeout=TEST_TIMEOUT)


@pytest.fixture(scope="module")
def fast_program(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bin")
    write_preloaded_command(folder / "hermes", HERMES_PROGRAM)
    return folder


@pytest.fixture(scope="module")
def mock_model():
    command = ["-m", "hermes.testing.fake_openai", "--port", "0"]
    with PreloadedPython(command, env={}, stdout=subprocess.PIPE) as server:
        try:
            yield wait_for_data(server.stdout.fileno()).decode().strip()
        finally:
            server.kill()


@pytest.mark.parametrize(("name", "lines"), blocks(), ids=[name for name, _ in blocks()])
def test_the_commands_work(name, lines, place):
    checkout, env = place
    for number, line in enumerate(lines):
        if line.startswith("make "):
            target = line.split()[1]
            assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE), line
        elif line in FOREIGN:
            continue
        elif line in TALKS:
            real = env | {"PATH": f"{BIN}:{os.environ['PATH']}"}
            chat = pexpect.spawn("sh", ["-c", line], cwd=str(checkout), env=real, timeout=120)
            chat.expect("Ctrl\\+D exits")
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
                input=f"sk-ant-of-this-guide-{number:010}\n" if " auth add " in line else "",
                timeout=TEST_TIMEOUT,
            )
            assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
            assert "Traceback" not in done.stderr


def test_every_page_with_commands_is_tried() -> None:
    names = {page.relative_to(DOCS).as_posix() for page in GUIDES}
    assert names >= TESTED_ELSEWHERE.keys()
    for name, test in TESTED_ELSEWHERE.items():
        assert f'"{name}"' in (ROOT / test).read_text()
    assert {line for _, lines in blocks() for line in lines} >= FOREIGN
    tried = {name.rpartition("-")[0] for name, _ in blocks()}
    assert tried >= {"README.md", "docs/learning.md", "docs/models.md", "docs/channels/signal.md"}


def test_no_command_is_in_a_fence_that_is_not_run() -> None:
    for page in (*PAGES, *GUIDES):
        for _, language, inside in FENCE.findall(page.read_text()):
            hidden = language in NOT_RUN and COMMAND.search(inside)
            assert not hidden, f"{page.name}: {inside}"


def test_the_python_in_the_readme_runs(place):
    checkout, env = place
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert sum(bool(line.strip()) for line in code.splitlines()) <= 5
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=checkout,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=TEST_TIMEOUT,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "Hello from the mock model.\n"
