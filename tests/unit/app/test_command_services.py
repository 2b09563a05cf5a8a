"""What commands ask of a real profile: its settings are written, its tools and models listed."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from msgspec import structs

from hermes.app.build import App, Choices, open_app
from hermes.app.command_services import SupervisedPlatforms, command_services
from hermes.app.personalities import BUILT_IN, personalities, personality_words
from hermes.commands.command import Context, Told
from hermes.commands.registry import standard_commands
from hermes.commands.surface import Busy
from hermes.config.env import Env
from hermes.config.home import Home
from hermes.config.load import load_config
from hermes.config.schema import Config
from hermes.gateway.supervisor import Supervisor
from hermes.gateway.targets import homes_from
from hermes.ports.delegation import Task
from hermes.schema.errors import UsageError
from hermes.schema.scope import Address, Role, Scope
from hermes.schema.sessions import Session
from hermes.testing.channel import FakeChannel
from hermes.testing.clock import FakeClock

pytestmark = pytest.mark.anyio

CONFIG = """
model:
  default: big
  provider: here
providers:
  here:
    base_url: http://127.0.0.1:1/v1
    models: [big, small]
fallback_providers:
  - {provider: here, model: spare}
agent:
  personalities:
    Pirate: Speak like a pirate.
    captain: {system_prompt: You are a captain., tone: rough}
    concise: Be very brief.
platforms:
  fake: {enabled: true}
