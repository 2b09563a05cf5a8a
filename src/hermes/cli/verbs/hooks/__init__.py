"""`hermes hooks`: programs that run on agent events and can block tool calls."""

from argparse import ArgumentParser, Namespace

from hermes.cli.context import CliContext
from hermes.cli.parser import add_action


def add_arguments(parser: ArgumentParser) -> None:
    verbs = parser.add_subparsers(prog=parser.prog, dest="action", metavar="ACTION", required=True)
    add_action(verbs, "list", "list the configured hooks and whether they are accepted")
    add_action(verbs, "accept", "allow the configured hooks to run, in their current form")
    test = add_action(verbs, "test", "run the hooks of an event and show their answers")
    test.add_argument("event", help="event, such as pre_tool_call")
    test.add_argument(
        "--for-tool",
        metavar="NAME",
        default="terminal",
        help="tool name to pass (default: terminal)",
    )
    revoke = add_action(verbs, "revoke", "no longer allow a hook to run")
    revoke.add_argument("command", nargs="?", help="command as shown by `hermes hooks list`")
    revoke.add_argument("--all", action="store_true", help="revoke all hooks")
    add_action(verbs, "doctor", "check that the hooks can run; exit code 1 if there are problems")


def run(args: Namespace, context: CliContext) -> int:
    from hermes.cli.verbs.hooks.actions import perform

    return perform(args, context)
