"""Implement the services that slash commands use on an open profile."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec
from anyio.to_thread import run_sync
from msgspec import structs
from msgspec.structs import asdict

from hermes.app.build import App
from hermes.app.learning_commands import LearningCommands
from hermes.app.linked_accounts import PeopleCommands
from hermes.app.prompt_context import all_personalities
from hermes.app.session_jobs import SessionJobs
from hermes.app.session_services import ChatHandoff, ProjectInstructions, SessionWindow
from hermes.app.storage import load_images
from hermes.app.toolbox import Toolbox
from hermes.commands.services import (
    CommandServices,
    PlatformControl,
    PlatformState,
    RestartGateway,
)
from hermes.config.home import Home
from hermes.config.loader import load_config
from hermes.config.platform_blocks import other_places
from hermes.config.schema import Config
from hermes.config.sections.messaging import HomeChannel, Platform, PlatformAccount
from hermes.config.values import as_list, as_mapping
from hermes.gateway.platform_settings import home_variables
from hermes.gateway.roles import permitted_tools
from hermes.gateway.supervisor import Supervisor
from hermes.ports.store import Blobs
from hermes.schema.errors import SandboxError, ToolError, UsageError
from hermes.schema.messages import Media
from hermes.schema.scope import Address, Role, Scope, own_channel
from hermes.schema.sessions import Session
from hermes.schema.terminal import BusyMode
from hermes.schema.tools import ToolSpec


def command_services(
    app: App, *, platforms: PlatformControl | None = None, restart: RestartGateway | None = None
) -> CommandServices:
    """Services for the commands of one profile; a terminal has no platforms or restart."""
    return CommandServices(
        settings=SettingsWriter(app),
        program=HomeInfo(app.home, app.config, app.store.maintenance.driver),
        model_offers=ConfiguredModels(app.config, app.home),
        toolsets=ToolsetSettings(app),
        images=BlobImageLoader(app.blobs),
        platforms=platforms,
        restart=restart,
        checkpoints=app.checkpoints,
        approvals=app.approvals,
        background=SessionJobs(app),
        context_window=SessionWindow(app),
        learning=LearningCommands(app.home, app.env, app.learning),
        runtimes=app.runtimes,
        mcp_servers=app.servers,
        instruction_files=ProjectInstructions(app.home, app.clock),
        handoff=ChatHandoff(app),
        people=PeopleCommands(app),
        changes=GitChanges(app),
        features=app.features,
    )


class SettingsWriter:
    """Saves settings. Effort, progress and home channel apply in this process at once."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._effort = app.config.agent.reasoning_effort
        self._progress = app.config.display.tool_progress

    def personalities(self) -> Mapping[str, str]:
        return all_personalities(self._app.config)

    def personality(self) -> str:
        return self._app.config.display.personality

    def effort(self) -> str:
        return self._effort

    def progress(self, platform: str = "") -> str:
        if not platform:
            return self._progress
        return "all" if self._app.chats.shows_tools(platform) else "off"

    def offers_progress_in_chats(self) -> bool:
        return self._app.config.display.tool_progress_command

    async def save_effort(self, effort: str) -> None:
        await self._write("agent.reasoning_effort", effort)
        self._effort = effort
        self._app.planner.change_effort(effort)

    async def save_busy_mode(self, mode: BusyMode) -> None:
        await self._write("display.busy_input_mode", mode.value)

    async def save_progress(self, level: str, platform: str = "") -> None:
        if not platform:
            await self._write("display.tool_progress", level)
            self._progress = level
        else:
            await self._write(f"display.platforms.{platform}.tool_progress", level)
            self._app.chats.change_tool_progress(platform, level)

    async def save_theme(self, name: str) -> None:
        await self._write("display.skin", name)

    async def save_home_channel(self, address: Address, name: str) -> None:
        platform, _, account = address.channel.partition("/")
        if own_channel(address.channel) != address.channel:
            raise UsageError(
                "This chat uses another profile's account.",
                hint="A home channel must be in an account of this profile.",
            )
        for variable in home_variables(platform):
            if self._app.env.get(variable) and not account:
                raise UsageError(
                    f"The variable {variable} already sets the home channel of {platform}.",
                    hint="Remove it from .env first.",
                )
        home = HomeChannel(
            platform=platform, chat_id=address.chat, thread_id=address.thread or "", name=name
        )
        # JSON is single-line YAML that safely quotes chat names.
        text = msgspec.json.encode({key: value for key, value in asdict(home).items() if value})
        place = f"{platform}.accounts.{account}" if account else platform
        elsewhere = () if account else other_places(platform, "home_channel")
        await self._write(f"platforms.{place}.home_channel", text.decode(), elsewhere)
        config = self._app.config
        changed = config.platforms.get(platform) or Platform()
        if account:
            own = structs.replace(
                changed.accounts.get(account) or PlatformAccount(), home_channel=home
            )
            changed = structs.replace(changed, accounts={**changed.accounts, account: own})
        else:
            changed = structs.replace(changed, home_channel=home)
        self._app.config = structs.replace(
            config, platforms={**config.platforms, platform: changed}
        )

    async def describe_changed(self) -> str:
        from hermes.config.loader import as_yaml, printable_settings  # noqa: PLC0415 - as below

        settings = await run_sync(printable_settings, self._app.home, self._app.env)
        return as_yaml(settings) if settings else "All settings have their defaults."

    async def _write(self, name: str, text: str, remove: Iterable[str] = ()) -> None:
        from hermes.config.editor import change_settings  # noqa: PLC0415 - rarely used

        def decide(config: Config) -> Mapping[str, str | None]:
            return {name: text, **dict.fromkeys(remove)}

        await run_sync(change_settings, self._app.home, self._app.env, decide)


