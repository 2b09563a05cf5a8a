"""Generate completion scripts from the argument parsers of all commands."""

from argparse import SUPPRESS, Action, ArgumentParser
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import cast

from msgspec import Struct

from hermes.cli.main import VERBS

_KINDS = {
    "FILE": "file",
    "PATH": "file",
    "DIR": "folder",
    "ID": "session",
    "PROFILE": "profile",
}


_KIND_BY_ARGUMENT = {
    ("hermes chat", "continue_session"): "session",
    ("hermes profile create", "clone"): "profile",
    ("hermes profile use", "name"): "profile",
    ("hermes profile show", "name"): "profile",
    ("hermes profile delete", "name"): "profile",
    ("hermes profile rename", "name"): "profile",
    ("hermes chat", "provider"): "provider",
    ("hermes model", "provider"): "provider",
    ("hermes setup", "provider"): "provider",
    ("hermes auth add", "provider"): "provider",
    ("hermes auth list", "provider"): "provider",
    ("hermes auth remove", "provider"): "provider",
    ("hermes auth reset", "provider"): "provider",
    ("hermes auth status", "provider"): "provider",
    ("hermes tools enable", "names"): "toolset",
    ("hermes tools disable", "names"): "toolset",
    ("hermes config get", "key"): "setting",
    ("hermes config set", "key"): "setting",
    ("hermes config unset", "key"): "setting",
}
"""Kinds of arguments that cannot be derived from the metavar."""


class Flag(Struct, frozen=True):
    """`value` is the kind of its value, empty for a switch; a leading `?` makes it optional."""

    names: tuple[str, ...]
    summary: str
    value: str = ""


class CommandNode(Struct, frozen=True, kw_only=True):
    """A command or action; `arguments` are kinds, and `repeats` applies to the last one.

    A kind is `file`, `folder`, `session`, `profile`, `provider`, `toolset`, `setting`, `any`, or
    `=` followed by the choices.
    """

    summary: str
    flags: tuple[Flag, ...]
    arguments: tuple[str, ...] = ()
    repeats: bool = False
    children: "Mapping[str, CommandNode]"


_PROFILE = Flag(("-p", "--profile"), "use this profile", "profile")
_VERSION = Flag(("-V", "--version"), "print the version")
_HELP = Flag(("-h", "--help"), "show help")


def command_tree() -> CommandNode:
    """The tree of all commands; `hermes` itself has the flags of `chat`, its default."""
    verbs = {name: _verb(name, summary) for name, summary in VERBS.items()}
    flags = (*verbs["chat"].flags, _VERSION)
    return CommandNode(summary="", flags=flags, children=verbs)


def walk_tree(node: CommandNode, path: str = "hermes") -> Iterator[tuple[str, CommandNode]]:
    """Yield every node with the words that lead to it."""
    yield path, node
    for name, child in node.children.items():
        yield from walk_tree(child, f"{path} {name}")


def _verb(name: str, summary: str) -> CommandNode:
    module = f"hermes.cli.verbs.{name}"
    if find_spec(module) is None:
        return CommandNode(summary=summary, flags=(_HELP, _PROFILE), children={})
    parser = ArgumentParser(prog=f"hermes {name}")
    import_module(module).add_arguments(parser)
    return _node(parser, summary)


def _node(parser: ArgumentParser, summary: str) -> CommandNode:
    flags: list[Flag] = []
    arguments: list[str] = []
    repeats = False
    children: dict[str, CommandNode] = {}
    for action in _argparse_actions(parser, "_actions"):
        if action.help == SUPPRESS:
            continue
        if action.option_strings:
            value = _value(action, parser.prog)
            flags.append(Flag(tuple(action.option_strings), _summary(action), value))
        elif isinstance(action.choices, dict):
            children.update(_children(action))
        else:
            arguments.append(_kind(action, parser.prog))
            repeats = action.nargs in ("*", "+")
    flags.append(_PROFILE)
    return CommandNode(
        summary=summary,
        flags=tuple(flags),
        arguments=tuple(arguments),
        repeats=repeats,
        children=children,
    )