"""


@asynccontextmanager
async def opened(
    path: Path, config: str = CONFIG, env: Mapping[str, str] | None = None
) -> AsyncGenerator[App]:
    home = Home(root=path, path=path)
    home.config.write_text(config)
    given = Env({"HOME": str(path), "PATH": "/usr/bin:/bin", **(env or {})})
    async with open_app(home, given, Choices(workspace=str(path))) as app:
        yield app


def reread(app: App) -> Config:
    return load_config(app.home, app.env).config


async def test_settings_are_written(tmp_path: Path) -> None:
    async with opened(tmp_path) as app:
        settings = command_services(app).settings
        assert settings is not None
        await settings.keep_effort("high")
        await settings.keep_manner(Busy.COLLECT)
        await settings.keep_progress("new")
        assert (settings.effort(), settings.progress()) == ("high", "new")
        config = reread(app)
        assert config.agent.reasoning_effort == "high"
        assert config.display.busy_input_mode == "collect"
        assert config.display.tool_progress == "new"


async def test_delegated_work_is_seen_and_ended(tmp_path: Path) -> None:
    async with opened(tmp_path, CONFIG) as app:
        session = Session(id="s-1", started_at=app.clock.now(), source="fake", key="chat")
        scope = Scope("default", session.id, "r", str(tmp_path), source="fake", key="chat")
        background = command_services(app).background
        assert background is not None
        name = await app.delegations.dispatch(scope, [Task(goal="count"), Task(goal="sort")])
        found = await background.of(structs.replace(session, id="s-2"))
        assert [one.name for one in found] == [f"{name} [1]", f"{name} [2]"]
        assert [one.command for one in found] == ["count", "sort"]
        assert all(one.doing for one in found)
        assert await background.end(session) == 1
        with anyio.fail_after(60):
            while await background.of(session):
                await anyio.lowlevel.checkpoint()


async def test_a_home_is_written_and_counts_at_once(tmp_path: Path) -> None:
    address = Address("fake", '-100: "x"', "t")
    async with opened(tmp_path) as app:
        settings = command_services(app).settings
        assert settings is not None
        await settings.keep_home(address, "Kitchen")
        assert homes_from(app.env, app.config.platforms) == {"fake": address}
        assert homes_from(app.env, reread(app).platforms) == {"fake": address}
        assert reread(app).platforms["fake"].enabled


async def test_a_home_that_a_variable_names_cannot_be_moved(tmp_path: Path) -> None:
    async with opened(tmp_path, env={"FAKE_HOME_CHANNEL": "7"}) as app:
        settings = command_services(app).settings
        assert settings is not None
        with pytest.raises(UsageError, match="FAKE_HOME_CHANNEL"):
            await settings.keep_home(Address("fake", "1"), "")


async def test_effort_and_personality_reach_the_plan(tmp_path: Path) -> None:
    async with opened(tmp_path) as app:
        scope = Scope(profile="default", session="s", run="r", workspace="/w", source="cli")
        context = Context(app.conversation, app.models, app, services=command_services(app))
        registry = standard_commands()

        async def planned(*lines: str) -> tuple[str | None, str]:
            for line in lines:
                assert isinstance(await registry.run(context, line), Told)
            plan = await app.planner.plan(app.conversation.session, scope, ())
            return plan.effort, plan.system

        effort, plain = await planned()
        assert effort is None
        effort, system = await planned("/reasoning low --global", "/personality pirate")
        assert effort == "low"
        assert "Speak like a pirate." in system
        assert (await planned("/reasoning high"))[0] == "high"
        app.conversation.start_new()
        assert await planned() == ("low", plain)


async def test_a_session_from_elsewhere_has_the_tools_of_the_place(tmp_path: Path) -> None:
    config = CONFIG + "platform_toolsets:\n  fake: [todo]\n"
    async with opened(tmp_path, config) as app:
        here = Scope(profile="default", session="s", run="r", workspace="/w", source="cli")
        there = structs.replace(here, address=Address("fake@ann", "1"))
        session = app.conversation.session
        assert "terminal" in (await app.planner.plan(session, here, ())).tools
        assert list((await app.planner.plan(session, there, ())).tools) == ["todo"]
        guest = structs.replace(there, role=Role.GUEST)
        assert list((await app.planner.plan(session, guest, ())).tools) == []


async def test_models_and_tools_are_listed(tmp_path: Path) -> None:
    async with opened(tmp_path) as app:
        services = command_services(app)
        assert services.offers is not None
        assert await services.offers.offers() == [
            "big --provider here",
            "spare --provider here",
            "small --provider here",
        ]
        assert services.toolbox is not None
        session = app.conversation.session
        names = [spec.name for spec in services.toolbox.offered("cli", Role.OWNER, session)]
        assert "terminal" in names
        assert services.toolbox.offered("cli", Role.GUEST, session) == []
        assert services.toolbox.toolsets()["todo"] == ["todo"]


async def test_the_report_has_no_secrets(tmp_path: Path) -> None:
    async with opened(tmp_path, env={"OPENAI_API_KEY": "sk-secret-secret"}) as app:
        house = command_services(app).house
        assert house is not None
        report = dict(await house.report())
        assert report["profile"] == "default"
        assert report["platforms"] == "fake"
        assert int(report["database"].removesuffix(" bytes").replace(",", "")) > 0
        assert "secret" not in str(report)
        assert str(tmp_path) not in str(report)


async def test_a_picture_is_taken_in(tmp_path: Path) -> None:
    async with opened(tmp_path) as app:
        pictures = command_services(app).pictures
        assert pictures is not None
        (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"0" * 40)
        picture = await pictures.load(str(tmp_path / "a.png"))
        assert (picture.media_type, picture.name) == ("image/png", "a.png")
        with pytest.raises(UsageError):
            await pictures.load(str(tmp_path / "b.png"))


async def test_platforms_of_a_supervisor() -> None:
    channel = FakeChannel()
    supervisor = Supervisor({"fake": channel}, FakeClock())
    platforms = SupervisedPlatforms(supervisor)
    assert [(one.name, one.state) for one in platforms.states()] == [("fake", "waiting")]
    platforms.pause("fake")
    assert [one.state for one in platforms.states()] == ["paused"]
    platforms.resume("fake")
    assert [one.state for one in platforms.states()] == ["waiting"]
    await anyio.lowlevel.checkpoint()


def test_personalities(tmp_path: Path) -> None:
    home = Home(root=tmp_path, path=tmp_path)
    home.config.write_text(CONFIG + "display:\n  personality: captain\n")
    config = load_config(home, {}).config
    known = personalities(config)
    assert set(known) == {*BUILT_IN, "pirate", "captain"}
    assert all(known.values())
    assert known["concise"] == "Be very brief."
    assert personality_words(config, "") == "You are a captain.\nTone: rough"
    assert personality_words(config, "pirate") == "Speak like a pirate."
    assert personality_words(config, "none") == personality_words(config, "gone") == ""
