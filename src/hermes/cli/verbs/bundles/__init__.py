"""`hermes bundles`: several skills under one name."""

from argparse import ArgumentParser, Namespace

from hermes.cli.context import CliContext
from hermes.cli.parser import add_action


def add_arguments(parser: ArgumentParser) -> None:
    verbs = parser.add_subparsers(prog=parser.prog, dest="action", metavar="ACTION", required=True)
    add_action(verbs, "list", "list the bundles and their skills")
    _named(add_action(verbs, "show", "show a bundle"))
    create = add_action(verbs, "create", "put several skills under one name")
    _named(create)
    create.add_argument(
        "-s",
        "--skill",
        dest="skills",
        action="append",
        required=True,
        metavar="SKILL",
        help="a skill that belongs to it; give one -s for each",
    )
    create.add_argument(
        "-i", "--instruction", default="", metavar="TEXT", help="what to do besides what they say"
    )
    create.add_argument("-d", "--description", default="", metavar="TEXT", help="what it is for")
    _named(add_action(verbs, "delete", "take a bundle away; its skills stay"))


def run(args: Namespace, context: CliContext) -> int:
    from hermes.cli.verbs.bundles.actions import perform

    return perform(args, context)


def _named(parser: ArgumentParser) -> None:
    parser.add_argument("name", help="the name of the bundle")
