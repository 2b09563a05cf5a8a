"""`hermes completion`: print shell completion scripts and the names they complete."""

import re
from argparse import SUPPRESS, Action, ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast

from msgspec import Struct

from hermes.cli.arguments import GROUP_OF_VERB, build_parser
from hermes.cli.arguments.agent import INSTALL_HELP
from hermes.cli.context import CliContext
from hermes.cli.main import VERBS
from hermes.kit.terminal_text import single_line
from hermes.schema.errors import HermesError, UsageError

_MAX_SESSIONS = 200
_SAFE_ID = re.compile(r"[\w.-]+", re.ASCII)
"""Ids that need no quoting in any shell."""


def run(args: Namespace, context: CliContext) -> int:
    if args.sessions is not None:
        return _print_sessions(args.sessions, context)
    if args.names is not None:
        context.stdout.writelines(f"{name}\n" for name in _known_names(args.names))
        return 0
    if args.shell is None:
        raise UsageError("Choose a shell: bash, zsh or fish.", hint=INSTALL_HELP)
    context.stdout.write(script(args.shell))
    return 0


def _known_names(kind: str) -> Iterable[str]:
    """All names of a kind; settings without effect are omitted."""
    match kind:
        case "provider":
            from hermes.models.providers import CUSTOM, PROVIDERS

            return [provider.name for provider in (*PROVIDERS, CUSTOM)]
        case "toolset":
            from hermes.tools.catalog import known_toolsets

            return known_toolsets()
        case _:
            from hermes.config.setting_warnings import setting_names, unused_names

            return sorted(frozenset(setting_names()) - unused_names())


_KINDS = {
    "FILE": "file",
    "PATH": "file",
    "DIR": "folder",
    "ID": "session",
    "continue_session": "session",
    "PROFILE": "profile",
    "clone": "profile",
    "provider": "provider",
    "TOOLSET": "toolset",
}
"""Kinds of values by the argument's name or metavar."""
_KINDS_BY_COMMAND = {
    **{
        f"hermes profile {action} name": "profile" for action in ("use", "show", "delete", "rename")
    },
    **{f"hermes config {action} key": "setting" for action in ("get", "set", "unset")},
}


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
    if name not in GROUP_OF_VERB:
        return CommandNode(summary=summary, flags=(_HELP, _PROFILE), children={})
    return _node(build_parser(name), summary)


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
    known = _KINDS_BY_COMMAND.get(f"{prog} {action.dest}") or _KINDS.get(action.dest)
    return known or _KINDS.get(metavar, "any")


def _summary(action: Action) -> str:
    text = action.help or ""
    return text % vars(action) if "%" in text else text


TableRow = tuple[str, Sequence[str]]
"""The words to match (a trailing star matches anything) and the lines to print."""


class _Dialect(Struct, frozen=True):
    quote: Callable[[str], str]
    row: str
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
    return dialect.row.format(pattern, " ".join(map(dialect.quote, lines)))


def _posix_quote(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _fish_quote(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


_POSIX = _Dialect(_posix_quote, "        {0}) printf '%s\\n' {1} ;;\n", "*")
_FISH = _Dialect(_fish_quote, "        case {0}\n            printf '%s\\n' {1}\n", "'*'")


def _print_sessions(beginning: str, context: CliContext) -> int:
    """Print `id<TAB>title` for each session; nothing on errors."""
    import anyio

    from hermes.app.storage import open_archive
    from hermes.kit.clock import SystemClock
    from hermes.schema.scope import OWNER
    from hermes.schema.sessions import SessionFilter, SessionSummary

    async def recent_sessions() -> Sequence[SessionSummary]:
        home = context.home()
        if not home.has_sessions:
            return []
        async with open_archive(home, SystemClock()) as store:
            return await store.archive_for(OWNER).list(SessionFilter(), _MAX_SESSIONS)

    try:
        summaries = anyio.run(recent_sessions)
    except HermesError:
        # An error message would garble the command line being completed.
        return 1
    for summary in summaries:
        session = summary.session
        if session.id.startswith(beginning) and _SAFE_ID.fullmatch(session.id):
            context.print(f"{session.id}\t{single_line(session.title or summary.preview)}")
    return 0
