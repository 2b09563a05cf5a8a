"""`hermes skills`: what the agent can do by the book, where it came from, and the way back."""

from argparse import ArgumentParser, Namespace

from hermes.cli.context import CliContext
from hermes.cli.parser import add_action


def add_arguments(parser: ArgumentParser) -> None:
    verbs = parser.add_subparsers(prog=parser.prog, dest="action", metavar="ACTION", required=True)
    add_action(verbs, "list", "list the skills, and whose they are")
    _named(add_action(verbs, "show", "show a skill: its instructions and its files"))
    install = add_action(verbs, "install", "let a skill in: from a folder, an archive or git")
    install.add_argument(
        "source", help="a folder, a .zip or .tar.gz, or the address of a repository"
    )
    install.add_argument("--path", default="", metavar="NAME", help="which one, of several in it")
    install.add_argument("--category", default="", metavar="NAME", help="folder to put it into")
    _consent(install)
    update = add_action(verbs, "update", "fetch installed skills again from where they came")
    update.add_argument("name", nargs="?", default="", help="only this one")
    _consent(update)
    audit = add_action(
        verbs, "audit", "compare installed skills with what was let in, and scan all"
    )
    audit.add_argument("name", nargs="?", default="", help="only this one")
    log = add_action(verbs, "log", "list the changes, newest last")
    log.add_argument("-n", "--number", type=int, default=20, metavar="N", help="how many (20)")
    diff = add_action(verbs, "diff", "show a change: who made it, from what, and every line of it")
    diff.add_argument("change", help="the id that `hermes skills log` shows")
    undo = add_action(verbs, "undo", "put the files back as they were before a change")
    undo.add_argument("change", help="the id that `hermes skills log` shows")
    add_action(verbs, "pending", "list proposals that wait for your decision")
    approve = add_action(verbs, "approve", "do what was proposed")
    approve.add_argument("proposal", help="the id that `hermes skills pending` shows, or `all`")
    reject = add_action(verbs, "reject", "do not do what was proposed")
    reject.add_argument("proposal", help="the id that `hermes skills pending` shows, or `all`")
    _named(add_action(verbs, "pin", "keep the agent from changing a skill"))
    _named(add_action(verbs, "unpin", "let the agent change a skill of its own again"))
    _named(add_action(verbs, "archive", "put a skill out of the way; nothing is deleted"))
    _named(add_action(verbs, "restore", "bring back the one that was archived last"))
    curate = add_action(verbs, "curate", "put away what the agent wrote and nobody uses")
    curate.add_argument("--dry-run", action="store_true", help="only say what would be done")
    curate.add_argument(
        "--consolidate",
        action="store_true",
        help="also propose to merge what says nearly the same; you decide",
    )


def run(args: Namespace, context: CliContext) -> int:
    from hermes.cli.verbs.skills.actions import perform

    return perform(args, context)


def _named(parser: ArgumentParser) -> None:
    parser.add_argument("name", help="the name of the skill")


def _consent(parser: ArgumentParser) -> None:
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask; for scripts")
    parser.add_argument(
        "--force",
        action="store_true",
        help="with --yes: also what looks harmful, and over your own changes",
    )
