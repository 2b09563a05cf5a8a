"""Each command loads only the modules it needs, so that it starts quickly."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from hermes.testing.fake_openai import Reply, Script
from support.cli_process import TEST_TIMEOUT, FakeModelProcess, fake_model_process


class Budget(NamedTuple):
    """The maximum number of modules, and packages that must not be loaded."""

    modules: int
    without: str


NETWORK = "aiohttp ssl http email"
BUDGETS = {
    "--version": Budget(5, "typing re argparse asyncio msgspec json logging collections"),
    "--help": Budget(5, "typing re argparse asyncio msgspec json logging collections"),
    "-p work --version": Budget(5, "typing re argparse asyncio msgspec json logging collections"),
    "chat --help": Budget(95, f"{NETWORK} asyncio anyio apsw yaml ruamel json logging shutil"),
    "model --help": Budget(95, f"{NETWORK} asyncio anyio apsw yaml ruamel json logging shutil"),
    "config get model.default": Budget(120, f"{NETWORK} asyncio anyio apsw ruamel shutil"),
    "profile list": Budget(115, f"{NETWORK} asyncio anyio apsw ruamel"),
    "completion bash": Budget(175, f"{NETWORK} asyncio anyio apsw ruamel"),
    "sessions list": Budget(265, "aiohttp http email yaml ruamel hermes.models hermes.tools"),
    "-z hello": Budget(
        450,
        "aiohttp http email ruamel openai hermes.testing hermes.runtimes hermes.mcp mcp readline "
        "pydantic hermes.cron hermes.kanban cronsim hermes.config.platform_blocks",
    ),
}
PROBE = """
import sys
before = set(sys.modules)
from hermes.cli.main import main
code = main(sys.argv[1:])
print(*sorted(set(sys.modules) - before), sep="\\n", file=sys.stderr)
sys.exit(code)
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeModelProcess]:
    script = Script(default=Reply("Hi."))
    with fake_model_process(tmp_path_factory.mktemp("model"), script) as running:
        yield running


@pytest.fixture
def env(tmp_path: Path, model: FakeModelProcess) -> dict[str, str]:
    (tmp_path / "home/profiles/work").mkdir(parents=True)
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "HERMES_HOME": str(tmp_path / "home"),
        "OPENAI_BASE_URL": model.url,
        "OPENAI_API_KEY": "sk-x",
        "HERMES_INFERENCE_PROVIDER": "openai",
        "HERMES_INFERENCE_MODEL": "mock",
    }


def loaded(arguments: list[str], env: dict[str, str]) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *arguments], env=env, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=TEST_TIMEOUT, check=True,
    )  # fmt: skip
    return set(done.stderr.splitlines())


@pytest.mark.slow
@pytest.mark.parametrize("command", BUDGETS)
def test_command_stays_within_its_module_budget(command: str, env: dict[str, str]) -> None:
    budget = BUDGETS[command]
    modules = loaded(command.split(), env)
    families = {name for module in modules for name in _with_parents(module)}
    assert families & set(budget.without.split()) == set()
    assert len(modules) <= budget.modules


def _with_parents(module: str) -> list[str]:
    parts = module.split(".")
    return [".".join(parts[: number + 1]) for number in range(len(parts))]


@pytest.mark.slow
def test_probe_sees_loaded_modules(env: dict[str, str]) -> None:
    """The probe can see the modules that the budgets forbid."""
    assert {"httptools", "apsw", "asyncio", "msgspec", "hermes.agent.turn"} <= loaded(
        ["-z", "hello"], env
    )
