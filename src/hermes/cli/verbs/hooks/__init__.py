"""`hermes hooks`: programs that are told of what the agent does, and asked beforehand."""

from argparse import ArgumentParser, Namespace

from hermes.cli.context import CliContext
from hermes.cli.parser import add_action


def add_arguments(parser: ArgumentParser) -> None:
    verbs = parser.add_subparsers(prog=parser.prog, dest="action", metavar="ACTION", required=True)
    add_action(verbs, "list", "show the hooks of the settings, and which of them may be run")
    add_action(verbs, "accept", "let those of the settings be run, as they are now")
    test = add_action(verbs, "test", "run those of one event, and show what they answer")
    test.add_argument("event", help="such as pre_tool_call")
    test.add_argument("--for-tool", metavar="NAME", default="terminal", help="the tool to name")
    revoke = add_action(verbs, "revoke", "let one be run no longer")
    revoke.add_argument("command", nargs="?", help="as `hermes hooks list` shows it")
    revoke.add_argument("--all", action="store_true", help="none of them")
    add_action(
        verbs, "doctor", "look for what keeps them from being run; exit code 1 when there is"
    )


def run(args: Namespace, context: CliContext) -> int:
    from hermes.cli.verbs.hooks.actions import perform

    return perform(args, context)
