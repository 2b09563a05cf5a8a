"""The `hermes` command: find the subcommand and run it, importing only its module."""

import sys

if sys.version_info < (3, 11):  # noqa: UP036 - before syntax an old Python rejects
    sys.exit(
        "hermes: Hermes needs Python 3.11 or newer, but this is Python "
        f"{sys.version_info[0]}.{sys.version_info[1]}.\n"
        "  Reinstall it with a newer version: make PYTHON=python3.12 run"
    )

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


VERBS = {
    "chat": "Chat with the agent (the default command).",
    "setup": "Choose a model and store its key.",
    "status": "Show an overview of models, gateway, channels and sessions.",
    "doctor": "Check the installation and suggest fixes.",
    "logs": "Show or follow the logs.",
    "sessions": "List, search, show, export and delete sessions.",
    "memory": "Show what the agent remembers, and review or undo changes.",
    "skills": "List, install, update and review skills.",
    "bundles": "Group several skills under one name.",
    "tools": "Enable or disable tools, for all platforms or one.",
    "mcp": "Connect MCP servers that add tools.",
    "hooks": "Run your own programs on agent events.",
    "model": "List available models and choose one.",
    "auth": "Manage keys and logins for model providers.",
    "config": "Show and change settings.",
    "profile": "Manage profiles, each with its own home.",
    "gateway": "Run the agent for chat apps, the API and webhooks.",
    "dashboard": "Open Hermes in your browser.",
    "cron": "Schedule jobs that run without you.",
    "kanban": "Manage boards of tasks that agents and people work on.",
    "send": "Send a message to a chat.",
    "pairing": "Approve people who message the agent, or revoke access.",
    "people": "Link the accounts of a person on several chat apps.",
    "webhook": "Let other programs trigger the agent over HTTP.",
    "slack": "Print the manifest of the Slack app.",
    "completion": "Print a shell completion script for bash, zsh or fish.",
    "version": "Print the version.",
}

_CHAT_FLAGS = """\
  -z, --oneshot PROMPT   answer one prompt and print only the answer
  -q, --query PROMPT     answer one prompt and show the steps
  -c, --continue [NAME]  continue the last session, or the named one
  -r, --resume ID        continue this session
  -m, --model NAME       use this model
      --provider NAME    use this provider
  -t, --toolsets A,B     use only these toolsets
  -p, --profile NAME     use this profile
  -h, --help             show help
  -V, --version          print the version"""

_FLAGS_WITH_VALUE = {
    "--oneshot": "-z", "--query": "-q", "--model": "-m", "--provider": "", "--toolsets": "-t",
    "--resume": "-r", "--usage-file": "", "--image": "", "--max-turns": "", "--source": "",
    "--cwd": "", "--profile": "-p",
}  # fmt: skip
"""Chat flags that take a value, with their short names."""

_LONG_NAMES = {
    name: long for long, short in _FLAGS_WITH_VALUE.items() for name in (short or long, long)
}
_GC_THRESHOLD = 20_000
"""Imports create many objects and no garbage: Python's default scans them again and again."""
_FLAGS_WITHOUT_VALUE = {
    "-c", "--continue", "-Q", "--quiet", "--json", "-h", "--help", "-V", "--version", "--",
}  # fmt: skip
_FLAGS = _FLAGS_WITHOUT_VALUE | _LONG_NAMES.keys()


def main(argv: "Sequence[str] | None" = None) -> int:
    """Run one command line; return the exit code."""
    from hermes.cli.boundary import run_guarded

    words = list(sys.argv[1:] if argv is None else argv)
    code = run_guarded(_dispatch, words)
    if argv is None:
        import gc

        gc.freeze()  # the process is ending: final collections would only waste time
    return code


