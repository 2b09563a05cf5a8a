"""What the completion scripts are made of: the verbs, actions and flags that really exist."""

import io
import re
from argparse import ArgumentParser

import pytest

from hermes.cli.context import CliContext
from hermes.cli.main import VERBS
from hermes.cli.verbs.completion import SHELLS, add_arguments, run
from hermes.cli.verbs.completion.scripts import script
from hermes.cli.verbs.completion.tree import Node, places, whole_tree
from hermes.config.env import Env
from hermes.kit.errors import UsageError

PLACES = dict(places(whole_tree()))


def complete(*words: str) -> str:
    parser = ArgumentParser(prog="hermes completion")
    add_arguments(parser)
    context = CliContext(Env(), None, (io.StringIO(), io.StringIO(), io.StringIO()))
    assert run(parser.parse_args(words), context) == 0
    return context.stdout.getvalue()


def flags(node: Node) -> dict[str, str]:
    return {name: flag.value for flag in node.flags for name in flag.names}


def test_every_verb_is_a_place() -> None:
    assert list(PLACES["hermes"].children) == list(VERBS)


def test_the_tree_knows_actions_flags_and_what_follows_them() -> None:
    assert "export" in PLACES["hermes sessions"].children
    export = PLACES["hermes sessions export"]
    assert (export.words, export.more) == (("session",), True)
    assert flags(export)["--format"] == "=jsonl md html"
    assert flags(export)["-o"] == "file"
    assert flags(export)["--all"] == ""
    assert flags(export)["--profile"] == "profile"
    assert flags(PLACES["hermes"])["-c"] == "?session"
    assert flags(PLACES["hermes chat"])["--cwd"] == "folder"
    assert PLACES["hermes completion"].words == ("=bash zsh fish",)
    assert PLACES["hermes profile use"].words == ("profile",)


def test_hidden_flags_stay_hidden() -> None:
    assert "--sessions" not in flags(PLACES["hermes completion"])
    assert "--source" not in flags(PLACES["hermes chat"])


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_names_every_place_and_flag(shell: str) -> None:
    text = complete(shell)
    assert not re.search(r"^@\w+@$", text, re.MULTILINE)
    for path, node in PLACES.items():
        assert f"'{path}'" in text
        for flag in node.flags:
            for name in flag.names:
                assert f"'{name}|" in text
    assert "'hermes sessions export --format'" in text
    assert "'=jsonl md html'" in text


@pytest.mark.parametrize("shell", SHELLS)
def test_quotes_in_summaries_do_not_end_a_string(shell: str) -> None:
    ends = {"fish": r"\\'", "bash": r"'\\''", "zsh": r"'\\''"}[shell]
    for line in script(shell).splitlines():
        if "printf" in line and "|" in line:
            assert re.sub(ends, "", line).count("'") % 2 == 0


def test_the_fish_script_closes_what_it_opens() -> None:
    opened = closed = 0
    for line in script("fish").splitlines():
        word = line.strip().split(" ", 1)[0]
        opened += word in {"function", "switch", "for", "if"}
        closed += word == "end"
    assert opened == closed > 0


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_every_table_is_a_whole_case(shell: str) -> None:
    lines = [line.strip() for line in script(shell).splitlines()]
    assert sum(line.startswith("case ") for line in lines) == lines.count("esac")
    assert lines.count('case "$1" in') >= 5


def test_a_shell_must_be_named() -> None:
    with pytest.raises(UsageError, match="bash, zsh or fish") as caught:
        complete()
    assert 'eval "$(hermes completion bash)"' in caught.value.hint
