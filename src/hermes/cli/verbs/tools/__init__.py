"""`hermes tools`: turn toolsets on or off, for all platforms or for one."""

from argparse import ArgumentParser, Namespace

from hermes.cli.context import CliContext
from hermes.cli.parser import add_action


def add_arguments(parser: ArgumentParser) -> None:
    verbs = parser.add_subparsers(prog=parser.prog, dest="action", metavar="ACTION", required=True)
    show = add_action(verbs, "list", "list the toolsets, where they are on and what they lack")
    show.add_argument(
        "--platform", metavar="NAME", help="only this platform, such as cli or api_server"
    )
    show.add_argument("--json", action="store_true", help="print JSON")
    _add_toolset_arguments(
        add_action(verbs, "enable", "turn toolsets on, on all platforms or on one")
    )
    _add_toolset_arguments(
        add_action(verbs, "disable", "turn toolsets off, on all platforms or on one")
    )


def run(args: Namespace, context: CliContext) -> int:
    from hermes.cli.verbs.tools.actions import perform

    return perform(args, context)


def _add_toolset_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "names", nargs="+", metavar="TOOLSET", help="toolset, such as terminal or memory"
    )
    parser.add_argument("--platform", metavar="NAME", help="only this platform (default: all)")
