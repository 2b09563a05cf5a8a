"""Discord's settings may stand in three places: variables, then the root section, then `extra`."""

from pathlib import Path

import pytest
from msgspec import structs

from hermes.app.chat_settings import ChatSettings
from hermes.app.gateway import platform_rules
from hermes.channels.discord import DiscordOptions
from hermes.channels.discord.channel import checked_options
from hermes.config.env import Env
from hermes.config.loader import config_from_mapping
from hermes.config.sections.messaging import Discord
from hermes.gateway.access import PlatformRules
from support.discord import channel_deps

EXTRA = {"extra": {"free_response_channels": ["1"], "allow_from": ["5"], "auto_thread": False}}
ROOT = {"free_response_channels": ["2"], "allowed_users": ["6"], "ignored_channels": ["9"]}


def rules(settings: dict[str, object], **env: str) -> PlatformRules:
    config = config_from_mapping(settings)
    return platform_rules("discord", config, ChatSettings(config), Env(env))


def options(folder: Path, settings: dict[str, object], **env: str) -> DiscordOptions:
    extra = ChatSettings(config_from_mapping(settings)).platform("discord").extra
    deps = channel_deps(folder, "http://127.0.0.1:1", env=env)
    return checked_options(
        structs.replace(deps, settings=structs.replace(deps.settings, extra=extra))
    )


def test_a_mention_is_required_unless_the_settings_say_otherwise() -> None:
    assert rules({}).groups.require_mention
    assert not rules({"discord": {"require_mention": False}}).groups.require_mention
    assert not rules({}, DISCORD_REQUIRE_MENTION="false").groups.require_mention


def test_root_section_wins_over_extra(tmp_path: Path) -> None:
    settings = {"platforms": {"discord": EXTRA}, "discord": ROOT}
    found = rules(settings)
    assert found.groups.without_mention == {"2"}
    assert found.access.users == {"5", "6"}
    read = options(tmp_path, settings)
    assert (read.auto_thread, read.ignored_channels) == (False, ("9",))
    assert read.free_response_channels == ("2",)


def test_variables_win_over_the_file(tmp_path: Path) -> None:
    settings = {"platforms": {"discord": EXTRA}, "discord": ROOT}
    env = {
        "DISCORD_AUTO_THREAD": "true",
        "DISCORD_IGNORED_CHANNELS": "7,8",
        "DISCORD_MISSED_MESSAGE_BACKFILL": "false",
        "DISCORD_COMMAND_SYNC_POLICY": "bulk",
    }
    read = options(tmp_path, settings, **env)
    assert (read.auto_thread, read.ignored_channels) == (True, ("7", "8"))
    assert not read.missed_message_backfill.enabled
    assert read.command_sync_policy == "bulk"


def test_tables_reach_the_channel(tmp_path: Path) -> None:
    own = {"missed_message_backfill": {"limit": 7}, "allow_mentions": {"users": False}}
    read = options(tmp_path, {"discord": own})
    assert (read.missed_message_backfill.limit, read.missed_message_backfill.enabled) == (7, True)
    assert not read.allow_mentions.users


@pytest.mark.parametrize("name", Discord.__struct_fields__)
def test_root_section_and_channel_have_the_same_defaults(name: str) -> None:
    if name in DiscordOptions.__struct_fields__ and isinstance(
        getattr(Discord(), name), bool | int
    ):
        assert getattr(Discord(), name) == getattr(DiscordOptions(), name)
