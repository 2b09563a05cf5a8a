"""`hermes mcp`: manage the MCP servers that add tools."""

from argparse import REMAINDER, ArgumentParser, Namespace

from hermes.cli.context import CliContext
from hermes.cli.parser import add_action


def add_arguments(parser: ArgumentParser) -> None:
    verbs = parser.add_subparsers(prog=parser.prog, dest="action", metavar="ACTION", required=True)
    show = add_action(verbs, "list", "list the configured servers")
    show.add_argument("--json", action="store_true", help="print JSON")
    add = add_action(verbs, "add", "add a server: a command to run or a URL")
    add.add_argument("name", metavar="NAME", help="name of the server and of its toolset")
    add.add_argument("--url", metavar="URL", default="", help="URL of an HTTP server")
    add.add_argument("--sse", action="store_true", help="use the older SSE transport")
    _pairs(add, "--header", "NAME=VALUE", "header for each request; use ${NAME} for a secret")
    _pairs(
        add, "--env", "NAME=VALUE", "environment variable of the command; use ${NAME} for a secret"
    )
    add.add_argument("--sandbox", action="store_true", help="run the command in the sandbox")
    add.add_argument("--force", action="store_true", help="replace an existing server")
    add.add_argument("--command", metavar="PROGRAM", default="", help="program to run")
    add.add_argument(
        "--args",
        metavar="WORD",
        nargs=REMAINDER,
        default=[],
        help="arguments of the program; must come last",
    )
    remove = add_action(verbs, "remove", "remove a server")
    remove.add_argument("name", metavar="NAME")
    test = add_action(verbs, "test", "connect to a server and list its tools")
    test.add_argument("name", metavar="NAME")
    test.add_argument("--json", action="store_true", help="print JSON")


def _pairs(parser: ArgumentParser, flag: str, metavar: str, text: str) -> None:
    parser.add_argument(flag, metavar=metavar, action="append", default=[], help=text)


def run(args: Namespace, context: CliContext) -> int:
    from hermes.cli.verbs.mcp.actions import perform

    return perform(args, context)
