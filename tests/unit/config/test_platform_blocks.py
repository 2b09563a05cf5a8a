"""A platform's settings may stand in three places of the file, and have their effect there."""

from pathlib import Path

import pytest

from hermes.app.channels import enabled_platforms
from hermes.app.chat_settings import ChatSettings
from hermes.app.gateway import platform_rules
from hermes.config.editor import change_settings
from hermes.config.env import Env
from hermes.config.home import Home
from hermes.config.loader import config_from_mapping, inspect_config, load_config, load_effective
from hermes.config.platform_blocks import other_places
from hermes.config.sections.messaging import HomeChannel, Platform
from hermes.config.values import format_path
from hermes.gateway.authorization import access_rules_from
from hermes.schema.errors import ConfigError
from hermes.schema.scope import Address


def platform(settings: dict[str, object], name: str = "irc") -> Platform:
    return ChatSettings(config_from_mapping(settings)).platform(name)


@pytest.mark.parametrize(
    "place",
    [
        lambda block: {"irc": block},
        lambda block: {"platforms": {"irc": block}},
        lambda block: {"gateway": {"platforms": {"irc": block}}},
    ],
    ids=["root", "platforms", "gateway"],
)
def test_each_place_has_an_effect(place) -> None:
    block = {"enabled": True, "home_channel": "#home", "server": "irc.example", "allow_from": ["a"]}
    found = platform(place({**block, "extra": {"port": 6667}}))
    assert (found.enabled, found.home_channel) == (True, "#home")
    assert found.extra == {"server": "irc.example", "allow_from": ["a"], "port": 6667}


def test_root_wins_over_platforms_and_that_over_gateway() -> None:
    menu = {"max_commands": 3, "priority": ["new"]}
    found = platform(
        {
            "gateway": {"platforms": {"irc": {"extra": {"menu": menu, "a": 1, "b": 1, "c": 1}}}},
            "platforms": {"irc": {"extra": {"menu": {"max_commands": 5}, "b": 2}, "c": 2}},
            "irc": {"c": 3},
        }
    )
    merged = {"max_commands": 5, "priority": ["new"]}
    assert found.extra == {"menu": merged, "a": 1, "b": 2, "c": 3}


def test_token_and_options_in_the_typed_section_at_the_root_have_an_effect() -> None:
    block = {"token": "1:a", "base_url": "http://x", "allow_from": [5]}
    found = platform({"telegram": block}, "telegram")
    assert found.token == "1:a"
    assert found.extra == {"base_url": "http://x", "allow_from": [5]}


def test_token_does_not_enable_a_platform_that_is_turned_off() -> None:
    env = {"TELEGRAM_BOT_TOKEN": "1:a"}
    assert enabled_platforms(config_from_mapping({}), env) == ["telegram"]
    assert enabled_platforms(config_from_mapping({"telegram": {"enabled": False}}), env) == []
    off = config_from_mapping({"platforms": {"telegram": {"enabled": False}}})
    assert enabled_platforms(off, env) == []
    assert enabled_platforms(off, {**env, "TELEGRAM_ENABLED": "true"}) == ["telegram"]


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("irc:\n  enabled: sometimes\n", (2, "irc.enabled")),
        ("gateway:\n  platforms:\n    irc: {extra: oops}\n", (3, "gateway.platforms.irc.extra")),
        ("gateway:\n  platforms:\n    irc: oops\n", (3, "gateway.platforms.irc")),
        ("gateway:\n  platforms: oops\n", (2, "gateway.platforms")),
        ("platforms:\n  irc: {enabled: true}\nirc: false\n", (3, "irc")),
        ("platforms:\n  irc: {extra: []}\nirc: {server: a}\n", (2, "platforms.irc.extra")),
        ("platforms:\n  irc: {extra: {port: 1}}\nirc: {extra: oops}\n", (3, "irc.extra")),
    ],
)
def test_wrong_value_is_reported_where_it_stands(text: str, wrong: tuple[int, str]) -> None:
    others = "telegram: {dm_policy: disabled}\n"
    loaded, problems = inspect_config(text + others, Path("config.yaml"), {})
    assert loaded is None
    assert [(one.line, format_path(one.path)) for one in problems] == [wrong]


@pytest.mark.parametrize(
    "settings",
    [
        {"gateway": {"platforms": {"irc": {"deny_from": [666]}}}, "irc": {"deny_from": ["7"]}},
        {"platforms": {"irc": {"deny_from": "7", "extra": {"deny_from": [666]}}}},
        {"platforms": {"irc": {"extra": {"deny_from": "666, 7"}}}, "irc": {"deny_from": None}},
        {"platforms": {"irc": {"deny_from": [666, 7]}}, "irc": {"extra": {"deny_from": None}}},
        {"irc": {"extra": {"deny_from": [666, 7]}, "deny_from": None}},
        {"irc": {"extra": {"deny_from": None}, "deny_from": [666, 7]}},
    ],
)
def test_merged_deny_lists_keep_every_entry(settings: dict[str, object]) -> None:
    assert access_rules_from("irc", {}, platform(settings)).denied == {"666", "7"}


