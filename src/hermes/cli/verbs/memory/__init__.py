"""`hermes memory`: show the agent's memory, and review or undo its changes."""

from argparse import ArgumentParser, Namespace

from hermes.cli.context import CliContext
from hermes.cli.parser import add_action


def add_arguments(parser: ArgumentParser) -> None:
    verbs = parser.add_subparsers(prog=parser.prog, dest="action", metavar="ACTION", required=True)
    show = add_action(verbs, "show", "show the memory")
    show.add_argument("target", nargs="?", choices=["memory", "user"], help="only this file")
    log = add_action(verbs, "log", "list changes, newest last")
    log.add_argument(
        "-n", "--number", type=int, default=20, metavar="N", help="how many (default: 20)"
    )
    diff = add_action(verbs, "diff", "show a change: author, source and diff")
    diff.add_argument("change", help="id shown by `hermes memory log`")
    undo = add_action(verbs, "undo", "restore the files from before a change")
    undo.add_argument("change", help="id shown by `hermes memory log`")
    curate = add_action(verbs, "curate", "propose removing duplicate entries")
    curate.add_argument("--dry-run", action="store_true", help="only show what would be proposed")
    add_action(verbs, "pending", "list pending proposals")
    approve = add_action(verbs, "approve", "apply a proposal")
    approve.add_argument("proposal", help="id shown by `hermes memory pending`, or `all`")
    reject = add_action(verbs, "reject", "discard a proposal")
    reject.add_argument("proposal", help="id shown by `hermes memory pending`, or `all`")


def run(args: Namespace, context: CliContext) -> int:
    from hermes.cli.verbs.memory.actions import perform

    return perform(args, context)
