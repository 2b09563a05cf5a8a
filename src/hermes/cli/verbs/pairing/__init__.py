"""`hermes pairing`: let people from chat apps in, and out again."""

from argparse import ArgumentParser, Namespace

from hermes.cli.context import CliContext
from hermes.cli.parser import add_action


def add_arguments(parser: ArgumentParser) -> None:
    verbs = parser.add_subparsers(prog=parser.prog, dest="action", metavar="ACTION", required=True)
    show = add_action(verbs, "list", "show who waits for approval and who was let in")
    show.add_argument("platform", nargs="?", help="only of this platform")
    approve = add_action(verbs, "approve", "let in the person who was given this code")
    approve.add_argument("platform", help="such as telegram")
    approve.add_argument("code", help="the 8 letters and digits the person was sent")
    revoke = add_action(verbs, "revoke", "no longer let a person in")
    revoke.add_argument("platform", help="such as telegram")
    revoke.add_argument("user", help="the id that `hermes pairing list` shows")
    clear = add_action(verbs, "clear-pending", "forget all codes that wait for approval")
    clear.add_argument("platform", nargs="?", help="only of this platform")


def run(args: Namespace, context: CliContext) -> int:
    from hermes.cli.verbs.pairing.actions import perform
    from hermes.kit.clock import SystemClock

    return perform(args, context, SystemClock())
