"""Settings and variables of platforms that nothing reads are named."""

import re
from pathlib import Path

import pytest

from hermes.app.unused_platform_settings import (
    read_keys,
    read_variables,
    unused_keys,
    unused_variables,
)
from hermes.channels import MANIFESTS
from hermes.config.env import Env
from hermes.config.loader import config_from_mapping
from hermes.config.platforms import PLATFORMS
from hermes.config.sections.messaging import Platform
from hermes.config.setting_warnings import NO_SUCH_SETTING, UNUSED
from hermes.config.variables import VARIABLES, is_variable
from hermes.ports.channel import ChannelManifest

DOCS = Path(__file__).parents[3] / "docs" / "channels"
SERVED = [one for one in MANIFESTS.values() if one.options is not None]
UNUSED_VARIABLES = (
    "QQ_STT_API_KEY",
    "HERMES_TELEGRAM_NOTIFICATIONS",
    "HERMES_TELEGRAM_HTTP_POOL_SIZE",
    "TELEGRAM_OBSERVE_UNMENTIONED_GROUP_MESSAGES",
    "DISCORD_VOICE_FX",
)
"""Variables of the public system without an effect here."""


def unused(settings: dict[str, object]) -> list[tuple[str, str]]:
    found = unused_keys(settings)
    return [(".".join(map(str, one.path)), one.message) for one in found]


def names(env: Env, settings: dict[str, object] | None = None) -> list[str]:
    return [str(one.path[0]) for one in unused_variables(config_from_mapping(settings or {}), env)]


def test_unused_setting_is_named_wherever_it_stands() -> None:
    settings: dict[str, object] = {
        "telegram": {"observe_unmentioned_group_messages": True, "require_mention": True},
        "platforms": {
            "telegram": {"extra": {"dm_topics": [], "base_url": "http://x"}},
            "slack": {
                "reply_prefix": "> ",
                "accounts": {
                    "two": {"extra": {"feedback_buttons": 1}, "allow_from": [], "reply_to_mode": 1}
                },
            },
        },
        "gateway": {"platforms": {"discord": {"voice_fx": {}, "extra": {"reply_to_mode": "all"}}}},
    }
    assert unused(settings) == [
        ("gateway.platforms.discord.voice_fx", UNUSED),
        ("gateway.platforms.discord.extra.reply_to_mode", UNUSED),
        ("platforms.telegram.extra.dm_topics", UNUSED),
        ("platforms.slack.reply_prefix", UNUSED),
        ("platforms.slack.accounts.two.reply_to_mode", UNUSED),
        ("platforms.slack.accounts.two.extra.feedback_buttons", UNUSED),
        ("telegram.observe_unmentioned_group_messages", UNUSED),
    ]


def test_mistyped_setting_gets_a_suggestion() -> None:
    suggestion = f"{NO_SUCH_SETTING}; did you mean channel?"
    assert unused({"irc": {"chanel": "#a"}}) == [("irc.chanel", suggestion)]


def test_settings_of_plugins_and_of_webhooks_are_left_alone() -> None:
    assert unused({"platforms": {"webhook": {"extra": {"a": 1}}, "mine": {"b": 2}}}) == []


@pytest.mark.parametrize("manifest", SERVED, ids=lambda one: one.name)
def test_documented_settings_have_an_effect(manifest: ChannelManifest) -> None:
    """Each row of the tables in `docs/channels` names a key or a variable that is read."""
    page = (DOCS / f"{manifest.name}.md").read_text()
    rows = [line.split("|") for line in page.splitlines() if line.startswith("|")]
    keys = {key for row in rows for key in re.findall(r"`(?:extra\.)?([a-z_]+)`", row[1])}
    named = (re.findall(r"`([A-Z]+_[A-Z_]+)`", "|".join(row[:3])) for row in rows)
    variables = {name for names in named for name in names}
    assert keys - read_keys(manifest) - {*Platform.__struct_fields__} == set()
    assert variables - read_variables(manifest) == set()
    assert all(map(is_variable, variables))


@pytest.mark.parametrize("manifest", SERVED, ids=lambda one: one.name)
def test_described_variables_are_those_that_have_an_effect(manifest: ChannelManifest) -> None:
    own = {*manifest.variables.values(), *manifest.enabled_by}
    assert own <= VARIABLES.keys()
    described = {
        f"{facts.prefix}_{suffix}"
        for facts in PLATFORMS
        if facts.platform == manifest.name
        for suffix, _, _ in facts.variables
    }
    assert described - read_variables(manifest) == set()


@pytest.mark.parametrize("name", UNUSED_VARIABLES)
def test_unused_variable_is_named(name: str) -> None:
    assert names(Env({name: "x"}, {})) == [name]


def test_used_variables_are_not_named() -> None:
    used = {name: "x" for manifest in SERVED for name in read_variables(manifest)}
    assert len(used) > 200
    assert names(Env(used, {})) == []


def test_mistyped_variable_gets_a_suggestion() -> None:
    (found,) = unused_variables(config_from_mapping({}), Env({"TELEGRAM_ALOWED_USERS": "5"}, {}))
    assert found.message == f"{NO_SUCH_SETTING}; did you mean TELEGRAM_ALLOWED_USERS?"
    assert found.hint.endswith("from .env.")


def test_variables_of_the_process_count_only_for_enabled_platforms() -> None:
    process = {"MATRIX_BUILD": "3", "EMPTY": ""}
    assert names(Env({}, process)) == []
    assert names(Env({"MATRIX_PASSWORD": "x"}, process)) == ["MATRIX_BUILD"]
