"""The `hermes` command: find the verb, load only its module, turn errors into exit codes."""

import sys

if sys.version_info < (3, 11):  # noqa: UP036 - said before anything that an old one cannot read
    sys.exit(
        f"hermes: This is Python {sys.version_info[0]}.{sys.version_info[1]}, and Hermes needs "
        "3.11 or newer.\n  Install it anew with a newer one: make PYTHON=python3.12 run"
    )

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hermes.cli.context import CliContext

VERBS = {
    "chat": "Talk to the agent; this is what `hermes` alone does.",
    "setup": "Choose a model and keep its key; run it again to change that.",
    "status": "Show on one screen how everything is.",
    "doctor": "Look for what is wrong, and say how to put it right.",
    "logs": "Read what was logged, or follow it.",
    "sessions": "List, search, show, export and tidy past sessions.",
    "memory": "See what the agent remembers, and undo what it should not.",
    "skills": "See, install and undo what the agent knows how to do.",
    "bundles": "Put several skills under one name, to be followed together.",
    "tools": "Choose which tools the agent is offered, and where.",
    "mcp": "Connect servers that bring more tools (Model Context Protocol).",
    "hooks": "Let programs of yours look on, and decide what the agent may do.",
    "model": "Show which models can be reached, and choose one.",
    "auth": "Keep keys and logins for model providers, several where you like.",
    "config": "Show and change settings.",
    "profile": "Keep several agents apart, each with a home of its own.",
    "gateway": "Keep the agent running for its API, webhooks and terminals.",
    "send": "Bring a text to a chat, from a script or by hand.",
    "pairing": "Let people who write from a channel in by a code, and out again.",
    "webhook": "Let other programs wake the agent by an HTTP call.",
    "completion": "Print a completion script for bash, zsh or fish.",
    "version": "Print the version.",
}

_CHAT_FLAGS = """\
  -z, --oneshot PROMPT   answer one prompt, print the answer and nothing else
  -q, --query PROMPT     answer one prompt, showing the work
  -c, --continue [NAME]  go on with the last session, or a named one
  -r, --resume ID        go on with this session
  -m, --model NAME       use this model
      --provider NAME    use this provider
  -t, --toolsets A,B     offer only these tools
  -p, --profile NAME     use this profile
  -h, --help             show help
  -V, --version          print the version"""

_FLAGS_WITH_VALUE = {
    "--oneshot": "-z", "--query": "-q", "--model": "-m", "--provider": "", "--toolsets": "-t",
    "--resume": "-r", "--usage-file": "", "--image": "", "--max-turns": "", "--source": "",
    "--cwd": "", "--profile": "-p",
}  # fmt: skip
"""The flags of a chat that take a value, with their short names."""

_LONG_NAMES = {short or name: name for name, short in _FLAGS_WITH_VALUE.items()} | {
    n: n for n in _FLAGS_WITH_VALUE
}
_FLAGS_WITHOUT_VALUE = {
    "-c",
    "--continue",
    "-Q",
    "--quiet",
    "--json",
    "-h",
    "--help",
    "-V",
    "--version",
    "--",
}


def main(argv: "Sequence[str] | None" = None) -> int:
    from hermes.cli.boundary import run_guarded

    words = list(sys.argv[1:] if argv is None else argv)
    return run_guarded(lambda: _dispatch(words))


def _dispatch(words: list[str]) -> int:
    profile, words = _take_profile(words)
    if words in (["--version"], ["-V"]) or words[:1] == ["version"]:
        return _print_version()
    if words[:1] == ["help"]:
        words = [*words[1:2], "--help"]
    if words in (["--help"], ["-h"]):
        return _print_help()
    verb, rest = _take_verb(words)
    from hermes.cli.context import make_context

    try:
        return _run_verb(verb, rest, make_context(profile))
    except Exception as error:
        if profile is not None:
            from hermes.cli.profile_hints import add_profile_to_hint

            add_profile_to_hint(error, profile)
        raise


def _print_version() -> int:
    from hermes import __version__

    sys.stdout.write(f"hermes {__version__}\n")
    return 0


def _print_help() -> int:
    width = max(map(len, VERBS))
    verbs = "\n".join(f"  {name:<{width}}  {summary}" for name, summary in VERBS.items())
    sys.stdout.write(
        "Usage: hermes [flags] [command]\n\n"
        "A personal AI agent. Without a command it starts a chat.\n\n"
        f"Commands:\n{verbs}\n\nFlags:\n{_CHAT_FLAGS}\n\n"
        "`hermes COMMAND --help` tells more, and `hermes chat --help` has all the flags.\n"
        "Text piped into hermes is added to the prompt.\n"
    )
    return 0


