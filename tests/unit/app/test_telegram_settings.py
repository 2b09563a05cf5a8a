"""Telegram's settings may stand in three places: variables, then the root section, then `extra`."""

import pytest

from hermes.app.chat_settings import ChatSettings
from hermes.app.gateway import platform_rules
from hermes.config.env import Env
from hermes.config.loader import config_from_mapping
from hermes.gateway.access import PlatformRules

EXTRA = {"extra": {"require_mention": True, "free_response_chats": ["-1"], "allow_from": ["1"]}}
ROOT = {"free_response_chats": ["-2"], "free_response_topics": ["-3:5"], "allow_from": ["2"]}


def rules(settings: dict[str, object], **env: str) -> PlatformRules:
    config = config_from_mapping(settings)
    return platform_rules("telegram", config, ChatSettings(config), Env(env))


def test_extra_alone_is_used() -> None:
    found = rules({"platforms": {"telegram": EXTRA}})
    assert found.groups.require_mention
    assert found.groups.without_mention == {"-1"}
    assert found.access.users == {"1"}


def test_root_section_wins_over_extra() -> None:
    found = rules({"platforms": {"telegram": EXTRA}, "telegram": ROOT})
    assert found.groups.require_mention, "what the root does not set comes from extra"
    assert found.groups.without_mention == {"-2", "-3:5"}
    assert found.access.users == {"2"}


def test_variables_win_over_the_file() -> None:
    found = rules(
        {"platforms": {"telegram": EXTRA}, "telegram": ROOT},
        TELEGRAM_REQUIRE_MENTION="false",
        TELEGRAM_FREE_RESPONSE_CHATS="-7,-8",
        TELEGRAM_ALLOWED_CHATS="-9",
        TELEGRAM_GUEST_MODE="true",
    )
    assert not found.groups.require_mention
    assert found.groups.without_mention == {"-7", "-8", "-3:5"}
    assert found.groups.allowed_chats == {"-9"}
    assert found.groups.mention_opens
    closed = rules({"telegram": {"guest_mode": True}}, TELEGRAM_GUEST_MODE="false")
    assert not closed.groups.mention_opens


@pytest.mark.parametrize("where", ["platforms", "root"])
def test_settings_reach_the_channel(where: str) -> None:
    own = {"disable_link_previews": True, "allowed_topics": ["5"]}
    settings: dict[str, object] = (
        {"telegram": own} if where == "root" else {"platforms": {"telegram": {"extra": own}}}
    )
    extra = ChatSettings(config_from_mapping(settings)).platform("telegram").extra
    assert extra["disable_link_previews"] is True
    assert list(extra["allowed_topics"]) == ["5"]  # type: ignore[call-overload]
