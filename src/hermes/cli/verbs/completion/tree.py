"""All verbs, their actions and flags, as one tree read from their own parsers."""

from argparse import SUPPRESS, Action, ArgumentParser
from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec
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


_BY_PLACE = {
    ("hermes chat", "go_on"): "session",
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
"""Where the name of the value does not say what it is."""


class Flag(Struct, frozen=True):
    """`value` is empty for a switch; a leading `?` says that the value may be missing."""

    names: tuple[str, ...]
    summary: str
    value: str = ""


class Node(Struct, frozen=True, kw_only=True):
    """A place on the command line. `words` are the kinds of what follows; `more` repeats the last.

    A kind is `file`, `folder`, `session`, `profile`, `provider`, `toolset`, `setting`, `any`, or
    `=` and the words to choose from.
    """

    summary: str
    flags: tuple[Flag, ...]
    words: tuple[str, ...] = ()
    more: bool = False
    children: "Mapping[str, Node]"


_PROFILE = Flag(("-p", "--profile"), "use this profile", "profile")
_VERSION = Flag(("-V", "--version"), "print the version")
_HELP = Flag(("-h", "--help"), "show help")


def whole_tree() -> Node:
    """The command itself has the flags of `chat`, which is what it does alone."""
    verbs = {name: _verb(name, summary) for name, summary in VERBS.items()}
    flags = (*verbs["chat"].flags, _VERSION)
    return Node(summary="", flags=flags, children=verbs)


def places(node: Node, path: str = "hermes") -> Iterator[tuple[str, Node]]:
    """Every node under the words that lead to it."""
    yield path, node
    for name, child in node.children.items():
        yield from places(child, f"{path} {name}")


def _verb(name: str, summary: str) -> Node:
    module = f"hermes.cli.verbs.{name}"
    if find_spec(module) is None:
        return Node(summary=summary, flags=(_HELP, _PROFILE), children={})
    parser = ArgumentParser(prog=f"hermes {name}")
    import_module(module).add_arguments(parser)
    return _node(parser, summary)


def _node(parser: ArgumentParser, summary: str) -> Node:
    flags: list[Flag] = []
    words: list[str] = []
    more = False
    children: dict[str, Node] = {}
    for action in _inside(parser, "_actions"):
        if action.help == SUPPRESS:
            continue
        if action.option_strings:
            value = _value(action, parser.prog)
            flags.append(Flag(tuple(action.option_strings), _summary(action), value))
        elif isinstance(action.choices, dict):
            children.update(_children(action))
        else:
            words.append(_kind(action, parser.prog))
            more = action.nargs in ("*", "+")
    flags.append(_PROFILE)
    return Node(
        summary=summary, flags=tuple(flags), words=tuple(words), more=more, children=children
    )


def _children(action: Action) -> Iterator[tuple[str, Node]]:
    parsers = cast("dict[str, ArgumentParser]", action.choices)
    summaries = {each.dest: each.help or "" for each in _inside(action, "_choices_actions")}
    for name, parser in parsers.items():
        if name in summaries:
            yield name, _node(parser, summaries[name])


def _inside(owner: ArgumentParser | Action, name: str) -> list[Action]:
    # argparse has no public way to ask what was added to a parser.
    return cast("list[Action]", vars(owner)[name])


def _value(action: Action, prog: str) -> str:
    if action.nargs == 0:
        return ""
    return ("?" if action.nargs == "?" else "") + _kind(action, prog)


def _kind(action: Action, prog: str) -> str:
    if action.choices is not None:
        return "=" + " ".join(str(choice) for choice in action.choices)
    metavar = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    return _BY_PLACE.get((prog, action.dest)) or _KINDS.get(metavar, "any")


def _summary(action: Action) -> str:
    text = action.help or ""
    return text % vars(action) if "%" in text else text
