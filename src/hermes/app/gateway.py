"""Build one profile's gateway from its open app."""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, tzinfo
from functools import partial
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from msgspec import Struct, structs

from hermes.app.build import App
from hermes.app.chat_directory import ChatDirectory
from hermes.app.chat_settings import ChatSettings
from hermes.app.command_services import GatewayPlatforms, command_services
from hermes.app.proxy import remote_models
from hermes.channels import MANIFESTS
from hermes.commands.command import CommandContext
from hermes.commands.registry import standard_commands
from hermes.config.env import Env
from hermes.config.home import Home, user_home
from hermes.config.schema import Config
from hermes.config.sections.messaging import ChatPlatform, Discord, Matrix
from hermes.gateway.access import AccessControl, GroupRules, PlatformRules, SessionKeyRules
from hermes.gateway.actor_pool import ActorLimits
from hermes.gateway.authorization import access_rules_from
from hermes.gateway.chat_runs import ActorRules
from hermes.gateway.chat_sessions import ResetPolicy
from hermes.gateway.command_runner import shortcuts_from
from hermes.gateway.cross_post import CrossPoster
from hermes.gateway.footer import AnswerFooter
from hermes.gateway.gateway import BorrowedChannel, Gateway, GatewayDeps, GatewayRules, no_borrowers
from hermes.gateway.hooks import Hooks, NoHooks
from hermes.gateway.messages import BusyMode
from hermes.gateway.notices import request_restart_notice
from hermes.gateway.pairing import Pairing
from hermes.gateway.platform_settings import is_true, platform_variable
from hermes.gateway.progress_message import ProgressDisplay, ProgressTiming
from hermes.gateway.rate_limiter import RateLimiter
from hermes.gateway.roles import command_access
from hermes.gateway.targets import home_channels, parse_targets, resolve_targets
from hermes.gateway.user_limits import TurnQuotas
from hermes.kit.retry import Backoff
from hermes.ports.channel import Channel
from hermes.schema.errors import ConfigError, UsageError
from hermes.schema.scope import Address, platform_of
from hermes.schema.sessions import Session
from hermes.session.conversation import Conversation
from hermes.session.keys import DIRECT_CHAT

log = logging.getLogger(__name__)


def build_access(app: App, channels: Mapping[str, Channel], *, multiplexed: bool) -> AccessControl:
    """Access control for the profile's own channels; `multiplexed` puts its name into keys."""
    keys = SessionKeyRules(
        namespace=app.home.profile if multiplexed else "",
        per_user_in_groups=app.config.group_sessions_per_user,
        per_user_in_threads=app.config.thread_sessions_per_user,
    )
    rules = {name: platform_rules(name, app.config, app.chats, app.env) for name in channels}
    pairing = Pairing(app.home.pairing, app.clock)
    commands = standard_commands().names
    return AccessControl(app.home.profile, rules, pairing, commands, keys)


class GatewayOptions(Struct, frozen=True, kw_only=True):
    """What the service passes to a profile's gateway."""

    channels: Mapping[str, Channel]
    access: AccessControl
    directory: ChatDirectory
    borrowed: Mapping[str, BorrowedChannel] = {}  # channels of other profiles
    rate_limiters: Mapping[str, RateLimiter] = {}
    hooks: Hooks = NoHooks()
    wait_for_borrowers: Callable[[], Awaitable[None]] = no_borrowers
    restart: Callable[[], None] | None = None
    park_interrupted: bool = False  # set interrupted turns aside
    backoff: Backoff | None = None  # overrides the default backoff


