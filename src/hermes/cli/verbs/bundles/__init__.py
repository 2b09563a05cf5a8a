"""`hermes bundles`: group several skills under one name."""

from argparse import ArgumentParser, Namespace

from hermes.cli.context import CliContext
from hermes.cli.parser import add_action


def add_arguments(parser: ArgumentParser) -> None:
    verbs = parser.add_subparsers(prog=parser.prog, dest="action", metavar="ACTION", required=True)
    add_action(verbs, "list", "list the bundles and their skills")
    _named(add_action(verbs, "show", "show a bundle"))
    create = add_action(verbs, "create", "create a bundle of skills")
    _named(create)
    create.add_argument(
        "-s",
        "--skill",
        dest="skills",
        action="append",
        required=True,
        metavar="SKILL",
        help="skill in the bundle; repeat -s for each",
    )
    create.add_argument(
        "-i", "--instruction", default="", metavar="TEXT", help="extra instruction for the bundle"
    )
    create.add_argument("-d", "--description", default="", metavar="TEXT", help="short description")
    _named(add_action(verbs, "delete", "delete a bundle but not its skills"))


def run(args: Namespace, context: CliContext) -> int:
    from hermes.cli.verbs.bundles.actions import perform

    return perform(args, context)


def _named(parser: ArgumentParser) -> None:
    parser.add_argument("name", help="name of the bundle")
