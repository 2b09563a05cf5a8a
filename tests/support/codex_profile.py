"""A profile whose turns are run by a real codex with the mock model."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from hermes.app.build import App, AppOptions, open_app
from hermes.config.env import Env
from hermes.config.home import Home
from support.codex_runtime import codex_config

SETTINGS = """
model:
  default: mock-model
  provider: openai
  base_url: {url}
  api_key: sk-test
  openai_runtime: {runtime}
approvals:
  mode: "off"
"""


def write_codex_home(
    path: Path,
    url: str,
    runtime: str = "codex_app_server",
    sandbox: str = "danger-full-access",
) -> Home:
    for name in ("codex", "work"):
        (path / name).mkdir(exist_ok=True)
    (path / "codex" / "config.toml").write_text(codex_config(url, sandbox))
    home = Home(root=path, path=path)
    if not home.config.exists():
        home.config.write_text(SETTINGS.format(url=url, runtime=runtime))
    return home


def codex_env(path: Path, program: str) -> dict[str, str]:
    return {
        "HOME": str(path),
        "PATH": "/usr/bin:/bin",
        "CODEX_HOME": str(path / "codex"),
        "CODEX_PATH": program,
    }


@asynccontextmanager
async def open_codex_profile(
    path: Path,
    url: str,
    program: str,
    runtime: str = "codex_app_server",
    *,
    reviews: bool = False,
    sandbox: str = "danger-full-access",
    source: str = "cli",
) -> AsyncGenerator[App]:
    home = write_codex_home(path, url, runtime, sandbox)
    env = Env(codex_env(path, program))
    choices = AppOptions(workspace=str(path / "work"), reviews_turns=reviews, source=source)
    async with open_app(home, env, choices) as app:
        yield app