def _dispatch(words: list[str]) -> int:
    """Find the command in the words, and run it with its parsed arguments."""
    profile, words = _take_profile(words)
    if words in (["--version"], ["-V"]) or words[:1] == ["version"]:
        return _print_version()
    if words[:1] == ["help"]:
        words = [*words[1:2], "--help"]
    if words in (["--help"], ["-h"]):
        return _print_help()
    verb, rest = _take_verb(words)
    from hermes.cli.context import CliContext
    from hermes.config.env import Env, process_env
    from hermes.schema.errors import HermesError

    context = CliContext(Env(process_env()), profile)
    try:
        import gc
        from importlib import import_module

        from hermes.cli.arguments import build_parser

        gc.set_threshold(_GC_THRESHOLD)
        args = build_parser(verb).parse_args(rest)
        return import_module(f"hermes.cli.verbs.{verb}").run(args, context)
    except HermesError as error:
        error.hint = context.with_profile(error.hint)
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
        "Run `hermes COMMAND --help` for details and `hermes chat --help` for all flags.\n"
        "Text piped to hermes is added to the prompt.\n"
    )
    return 0


def _flag_groups(words: list[str]) -> "Iterator[list[str]]":
    """Yield flags with their values, single words, and finally `--` with everything after it."""
    index = 0
    while index < len(words):
        word = words[index]
        if word == "--":
            yield words[index:]
            return
        following = words[index + 1 : index + 2]
        has_value = word in _LONG_NAMES and following and following[0] not in _FLAGS
        yield words[index : index + 2] if has_value else [word]
        index += 2 if has_value else 1


def _take_profile(words: list[str]) -> tuple[str | None, list[str]]:
    """Split off `-p NAME`, which is accepted anywhere before a `--`."""
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
    """Split off the command: the first word that is not a flag, or `chat` if there is none."""
    index = 0
    before = ""
    flags: list[str] = []
    for group in _flag_groups(words):
        if not group[0].startswith("-"):
            break
        index += len(group)
        before = group[0]
        flags.append(before)
        if before == "--":
            return "chat", _join_dash_values(words)
    if index >= len(words):
        return "chat", _join_dash_values(words)
    verb = words[index]
    if verb in VERBS:
        rest = words[:index] + words[index + 1 :]
        return verb, _join_dash_values(rest) if verb == "chat" else rest
    if before in {"-c", "--continue"}:
        return "chat", _join_dash_values(words)
    raise _unknown_flag(flags) or _unknown_verb(verb, words[index:])


def _join_dash_values(words: list[str]) -> list[str]:
    """Write `--flag=-value` for values that begin with a dash, as argparse requires."""
    joined: list[str] = []
    for group in _flag_groups(words):
        if len(group) == 2 and group[0] in _LONG_NAMES and group[1].startswith("-"):
            joined.append(f"{_LONG_NAMES[group[0]]}={group[1]}")
        else:
            joined += group
    return joined


def _unknown_flag(flags: list[str]) -> Exception | None:
    """The error for a mistyped flag, whose value would otherwise be taken for a command."""
    unknown = [flag for flag in flags if flag.partition("=")[0] not in _FLAGS]
    if not unknown:
        return None
    from hermes.cli.arguments import build_parser
    from hermes.cli.parser import flags_of, no_such_flag

    parser = build_parser("chat")
    known = [*flags_of(parser), *_FLAGS]
    for flag in unknown:
        if flag.partition("=")[0] not in known and (flag.startswith("--") or len(flag) == 2):
            return no_such_flag(flag, known, parser.prog)
    return None


def _unknown_verb(verb: str, words: list[str]) -> Exception:
    from difflib import get_close_matches

    from hermes.schema.errors import UsageError

    is_prompt = " " in verb or len(words) > 1
    near = get_close_matches(verb, VERBS, n=1, cutoff=0.8 if is_prompt else 0.7)
    if near:
        hint = f"Did you mean `hermes {near[0]}`?"
    elif is_prompt:
        hint = f'To ask a question: hermes -z "{" ".join(words)}"'
    else:
        hint = "Run `hermes --help` for the list of commands."
    return UsageError(f"Unknown command: {verb!r}.", hint=hint)
