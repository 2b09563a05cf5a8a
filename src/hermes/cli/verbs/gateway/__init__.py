"""`hermes gateway`: run the process that listens to chat apps, and see to it from outside."""

from argparse import SUPPRESS, ArgumentParser, Namespace
from importlib import import_module

from hermes.cli.context import CliContext

_ACTIONS = {
    "run": "running:run",
    "start": "starting:start",
    "stop": "stopping:stop",
    "restart": "stopping:restart",
    "status": "showing:status",
    "list": "showing:list_all",
    "install": "installing:install",
    "uninstall": "installing:uninstall",
}


def add_arguments(parser: ArgumentParser) -> None:
    verbs = parser.add_subparsers(prog=parser.prog, dest="action", metavar="ACTION", required=True)
    run = verbs.add_parser("run", help="run it here, until Ctrl+C")
    run.add_argument("--replace", action="store_true", help="end one that runs already")
    run.add_argument("--force", action="store_true", help="do not wait after many starts in a row")
    run.add_argument("-v", "--verbose", action="count", default=0, help="say more on the screen")
    run.add_argument("-q", "--quiet", action="store_true", help="say nothing on the screen")
    run.add_argument(
        "--external-supervisor",
        action="store_true",
        help="for a restart, exit with 75 instead of starting anew by itself",
    )
    run.add_argument("--ready-fd", type=int, help=SUPPRESS)
    start = verbs.add_parser("start", help="start it in the background and wait until it is ready")
    start.add_argument("--force", action="store_true", help="do not wait after many starts")
    stop = verbs.add_parser("stop", help="let running turns end, then stop it")
    stop.add_argument("--force", action="store_true", help="do not let running turns end")
    restart = verbs.add_parser("restart", help="stop it and start it again")
    restart.add_argument("--force", action="store_true", help="do not let running turns end")
    status = verbs.add_parser("status", help="tell how it is; exit code 3 when it does not run")
    status.add_argument("--json", action="store_true", help="for programs")
    status.add_argument("--deep", action="store_true", help="look at service, starts and outbox")
    lists = verbs.add_parser("list", help="tell of the gateways of all profiles")
    lists.add_argument("--json", action="store_true", help="for programs")
    install = verbs.add_parser("install", help="make it a service of systemd, started at login")
    install.add_argument("--start", action="store_true", help="start it right away")
    install.add_argument("--force", action="store_true", help="replace the service of another home")
    install.add_argument("--print", action="store_true", help="only show the service file")
    verbs.add_parser("uninstall", help="stop the service and remove it")


def run(args: Namespace, context: CliContext) -> int:
    module, _, function = _ACTIONS[args.action].partition(":")
    return getattr(import_module(f"hermes.cli.verbs.gateway.{module}"), function)(args, context)
