"""The arguments of the commands for chat, models, settings and diagnosis."""

from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError, RawDescriptionHelpFormatter
from collections.abc import Callable, Mapping

from hermes.cli.parser import add_action, add_actions, add_json_flag, add_switch, add_yes_flag

SHELLS = ("bash", "zsh", "fish")
NAME_KINDS = ("provider", "toolset", "setting")
"""Kinds of names that are completed without reading the home."""
INSTALL_HELP = """\
To enable it, add this line to your shell's configuration:
  bash   eval "$(hermes completion bash)"            in ~/.bashrc
  zsh    eval "$(hermes completion zsh)"             in ~/.zshrc, after compinit
  fish   hermes completion fish | source             in ~/.config/fish/config.fish"""
LOGS = {
    "agent": "everything",
    "errors": "only warnings and errors",
    "gateway": "output of a background gateway",
}
LEVELS = ("debug", "info", "warning", "error", "critical")


def _add_chat_arguments(parser: ArgumentParser) -> None:
    prompt = parser.add_argument_group("prompt (piped text is added to it)")
    prompt.add_argument("-z", "--oneshot", metavar="PROMPT", help="print only the answer")
    prompt.add_argument("-q", "--query", metavar="PROMPT", help="answer and show the steps")
    prompt.add_argument(
        "--image", metavar="PATH", action="append", default=[], help="attach an image; repeatable"
    )
    session = parser.add_argument_group("session")
    session.add_argument(
        "-c", "--continue", dest="continue_session", metavar="NAME", nargs="?", const="",
        help="continue the last session, or the one with this id or title",
    )  # fmt: skip
    session.add_argument("-r", "--resume", metavar="ID", help="continue this session")
    agent = parser.add_argument_group("agent")
    agent.add_argument("-m", "--model", metavar="NAME", help="model to use")
    agent.add_argument("--provider", metavar="NAME", help="provider to use")
    agent.add_argument("-t", "--toolsets", metavar="A,B", help="toolsets to use")
    agent.add_argument(
        "--max-turns", metavar="N", type=_step_count, help="maximum number of model calls per turn"
    )
    agent.add_argument("--cwd", metavar="DIR", help="working directory (default: current)")
    add_switch(agent, "--yolo", "skip all approvals")
    add_switch(agent, "--accept-hooks", "accept all configured hooks")
    agent.add_argument("--source", metavar="TAG", default="cli", help=SUPPRESS)
    out = parser.add_argument_group("output")
    out.add_argument("-Q", "--quiet", action="store_true", help="hide the steps")
    add_switch(out, "--plain", "line mode without escape codes")
    add_switch(out, "--cli", "line mode with colors")
    add_switch(out, "--tui", "full-screen mode")
    add_switch(out, "--json", "print each event as a line of JSON")
    out.add_argument("--usage-file", metavar="PATH", help="write tokens and cost as JSON")
    parser.epilog = (
        "Exit codes: 0 success, 1 failure, 2 usage error, 3 step limit reached, "
        "4 approval needed, 75 session in use, 78 configuration error, 130 interrupted."
    )


def _step_count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"{text!r} is not a number of steps")
    return int(text)


def _add_setup_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--provider", metavar="NAME", help="provider, such as openrouter, ollama or custom"
    )
    parser.add_argument("--model", metavar="NAME", help="model to use")
    add_switch(parser, "--force", "accept a model that the provider does not list")
    parser.add_argument("--base-url", metavar="URL", help="address of your own server")
    add_switch(parser, "--local", "download a small model that runs inside Hermes")
    key = parser.add_mutually_exclusive_group()
    key.add_argument(
        "--key-env", metavar="NAME", help="read the key from this environment variable"
    )
    add_switch(key, "--key-stdin", "read the key from stdin")
    parser.add_argument(
        "-y", "--yes", "--non-interactive", action="store_true",
        help="do not ask; use what is found, even if it cannot be reached now",
    )  # fmt: skip


def _add_model_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", help="model to use from now on")
    parser.add_argument(
        "--provider",
        metavar="NAME",
        help="provider of the model; without a name, list only this provider",
    )
    add_switch(parser, "--force", "accept a name that the provider does not list")
    add_switch(parser, "--all", "list every model")
    add_switch(parser, "--json", "print the list as JSON")


def _add_auth_arguments(parser: ArgumentParser) -> None:
    verbs = add_actions(parser)
    add = add_action(verbs, "add", "add a key or log in")
    add.add_argument("provider", help="provider, such as anthropic, openai or openrouter")
    add.add_argument("key", nargs="?", help="key (default: ask for it, or read it from stdin)")
    add.add_argument("--label", default="", metavar="NAME", help="label for the key")
    add_switch(add, "--oauth", "log in with a device code instead of a key")
    show = add_action(verbs, "list", "list the keys (masked) and their state")
    remove = add_action(verbs, "remove", "remove a key or login")
    remove.add_argument("provider", help="provider of the key")
    remove.add_argument("which", metavar="KEY", help="id, label, or number in `hermes auth list`")
    status = add_action(verbs, "status", "show which key is used next, and why")
    for listing in (show, status):
        listing.add_argument("provider", nargs="?", help="only this provider")
        add_json_flag(listing)
    reset = add_action(verbs, "reset", "make paused keys of a provider available again")
    reset.add_argument("provider", help="provider of the keys")


