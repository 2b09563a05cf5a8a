"""Build the gateway of one open profile."""

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import datetime, tzinfo
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
from msgspec import structs

from hermes.app.build import App
from hermes.app.chat_directory import ChatDirectory
from hermes.app.chat_settings import ChatSettings
from hermes.app.command_services import GatewayPlatforms, command_services
from hermes.app.transcription import configured_transcriber
from hermes.channels import MANIFESTS
from hermes.commands.command import CommandContext
from hermes.commands.registry import standard_commands
from hermes.config.env import Env
from hermes.config.home import Home, user_home
from hermes.config.schema import Config
from hermes.config.sections.messaging import ChatPlatform, Discord, Matrix, Telegram
from hermes.config.variables import proxy_url
from hermes.gateway.access import AccessControl, GroupRules, PlatformRules, SessionKeyRules
from hermes.gateway.actor_pool import ActorLimits
from hermes.gateway.authorization import access_rules_from
from hermes.gateway.chat_runs import ActorRules
from hermes.gateway.chat_sessions import ResetPolicy
from hermes.gateway.command_runner import shortcuts_from
from hermes.gateway.composition import BorrowedChannel, GatewayComposition
from hermes.gateway.delivery_rules import QuotePolicy
from hermes.gateway.footer import AnswerFooter
from hermes.gateway.gateway import Gateway, GatewayRules
from hermes.gateway.hooks import Hooks
from hermes.gateway.messages import BusyMode
from hermes.gateway.notices import request_restart_notice
from hermes.gateway.pairing import Pairing
from hermes.gateway.people import People
from hermes.gateway.platform_settings import is_true, parse_list, platform_variable
from hermes.gateway.progress_message import ProgressDisplay, ProgressTiming
from hermes.gateway.rate_limiter import RateLimiter
from hermes.gateway.roles import command_access
from hermes.gateway.supervisor import Supervisor
from hermes.gateway.targets import home_channels, parse_targets, resolve_targets
from hermes.gateway.transcripts import Transcripts
from hermes.gateway.user_limits import TurnQuotas
from hermes.kit.retry import Backoff
from hermes.ports.channel import Channel
from hermes.schema.errors import ConfigError, UsageError
from hermes.schema.scope import Address, platform_of
from hermes.schema.sessions import Session
from hermes.session.conversation import Conversation
from hermes.session.keys import DIRECT_CHAT
from hermes.session.lease import HEARTBEATS_PER_TTL

if TYPE_CHECKING:
    from hermes.runtimes.proxy.remote_models import RemoteModels

log = logging.getLogger(__name__)


def build_access(app: App, channels: Collection[str], *, multiplexed: bool) -> AccessControl:
    """Build the access control of the profile's own channels.

    If the process serves several profiles (`multiplexed`), session keys contain the profile's name.
    """
    keys = SessionKeyRules(
        namespace=app.home.profile if multiplexed else "",
        per_user_in_groups=app.config.group_sessions_per_user,
        per_user_in_threads=app.config.thread_sessions_per_user,
    )
    rules = {name: platform_rules(name, app.config, app.chats, app.env) for name in channels}
    pairing = Pairing(app.home.pairing, app.clock)
    commands = standard_commands().names
    people = People(app.home.people, app.clock)
    return AccessControl(app.home.profile, rules, pairing, people, commands, keys)


def _remote_models(app: App) -> "RemoteModels | None":
    """Return the models of the remote gateway that runs the turns of chats, if one is set."""
    if (url := proxy_url(app.config, app.env)) is None:
        return None
    from hermes.runtimes.proxy.remote_models import RemoteModels  # noqa: PLC0415 - rarely used

    return RemoteModels(url)


def build_gateway(
    app: App,
    *,
    channels: Mapping[str, Channel],
    access: AccessControl,
    directory: ChatDirectory,
    borrowed: Mapping[str, BorrowedChannel] | None = None,
    rate_limiters: Mapping[str, RateLimiter] | None = None,
    hooks: Hooks | None = None,
    wait_for_borrowers: Callable[[], Awaitable[None]] | None = None,
    restart: Callable[[], None] | None = None,
    rules: GatewayRules | None = None,
) -> Gateway:
    """Build the gateway that serves a profile's `channels`.

    `borrowed` are channels of other profiles that this profile may answer through. `rules` are
    used instead of those from the settings.
    """
    platforms = {platform_of(name) for name in (*channels, *(borrowed or {}))}
    rules = rules or gateway_rules(app.config, app.chats, app.env, platforms)
    claim_interval = app.store.workers.ttl.total_seconds() / HEARTBEATS_PER_TTL
    supervisor_rules = structs.replace(rules.supervisor, claim_interval=claim_interval)
    supervisor = Supervisor(channels, app.clock, supervisor_rules, workers=app.store.workers)
    registry, workspace = standard_commands(), chat_workspace(app.home, app.config, app.env)
    return GatewayComposition(
        store=app.store, clock=app.clock, bus=app.bus, runner=app.runner,
        approvals=app.approvals,
        supervisor=supervisor,
        channels=channels,
        authorize=access.admit,
        rejection=TurnQuotas(app.store, app.clock, app.chats.permissions).rejection,
        registry=registry,
        context=_command_context(app, supervisor, restart),
        shortcuts=shortcuts_from(app.config, registry.names),
        footer=answer_footer(app, workspace),
        resolve_targets=_target_resolver(app, channels),
        on_contact=directory.record,
        running_processes=partial(process_start_times, app),
        tools=app.toolbox.tools_on,
        profile=app.home.profile, namespace=access.namespace, cwd=workspace,
        rules=rules,
        transcripts=Transcripts(
            configured_transcriber(app), app.blobs, echo=app.config.stt.echo_transcripts
        ),
        hooks=hooks,
        borrowed=borrowed or {},
        rate_limiters=rate_limiters or {},
        wait_for_borrowers=wait_for_borrowers,
    ).gateway  # fmt: skip


