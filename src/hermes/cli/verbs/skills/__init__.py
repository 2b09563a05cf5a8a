"""`hermes skills`: list, install, update, review and undo skills."""

from argparse import ArgumentParser, Namespace

from hermes.cli.context import CliContext
from hermes.cli.parser import add_action


def add_arguments(parser: ArgumentParser) -> None:
    verbs = parser.add_subparsers(prog=parser.prog, dest="action", metavar="ACTION", required=True)
    add_action(verbs, "list", "list the skills and their origin")
    _named(add_action(verbs, "show", "show a skill's instructions and files"))
    install = add_action(verbs, "install", "install a skill from a folder, an archive or git")
    install.add_argument("source", help="folder, .zip or .tar.gz file, or URL of a git repository")
    install.add_argument(
        "--path", default="", metavar="NAME", help="skill to install if the source has several"
    )
    install.add_argument("--category", default="", metavar="NAME", help="folder to install it in")
    _consent(install)
    update = add_action(verbs, "update", "update installed skills from their sources")
    update.add_argument("name", nargs="?", default="", help="only this skill")
    _consent(update)
    audit = add_action(verbs, "audit", "scan skills and compare installed ones with their source")
    audit.add_argument("name", nargs="?", default="", help="only this skill")
    log = add_action(verbs, "log", "list changes, newest last")
    log.add_argument(
        "-n", "--number", type=int, default=20, metavar="N", help="how many (default: 20)"
    )
    diff = add_action(verbs, "diff", "show a change: author, source and diff")
    diff.add_argument("change", help="id shown by `hermes skills log`")
    undo = add_action(verbs, "undo", "restore the files from before a change")
    undo.add_argument("change", help="id shown by `hermes skills log`")
    add_action(verbs, "pending", "list pending proposals")
    approve = add_action(verbs, "approve", "apply a proposal")
    approve.add_argument("proposal", help="id shown by `hermes skills pending`, or `all`")
    reject = add_action(verbs, "reject", "discard a proposal")
    reject.add_argument("proposal", help="id shown by `hermes skills pending`, or `all`")
    _named(add_action(verbs, "pin", "prevent the agent from changing a skill"))
    _named(add_action(verbs, "unpin", "allow the agent to change its own skill again"))
    _named(add_action(verbs, "archive", "archive a skill without deleting it"))
    _named(add_action(verbs, "restore", "restore a skill's latest archived version"))
    curate = add_action(verbs, "curate", "archive unused skills written by the agent")
    curate.add_argument("--dry-run", action="store_true", help="only show what would change")
    curate.add_argument(
        "--consolidate",
        action="store_true",
        help="also propose merging similar skills",
    )


def run(args: Namespace, context: CliContext) -> int:
    from hermes.cli.verbs.skills.actions import perform

    return perform(args, context)


def _named(parser: ArgumentParser) -> None:
    parser.add_argument("name", help="name of the skill")


def _consent(parser: ArgumentParser) -> None:
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask for confirmation")
    parser.add_argument(
        "--force",
        action="store_true",
        help="with --yes: also install suspicious content and overwrite your changes",
    )
