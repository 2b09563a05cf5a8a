"""Finding commands by name and alias, help, and text that is not a command."""

import pytest

from hermes.commands.command import Command, CommandContext
from hermes.commands.registry import LINE_WIDTH, Registry, is_command, standard_commands
from hermes.schema.errors import UsageError
from hermes.schema.terminal import CommandReply, TextReply
from support.cases import cases


@cases(
    "line",
    ["/help", "/?", " /help ", "/model gpt --global", "/undo\t2", "/title\nCats", "/HELP", "/a-b"],
)
def test_line_is_a_command(line: str) -> None:
    assert is_command(line)


@cases(
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
def test_line_is_ordinary_text(line: str) -> None:
    assert not is_command(line)


def test_every_command_has_a_summary() -> None:
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


def test_help_is_sorted_and_aligned() -> None:
    lines = standard_commands().help().splitlines()
    calls = [line for line in lines if line.startswith("  /")]
    assert calls == sorted(calls)
    assert len(calls) == len(standard_commands().commands)
    assert max(map(len, lines)) <= LINE_WIDTH, "a small terminal shows it whole"


@cases(
    ("typed", "hint"),
    [
        ("hepl", "Did you mean /help?"),
        ("modle", "Did you mean /model?"),
        ("ResumE1", "Did you mean /resume?"),
        ("tmp", "/help lists all commands."),
        ("", "/help lists all commands."),
    ],
)
def test_mistyped_name_gets_a_hint(typed: str, hint: str) -> None:
    with pytest.raises(UsageError) as unknown:
        standard_commands().find(typed)
    assert f"/{typed}" in str(unknown.value)
    assert unknown.value.hint == hint


async def _noop(context: CommandContext, args: str) -> CommandReply:
    return TextReply(args)


def test_two_commands_cannot_share_a_name() -> None:
    one = Command(name="one", summary="One.", run=_noop)
    other = Command(name="other", aliases=("one",), summary="Other.", run=_noop)
    with pytest.raises(ValueError, match="/one"):
        Registry([one, other])
