"""`hermes memory`: what the agent remembers, how it came to that, and the way back."""

from argparse import ArgumentParser, Namespace

from hermes.cli.context import CliContext
from hermes.cli.parser import add_action


def add_arguments(parser: ArgumentParser) -> None:
    verbs = parser.add_subparsers(prog=parser.prog, dest="action", metavar="ACTION", required=True)
    show = add_action(verbs, "show", "show what is remembered")
    show.add_argument("target", nargs="?", choices=["memory", "user"], help="only this part")
    log = add_action(verbs, "log", "list the changes, newest last")
    log.add_argument("-n", "--number", type=int, default=20, metavar="N", help="how many (20)")
    diff = add_action(verbs, "diff", "show a change: who made it, from what, and every line of it")
    diff.add_argument("change", help="the id that `hermes memory log` shows")
    undo = add_action(verbs, "undo", "put the files back as they were before a change")
    undo.add_argument("change", help="the id that `hermes memory log` shows")
    curate = add_action(verbs, "curate", "propose to drop entries that say nearly the same")
    curate.add_argument("--dry-run", action="store_true", help="only say what would be proposed")
    add_action(verbs, "pending", "list proposals that wait for your decision")
    approve = add_action(verbs, "approve", "remember what was proposed")
    approve.add_argument("proposal", help="the id that `hermes memory pending` shows, or `all`")
    reject = add_action(verbs, "reject", "do not remember what was proposed")
    reject.add_argument("proposal", help="the id that `hermes memory pending` shows, or `all`")


def run(args: Namespace, context: CliContext) -> int:
    from hermes.cli.verbs.memory.actions import perform

    return perform(args, context)
