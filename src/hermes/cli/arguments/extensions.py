"""The arguments of the commands for memory, skills, tools, MCP servers and hooks."""

from argparse import REMAINDER, ArgumentParser, ArgumentTypeError
from collections.abc import Callable, Mapping

from hermes.cli.parser import (
    Actions,
    add_action,
    add_actions,
    add_json_flag,
    add_switch,
    add_yes_flag,
)


def _add_memory_arguments(parser: ArgumentParser) -> None:
    verbs = add_actions(parser)
    show = add_action(verbs, "show", "show the memory")
    show.add_argument("target", nargs="?", choices=["memory", "user"], help="only this file")
    _add_ledger_actions(verbs, "memory")
    curate = add_action(verbs, "curate", "propose removing duplicate entries")
    add_switch(curate, "--dry-run", "only show what would be proposed")


def _add_skills_arguments(parser: ArgumentParser) -> None:
    verbs = add_actions(parser)
    add_action(verbs, "list", "list the skills and their origin")
    show = add_action(verbs, "show", "show a skill's instructions and files")
    install = add_action(verbs, "install", "install a skill from a folder, an archive or git")
    install.add_argument("source", help="folder, .zip or .tar.gz file, or URL of a git repository")
    install.add_argument(
        "--path", default="", metavar="NAME", help="skill to install if the source has several"
    )
    install.add_argument("--category", default="", metavar="NAME", help="folder to install it in")
    update = add_action(verbs, "update", "update installed skills from their sources")
    audit = add_action(verbs, "audit", "find suspicious content and changes since installation")
    for action in (update, audit):
        action.add_argument("name", nargs="?", default="", help="only this skill")
    for action in (install, update):
        add_yes_flag(action)
        force = "with --yes: also install suspicious content and overwrite your changes"
        add_switch(action, "--force", force)
    _add_ledger_actions(verbs, "skills")
    pin = add_action(verbs, "pin", "prevent the agent from changing a skill")
    unpin = add_action(verbs, "unpin", "allow the agent to change its own skill again")
    archive = add_action(verbs, "archive", "archive a skill without deleting it")
    restore = add_action(verbs, "restore", "restore a skill's latest archived version")
    for action in (show, pin, unpin, archive, restore):
        action.add_argument("name", help="name of the skill")
    curate = add_action(verbs, "curate", "archive unused skills written by the agent")
    add_switch(curate, "--dry-run", "only show what would change")
    add_switch(curate, "--consolidate", "also propose merging similar skills")


def _add_ledger_actions(verbs: Actions, verb: str) -> None:
    log = add_action(verbs, "log", "list changes, newest last")
    log.add_argument(
        "-n", "--number", type=_parse_number, default=20, metavar="N",
        help="how many to list (default: 20)",
    )  # fmt: skip
    diff = add_action(verbs, "diff", "show a change: author, source and diff")
    undo = add_action(verbs, "undo", "undo one change")
    for action in (diff, undo):
        action.add_argument("change", help=f"id shown by `hermes {verb} log`")
    add_action(verbs, "pending", "list pending proposals")
    approve = add_action(verbs, "approve", "apply a proposal")
    reject = add_action(verbs, "reject", "discard a proposal")
    for action in (approve, reject):
        action.add_argument("proposal", help=f"id shown by `hermes {verb} pending`, or `all`")


def _add_bundles_arguments(parser: ArgumentParser) -> None:
    verbs = add_actions(parser)
    add_action(verbs, "list", "list the bundles and their skills")
    show = add_action(verbs, "show", "show a bundle")
    create = add_action(verbs, "create", "create a bundle of skills")
    delete = add_action(verbs, "delete", "delete a bundle but not its skills")
    for action in (show, create, delete):
        action.add_argument("name", help="name of the bundle")
    create.add_argument(
        "-s", "--skill", dest="skills", action="append", required=True, metavar="SKILL",
        help="skill in the bundle; repeat -s for each",
    )  # fmt: skip
    create.add_argument(
        "-i", "--instruction", default="", metavar="TEXT", help="extra instruction for the bundle"
    )
    create.add_argument("-d", "--description", default="", metavar="TEXT", help="short description")


def _add_tools_arguments(parser: ArgumentParser) -> None:
    verbs = add_actions(parser)
    show = add_action(
        verbs, "list", "list the toolsets, where they are enabled and what they still need"
    )
    show.add_argument(
        "--platform", metavar="NAME", help="only this platform, such as cli or api_server"
    )
    add_json_flag(show)
    enable = add_action(verbs, "enable", "enable toolsets, on all platforms or on one")
    disable = add_action(verbs, "disable", "disable toolsets, on all platforms or on one")
    for action in (enable, disable):
        action.add_argument(
            "names", nargs="+", metavar="TOOLSET", help="toolset, such as terminal or memory"
        )
        action.add_argument("--platform", metavar="NAME", help="only this platform (default: all)")


def _add_mcp_arguments(parser: ArgumentParser) -> None:
    verbs = add_actions(parser)
    add_json_flag(add_action(verbs, "list", "list the configured servers"))
    add = add_action(verbs, "add", "add a server: a command to run or a URL")
    add.add_argument("name", metavar="NAME", help="name of the server and of its toolset")
    add.add_argument("--url", metavar="URL", default="", help="URL of an HTTP server")
    add_switch(add, "--sse", "use the older SSE transport")
    for flag, what in (
        ("--header", "header for each request"),
        ("--env", "environment variable of the command"),
    ):
        add.add_argument(
            flag, metavar="NAME=VALUE", action="append", default=[],
            help=f"{what}; use ${{NAME}} for a secret",
        )  # fmt: skip
    add_switch(add, "--sandbox", "run the command in the sandbox")
    add_switch(add, "--force", "replace an existing server")
    add.add_argument("--command", metavar="PROGRAM", default="", help="program to run")
    add.add_argument(
        "--args", metavar="WORD", nargs=REMAINDER, default=[],
        help="arguments of the program; must come last",
    )  # fmt: skip
    remove = add_action(verbs, "remove", "remove a server")
    test = add_action(verbs, "test", "connect to a server and list its tools")
    for action in (remove, test):
        action.add_argument("name", metavar="NAME", help="name of the server")
    add_json_flag(test)


def _add_hooks_arguments(parser: ArgumentParser) -> None:
    verbs = add_actions(parser)
    add_action(verbs, "list", "list the configured hooks and whether they are accepted")
    add_action(verbs, "accept", "allow the configured hooks to run, in their current form")
    test = add_action(verbs, "test", "run the hooks of an event and show their answers")
    test.add_argument("event", help="event, such as pre_tool_call")
    test.add_argument(
        "--for-tool", metavar="NAME", default="terminal",
        help="tool name to pass (default: terminal)",
    )  # fmt: skip
    revoke = add_action(verbs, "revoke", "stop running a hook until it is accepted again")
    revoke.add_argument("command", nargs="?", help="command as shown by `hermes hooks list`")
    add_switch(revoke, "--all", "revoke all hooks")
    add_action(verbs, "doctor", "check that the hooks can run; exit code 1 if there are problems")


def _parse_number(text: str) -> int:
    if not text.isdecimal() or len(text) > 18 or int(text) < 1:
        raise ArgumentTypeError("expected a whole number of at least 1")
    return int(text)


ARGUMENTS: Mapping[str, Callable[[ArgumentParser], None]] = {
    "memory": _add_memory_arguments,
    "skills": _add_skills_arguments,
    "bundles": _add_bundles_arguments,
    "tools": _add_tools_arguments,
    "mcp": _add_mcp_arguments,
    "hooks": _add_hooks_arguments,
}