def build_gateway(app: App, parts: GatewayOptions) -> Gateway:
    built: list[Gateway] = []
    remote = remote_models(app.config, app.env)

    async def restart_and_notify(asker: Address | None) -> None:
        if asker is not None:
            await request_restart_notice(app.store, asker)
        if parts.restart is not None:
            parts.restart()

    restart = None if parts.restart is None else restart_and_notify

    def context(conversation: Conversation) -> CommandContext:
        platforms = GatewayPlatforms(built[0].supervisor)
        services = command_services(app, platforms=platforms, restart=restart)
        if remote is None:
            return CommandContext(conversation, app.models, app, services=services)
        services = structs.replace(services, model_offers=remote)
        return CommandContext(conversation, remote, app, services=services)

    registry, display = standard_commands(), app.config.display
    workspace = chat_workspace(app.home, app.config, app.env)
    deps = GatewayDeps(
        store=app.store,
        clock=app.clock,
        runner=app.runner,
        profile=app.home.profile,
        channels=parts.channels,
        borrowed=parts.borrowed,
        rate_limiters=parts.rate_limiters,
        hooks=parts.hooks,
        wait_for_borrowers=parts.wait_for_borrowers,
        approvals=app.approvals,
        authorize=parts.access,
        registry=registry,
        shortcuts=shortcuts_from(app.config, registry.names),
        context=context,
        cwd=workspace,
        rejection=TurnQuotas(app.store, app.clock, app.chats.permissions).rejection,
        resolve_targets=_target_resolver(app, parts.channels),
        on_contact=parts.directory.record,
        running_processes=partial(process_start_times, app),
        tools=app.toolbox.tools_on,
        footer=AnswerFooter(
            show_failed_files=display.file_mutation_verifier,
            fields=display.runtime_footer.fields if display.runtime_footer.enabled else (),
            folder=workspace,
            home=str(user_home(app.env)),
            window=app.models.window_of,
        ),
        cross_poster=CrossPoster(app.store, app.clock, parts.access.namespace, app.runner.holding),
    )
    rules = gateway_rules(app.config, app.chats)
    if parts.park_interrupted:
        rules = structs.replace(rules, limits=structs.replace(rules.limits, park=True))
    if backoff := parts.backoff:
        rules = structs.replace(
            rules,
            actors=structs.replace(rules.actors, backoff=backoff),
            delivery=structs.replace(rules.delivery, backoff=backoff),
            supervisor=structs.replace(rules.supervisor, backoff=backoff),
        )
    built.append(Gateway(deps, rules))
    app.followups.chats.set_wake(built[0].actors.wake)
    app.reviews.set_posted_callback(built[0].posted)
    app.sender.set_posted_callback(built[0].posted)
    return built[0]


def process_start_times(app: App, session: Session) -> Sequence[datetime]:
    """Start times of the processes of a session, or of the session before it."""
    return [
        process.started
        for process in app.processes.running
        if process.scope.session == session.id or (session.key and process.scope.key == session.key)
    ]


def chat_workspace(home: Home, config: Config, env: Mapping[str, str]) -> str:
    """The working directory of chats.

    By default a folder of the profile rather than the user's home, so that chats cannot change
    files where a shell or a key is looked for. If commands run on another machine,
    `terminal.cwd` is a folder there.
    """
    configured = "" if config.terminal.backend == "ssh" else config.terminal.cwd
    folder = env.get("MESSAGING_CWD", "").strip() or configured
    path = Path(folder).expanduser()
    return str(path if path.is_absolute() else home.path / "workspace")


def _target_resolver(
    app: App, channels: Mapping[str, Channel]
) -> Callable[[str], tuple[Address, ...]]:
    def resolve(text: str) -> tuple[Address, ...]:
        """Log unreachable targets; without any the answer goes back to the requester."""
        homes = home_channels(app.env, app.config.platforms)
        try:
            targets = resolve_targets(parse_targets(text), homes, platforms=channels)
        except UsageError as error:
            log.warning("cannot deliver to %r: %s", text, error.sentence)
            return ()
        for one in targets.unresolved:
            log.warning("cannot deliver to %s: %s", one.target, one.reason)
        return targets.addresses

    return resolve


