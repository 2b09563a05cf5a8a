"""`hermes mcp`: the servers that bring the agent more tools."""

from argparse import REMAINDER, ArgumentParser, Namespace

from hermes.cli.context import CliContext
from hermes.cli.parser import add_action


def add_arguments(parser: ArgumentParser) -> None:
    verbs = parser.add_subparsers(prog=parser.prog, dest="action", metavar="ACTION", required=True)
    show = add_action(verbs, "list", "list the servers of the settings")
    show.add_argument("--json", action="store_true", help="for programs")
    add = add_action(verbs, "add", "add a server: a command to start, or a URL to call")
    add.add_argument("name", metavar="NAME", help="also the name of the toolset of its tools")
    add.add_argument("--url", metavar="URL", default="", help="where it is called over HTTP")
    add.add_argument("--sse", action="store_true", help="it speaks the older way, with events")
    _pairs(add, "--header", "NAME=VALUE", "sent with each call; write ${NAME} for a secret")
    _pairs(add, "--env", "NAME=VALUE", "a variable for its command; write ${NAME} for a secret")
    add.add_argument("--sandbox", action="store_true", help="run its command behind the wall")
    add.add_argument("--force", action="store_true", help="replace a server of that name")
    add.add_argument("--command", metavar="PROGRAM", default="", help="what is started")
    add.add_argument(
        "--args", metavar="WORD", nargs=REMAINDER, default=[], help="its arguments; comes last"
    )
    remove = add_action(verbs, "remove", "take a server out of the settings")
    remove.add_argument("name", metavar="NAME")
    test = add_action(verbs, "test", "connect to a server and show its tools")
    test.add_argument("name", metavar="NAME")
    test.add_argument("--json", action="store_true", help="for programs")


def _pairs(parser: ArgumentParser, flag: str, shape: str, told: str) -> None:
    parser.add_argument(flag, metavar=shape, action="append", default=[], help=told)


def run(args: Namespace, context: CliContext) -> int:
    from hermes.cli.verbs.mcp.actions import perform

    return perform(args, context)
