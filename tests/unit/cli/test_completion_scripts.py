"""Completion scripts contain all commands, actions and flags."""

import io
import re
import subprocess
from shlex import quote

import pytest

from hermes.cli.arguments import build_parser
from hermes.cli.arguments.agent import SHELLS
from hermes.cli.context import CliContext
from hermes.cli.main import VERBS
from hermes.cli.verbs.completion import (
    CommandNode,
    command_tree,
    run,
    script,
    walk_tree,
)
from hermes.config.env import Env
from hermes.kit.errors import UsageError

NODES = dict(walk_tree(command_tree()))


def complete(*words: str) -> str:
    context = CliContext(Env(), None, (io.StringIO(), io.StringIO(), io.StringIO()))
    assert run(build_parser("completion").parse_args(words), context) == 0
    return context.stdout.getvalue()


def flags(node: CommandNode) -> dict[str, str]:
    return {name: flag.value for flag in node.flags for name in flag.names}


def test_every_command_is_in_the_tree() -> None:
    assert list(NODES["hermes"].children) == list(VERBS)


def test_tree_contains_actions_flags_and_value_kinds() -> None:
    assert "export" in NODES["hermes sessions"].children
    export = NODES["hermes sessions export"]
    assert (export.arguments, export.repeats) == (("session",), True)
    assert flags(export)["--format"] == "=jsonl md html"
    assert flags(export)["-o"] == "file"
    assert flags(export)["--all"] == ""
    assert flags(export)["--profile"] == "profile"
    assert flags(NODES["hermes"])["-c"] == "?session"
    assert flags(NODES["hermes chat"])["--cwd"] == "folder"
    assert NODES["hermes completion"].arguments == ("=bash zsh fish",)
    assert NODES["hermes profile use"].arguments == ("profile",)
    assert flags(NODES["hermes setup"])["--provider"] == "provider"
    assert NODES["hermes config set"].arguments == ("setting", "any")
    assert (NODES["hermes tools enable"].arguments, NODES["hermes tools enable"].repeats) == (
        ("toolset",),
        True,
    )


def test_known_names_are_listed() -> None:
    assert {"ollama", "custom"} <= set(complete("--names", "provider").split())
    assert {"terminal", "memory"} <= set(complete("--names", "toolset").split())
    settings = complete("--names", "setting").split()
    assert "display.busy_input_mode" in settings
    assert not {"display", "worktree"} & set(settings)


@pytest.mark.parametrize("shell", SHELLS)
def test_script_handles_every_value_kind(shell: str) -> None:
    kinds = {kind for node in NODES.values() for kind in node.arguments}
    kinds |= {flag.value.lstrip("?") for node in NODES.values() for flag in node.flags}
    named = {kind for kind in kinds if kind and kind[0] != "="} - {"any"}
    assert named == {"file", "folder", "profile", "session", "provider", "toolset", "setting"}
    case = r"^        case ([a-z ]+)$" if shell == "fish" else r"^        ([a-z |]+)\)"
    cases = re.findall(case, script(shell), re.MULTILINE)
    assert named <= {word for case in cases for word in case.replace("|", " ").split()}


def test_hidden_flags_are_not_completed() -> None:
    assert "--sessions" not in flags(NODES["hermes completion"])
    assert "--source" not in flags(NODES["hermes chat"])


@pytest.mark.parametrize("shell", SHELLS)
def test_script_contains_every_command_and_flag(shell: str) -> None:
    text = complete(shell)
    assert not re.search(r"^@\w+@$", text, re.MULTILINE)
    for path, node in NODES.items():
        assert f"'{path}'" in text
        for flag in node.flags:
            for name in flag.names:
                assert f"'{name}|" in text
    assert "'hermes sessions export --format'" in text
    assert "'=jsonl md html'" in text


@pytest.mark.parametrize("shell", SHELLS)
def test_quotes_in_summaries_are_escaped(shell: str) -> None:
    ends = {"fish": r"\\'", "bash": r"'\\''", "zsh": r"'\\''"}[shell]
    for line in script(shell).splitlines():
        if "printf" in line and "|" in line:
            assert re.sub(ends, "", line).count("'") % 2 == 0


