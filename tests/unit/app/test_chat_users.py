"""Changes to who may talk to the agent have their effect wherever the lists stand."""

from pathlib import Path

import pytest

from hermes.app.chat_settings import ChatSettings
from hermes.app.chat_users import remove, set_owner
from hermes.config.env import Env
from hermes.config.home import Home
from hermes.config.loader import load_config
from hermes.gateway.authorization import AccessRules, access_rules_from
from hermes.gateway.pairing import Pairing
from hermes.testing.clock import FakeClock

PLACES = (
    "telegram: {allow_from: [5, 6]}",
    "platforms: {telegram: {allow_from: [5, 6]}}",
    "platforms: {telegram: {extra: {allow_from: [5, 6]}}}",
    "gateway: {platforms: {telegram: {extra: {allow_from: [5, 6]}}}}",
)


def rules(home: Home) -> AccessRules:
    config = load_config(home, {}).config
    return access_rules_from("telegram", {}, ChatSettings(config).platform("telegram"))


@pytest.mark.parametrize("text", PLACES)
def test_removed_person_has_no_access(tmp_path: Path, text: str) -> None:
    home = Home(tmp_path, tmp_path)
    home.config.write_text(text)
    assert rules(home).users == {"5", "6"}
    remove(home, Env({}), Pairing(home.pairing, FakeClock()), ("telegram", "5"))
    assert rules(home).users == {"6"}


@pytest.mark.parametrize("text", [one.replace("allow_from", "allow_admin_from") for one in PLACES])
def test_owners_are_added_and_removed(tmp_path: Path, text: str) -> None:
    home = Home(tmp_path, tmp_path)
    home.config.write_text(text)
    set_owner(home, ("telegram", "7"), is_owner=True)
    assert rules(home).owners == {"5", "6", "7"}
    set_owner(home, ("telegram", "5"), is_owner=False)
    assert rules(home).owners == {"6", "7"}
