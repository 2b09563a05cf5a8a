"""The gateway's rules from a profile's settings and variables; who is not named may do nothing."""

from datetime import tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from hermes.app.chats import ChatSettings
from hermes.config.env import Env
from hermes.config.schema import Config
from hermes.config.sections.chats import ChatPlatform, Discord, Matrix
from hermes.gateway.actors import ActorLimits
from hermes.gateway.authorize import rules_from
from hermes.gateway.bubble import Pace, Shows
from hermes.gateway.door import GroupRules, KeyRules, PlatformRules
from hermes.gateway.gateway import GatewayRules
from hermes.gateway.letters import Busy
from hermes.gateway.resets import ResetPolicy
from hermes.gateway.roles import command_access
from hermes.gateway.runs import ActorRules
from hermes.gateway.settings import is_yes, variable
from hermes.schema.errors import ConfigError
from hermes.session.keys import DIRECT


def key_rules(config: Config, space: str) -> KeyRules:
    return KeyRules(
        space=space,
        per_user_in_groups=config.group_sessions_per_user,
        per_user_in_threads=config.thread_sessions_per_user,
    )


def gateway_rules(config: Config, chats: ChatSettings) -> GatewayRules:
    turns = config.max_concurrent_sessions or ActorLimits().turns
    named = {*config.platforms, *config.display.platforms}
    return GatewayRules(
        actors=ActorRules(
            busy=Busy(config.display.busy_input_mode),
            debounce=config.gateway.debounce_seconds,
            idle=config.agent.gateway_timeout,
            idle_warning=config.agent.gateway_timeout_warning,
            notify=config.agent.gateway_notify_interval,
            fresh=config.agent.gateway_auto_continue_freshness,
        ),
        limits=ActorLimits(turns=turns),
        pace=Pace(
            edit=max(config.streaming.edit_interval, 0.1),
            old=config.streaming.fresh_final_after_seconds,
        ),
        shows={name: _shows(config, name) for name in named},
        usual=_shows(config, ""),
        unsigned=frozenset(name for name in named if not _signs(chats, name)),
        resets=_resets(config),
        stamps=config.gateway.message_timestamps.enabled,
        replies={name: one.reply_to_mode for name, one in config.platforms.items()},
        drain=config.agent.restart_drain_timeout or GatewayRules().drain,
    )


def platform_rules(platform: str, config: Config, chats: ChatSettings, env: Env) -> PlatformRules:
    settings = chats.platform(platform)
    unauthorized = config.unauthorized_dm_behavior
    return PlatformRules(
        access=rules_from(platform, env, settings, unauthorized=unauthorized),
        direct_commands=command_access(settings.extra, DIRECT),
        group_commands=command_access(settings.extra, "group"),
        groups=_groups(platform, chats, env),
    )


def _groups(platform: str, chats: ChatSettings, env: Env) -> GroupRules:
    section = chats.section(platform)
    if section is None:
        return GroupRules()
    matrix = isinstance(section, Matrix)
    free = section.free_response_rooms if matrix else section.free_response_channels
    only = section.allowed_rooms if matrix else section.allowed_channels
    said = env.get(variable(platform, "REQUIRE_MENTION"), "")
    require = is_yes(said) if said.strip() else bool(section.require_mention)
    return GroupRules(require_mention=require, free=frozenset(free), only=frozenset(only))


def _shows(config: Config, platform: str) -> Shows:
    display = config.display
    own = display.platforms.get(platform)
    progress = own.tool_progress if own and own.tool_progress is not None else None
    tools = display.tool_progress if progress is None else progress
    streaming = own.streaming if own and own.streaming is not None else None
    text = config.streaming.enabled if streaming is None else streaming
    settings = config.platforms.get(platform)
    return Shows(
        tools=tools not in {"off", "none", False},
        text=text,
        preview=display.tool_preview_length or Shows().preview,
        between=display.interim_assistant_messages,
        typing=settings is None or settings.typing_indicator,
        cursor=config.streaming.cursor,
    )


def _signs(chats: ChatSettings, platform: str) -> bool:
    section = chats.section(platform)
    wish = section.reactions if isinstance(section, ChatPlatform | Discord) else None
    return wish not in {False, "off", "false"}


def _resets(config: Config) -> ResetPolicy:
    return ResetPolicy(
        general=config.session_reset,
        by_type=config.reset_by_type,
        by_platform=config.reset_by_platform,
        zone=_zone(config.timezone.strip()),
    )


def _zone(name: str) -> tzinfo | None:
    if not name:
        return None
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ConfigError(
            f"The setting `timezone` is {name!r}, which is no time zone.",
            hint="Write it as Europe/Berlin, or leave it empty for this machine's own.",
        ) from error