def test_key_without_a_value_is_not_set() -> None:
    lower = {"enabled": False, "token": "t", "extra": {"port": 1, "menu": {"max": 3}}}
    empty = {"enabled": None, "token": None, "port": None, "extra": {"nick": None, "port": None}}
    found = platform({"platforms": {"irc": lower}, "irc": {**empty, "menu": {"max": None}}})
    assert (found.enabled, found.token) == (False, "t")
    assert found.extra == {"port": 1, "menu": {"max": 3}}
    assert platform({"platforms": {"irc": {"extra": None}}, "irc": None}) == Platform()


def test_account_is_merged_from_all_places() -> None:
    lower = {"enabled": False, "token": "t", "deny_from": [666], "home_channel": {"chat_id": "1"}}
    higher = {"extra": {"deny_from": [7]}, "home_channel": {"name": "Home"}, "allow_from": ["a"]}
    settings: dict[str, object] = {
        "gateway": {"platforms": {"irc": {"accounts": {"work": lower}}}},
        "irc": {"enabled": True, "accounts": {"work": higher, "other": None}},
    }
    found = platform(settings, "irc/work")
    assert (found.enabled, found.token) == (False, "t")
    assert found.extra == {"deny_from": [666, 7], "allow_from": ["a"]}
    assert found.home_channel == HomeChannel(name="Home"), "it names one chat"
    assert platform(settings, "irc/other").enabled


def test_platform_and_account_deny_together() -> None:
    block = {"deny_from": [666], "accounts": {"work": {"extra": {"deny_from": "7"}}, "home": {}}}
    found = {
        name: access_rules_from(name, {}, platform({"irc": block}, name)).denied
        for name in ("irc", "irc/work", "irc/home")
    }
    assert found == {"irc": {"666"}, "irc/work": {"666", "7"}, "irc/home": {"666"}}


def test_default_value_at_the_root_wins_over_platforms() -> None:
    opened = {
        "require_mention": False,
        "allow_bots": "all",
        "allowed_users": ["*"],
        "allow_from": 5,
    }
    closed = {"require_mention": True, "allow_bots": "", "allowed_users": [], "allow_from": []}
    config = config_from_mapping({"platforms": {"discord": {"extra": opened}}, "discord": closed})
    rules = platform_rules("discord", config, ChatSettings(config), Env({}))
    assert rules.groups.require_mention
    assert (rules.access.bots, rules.access.users) == ("none", frozenset())


def test_words_and_numbers_mean_the_same_in_each_place() -> None:
    block = {"channel_prompts": {42: "Answer in French."}, "guest_mode": "yes", "allow_from": 5}
    for settings in ({"telegram": block}, {"platforms": {"telegram": {"extra": block}}}):
        config = config_from_mapping(settings)
        chats = ChatSettings(config)
        assert access_rules_from("telegram", {}, chats.platform("telegram")).users == {"5"}
        assert chats.prompt(Address("telegram", "42")) == "Answer in French."
        assert platform_rules("telegram", config, chats, Env({})).groups.mention_opens


def test_policy_that_is_not_a_word_is_an_error() -> None:
    with pytest.raises(ConfigError, match="dm_policy: 'false'"):
        access_rules_from("irc", {}, platform({"irc": {"dm_policy": False}}))


def test_settings_are_shown_where_they_stand(tmp_path: Path) -> None:
    home = Home(tmp_path, tmp_path)
    home.config.write_text("irc: {server: irc.example}\nplatforms: {sms: {extra: {a: 1}}}\n")
    assert not load_config(home, {}).warnings
    shown = load_effective(home, {})
    assert isinstance(shown, dict)
    assert [*shown["platforms"]] == ["sms"]
    assert shown["platforms"]["sms"]["typing_indicator"] is True
    assert shown["irc"] == {"server": "irc.example"}


def test_other_places_are_those_that_could_hide_a_written_setting(tmp_path: Path) -> None:
    home = Home(tmp_path, tmp_path)
    home.config.write_text(
        "irc: {allow_from: [a], extra: {allow_from: [b]}}\n"
        "platforms: {irc: {allow_from: [c]}}\n"
        "gateway: {platforms: {irc: {allow_from: [d], extra: {allow_from: [e]}}}}\n"
    )
    gone = dict.fromkeys(other_places("irc", "allow_from"))
    change_settings(home, {}, lambda _: {"platforms.irc.extra.allow_from": "[f]", **gone})
    found = ChatSettings(load_config(home, {}).config).platform("irc")
    assert found.extra == {"allow_from": ["f"]}
    assert "gateway.platforms.irc.home_channel" in other_places("irc", "home_channel")
    assert "platforms.irc.home_channel" not in other_places("irc", "home_channel")
