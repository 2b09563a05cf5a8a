"""Plugins are loaded when the settings need them, and register runtimes and tasks."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from hermes.agent.plan import Plan, RuntimePlan
from hermes.app.build import App, AppOptions, open_app
from hermes.app.planner import RuntimeSelector
from hermes.config.env import Env
from hermes.config.home import resolve_home
from hermes.models.embedded.servers import ModelServerPool
from hermes.plugins.registry import PluginManifest, Plugins
from hermes.ports.plugins import PromptModel, RuntimeTurn
from hermes.ports.runtime import EmitRuntimeEvent, RuntimeRequest, TurnEnd
from hermes.ports.tool import Tool
from hermes.schema.errors import UsageError
from hermes.schema.events import Outcome
from hermes.schema.messages import Message
from hermes.schema.scope import Address, Scope
from hermes.schema.sessions import Session

SESSION = Session(id="s", started_at=datetime(2026, 1, 1, tzinfo=UTC), cwd="/")


def opened(tmp_path: Path, settings: str = "", **env: str) -> AbstractAsyncContextManager[App]:
    home = tmp_path / "home"
    home.mkdir()
    (home / "config.yaml").write_text(settings)
    variables = {
        "HERMES_HOME": str(home),
        "HOME": str(tmp_path),
        "PATH": "/usr/bin:/bin",
        "OPENAI_API_KEY": "sk-x",
        "OPENAI_BASE_URL": "http://127.0.0.1:9/v1",
        "HERMES_INFERENCE_MODEL": "m",
    }
    environment = Env(variables | env)
    return open_app(resolve_home(environment), environment, AppOptions(workspace=str(tmp_path)))


def scope(tmp_path: Path, channel: str = "") -> Scope:
    address = Address(channel, "chat") if channel else None
    return Scope("default", "s", "run", str(tmp_path), address=address)


class FakeRuntime:
    name = "fake"

    async def run(self, runtime_request: RuntimeRequest, emit: EmitRuntimeEvent) -> TurnEnd:
        return TurnEnd(Outcome.DONE)

    async def close(self) -> None: ...


class ChatsOnly:
    """Takes the turns of chats, with one of our tools."""

    name = "fake"

    async def turn_for(
        self,
        session: Session,
        scope: Scope,
        history: Sequence[Message],
        offered: Callable[[Scope], Mapping[str, Tool]],
    ) -> RuntimeTurn | None:
        if scope.address is None:
            return None
        tools = {"memory": offered(scope)["memory"]}
        return RuntimeTurn(
            runtime=FakeRuntime(), tools=tools, prompt_for=PromptModel("big", "them", 100_000)
        )


async def test_nothing_is_loaded_without_settings(tmp_path: Path) -> None:
    async with opened(tmp_path) as app:
        assert app.plugins.runtimes == []
        assert app.plugins.gateway_tasks == []
        assert (app.runtimes.current(), app.runtimes.enabled) == ("auto", False)


async def test_proxy_setting_loads_the_proxy(tmp_path: Path) -> None:
    async with opened(tmp_path, GATEWAY_PROXY_URL="http://127.0.0.1:9") as app:
        assert [runtime.name for runtime in app.plugins.runtimes] == ["proxy"]
        assert len(app.plugins.gateway_tasks) == 1


async def test_proxy_is_asked_before_codex(tmp_path: Path) -> None:
    settings = "model: {openai_runtime: codex_app_server}\ngateway: {proxy_url: 'http://[::1]:9'}\n"
    async with opened(tmp_path, settings) as app:
        names = [runtime.name for runtime in app.plugins.runtimes]
        assert names == ["proxy", "codex_app_server"]
        assert app.runtimes.status() == "codex_app_server"


async def test_registered_runtime_gets_its_turns_only(tmp_path: Path) -> None:
    async with opened(tmp_path) as app:
        app.plugins.register_runtime(ChatsOnly())
        runtimes = app.plugins.runtimes
        planner = RuntimeSelector(
            standard=app.planner,
            runtimes=runtimes,
            approvals=lambda: app.approvals,
            clock=app.clock,
        )
        plan = await planner.plan(SESSION, scope(tmp_path, "telegram"), [])
        assert isinstance(plan, RuntimePlan)
        assert plan.runtime.name == "fake"
        assert set(plan.tools) == {"memory"}
        assert "big" in plan.system
        assert isinstance(await planner.plan(SESSION, scope(tmp_path), []), Plan)


async def test_runtime_that_cannot_start_is_not_chosen(tmp_path: Path) -> None:
    async with opened(tmp_path, CODEX_PATH="/nowhere/codex") as app:
        with pytest.raises(UsageError, match="Codex"):
            await app.runtimes.choose("codex_app_server")
        assert app.runtimes.current() == "auto"
        with pytest.raises(UsageError, match="auto or codex_app_server"):
            await app.runtimes.choose("other")
        assert "Hermes runs turns itself" in await app.runtimes.choose("auto")


async def test_plugin_that_cannot_be_imported_is_tried_again(tmp_path: Path) -> None:
    broken = PluginManifest(name="broken", module="hermes.no_such_plugin")
    async with opened(tmp_path) as app:
        for _ in range(2):
            with pytest.raises(ModuleNotFoundError):
                app.plugins.load(broken)


async def test_failing_plugin_does_not_keep_others_from_closing(tmp_path: Path) -> None:
    closed: list[str] = []

    async def close() -> None:
        closed.append("first")

    async def fail() -> None:
        raise OSError("gone")

    async with opened(tmp_path) as app:
        plugins = Plugins(lambda: app.plugins.services)
        plugins.register_close(close)
        plugins.register_close(fail)
        with pytest.raises(OSError, match="gone"):
            await plugins.closing.aclose()
    assert closed == ["first"]


async def test_embedded_models_are_loaded_on_request_and_shared(tmp_path: Path) -> None:
    async with opened(tmp_path) as app:
        assert app.plugins.model_provider("openai") is None
        build = app.plugins.model_provider("embedded")
        assert build is not None
        model = build("qwen2.5-coder-0.5b", f"file://{tmp_path}")
        assert (model.name, model.provider) == ("qwen2.5-coder-0.5b", "embedded")
        assert app.plugins.model_provider("embedded") is build
        shared = app.plugins.services.shared
        assert shared.get(ModelServerPool) is shared.get(ModelServerPool)


async def test_registered_closing_runs_with_the_profile(tmp_path: Path) -> None:
    closed: list[str] = []

    async def close() -> None:
        closed.append("closed")

    async with opened(tmp_path) as app:
        app.plugins.register_close(close)
        assert closed == []
    assert closed == ["closed"]
