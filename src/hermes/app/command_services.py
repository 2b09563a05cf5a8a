"""What slash commands ask of an open profile: its settings, its tools, and facts about itself."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import apsw
import msgspec
from anyio.to_thread import run_sync
from msgspec import Struct, structs
from msgspec.structs import asdict

from hermes.app.build import App
from hermes.app.guides import ProjectGuides
from hermes.app.handing import HandedOver
from hermes.app.lessons import KeptLessons
from hermes.app.personalities import personalities
from hermes.app.pictures import load_pictures
from hermes.app.toolbox import Toolbox
from hermes.app.window import ThisWindow
from hermes.commands.services import Platforms, PlatformState, Restart, Running, Services
from hermes.commands.surface import Busy
from hermes.config.home import Home
from hermes.config.load import load_config
from hermes.config.schema import Config
from hermes.config.sections.chats import HomeChannel
from hermes.config.shapes import as_list, as_mapping
from hermes.gateway.letters import platform_of
from hermes.gateway.roles import offered
from hermes.gateway.settings import home_variables
from hermes.gateway.supervisor import Supervisor
from hermes.models.settings import LocalServer
from hermes.ports.blobs import Blobs
from hermes.ports.delegation import Task
from hermes.schema.errors import UsageError
from hermes.schema.messages import Media
from hermes.schema.scope import Address, Role, Scope
from hermes.schema.sessions import Session
from hermes.schema.tools import ToolSpec


def command_services(
    app: App, *, platforms: Platforms | None = None, restart: Restart | None = None
) -> Services:
    """For every command of one profile; a terminal has neither platforms nor a restart."""
    return Services(
        settings=WrittenSettings(app),
        house=ThisHouse(app.home, app.config),
        offers=KnownModels(app.config, app.home),
        toolbox=OfferedTools(app),
        pictures=HandedPictures(app.blobs),
        platforms=platforms,
        restart=restart,
        checkpoints=app.checkpoints,
        approvals=app.approvals,
        background=LeftRunning(app),
        window=ThisWindow(app),
        lessons=KeptLessons(app.home, app.env, app.learning),
        runtimes=app.codex,
        servers=app.servers,
        guides=ProjectGuides(app.home, app.clock),
        handing=HandedOver(app),
    )


class WrittenSettings:
    """What was written counts here at once, and elsewhere after the next start."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._effort = app.config.agent.reasoning_effort
        self._progress = app.config.display.tool_progress

    def personalities(self) -> Mapping[str, str]:
        return personalities(self._app.config)

    def personality(self) -> str:
        return self._app.config.display.personality

    def effort(self) -> str:
        return self._effort

    def progress(self) -> str:
        return self._progress

    async def keep_effort(self, effort: str) -> None:
        await self._write("agent.reasoning_effort", effort)
        self._effort = effort
        self._app.planner.change_effort(effort)

    async def keep_manner(self, manner: Busy) -> None:
        await self._write("display.busy_input_mode", manner.value)

    async def keep_progress(self, level: str) -> None:
        await self._write("display.tool_progress", level)
        self._progress = level

    async def keep_home(self, address: Address, name: str) -> None:
        platform = platform_of(address.channel)
        if platform != address.channel:
            raise UsageError(
                "This chat is reached through the account of another profile.",
                hint="A home is a chat of the profile's own account.",
            )
        for variable in home_variables(platform):
            if self._app.env.get(variable):
                raise UsageError(
                    f"The variable {variable} says where the home of {platform} is, and it wins.",
                    hint="Take it out of the .env first.",
                )
        home = HomeChannel(
            platform=platform, chat_id=address.chat, thread_id=address.thread or "", name=name
        )
        # JSON is YAML in one line that quotes whatever a platform names its chats.
        text = msgspec.json.encode({key: value for key, value in asdict(home).items() if value})
        await self._write(f"platforms.{platform}.home_channel", text.decode())
        config = self._app.config
        changed = structs.replace(self._app.chats.platform(platform), home_channel=home)
        self._app.config = structs.replace(
            config, platforms={**config.platforms, platform: changed}
        )

    async def shown(self) -> str:
        from hermes.config.showing import as_yaml, shown_settings  # noqa: PLC0415 - as below

        shown = await run_sync(shown_settings, self._app.home, self._app.env)
        return as_yaml(shown) if shown else "Everything has its default."

    async def _write(self, name: str, text: str) -> None:
        from hermes.config.edit import set_setting  # noqa: PLC0415 - a turn never edits settings

        await run_sync(set_setting, self._app.home, self._app.env, name, text)


class ThisHouse:
    def __init__(self, home: Home, config: Config) -> None:
        self._home = home
        self._config = config

    @property
    def profile(self) -> str:
        return self._home.profile

    @property
    def home(self) -> str:
        return str(self._home.path)

    async def report(self) -> Sequence[tuple[str, str]]:
        sizes = await run_sync(self._sizes)
        platforms = [name for name, one in self._config.platforms.items() if one.enabled]
        return [
            ("sqlite", apsw.sqlite_lib_version()),
            ("profile", self._home.profile),
            ("platforms", ", ".join(sorted(platforms)) or "none"),
            *sizes,
        ]

    def _sizes(self) -> list[tuple[str, str]]:
        logs = self._home.logs
        files = logs.glob("*.log*") if logs.is_dir() else ()
        return [
            ("database", f"{_size(self._home.state_db):,} bytes"),
            ("logs", f"{sum(map(_size, files)):,} bytes"),
        ]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


