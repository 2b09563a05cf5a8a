"""From a typed line to its command: names, aliases, help, and what is no command at all."""

import pytest

from hermes.commands.command import Command, CommandContext, CommandReply, TextReply
from hermes.commands.registry import LINE_WIDTH, Registry, is_command, standard_commands
from hermes.schema.errors import UsageError


@pytest.mark.parametrize(
    "line",
    ["/help", "/?", " /help ", "/model gpt --global", "/undo\t2", "/title\nCats", "/HELP", "/a-b"],
)
def test_commands(line: str) -> None:
    assert is_command(line)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "/",
        "//",
        "/ help",
        "help",
        "/etc/hosts",
        "/etc/hosts is broken",
        "/home/ann/",
        "//server/share",
        "/2",
        "/24 is a small network",
        "/.bashrc",
        "/notes.txt",
        "/*.py",
        "/help/me",
        "what does /help do",
        "/...",
        "/-v",
    ],
)
def test_ordinary_text(line: str) -> None:
    assert not is_command(line)


def test_every_command_says_what_it_does() -> None:
    registry = standard_commands()
    text = registry.help()
    for command in registry.commands:
        assert command.summary.endswith(".")
        assert f"/{command.name}" in text
        assert registry.find(command.name.upper()) is command
        assert command.summary in registry.help(f"/{command.name}")
        for alias in command.aliases:
            assert registry.find(alias) is command
            assert f"/{alias}" in registry.help(alias)
    assert {"help", "new", "reset", "quit", "exit", "undo"} <= set(registry.names)


def test_the_list_is_in_order_and_aligned() -> None:
    lines = standard_commands().help().splitlines()
    calls = [line for line in lines if line.startswith("  /")]
    assert calls == sorted(calls)
    assert len(calls) == len(standard_commands().commands)
    assert max(map(len, lines)) <= LINE_WIDTH, "a small terminal shows it whole"


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ("hepl", "Did you mean /help?"),
        ("modle", "Did you mean /model?"),
        ("ResumE1", "Did you mean /resume?"),
        ("tmp", "/help lists them all."),
        ("", "/help lists them all."),
    ],
)
def test_a_mistyped_name_gets_a_hint(typed: str, hint: str) -> None:
    with pytest.raises(UsageError) as unknown:
        standard_commands().find(typed)
    assert f"/{typed}" in str(unknown.value)
    assert unknown.value.hint == hint


async def _nothing(context: CommandContext, words: str) -> CommandReply:
    return TextReply(words)


def test_two_commands_cannot_share_a_name() -> None:
    one = Command(name="one", summary="One.", run=_nothing)
    other = Command(name="other", aliases=("one",), summary="Other.", run=_nothing)
    with pytest.raises(ValueError, match="/one"):
        Registry([one, other])