def gateway_rules(config: Config, chats: ChatSettings) -> GatewayRules:
    turns = config.max_concurrent_sessions or ActorLimits().turns
    platforms = {*config.platforms, *config.display.platforms}
    return GatewayRules(
        actors=ActorRules(
            busy=BusyMode(config.display.busy_input_mode),
            debounce=config.gateway.debounce_seconds,
            idle=config.agent.gateway_timeout,
            idle_warning=config.agent.gateway_timeout_warning,
            notify=config.agent.gateway_notify_interval,
            fresh=config.agent.gateway_auto_continue_freshness,
        ),
        limits=ActorLimits(turns=turns),
        progress_timing=ProgressTiming(
            edit=max(config.streaming.edit_interval, 0.1),
            max_age=config.streaming.fresh_final_after_seconds,
        ),
        progress_display={name: _progress_display(config, name) for name in platforms},
        default_display=_progress_display(config, ""),
        without_reactions=frozenset(
            name for name in platforms if not _reactions_enabled(chats, name)
        ),
        resets=ResetPolicy(
            general=config.session_reset,
            by_type=config.reset_by_type,
            by_platform=config.reset_by_platform,
            zone=_zone(config.timezone.strip()),
        ),
        reactions_in_context=frozenset(
            name for name, one in config.platforms.items() if one.inbound_reactions == "context"
        ),
        timestamps=config.gateway.message_timestamps.enabled,
        quote_policies={name: one.reply_to_mode for name, one in config.platforms.items()},
        drain=config.agent.restart_drain_timeout or GatewayRules().drain,
    )


def platform_rules(channel: str, config: Config, chats: ChatSettings, env: Env) -> PlatformRules:
    settings, platform = chats.platform(channel), platform_of(channel)
    unauthorized = config.unauthorized_dm_behavior
    return PlatformRules(
        access=access_rules_from(platform, env, settings, unauthorized=unauthorized),
        direct_commands=command_access(settings.extra, DIRECT_CHAT),
        group_commands=command_access(settings.extra, "group"),
        groups=_group_rules(platform, chats, env),
    )


def _group_rules(platform: str, chats: ChatSettings, env: Env) -> GroupRules:
    section = chats.section(platform)
    matrix = isinstance(section, Matrix)
    free = section.free_response_rooms if matrix else section.free_response_channels
    only = section.allowed_rooms if matrix else section.allowed_channels
    variable = env.get(platform_variable(platform, "REQUIRE_MENTION"), "")
    require = section.require_mention
    if require is None:
        manifest = MANIFESTS.get(platform)
        require = manifest is not None and manifest.caps.mention_required
    require = is_true(variable) if variable.strip() else require
    return GroupRules(
        require_mention=require, without_mention=frozenset(free), allowed_chats=frozenset(only)
    )


def _progress_display(config: Config, platform: str) -> ProgressDisplay:
    display = config.display
    own = display.platforms.get(platform)
    tools, text = display.tool_progress, config.streaming.enabled
    if own and own.tool_progress is not None:
        tools = own.tool_progress
    if own and own.streaming is not None:
        text = own.streaming
    settings = config.platforms.get(platform)
    return ProgressDisplay(
        tools=tools not in {"off", "none", False},
        text=text,
        preview=display.tool_preview_length or ProgressDisplay().preview,
        narration=display.interim_assistant_messages,
        typing=settings is None or settings.typing_indicator,
        cursor=config.streaming.cursor,
    )


def _reactions_enabled(chats: ChatSettings, platform: str) -> bool:
    section = chats.section(platform)
    setting = section.reactions if isinstance(section, ChatPlatform | Discord) else None
    return setting not in {False, "off", "false"}


def _zone(name: str) -> tzinfo | None:
    if not name:
        return None
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ConfigError(
            f"The setting `timezone` is {name!r}, which is not a time zone.",
            hint="Use a name such as Europe/Berlin, or leave it empty for this machine's.",
        ) from error