class KnownModels:
    """The models that the settings name, and those that run inside; nobody else is asked."""

    def __init__(self, config: Config, home: Home) -> None:
        self._config = config
        self._root = home.root

    async def offers(self) -> Sequence[str]:
        config, main = self._config, self._config.main_model
        names = [_full(main.provider, main.default)]
        names += [
            one if isinstance(one, str) else _full(one.provider, one.model)
            for one in config.fallback_providers
        ]
        given = [*((one.name, one) for one in config.custom_providers), *config.providers.items()]
        for provider, one in given:
            models = as_list(one.models) or list(as_mapping(one.models) or ())
            names += [_full(provider, str(model)) for model in [one.model, *models] if model]
        names += [
            _full(one.provider, model) for one in await self._inside() for model in one.models
        ]
        return list(dict.fromkeys(name for name in names if name))

    async def _inside(self) -> Sequence[LocalServer]:
        from hermes.models.embedded.target import found_here  # noqa: PLC0415 - for lists only

        return await run_sync(found_here, self._root)


def _full(provider: str, model: str) -> str:
    return f"{model} --provider {provider}" if provider and model else model


class OfferedTools:
    def __init__(self, app: App) -> None:
        self._home = app.home
        self._env = app.env
        self._toolbox: Toolbox = app.toolbox
        self._chats = app.chats
        self._models = app.models

    def offered(self, platform: str, role: Role, session: Session) -> Sequence[ToolSpec]:
        tools = self._models.told(session, self._toolbox.on(platform))
        specs = [tool.spec for tool in tools.values()]
        return offered(self._chats.powers(platform, role), specs, self._toolbox.tools_named)

    def toolsets(self) -> Mapping[str, Sequence[str]]:
        return self._toolbox.toolsets()

    async def listed(self) -> str:
        from hermes.app.switching import shown_toolsets, worth_a_column  # noqa: PLC0415 - as above

        config = (await run_sync(load_config, self._home, self._env)).config
        platforms = worth_a_column(config)
        rows = shown_toolsets(config, platforms)
        width = max(len(row.name) for row in rows)
        return "\n".join(
            f"  {row.name:<{width}}  {', '.join(one for one in platforms if row.on[one]) or 'off'}"
            for row in rows
        )

    async def switch(self, names: Sequence[str], platform: str, *, on: bool) -> str:
        return await run_sync(self._switch, names, platform, on)

    def _switch(self, names: Sequence[str], platform: str, on: bool) -> str:
        from hermes.app import switching  # noqa: PLC0415 - as above
        from hermes.config.edit import set_setting  # noqa: PLC0415 - as above

        config = load_config(self._home, self._env).config
        if platform:
            switching.check_platform(platform, config)
        plain = switching.plain_toolsets(names, config)
        written = (switching.enabled if on else switching.disabled)(config, plain, platform or None)
        for name, value in written.items():
            set_setting(self._home, self._env, name, msgspec.json.encode(value).decode())
        if not written:
            return "It was so already; nothing was changed."
        where = f"on {platform}" if platform else "on all platforms"
        how = "offered" if on else "no longer offered"
        return f"{', '.join(plain)}: {how} {where}, from the next start on."


class LeftRunning:
    """The background processes and the delegated work of one session at a time."""

    def __init__(self, app: App) -> None:
        self._processes = app.processes
        self._delegations = app.delegations
        self._clock = app.clock

    async def begin(self, scope: Scope, prompt: str) -> str:
        # What somebody else than the owner asks for is not done in the owner's name.
        task = Task(goal=prompt, foreign=scope.role is not Role.OWNER)
        return await self._delegations.dispatch(scope, [task], asked=True)

    async def of(self, session: Session) -> Sequence[Running]:
        now = self._clock.now()
        processes = [
            Running(
                name=one.id,
                command=one.command,
                seconds=((one.ended or now) - one.started).total_seconds(),
                state="" if one.is_running else one.state.value,
            )
            for one in await self._processes.of(_Whose(session.id, session.key))
        ]
        return processes + [
            Running(
                name=f"{going.work.id} [{number}]",
                command=task.goal,
                seconds=(now - going.began).total_seconds(),
                doing=doing,
            )
            for going in self._delegations.of(session.id, session.key)
            for number, (task, doing) in enumerate(
                zip(going.work.tasks, going.doing, strict=True), 1
            )
        ]

    async def end(self, session: Session) -> int:
        delegated = self._delegations.end_all(session.id, session.key)
        whose = _Whose(session.id, session.key)
        return delegated + await self._processes.end_all(whose, "/stop")


class _Whose(Struct, frozen=True):
    session: str
    key: str


class HandedPictures:
    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs

    async def load(self, path: str) -> Media:
        (picture,) = await load_pictures(self._blobs, [path])
        return picture


class SupervisedPlatforms:
    """The platforms of a gateway, as its supervisor knows them."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    def states(self) -> Sequence[PlatformState]:
        return [
            PlatformState(
                name=name,
                state="paused" if self._supervisor.is_paused(name) else state.condition.value,
                reason="" if self._supervisor.is_paused(name) else state.reason,
            )
            for name, state in self._supervisor.snapshot().items()
        ]

    def pause(self, name: str) -> None:
        self._supervisor.pause(name)

    def resume(self, name: str) -> None:
        self._supervisor.resume(name)
