"""`hermes tools`: which tools the agent is offered, and on which platform."""

from argparse import ArgumentParser, Namespace

from hermes.cli.context import CliContext
from hermes.cli.parser import add_action


def add_arguments(parser: ArgumentParser) -> None:
    verbs = parser.add_subparsers(prog=parser.prog, dest="action", metavar="ACTION", required=True)
    show = add_action(verbs, "list", "show the toolsets, where they are on, and what is missing")
    show.add_argument("--platform", metavar="NAME", help="only there, such as cli or api_server")
    show.add_argument("--json", action="store_true", help="for programs")
    _add_toolset_arguments(
        add_action(verbs, "enable", "offer toolsets, everywhere or on one platform")
    )
    _add_toolset_arguments(
        add_action(verbs, "disable", "offer toolsets no longer, nowhere or not there")
    )


def run(args: Namespace, context: CliContext) -> int:
    from hermes.cli.verbs.tools.actions import perform

    return perform(args, context)


def _add_toolset_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("names", nargs="+", metavar="TOOLSET", help="such as terminal or memory")
    parser.add_argument(
        "--platform", metavar="NAME", help="only there; without it, on all platforms"
    )
