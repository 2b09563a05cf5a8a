"""Slack's settings may stand in three places: variables, then the root section, then `extra`."""

from pathlib import Path

import pytest
from msgspec import structs

from hermes.app.chat_settings import ChatSettings
from hermes.app.gateway import platform_rules
from hermes.channels.slack import SlackOptions, SuggestedPrompt
from hermes.channels.slack.channel import app_token, bot_tokens, checked_options
from hermes.config.env import Env
from hermes.config.loader import config_from_mapping
from hermes.config.sections.messaging import Platform, Slack
from hermes.gateway.access import PlatformRules
from support.slack import APP_TOKEN, channel_deps

EXTRA = {"extra": {"free_response_channels": ["C1"], "allow_from": ["U5"], "rich_blocks": True}}
ROOT = {"free_response_channels": ["C2"], "strict_mention": True}


def rules(settings: dict[str, object], **env: str) -> PlatformRules:
    config = config_from_mapping(settings)
    return platform_rules("slack", config, ChatSettings(config), Env(env))


def options(folder: Path, settings: dict[str, object], **env: str) -> SlackOptions:
    extra = ChatSettings(config_from_mapping(settings)).platform("slack").extra
    deps = channel_deps(folder, "http://127.0.0.1:1", env=env)
    return checked_options(
        structs.replace(deps, settings=structs.replace(deps.settings, extra=extra))
    )


def test_a_mention_is_required_unless_the_settings_say_otherwise() -> None:
    assert rules({}).groups.require_mention
    assert not rules({"slack": {"require_mention": False}}).groups.require_mention
    assert not rules({}, SLACK_REQUIRE_MENTION="false").groups.require_mention


def test_root_section_wins_over_extra_and_variables_over_both(tmp_path: Path) -> None:
    settings = {"platforms": {"slack": EXTRA}, "slack": ROOT}
    assert rules(settings).groups.without_mention == {"C2"}
    assert rules(settings).access.users == {"U5"}
    read = options(tmp_path, settings)
    assert (read.strict_mention, read.rich_blocks) == (True, True)
    assert read.free_response_channels == ("C2",)
    changed = options(tmp_path, settings, SLACK_STRICT_MENTION="false", SLACK_RICH_BLOCKS="0")
    assert (changed.strict_mention, changed.rich_blocks) == (False, False)


def test_prompts_reach_the_channel(tmp_path: Path) -> None:
    own = {"suggested_prompts": [{"title": "Plan", "message": "Plan my day"}]}
    read = options(tmp_path, {"slack": own})
    assert read.suggested_prompts == (SuggestedPrompt(title="Plan", message="Plan my day"),)


def test_further_account_has_its_own_tokens(tmp_path: Path) -> None:
    deps = channel_deps(tmp_path, "http://127.0.0.1:1")
    own = Platform(token="xoxb-work", extra={"app_token": "xapp-work"})
    work = structs.replace(deps, name="slack/work", account="work", settings=own)
    assert (bot_tokens(work), app_token(work)) == (["xoxb-work"], "xapp-work")
    assert app_token(deps) == APP_TOKEN
    assert checked_options(work).app_token == "xapp-work"


@pytest.mark.parametrize("name", Slack.__struct_fields__)
def test_root_section_and_channel_have_the_same_defaults(name: str) -> None:
    if name in SlackOptions.__struct_fields__ and isinstance(getattr(Slack(), name), bool):
        assert getattr(Slack(), name) == getattr(SlackOptions(), name)
