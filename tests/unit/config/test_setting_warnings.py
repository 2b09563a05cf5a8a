"""Every setting is used, or listed as unused."""

import ast
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
import pytest
from msgspec import Struct, structs

import hermes
from hermes.config.home import Home
from hermes.config.loader import load_config
from hermes.config.schema import Config
from hermes.config.sections.messaging import (
    ChatPlatform,
    Discord,
    Matrix,
    Mattermost,
    Slack,
    Telegram,
)
from hermes.config.sections.models import Model
from hermes.config.setting_warnings import WILDCARD, changed_settings, unused_names, unused_settings

PROGRAM = Path(hermes.__file__).parent
NOBODY_SETS = frozenset({"_config_version"})
SINGLE_CHOICE = frozenset({"context", "dashboard.oauth.provider"})
"""Nothing reads them, because the loader accepts only one value."""
NAMESAKES = frozenset(
    {
        "cron.provider",
        "dashboard.oauth.client_id",
        "delegation.base_url",
        "delegation.api_key",
        "delegation.api_mode",
        "gateway.strict",
        "mattermost.auto_thread",
        "slack.auto_thread",
        "telegram.auto_thread",
        "whatsapp.auto_thread",
    }
)
"""Idle, too, though settings elsewhere that are called the same are used."""
READ_BY_NAME = frozenset(
    f"{platform}.{name}"
    for platform in ("discord", "mattermost", "slack", "telegram")
    for name in ("allow_bots", "allow_from", "group_allow_from")
) | {"discord.allowed_users", "telegram.group_allowed_chats"}
"""Read as keys of a platform's table, which the section is merged into."""


def reads() -> Iterator[tuple[str, str]]:
    """Every attribute that is read in the house, with the last name of what it is read of."""
    for path in PROGRAM.rglob("*.py"):
        if path.parent.name == "sections" or path == PROGRAM / "config" / "schema.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute):
                yield node.attr, getattr(node.value, "attr", getattr(node.value, "id", ""))
            elif isinstance(node, ast.MatchClass):
                yield from ((name, "") for name in node.kwd_attrs)


class Used:
    """Names that are read of something called a config, and all that are read of anything."""

    def __init__(self) -> None:
        # The sections of platforms are read by the name of the platform.
        self.sections: set[str] = {
            name
            for name, kind in typing.get_type_hints(Config).items()
            if kind in {ChatPlatform, Discord, Matrix, Mattermost, Slack, Telegram}
        }
        self.names: set[str] = set()
        for name, of in reads():
            self.names.add(name)
            if of in {"config", "_config", "settings"}:
                self.sections.add(name)


def structs_in(kind: object) -> Iterator[tuple[type[Struct], bool]]:
    """The sections that a value of this kind holds, and whether under chosen names."""
    if isinstance(kind, type) and issubclass(kind, Struct):
        yield kind, False
    chosen = typing.get_origin(kind) is Mapping
    for part in typing.get_args(kind):
        for found, deeper in structs_in(part):
            yield found, chosen or deeper


def unused(section: type[Struct], path: tuple[str, ...], used: Used) -> Iterator[str]:
    kinds = typing.get_type_hints(section)
    for field in structs.fields(section):
        name = (*path, field.encode_name)
        if field.name not in (used.names if path else used.sections):
            yield ".".join(name)
            continue
        for inner, chosen in structs_in(kinds[field.name]):
            yield from unused(inner, (*name, WILDCARD) if chosen else name, used)


@pytest.mark.slow
def test_list_of_unused_settings_is_correct() -> None:
    ignored = NOBODY_SETS | READ_BY_NAME | SINGLE_CHOICE
    found = frozenset(unused(Config, (), Used())) - ignored
    assert found | NAMESAKES == unused_names()


def test_unused_setting_is_warned_about(tmp_path: Path) -> None:
    home = Home(tmp_path, tmp_path)
    home.config.write_text(
        "tts:\n  provider: edge\nmcp_servers:\n  a:\n    skip_preflight: true\nmodel: m\n"
    )
    findings = unused_settings(load_config(home, {}).raw)
    assert [one.path for one in findings] == [("mcp_servers", "a", "skip_preflight")]


def test_changed_settings_of_a_model_section() -> None:
    whole = msgspec.to_builtins(Config(model=Model(default="m", base_url="http://x")))
    assert changed_settings(whole) == {"model": {"default": "m", "base_url": "http://x"}}
    assert changed_settings({"model": "m"}) == {"model": "m"}
    assert changed_settings({"model": ""}) == {}
