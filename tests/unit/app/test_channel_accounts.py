"""Several accounts of one platform in one profile."""

from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from msgspec import structs

from hermes.app.channels import ConfiguredChannels, open_process_resources
from hermes.app.chat_settings import ChatSettings
from hermes.app.command_services import command_services
from hermes.app.gateway import platform_rules
from hermes.config.env import Env
from hermes.config.loader import config_from_mapping, load_config
from hermes.config.sections.messaging import Platform, PlatformAccount, channel_settings
from hermes.gateway.access import PlatformRules
from hermes.gateway.targets import ChatTarget, HomeTarget, home_channels, parse_targets
from hermes.ports.channel import ChannelManifest
from hermes.schema.errors import ConfigError
from hermes.schema.scope import Address, own_channel, platform_of
from hermes.testing.channel import FAKE_CAPABILITIES
from support.app_profile import open_profile

KNOWN = {
    "pigeon": ChannelManifest(
        name="pigeon",
        factory="unit.nowhere:open_channel",
        caps=FAKE_CAPABILITIES,
        enabled_by=("PIGEON_TOKEN",),
    )
}
TWO = """
platforms:
  pigeon:
    enabled: true
    token: a
    home_channel: "1"
    extra: {allow_from: [ann], url: here}
    accounts:
      work: {token: b, home_channel: "2", extra: {allow_from: [bob]}}
      off: {token: c, enabled: false}
"""


def test_channel_names_have_platform_and_account() -> None:
    assert platform_of("pigeon/work@other") == "pigeon"
    assert own_channel("pigeon/work@other") == "pigeon/work"
    assert (platform_of("pigeon"), own_channel("pigeon@other")) == ("pigeon", "pigeon")


def test_account_inherits_unset_options() -> None:
    account = PlatformAccount(token="b", extra={"url": "there"})
    settings = Platform(
        enabled=True, token="a", extra={"url": "here", "x": 1}, accounts={"work": account}
    )
    channels = channel_settings({"pigeon": settings})
    assert list(channels) == ["pigeon", "pigeon/work"]
    work = channels["pigeon/work"]
    assert (work.token, work.extra, work.enabled) == ("b", {"url": "there", "x": 1}, True)


def test_targets_and_home_channels_of_accounts() -> None:
    assert parse_targets("pigeon/work, pigeon/work:7:t") == (
        HomeTarget("pigeon/work"),
        ChatTarget("pigeon/work", "7", "t"),
    )
    settings = Platform(accounts={"work": PlatformAccount(home_channel="2")})
    homes = home_channels({"PIGEON_HOME_CHANNEL": "1"}, {"pigeon": settings})
    assert homes == {"pigeon": Address("pigeon", "1"), "pigeon/work": Address("pigeon/work", "2")}


async def test_every_enabled_account_is_a_channel(tmp_path: Path) -> None:
    async with open_profile(tmp_path, TWO) as app:
        assert ConfiguredChannels(app, KNOWN).names == ["pigeon", "pigeon/work"]


async def test_platform_without_credentials_of_its_own_has_only_named_accounts(
    tmp_path: Path,
) -> None:
    settings = "platforms: {pigeon: {enabled: true, accounts: {work: {token: b}}}}\n"
    async with open_profile(tmp_path, settings) as app:
        assert ConfiguredChannels(app, KNOWN).names == ["pigeon/work"]


async def test_access_rules_are_those_of_the_account(tmp_path: Path) -> None:
    async with open_profile(tmp_path, TWO) as app:
        users = [
            platform_rules(name, app.config, app.chats, app.env).access.users
            for name in ("pigeon", "pigeon/work")
        ]
    assert users == [{"ann"}, {"bob"}]


async def test_same_credentials_twice_are_refused(tmp_path: Path) -> None:
    async with open_process_resources() as shared:
        shared.claim("pigeon", "a", "default")
        shared.claim("pigeon", "a", "default")
        shared.claim("pigeon/work", "b", "default")
        with pytest.raises(ConfigError, match="pigeon and pigeon/other use the same account"):
            shared.claim("pigeon/other", "a", "default")
        with pytest.raises(ConfigError, match="profiles default and work use the same pigeon"):
            shared.claim("pigeon", "a", "work")