class HomeInfo:
    def __init__(self, home: Home, config: Config, database: str) -> None:
        """`database` is the name and version of the database software."""
        self._home = home
        self._config = config
        self._database = database
        self.profile = home.profile
        self.home = str(home.path)

    async def report(self) -> Sequence[tuple[str, str]]:
        sizes = await run_sync(self._sizes)
        platforms = [name for name, one in self._config.platforms.items() if one.enabled]
        return [
            ("store", self._database),
            ("profile", self._home.profile),
            ("platforms", ", ".join(sorted(platforms)) or "none"),
            *sizes,
        ]

    def _sizes(self) -> list[tuple[str, str]]:
        logs = self._home.logs
        files = logs.glob("*.log*") if logs.is_dir() else ()
        return [
            ("database", f"{_file_size(self._home.database):,} bytes"),
            ("logs", f"{sum(map(_file_size, files)):,} bytes"),
        ]


def _file_size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


class ConfiguredModels:
    """Models named in the settings, and embedded ones; providers are not asked."""

    def __init__(self, config: Config, home: Home) -> None:
        self._config = config
        self._root = home.root

    async def offers(self) -> Sequence[str]:
        from hermes.models.embedded.weights import local_server_under  # noqa: PLC0415 - for lists only

        config, main = self._config, self._config.main_model
        names = [_model_argument(main.provider, main.default)]
        names += [
            one if isinstance(one, str) else _model_argument(one.provider, one.model)
            for one in config.fallback_providers
        ]
        providers = [
            *((one.name, one) for one in config.custom_providers),
            *config.providers.items(),
        ]
        for provider, one in providers:
            models = as_list(one.models) or list(as_mapping(one.models) or ())
            names += [
                _model_argument(provider, str(model)) for model in [one.model, *models] if model
            ]
        embedded = await run_sync(local_server_under, self._root)
        names += [_model_argument(one.provider, model) for one in embedded for model in one.models]
        return list(dict.fromkeys(name for name in names if name))


def _model_argument(provider: str, model: str) -> str:
    return f"{model} --provider {provider}" if provider and model else model


class ToolsetSettings:
    def __init__(self, app: App) -> None:
        self._home = app.home
        self._env = app.env
        self._toolbox: Toolbox = app.toolbox
        self._chats = app.chats
        self._models = app.models

    def offered(self, platform: str, role: Role, session: Session) -> Sequence[ToolSpec]:
        tools = self._models.tools_for(session, self._toolbox.tools_on(platform))
        specs = [tool.spec for tool in tools.values()]
        return permitted_tools(
            self._chats.permissions(platform, role), specs, self._toolbox.tools_named
        )

    def toolsets(self) -> Mapping[str, Sequence[str]]:
        return self._toolbox.toolsets()

    async def describe(self) -> str:
        from hermes.app.toolsets import list_toolsets, shown_platforms  # noqa: PLC0415 - as above

        config = (await run_sync(load_config, self._home, self._env)).config
        platforms = shown_platforms(config)
        rows = list_toolsets(config, platforms)
        width = max(len(row.name) for row in rows)
        return "\n".join(
            f"  {row.name:<{width}}  {', '.join(one for one in platforms if row.on[one]) or 'off'}"
            for row in rows
        )

    async def switch(self, names: Sequence[str], platform: str, *, on: bool) -> str:
        return await run_sync(self._switch, names, platform, on)

    def _switch(self, names: Sequence[str], platform: str, on: bool) -> str:
        from hermes.app import toolsets  # noqa: PLC0415 - as above
        from hermes.config.editor import set_setting  # noqa: PLC0415 - as above

        config = load_config(self._home, self._env).config
        if platform:
            toolsets.check_platform(platform, config)
        selected = toolsets.expand_toolsets(names, config)
        changes = (toolsets.settings_to_enable if on else toolsets.settings_to_disable)(
            config, selected, platform or None
        )
        for name, value in changes.items():
            set_setting(self._home, self._env, name, msgspec.json.encode(value).decode())
        if not changes:
            return "No change: it is already set that way."
        scope = f"on {platform}" if platform else "on all platforms"
        state = "enabled" if on else "disabled"
        return f"{', '.join(selected)}: {state} {scope} from the next start."


class GitChanges:
    def __init__(self, app: App) -> None:
        self._app = app

    async def diff(self, session: Session, path: str) -> str:
        from hermes.app.references import build_references  # noqa: PLC0415 - rarely used

        scope = Scope(
            profile=self._app.home.profile, session=session.id, run="", workspace=session.cwd
        )
        try:
            return await build_references(self._app).changes(scope, path)
        except (ToolError, SandboxError) as error:
            raise UsageError(
                f"{session.cwd} has no changes to show: {error}.",
                hint="/diff needs a git repository.",
            ) from error


class BlobImageLoader:
    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs

    async def load(self, path: str) -> Media:
        (image,) = await load_images(self._blobs, [path])
        return image


class GatewayPlatforms:
    """The state of the gateway's platforms."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self.pause = supervisor.pause
        self.resume = supervisor.resume

    def states(self) -> Sequence[PlatformState]:
        return [
            PlatformState(name=name, state="paused", reason="")
            if self._supervisor.is_paused(name)
            else PlatformState(name=name, state=state.condition.value, reason=state.reason)
            for name, state in self._supervisor.snapshot().items()
        ]
