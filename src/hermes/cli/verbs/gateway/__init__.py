"""`hermes gateway`: run the process that listens to chat apps, and see to it from outside."""

from argparse import SUPPRESS, ArgumentParser, Namespace
from importlib import import_module

from hermes.cli.context import CliContext
from hermes.cli.parser import add_action

_ACTIONS = {
    "run": "foreground:run",
    "start": "start:start",
    "stop": "stop:stop",
    "restart": "stop:restart",
    "status": "status:status",
    "list": "status:list_all",
    "install": "service:install",
    "uninstall": "service:uninstall",
}


def add_arguments(parser: ArgumentParser) -> None:
    verbs = parser.add_subparsers(prog=parser.prog, dest="action", metavar="ACTION", required=True)
    run = add_action(verbs, "run", "run it here, until Ctrl+C")
    run.add_argument("--replace", action="store_true", help="end one that runs already")
    run.add_argument("--force", action="store_true", help="do not wait after many starts in a row")
    run.add_argument("-v", "--verbose", action="count", default=0, help="show the log as well")
    run.add_argument("-q", "--quiet", action="store_true", help="show nothing on the screen")
    run.add_argument(
        "--external-supervisor",
        action="store_true",
        help="for a restart, exit with 75 instead of starting anew by itself",
    )
    run.add_argument("--ready-fd", type=int, help=SUPPRESS)
    start = add_action(verbs, "start", "start it in the background and wait until it is ready")
    start.add_argument("--force", action="store_true", help="do not wait after many starts")
    stop = add_action(verbs, "stop", "let running turns end, then stop it")
    stop.add_argument("--force", action="store_true", help="do not let running turns end")
    restart = add_action(verbs, "restart", "stop it and start it again")
    restart.add_argument("--force", action="store_true", help="do not let running turns end")
    status = add_action(verbs, "status", "tell how it is; exit code 3 when it does not run")
    status.add_argument("--json", action="store_true", help="for programs")
    status.add_argument("--deep", action="store_true", help="look at service, starts and outbox")
    lists = add_action(verbs, "list", "tell of the gateways of all profiles")
    lists.add_argument("--json", action="store_true", help="for programs")
    install = add_action(verbs, "install", "make it a service of systemd, started at login")
    install.add_argument("--start", action="store_true", help="start it right away")
    install.add_argument("--force", action="store_true", help="replace the service of another home")
    install.add_argument("--print", action="store_true", help="only show the service file")
    add_action(verbs, "uninstall", "stop the service and remove it")


def run(args: Namespace, context: CliContext) -> int:
    module, _, function = _ACTIONS[args.action].partition(":")
    return getattr(import_module(f"hermes.cli.verbs.gateway.{module}"), function)(args, context)