def _run_verb(verb: str, words: list[str], context: "CliContext") -> int:
    from importlib import import_module

    from hermes.cli.parser import Parser

    module = import_module(f"hermes.cli.verbs.{verb}")
    parser = Parser(prog=f"hermes {verb}", description=VERBS[verb])
    module.add_arguments(parser)
    return module.run(parser.parse_args(words), context)


def _flag_groups(words: list[str]) -> "Iterator[list[str]]":
    """Each flag with its value; a word; at last everything from `--` on."""
    place = 0
    while place < len(words):
        word = words[place]
        if word == "--":
            yield words[place:]
            return
        following = words[place + 1 : place + 2]
        takes = word in _LONG_NAMES and following and not _is_flag(following[0])
        yield words[place : place + 2] if takes else [word]
        place += 2 if takes else 1


def _is_flag(word: str) -> bool:
    return word in _FLAGS_WITHOUT_VALUE or word in _LONG_NAMES


def _take_profile(words: list[str]) -> tuple[str | None, list[str]]:
    """`-p NAME` may stand anywhere before a `--`, also behind the verb."""
    rest: list[str] = []
    profile: str | None = None
    for group in _flag_groups(words):
        if group[0] in {"-p", "--profile"}:
            profile = _profile_value(group)
        elif group[0].startswith("--profile="):
            profile = group[0].partition("=")[2]
        else:
            rest += group
    return profile, rest


def _profile_value(group: list[str]) -> str:
    if len(group) > 1:
        return group[1]
    from hermes.schema.errors import UsageError

    raise UsageError(f"{group[0]} needs a name.", hint="For example: hermes -p work")


def _take_verb(words: list[str]) -> tuple[str, list[str]]:
    """The first word that is no flag; none at all means a chat."""
    place = 0
    before = ""
    flags: list[str] = []
    for group in _flag_groups(words):
        if not group[0].startswith("-"):
            break
        place += len(group)
        before = group[0]
        flags.append(before)
        if before == "--":
            return "chat", _join_dash_values(words)
    if place >= len(words):
        return "chat", _join_dash_values(words)
    verb = words[place]
    if verb in VERBS:
        rest = words[:place] + words[place + 1 :]
        return verb, _join_dash_values(rest) if verb == "chat" else rest
    if before in {"-c", "--continue"}:
        return "chat", _join_dash_values(words)
    raise _unknown_flag(flags) or _unknown_verb(verb, words[place:])


def _join_dash_values(words: list[str]) -> list[str]:
    """A value that begins with a dash is tied to its flag, lest it be taken for one."""
    joined: list[str] = []
    for group in _flag_groups(words):
        if len(group) == 2 and group[0] in _LONG_NAMES and group[1].startswith("-"):
            joined.append(f"{_LONG_NAMES[group[0]]}={group[1]}")
        else:
            joined += group
    return joined


def _unknown_flag(flags: list[str]) -> Exception | None:
    """A mistyped flag leaves its value behind, which must not pass for a command."""
    strange = [one for one in flags if not _is_flag(one.partition("=")[0])]
    if not strange:
        return None
    from hermes.cli.parser import Parser, flags_of, no_such_flag
    from hermes.cli.verbs import chat

    parser = Parser(prog="hermes chat")
    chat.add_arguments(parser)
    known = [*flags_of(parser), *_LONG_NAMES, *_FLAGS_WITHOUT_VALUE]
    for flag in strange:
        if flag.partition("=")[0] not in known and (flag.startswith("--") or len(flag) == 2):
            return no_such_flag(flag, known, parser.prog)
    return None


def _unknown_verb(verb: str, words: list[str]) -> Exception:
    from difflib import get_close_matches

    from hermes.schema.errors import UsageError

    talks = " " in verb or len(words) > 1
    near = get_close_matches(verb, VERBS, n=1, cutoff=0.8 if talks else 0.7)
    if near:
        hint = f"Did you mean `hermes {near[0]}`?"
    elif talks:
        hint = f'To ask something: hermes -z "{" ".join(words)}"'
    else:
        hint = "`hermes --help` lists the commands."
    return UsageError(f"There is no command {verb!r}.", hint=hint)
