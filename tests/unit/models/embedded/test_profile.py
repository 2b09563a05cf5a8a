"""Turns with a small embedded model: few tools, a short prompt, no secrets for its process."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from hermes.agent.plan import Plan
from hermes.app.build import AppOptions, open_app
from hermes.config.env import Env
from hermes.config.home import resolve_home
from hermes.models.embedded.install import pip_env
from hermes.models.embedded.servers import engine_env, thread_count
from hermes.models.embedded.small_profile import small_profile, small_prompt
from hermes.schema.messages import Usage
from hermes.schema.scope import Scope
from hermes.schema.sessions import Session

NAME = "qwen2.5-coder-0.5b"


@pytest.mark.parametrize("folder", ["one", "another"])
async def test_small_model_gets_few_tools_and_a_short_prompt(tmp_path: Path, folder: str) -> None:
    env = Env({"HERMES_HOME": str(tmp_path / "home"), "HOME": str(tmp_path), "PATH": "/usr/bin"})
    workspace = tmp_path / folder
    workspace.mkdir()
    choices = AppOptions(workspace=str(workspace), model=NAME, provider="embedded")
    async with open_app(resolve_home(env), env, choices) as app:
        session = Session(id="s", started_at=datetime.now(UTC), cwd=str(workspace))
        scope = Scope("default", "s", "run", str(workspace))
        plan = await app.planner.plan(session, scope, [])
        assert isinstance(plan, Plan)
        assert set(plan.tools) == set(small_profile().tools)
        assert len(plan.tools) <= 5
        assert plan.system.startswith(small_prompt())
        assert str(workspace) not in plan.system
        assert len(plan.system) < 300
        assert (plan.model.name, plan.model.provider) == (NAME, "embedded")
        assert app.price(NAME, "embedded", Usage(10, 10)) == 0.0


def test_engine_environment_has_no_secrets() -> None:
    env = {"PATH": "/bin", "OPENAI_API_KEY": "k", "PIP_INDEX_URL": "x", "HTTPS_PROXY": "p"}
    assert engine_env(env) == {"PATH": "/bin"}
    assert pip_env(env) == {"PATH": "/bin", "PIP_INDEX_URL": "x", "HTTPS_PROXY": "p"}


def test_one_core_is_left_free() -> None:
    assert thread_count() >= 1
