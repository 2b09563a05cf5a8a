"""Telegram's own list of commands: which ones come first."""

import pytest

from hermes.channels.telegram import CommandMenu, TelegramOptions
from hermes.channels.telegram.command_menu import menu_entries

COMMANDS = [(name, f"What {name} does") for name in ("alias", "model", "new", "title", "voice")]


def names(**menu: object) -> list[str]:
    options = TelegramOptions(command_menu=CommandMenu(**menu))
    return [entry["command"] for entry in menu_entries(COMMANDS, options)]


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("prepend", ["voice", "new", "model", "alias", "title"]),
        ("append", ["new", "model", "voice", "alias", "title"]),
        ("replace", ["voice", "alias", "model", "new", "title"]),
    ],
)
def test_mode_decides_where_the_named_commands_stand(mode: str, expected: list[str]) -> None:
    assert names(priority=("/voice",), priority_mode=mode) == expected


def test_command_that_is_named_twice_keeps_its_first_place() -> None:
    assert names(priority=("model", "alias", "model"))[:3] == ["model", "alias", "new"]


def test_commands_that_people_need_most_survive_a_short_menu() -> None:
    assert names(max_commands=2) == ["new", "model"]
