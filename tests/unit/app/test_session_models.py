"""A session keeps its model or reports the fallback; a small model gets few tools."""

import io
from collections.abc import AsyncGenerator
from contextlib import AbstractContextManager, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

from hermes.app.build import App, AppOptions, open_app
from hermes.app.command_services import command_services
from hermes.cli.context import CliContext
from hermes.cli.verbs.chat.full_screen import TerminalClient
from hermes.config.env import Env
from hermes.config.home import Home
from hermes.ipc.client import AgentClient
from hermes.models.embedded.small_profile import small_profile
from hermes.models.embedded.weights import ENGINE_PACKAGE, find_weights, folder_under
from hermes.schema.scope import Role
from hermes.schema.sessions import Session

LOCAL = "smollm2-135m"
CONFIG = f"model: {{default: {LOCAL}, provider: embedded}}\n"
OTHER = "model: {default: big, provider: custom, base_url: 'http://127.0.0.1:1/v1'}\n"


@asynccontextmanager
async def opened(path: Path, config: str = CONFIG, **env: str) -> AsyncGenerator[App]:
    home = Home(root=path, path=path)
    home.config.write_text(config)
    variables = Env({"HOME": str(path), "PATH": "/usr/bin:/bin", **env})
    async with open_app(home, variables, AppOptions(workspace=str(path))) as app:
        yield app


def made_with(provider: str, model: str) -> Session:
    return Session(id="s", started_at=datetime.now(UTC), model=model, provider=provider)


def fetched_to(root: Path) -> None:
    """As if it had been fetched: files count by name and size."""
    place, weights = folder_under(root), find_weights(LOCAL)
    (place.engine_folder / ENGINE_PACKAGE).mkdir(parents=True)
    with place.weights_path(weights).open("wb") as file:
        file.truncate(weights.size)


async def test_model_without_a_key_falls_back_with_a_note(tmp_path: Path) -> None:
    session = made_with("openai", "gpt-5")
    async with opened(tmp_path) as app:
        model = await app.models.model_for(session)
        assert (model.provider, model.name) == ("embedded", LOCAL)
        note = app.models.fallback_note(session)
        assert "openai/gpt-5 is unavailable" in note
        assert f"using embedded/{LOCAL}" in note
        assert "/model NAME" in note
        assert app.models.current(session) == f"embedded/{LOCAL}"
        assert set(app.models.tools_for(session, app.tools)) == set(small_profile().tools)


async def test_model_with_a_key_keeps_its_provider(tmp_path: Path) -> None:
    session = made_with("openai", "gpt-5")
    async with opened(tmp_path, OPENAI_API_KEY="sk-test") as app:
        model = await app.models.model_for(session)
        assert (model.provider, model.name) == ("openai", "gpt-5")
        assert app.models.fallback_note(session) == ""
        assert app.models.current(session) == "openai/gpt-5"
        assert app.models.tools_for(session, app.tools) == app.tools


async def test_shown_tools_are_those_of_the_model(tmp_path: Path) -> None:
    session = made_with("embedded", LOCAL)
    few = list(small_profile().tools)
    async with opened(tmp_path) as app:
        toolbox = command_services(app).toolsets
        assert toolbox is not None
        assert {one.name for one in toolbox.offered("cli", Role.OWNER, session)} == set(few)
        assert dict(app.status(session))["tools"] == ", ".join(few)
        assert len(app.tools) > len(few)


async def test_command_lists_the_installed_embedded_model(tmp_path: Path) -> None:
    fetched_to(tmp_path)
    async with opened(tmp_path, OTHER) as app:
        offers = command_services(app).model_offers
        assert offers is not None
        assert f"{LOCAL} --provider embedded" in await offers.offers()


def no_answer() -> AbstractContextManager[AgentClient]:
    raise AssertionError("a list needs nobody to talk to")


def test_screen_lists_the_installed_embedded_model(tmp_path: Path) -> None:
    fetched_to(tmp_path)
    env = Env({"HERMES_HOME": str(tmp_path), "HOME": str(tmp_path)})
    (tmp_path / "config.yaml").write_text(OTHER)
    context = CliContext(env, None, (io.StringIO(), io.StringIO(), io.StringIO()))
    found = TerminalClient(no_answer, context).models()
    assert ("embedded", LOCAL) in [(one.provider, one.model) for one in found]
