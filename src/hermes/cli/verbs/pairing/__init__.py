"""`hermes pairing`: approve or revoke people who message the agent from chat apps."""

from argparse import ArgumentParser, Namespace

from hermes.cli.context import CliContext
from hermes.cli.parser import add_action


def add_arguments(parser: ArgumentParser) -> None:
    verbs = parser.add_subparsers(prog=parser.prog, dest="action", metavar="ACTION", required=True)
    show = add_action(verbs, "list", "list pending requests and approved users")
    show.add_argument("platform", nargs="?", help="only this platform")
    approve = add_action(verbs, "approve", "approve the person who received this code")
    approve.add_argument("platform", help="platform, such as telegram")
    approve.add_argument("code", help="the 8-character code that the person received")
    revoke = add_action(verbs, "revoke", "revoke a person's access")
    revoke.add_argument("platform", help="platform, such as telegram")
    revoke.add_argument("user", help="user id shown by `hermes pairing list`")
    clear = add_action(verbs, "clear-pending", "discard all pending codes")
    clear.add_argument("platform", nargs="?", help="only this platform")


def run(args: Namespace, context: CliContext) -> int:
    from hermes.cli.verbs.pairing.actions import perform
    from hermes.kit.clock import SystemClock

    return perform(args, context, SystemClock())