async def test_invalid_account_name_is_an_error(tmp_path: Path) -> None:
    settings = "platforms: {pigeon: {enabled: true, accounts: {'A b': {token: b}}}}\n"
    async with (
        open_profile(tmp_path, settings) as app,
        open_process_resources() as shared,
        AsyncExitStack() as stack,
    ):
        with pytest.raises(ConfigError, match="is not a valid account name"):
            await ConfiguredChannels(app, KNOWN).open("pigeon/A b", stack, shared)


async def test_home_channel_of_an_account_is_saved_with_it(tmp_path: Path) -> None:
    async with open_profile(tmp_path, TWO) as app:
        settings = command_services(app).settings
        assert settings is not None
        await settings.save_home_channel(Address("pigeon", "3"), "")
        await settings.save_home_channel(Address("pigeon/work", "9"), "Desk")
        homes = home_channels(app.env, app.config.platforms)
        stored = load_config(app.home, app.env).config.platforms
    assert homes == home_channels({}, stored)
    assert homes == {"pigeon": Address("pigeon", "3"), "pigeon/work": Address("pigeon/work", "9")}


async def test_account_may_be_named_by_an_option_instead_of_the_token(tmp_path: Path) -> None:
    settings = """
platforms:
  pigeon:
    enabled: true
    extra: {address: a@x.example, password: same}
    accounts:
      work: {extra: {address: b@x.example}}
      again: {extra: {address: a@x.example}}
"""
    known = {"pigeon": structs.replace(KNOWN["pigeon"], account_option="address")}
    async with (
        open_profile(tmp_path, settings) as app,
        open_process_resources() as shared,
        AsyncExitStack() as stack,
    ):
        channels = ConfiguredChannels(app, known)
        assert channels.names == ["pigeon", "pigeon/work", "pigeon/again"]
        for name in ("pigeon", "pigeon/work"):
            with pytest.raises(ConfigError, match="missing package"):
                await channels.open(name, stack, shared)
        with pytest.raises(ConfigError, match="pigeon and pigeon/again use the same account"):
            await channels.open("pigeon/again", stack, shared)


def rules_of_work(settings: dict[str, object], env: dict[str, str] | None = None) -> PlatformRules:
    config = config_from_mapping(settings)
    return platform_rules("telegram/work", config, ChatSettings(config), Env(env or {}))


def test_variables_of_the_platform_do_not_open_a_further_account() -> None:
    closed = {"dm_policy": "allowlist", "group_policy": "disabled", "allow_from": [42]}
    env = {
        "TELEGRAM_DM_POLICY": "open",
        "TELEGRAM_GROUP_POLICY": "open",
        "TELEGRAM_ALLOWED_USERS": "1",
        "TELEGRAM_ALLOW_ALL_USERS": "true",
        "TELEGRAM_DENIED_USERS": "666",
        "TELEGRAM_REQUIRE_MENTION": "false",
    }
    account = {"token": "x", "extra": {**closed, "require_mention": True}}
    rules = rules_of_work({"platforms": {"telegram": {"accounts": {"work": account}}}}, env)
    assert (rules.access.direct_policy, rules.access.group_policy) == ("allowlist", "disabled")
    assert (rules.access.users, rules.access.everybody) == ({"42"}, False)
    assert rules.access.denied == {"666"}
    assert rules.groups.require_mention


def test_settings_of_an_account_take_precedence_over_the_section_at_the_root() -> None:
    own = {"allow_from": [42], "allowed_chats": ["-5"], "require_mention": True}
    rules = rules_of_work(
        {
            "telegram": {"allow_from": ["*"], "allowed_chats": ["-1"], "require_mention": False},
            "platforms": {"telegram": {"accounts": {"work": {"token": "x", "extra": own}}}},
        }
    )
    assert rules.access.users == {"42"}
    assert (rules.groups.allowed_chats, rules.groups.require_mention) == ({"-5"}, True)
