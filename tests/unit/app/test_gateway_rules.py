"""Chat settings become the rules of the gateway."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path

import anyio
import msgspec
import pytest
from msgspec import structs

from hermes.app.channels import ConfiguredChannels, open_process_resources
from hermes.app.chat_settings import ChatSettings
from hermes.app.gateway import gateway_rules, process_start_times
from hermes.config.loader import config_from_mapping
from hermes.config.schema import Config
from hermes.gateway.gateway import GatewayRules
from hermes.ports.channel import Channel, ChannelDeps, ChannelManifest
from hermes.schema.errors import ConfigError
from hermes.schema.scope import Address
from hermes.schema.sessions import Session
from hermes.testing.channel import FAKE_CAPABILITIES, FakeChannel
from support.app_profile import call_tool, make_scope, open_profile

SETTINGS = {
    "agent": {"gateway_notify_interval": 60, "gateway_auto_continue_freshness": 120},
    "display": {"interim_assistant_messages": False, "tool_preview_length": 33},
    "streaming": {"cursor": "|", "fresh_final_after_seconds": 90},
    "gateway": {"message_timestamps": {"enabled": True}},
    "platforms": {"fake": {"typing_indicator": False, "reply_to_mode": "all"}},
}


def rules_of(settings: object) -> GatewayRules:
    config = msgspec.convert(settings, Config)
    return gateway_rules(config, ChatSettings(config), {}, {"fake"})


def test_each_setting_reaches_its_rule() -> None:
    rules = rules_of(SETTINGS)
    assert (rules.actors.notify, rules.actors.fresh, rules.progress_timing.max_age) == (60, 120, 90)
    assert rules.timestamps
    shows = rules.display_on(Address("fake", "1"))
    assert (shows.narration, shows.preview, shows.cursor, shows.typing) == (False, 33, "|", False)
    assert rules.display_on(Address("other", "1")) == structs.replace(shows, typing=True)
    assert rules.delivery_on("fake@home").replies == "all"
    assert rules.delivery_on("other").replies == "first"


def test_unset_settings_have_their_defaults() -> None:
    rules = rules_of({})
    assert (rules.actors.notify, rules.actors.fresh, rules.progress_timing.max_age) == (
        180,
        3600,
        0,
    )
    shows = rules.display_on(Address("fake", "1"))
    assert (shows.narration, shows.preview, shows.cursor) == (True, 60, " ▉")
    assert (rules.timestamps, shows.typing) == (False, True)


def test_chat_can_show_more_or_less_than_its_platform() -> None:
    chats = {"1": {"tool_progress": "off"}, "7": {"streaming": True}}
    rules = rules_of({"platforms": {"fake": {"channel_overrides": chats}}})
    addresses = [Address("fake@home", "1"), Address("fake", "1", "7"), Address("fake", "2")]
    shown = [rules.display_on(address) for address in addresses]
    assert [(one.tools, one.text) for one in shown] == [(False, False), (True, True), (True, False)]


def test_section_and_variables_of_a_platform_without_an_entry_have_an_effect() -> None:
    config = config_from_mapping({"telegram": {"reactions": False}, "slack": {"reactions": False}})
    env = {"SLACK_REACTIONS": "true", "DISCORD_REACTIONS": "off", "TELEGRAM_REPLY_TO_MODE": "Off"}
    rules = gateway_rules(config, ChatSettings(config), env, {"telegram", "slack", "discord"})
    assert rules.without_reactions == {"telegram", "discord"}
    assert rules.delivery_on("telegram").replies == "off"


@pytest.mark.parametrize(
    ("settings", "env", "wrong"),
    [
        ({}, {"SLACK_REPLY_TO_MODE": "sometimes"}, "SLACK_REPLY_TO_MODE"),
        ({"slack": {"extra": {"require_mention": "maybe"}}}, {}, "slack.*require_mention"),
    ],
)
def test_wrong_settings_stop_the_gateway_only_on_served_platforms(
    settings: dict[str, object], env: dict[str, str], wrong: str
) -> None:
    config = config_from_mapping(settings)
    assert gateway_rules(config, ChatSettings(config), env, {"telegram"}).quote_policies
    with pytest.raises(ConfigError, match=wrong):
        gateway_rules(config, ChatSettings(config), env, {"telegram", "slack"})


async def test_session_is_kept_while_its_processes_run(tmp_path: Path) -> None:
    async with open_profile(tmp_path, "terminal:\n  backend: local\n") as app:
        session = Session(id="s", started_at=app.clock.now())
        await call_tool(app, make_scope(tmp_path), "terminal", command="sleep 600", background=True)
        begun = process_start_times(app, session)
        assert [app.clock.now() - one < timedelta(hours=1) for one in begun] == [True]
        assert process_start_times(app, structs.replace(session, id="another")) == []


@asynccontextmanager
async def hangs(parts: ChannelDeps) -> AsyncGenerator[Channel]:
    await anyio.sleep_forever()
    yield FakeChannel(parts.name)


@asynccontextmanager
async def opens(parts: ChannelDeps) -> AsyncGenerator[Channel]:
    async with anyio.create_task_group():
        yield FakeChannel(parts.name)


KNOWN = {
    one.__name__: ChannelManifest(
        name=one.__name__, factory=f"{__name__}:{one.__name__}", caps=FAKE_CAPABILITIES
    )
    for one in (hangs, opens)
}


async def test_hanging_channel_times_out(tmp_path: Path) -> None:
    settings = "gateway: {platform_connect_timeout: 0.1}\n"
    async with (
        open_profile(tmp_path, settings) as app,
        open_process_resources() as shared,
        AsyncExitStack() as stack,
    ):
        with (
            anyio.fail_after(60),
            pytest.raises(ConfigError, match=r"Could not connect within 0\.1 seconds"),
        ):
            await ConfiguredChannels(app, KNOWN).open("hangs", stack, shared)


@pytest.mark.parametrize("limit", [30, 0])
async def test_channel_resources_outlive_the_connect_timeout(tmp_path: Path, limit: int) -> None:
    settings = f"gateway: {{platform_connect_timeout: {limit}}}\n"
    async with (
        open_profile(tmp_path, settings) as app,
        open_process_resources() as shared,
        AsyncExitStack() as stack,
    ):
        assert isinstance(
            await ConfiguredChannels(app, KNOWN).open("opens", stack, shared), FakeChannel
        )