def test_fish_script_blocks_are_balanced() -> None:
    opened = closed = 0
    for line in script("fish").splitlines():
        word = line.strip().split(" ", 1)[0]
        opened += word in {"function", "switch", "for", "if"}
        closed += word == "end"
    assert opened == closed > 0


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_every_table_is_a_complete_case_statement(shell: str) -> None:
    lines = [line.strip() for line in script(shell).splitlines()]
    assert sum(line.startswith("case ") for line in lines) == lines.count("esac")
    assert lines.count('case "$1" in') >= 5


def rows_of_tree() -> dict[tuple[str, str], list[str]]:
    """The expected lines of each table, by table name and matched words."""
    rows: dict[tuple[str, str], list[str]] = {}
    for path, node in NODES.items():
        rows["is_command", path] = ["yes"]
        rows["flags", path] = [f"{n}|{flag.summary}" for flag in node.flags for n in flag.names]
        if node.children:
            rows["verbs", path] = [f"{name}|{one.summary}" for name, one in node.children.items()]
        for flag in node.flags:
            for name in flag.names:
                if flag.value:
                    rows["value", f"{path} {name}"] = [flag.value]
        for number, kind in enumerate(node.arguments):
            rows["word", f"{path} {number}"] = [kind]
        if node.repeats:
            rows["word", f"{path} 17"] = [node.arguments[-1]]
    return rows


@pytest.mark.slow
def test_zsh_tables_match_the_tree() -> None:
    """Bash evaluates the zsh tables, because zsh may not be installed."""
    tables = re.findall(
        r"^_hermes_\w+\(\) \{\n    case \"\$1\" in\n.*?^\}", script("zsh"), re.DOTALL | re.MULTILINE
    )
    assert len(tables) >= 5
    rows = rows_of_tree()
    calls = "".join(f"_hermes_{table} {quote(words)}\necho --\n" for table, words in rows)
    unknown = "_hermes_verbs 'hermes nonsense'\n"
    done = subprocess.run(
        ["bash"], input="\n".join(tables) + "\n" + calls + unknown, capture_output=True, text=True,
        check=True, timeout=60,
    )  # fmt: skip
    assert done.stderr == ""
    answers = re.split(r"^--\n", done.stdout, flags=re.MULTILINE)
    assert [one.splitlines() for one in answers] == [*rows.values(), []]


def test_fish_tables_match_the_tree() -> None:
    answers: dict[tuple[str, str], list[str]] = {}
    table = words = ""
    for line in script("fish").splitlines():
        if found := re.fullmatch(r"function __hermes_(\w+)", line):
            table = found[1]
        elif found := re.fullmatch(r"        case ('.*')", line):
            (words,) = fish_words(found[1])
        elif line.startswith("            printf '%s\\n' "):
            answers[table, words] = fish_words(line.strip().removeprefix("printf '%s\\n' "))
    for (name, question), rows in rows_of_tree().items():
        known = answers.get((name, question)) or answers.get(
            (name, question.rpartition(" ")[0] + " *")
        )
        assert known == rows, (name, question)
    assert ("verbs", "hermes nonsense") not in answers


def fish_words(text: str) -> list[str]:
    """Split like fish, where single quotes allow only escaped quotes and backslashes."""
    found = re.findall(r"((?:'(?:[^'\\]|\\.)*')+)(?: |$)", text)
    assert " ".join(found) == text
    inside = ["".join(re.findall(r"'((?:[^'\\]|\\.)*)'", one)) for one in found]
    return [re.sub(r"\\([\\'])", r"\1", one) for one in inside]


def test_missing_shell_argument_is_an_error() -> None:
    with pytest.raises(UsageError, match="bash, zsh or fish") as caught:
        complete()
    assert 'eval "$(hermes completion bash)"' in caught.value.hint