def _children(action: Action) -> Iterator[tuple[str, CommandNode]]:
    parsers = cast("dict[str, ArgumentParser]", action.choices)
    summaries = {
        choice.dest: choice.help or "" for choice in _argparse_actions(action, "_choices_actions")
    }
    for name, parser in parsers.items():
        if name in summaries:
            yield name, _node(parser, summaries[name])


def _argparse_actions(owner: ArgumentParser | Action, name: str) -> list[Action]:
    # argparse has no public accessor for these.
    return cast("list[Action]", vars(owner)[name])


def _value(action: Action, prog: str) -> str:
    if action.nargs == 0:
        return ""
    return ("?" if action.nargs == "?" else "") + _kind(action, prog)


def _kind(action: Action, prog: str) -> str:
    if action.choices is not None:
        return "=" + " ".join(str(choice) for choice in action.choices)
    metavar = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    return _KIND_BY_ARGUMENT.get((prog, action.dest)) or _KINDS.get(metavar, "any")


def _summary(action: Action) -> str:
    text = action.help or ""
    return text % vars(action) if "%" in text else text


TableRow = tuple[str, Sequence[str]]
"""The words to match (a trailing star matches anything) and the lines to print."""


class _Dialect(Struct, frozen=True):
    quote: Callable[[str], str]
    row: Callable[[str, str], str]
    star: str


def script(shell: str) -> str:
    """The completion script; names and summaries in it are separated by a bar."""
    text = (Path(__file__).parent / f"hermes.{shell}").read_text(encoding="utf-8")
    nodes = list(walk_tree(command_tree()))
    dialect = _FISH if shell == "fish" else _POSIX
    for name, table in _TABLES.items():
        rows = "".join(
            _render_row(row, dialect) for path, node in nodes for row in table(path, node)
        )
        text = text.replace(f"@{name}@\n", rows)
    return text


def _node_rows(path: str, node: CommandNode) -> Iterator[TableRow]:
    """Mark the words that form a command or action."""
    yield path, ["yes"]


def _value_rows(path: str, node: CommandNode) -> Iterator[TableRow]:
    """The kinds of flag values."""
    for flag in node.flags:
        for name in flag.names:
            if flag.value:
                yield f"{path} {name}", [flag.value]


def _word_rows(path: str, node: CommandNode) -> Iterator[TableRow]:
    """The kind of each positional argument."""
    for number, kind in enumerate(node.arguments):
        yield f"{path} {number}", [kind]
    if node.repeats:
        yield f"{path} *", [node.arguments[-1]]


def _verb_rows(path: str, node: CommandNode) -> Iterator[TableRow]:
    if node.children:
        yield path, [f"{name}|{child.summary}" for name, child in node.children.items()]


def _flag_rows(path: str, node: CommandNode) -> Iterator[TableRow]:
    yield path, [f"{name}|{flag.summary}" for flag in node.flags for name in flag.names]


_TABLES: dict[str, Callable[[str, CommandNode], Iterator[TableRow]]] = {
    "commands": _node_rows,
    "values": _value_rows,
    "words": _word_rows,
    "verbs": _verb_rows,
    "flags": _flag_rows,
}


def _render_row(row: TableRow, dialect: _Dialect) -> str:
    words, lines = row
    pattern = dialect.quote(words.removesuffix("*")) + (dialect.star if words[-1] == "*" else "")
    return dialect.row(pattern, " ".join(map(dialect.quote, lines)))


def _posix_quote(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _fish_quote(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


_POSIX = _Dialect(
    _posix_quote, lambda match, out: f"        {match}) printf '%s\\n' {out} ;;\n", "*"
)
_FISH = _Dialect(
    _fish_quote,
    lambda match, out: f"        case {match}\n            printf '%s\\n' {out}\n",
    "'*'",
)