def _add_config_arguments(parser: ArgumentParser) -> None:
    verbs = add_actions(parser)
    show = add_action(verbs, "show", "print the effective settings, with secrets masked")
    show.add_argument("section", nargs="?", help="only this section, such as agent")
    add_switch(show, "--all", "include defaults")
    add_switch(show, "--json", "print JSON instead of YAML")
    listing = add_action(verbs, "list", "list settings and what they do")
    listing.add_argument("text", nargs="?", default="", help="only those that contain this text")
    add_json_flag(listing)
    get = add_action(verbs, "get", "print one setting")
    change = add_action(verbs, "set", "change a setting, or a variable such as OPENAI_API_KEY")
    unset = add_action(verbs, "unset", "reset a setting to its default")
    for action in (get, change, unset):
        action.add_argument("key", help="setting, such as agent.max_turns")
    add_json_flag(get)
    change.add_argument(
        "value",
        nargs="?",
        help="value: true, 12, [a, b] or text (default: ask for it, or read it from stdin)",
    )
    add_switch(change, "--force", "accept unknown settings")
    add_action(verbs, "path", "print the path of config.yaml")
    add_action(verbs, "env-path", "print the path of .env")
    add_action(verbs, "edit", "edit config.yaml in your editor; it is checked before saving")
    check = add_action(verbs, "check", "check the settings; exit code 78 if there are errors")
    add_switch(check, "--verbose", "list every setting that has no effect")


def _add_profile_arguments(parser: ArgumentParser) -> None:
    verbs = add_actions(parser)
    add_action(verbs, "list", "list all profiles; * marks the current one")
    create = add_action(verbs, "create", "create a profile")
    create.add_argument("name", help="name of the profile: lowercase letters, digits, - and _")
    create.add_argument(
        "--clone", metavar="FROM", nargs="?", const="",
        help="copy settings, model and tool keys, SOUL.md, skills and memory from a profile "
        "(default: the current one)",
    )  # fmt: skip
    add_switch(create, "--clone-all", "copy everything except history and runtime state")
    use = add_action(verbs, "use", "set the profile that is used without -p")
    use.add_argument("name", help="name of the profile")
    show = add_action(verbs, "show", "show a profile")
    show.add_argument("name", nargs="?", help="name of the profile (default: the current one)")
    delete = add_action(verbs, "delete", "delete a profile and everything in it")
    delete.add_argument("name", help="name of the profile")
    add_yes_flag(delete)
    rename = add_action(verbs, "rename", "rename a profile")
    rename.add_argument("name", help="current name")
    rename.add_argument("new", help="new name")


def _add_status_arguments(parser: ArgumentParser) -> None:
    add_json_flag(parser)


def _add_doctor_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--fix",
        nargs="?",
        const=True,
        default=False,
        metavar="ID",
        help="apply safe fixes: permissions, missing folders, stale locks; or the one with this id",
    )
    add_json_flag(parser)


def _add_logs_arguments(parser: ArgumentParser) -> None:
    which = ", ".join(f"{name} ({what})" for name, what in LOGS.items())
    parser.add_argument(
        "log",
        nargs="?",
        default="agent",
        choices=tuple(LOGS),
        help=f"log to show: {which} (default: agent)",
    )
    parser.add_argument(
        "-n",
        "--number",
        type=int,
        default=50,
        metavar="N",
        help="how many records to show (default: 50)",
    )
    parser.add_argument(
        "-f", "--follow", action="store_true", help="wait for new records until Ctrl+C"
    )
    parser.add_argument("--session", metavar="ID", help="only records about this session")
    parser.add_argument("--level", choices=LEVELS, help="minimum level")
    parser.add_argument("--since", metavar="TIME", help="only newer records: 2h, today or a date")


def _add_completion_arguments(parser: ArgumentParser) -> None:
    parser.formatter_class = RawDescriptionHelpFormatter
    parser.epilog = INSTALL_HELP
    parser.add_argument("shell", nargs="?", choices=SHELLS, help="shell to print the script for")
    parser.add_argument("--sessions", metavar="BEGINNING", help=SUPPRESS)
    parser.add_argument("--names", choices=NAME_KINDS, help=SUPPRESS)


ARGUMENTS: Mapping[str, Callable[[ArgumentParser], None]] = {
    "chat": _add_chat_arguments,
    "setup": _add_setup_arguments,
    "model": _add_model_arguments,
    "auth": _add_auth_arguments,
    "config": _add_config_arguments,
    "profile": _add_profile_arguments,
    "status": _add_status_arguments,
    "doctor": _add_doctor_arguments,
    "logs": _add_logs_arguments,
    "completion": _add_completion_arguments,
}