def _command_context(
    app: App, supervisor: Supervisor, restart: Callable[[], None] | None
) -> Callable[[Conversation], CommandContext]:
    remote_models = _remote_models(app)
    platforms = GatewayPlatforms(supervisor)

    async def restart_with_notice(requester: Address | None) -> None:
        if requester is not None:
            await request_restart_notice(app.store, requester)
        if restart is not None:
            restart()

    def context(conversation: Conversation) -> CommandContext:
        restart_command = None if restart is None else restart_with_notice
        services = command_services(app, platforms=platforms, restart=restart_command)
        if remote_models is None:
            return CommandContext(conversation, app.models, app, services=services)
        services = structs.replace(services, model_offers=remote_models)
        return CommandContext(conversation, remote_models, app, services=services)

    return context


def answer_footer(app: App, workspace: str) -> AnswerFooter:
    display = app.config.display
    return AnswerFooter(
        show_failed_files=display.file_mutation_verifier,
        fields=display.runtime_footer.fields if display.runtime_footer.enabled else (),
        folder=workspace,
        home=str(user_home(app.env)),
        window=app.models.window_of,
    )


def process_start_times(app: App, session: Session) -> Sequence[datetime]:
    """Return when the running processes of a session, or of an earlier one in its chat, started."""
    return [
        process.started
        for process in app.processes.running
        if process.scope.session == session.id or (session.key and process.scope.key == session.key)
    ]


def chat_workspace(home: Home, config: Config, env: Mapping[str, str]) -> str:
    """Return the working directory of chats. Raises `ConfigError`.

    The default is a folder of the profile, not the user's home directory: chats must not change
    the user's shell startup files and keys.
    """
    # With the backend ssh, `terminal.cwd` is a folder on the other machine.
    configured = "" if config.terminal.backend == "ssh" else config.terminal.cwd
    variable = env.get("MESSAGING_CWD", "").strip()
    folder = variable or configured
    try:
        path = Path(folder).expanduser()
    except RuntimeError as error:
        name = "The variable MESSAGING_CWD" if variable else "The setting `terminal.cwd`"
        raise ConfigError(
            f"{name} is {folder!r}, but that home directory was not found.",
            hint="Use an absolute path.",
        ) from error
    return str(path if path.is_absolute() else home.path / "workspace")


def _target_resolver(
    app: App, channels: Mapping[str, Channel]
) -> Callable[[str], tuple[Address, ...]]:
    def resolve(text: str) -> tuple[Address, ...]:
        """Return the addresses of the targets that can be reached, and log the others."""
        homes = home_channels(app.env, app.config.platforms, channels)
        try:
            targets = resolve_targets(parse_targets(text), homes, platforms=channels)
        except UsageError as error:
            log.warning("cannot deliver to %r: %s", text, error.sentence)
            return ()
        for one in targets.unresolved:
            log.warning("cannot deliver to %s: %s", one.target, one.reason)
        return targets.addresses

    return resolve


def with_retries(rules: GatewayRules, backoff: Backoff) -> GatewayRules:
    """Return the rules with this backoff for turns, delivery and channels."""
    return structs.replace(
        rules,
        actors=structs.replace(rules.actors, backoff=backoff),
        delivery=structs.replace(rules.delivery, backoff=backoff),
        supervisor=structs.replace(rules.supervisor, backoff=backoff),
    )


def gateway_rules(
    config: Config,
    chats: ChatSettings,
    env: Mapping[str, str],
    platforms: Collection[str],
    *,
    park_interrupted: bool = False,
) -> GatewayRules:
    """Build the rules from the settings and variables.

    `platforms` are those that are served. Raises `ConfigError` if their settings are wrong; other
    platforms must not stop the gateway.
    """
    turns = config.max_concurrent_sessions or ActorLimits().turns
    return GatewayRules(
        actors=_actor_rules(config),
        limits=ActorLimits(turns=turns, park=park_interrupted),
        progress_timing=ProgressTiming(
            edit=max(config.streaming.edit_interval, 0.1),
            max_age=config.streaming.fresh_final_after_seconds,
        ),
        display_on=partial(_progress_display, chats),
        without_reactions=frozenset(
            name for name in platforms if not _reactions_enabled(chats, env, name)
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
        quote_policies={name: _quote_policy(chats, env, name) for name in platforms},
        drain=config.agent.restart_drain_timeout or GatewayRules().drain,
    )


def _actor_rules(config: Config) -> ActorRules:
    return ActorRules(
        busy=BusyMode(config.display.busy_input_mode),
        debounce=config.gateway.debounce_seconds,
        idle=config.agent.gateway_timeout,
        idle_warning=config.agent.gateway_timeout_warning,
        notify=config.agent.gateway_notify_interval,
        fresh=config.agent.gateway_auto_continue_freshness,
    )


def platform_rules(channel: str, config: Config, chats: ChatSettings, env: Env) -> PlatformRules:
    settings = chats.platform(channel)
    unauthorized = config.unauthorized_dm_behavior
    return PlatformRules(
        access=access_rules_from(channel, env, settings, unauthorized=unauthorized),
        direct_commands=command_access(settings.extra, DIRECT_CHAT),
        group_commands=command_access(settings.extra, "group"),
        groups=_group_rules(channel, chats, env),
    )


def _group_rules(channel: str, chats: ChatSettings, env: Env) -> GroupRules:
    section, platform = chats.section(channel), platform_of(channel)
    # Variables belong to the platform's first account.
    own_env: Mapping[str, str] = env if channel == platform else {}

    def variable(suffix: str) -> str:
        return own_env.get(platform_variable(platform, suffix), "").strip()

    guests = False
    match section:
        case Matrix():
            free = parse_list(variable("FREE_RESPONSE_ROOMS")) or section.free_response_rooms
            only = parse_list(variable("ALLOWED_ROOMS")) or section.allowed_rooms
        case Telegram():
            free = (
                *section.free_response_channels,
                *(parse_list(variable("FREE_RESPONSE_CHATS")) or section.free_response_chats),
                *(parse_list(variable("FREE_RESPONSE_TOPICS")) or section.free_response_topics),
            )
            allowed = parse_list(variable("ALLOWED_CHATS")) or section.allowed_chats
            only = (*section.allowed_channels, *allowed)
            guests = section.guest_mode
            if value := variable("GUEST_MODE"):
                guests = is_true(value)
        case ChatPlatform() | Discord():
            free = parse_list(variable("FREE_RESPONSE_CHANNELS")) or section.free_response_channels
            only = parse_list(variable("ALLOWED_CHANNELS")) or section.allowed_channels
    require = section.require_mention
    if require is None:
        manifest = MANIFESTS.get(platform)
        require = manifest is not None and manifest.caps.mention_required
    if value := variable("REQUIRE_MENTION"):
        require = is_true(value)
    return GroupRules(
        require_mention=require,
        without_mention=frozenset(free),
        allowed_chats=frozenset(only),
        mention_opens=guests,
    )


def _progress_display(chats: ChatSettings, address: Address) -> ProgressDisplay:
    """How much a chat shows of a turn: its own settings, else those of the platform."""
    config, platform = chats.config, platform_of(address.channel)
    display = config.display
    override, text = chats.override(address), config.streaming.enabled
    for own in (display.platforms.get(platform), override):
        if own and own.streaming is not None:
            text = own.streaming
    settings = config.platforms.get(platform)
    return ProgressDisplay(
        tools=chats.shows_tools(platform, override),
        text=text,
        preview=display.tool_preview_length or ProgressDisplay().preview,
        narration=display.interim_assistant_messages,
        typing=settings is None or settings.typing_indicator,
        cursor=config.streaming.cursor,
        least=config.streaming.buffer_threshold,
    )


def _reactions_enabled(chats: ChatSettings, env: Mapping[str, str], platform: str) -> bool:
    if value := env.get(platform_variable(platform, "REACTIONS"), "").strip():
        return is_true(value)
    return chats.section(platform).reactions not in {False, "off", "false"}


def _quote_policy(chats: ChatSettings, env: Mapping[str, str], platform: str) -> QuotePolicy:
    variable = platform_variable(platform, "REPLY_TO_MODE")
    if not (word := env.get(variable, "").strip().lower()):
        return chats.platform(platform).reply_to_mode
    try:
        return msgspec.convert(word, QuotePolicy)
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"{variable} cannot be {word!r}.", hint="Use off, first or all."
        ) from error


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
