"""`hermes gateway`: run and control the process that serves chat apps, API and webhooks."""

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
    run = add_action(verbs, "run", "run the gateway in the foreground until Ctrl+C")
    run.add_argument(
        "--replace", action="store_true", help="replace a gateway that is already running"
    )
    run.add_argument("--force", action="store_true", help="do not delay after repeated starts")
    run.add_argument("-v", "--verbose", action="count", default=0, help="show the log")
    run.add_argument("-q", "--quiet", action="store_true", help="print nothing")
    run.add_argument(
        "--external-supervisor",
        action="store_true",
        help="to restart, exit with code 75 and let the supervisor start it again",
    )
    run.add_argument("--ready-fd", type=int, help=SUPPRESS)
    start = add_action(
        verbs, "start", "start the gateway in the background and wait until it is ready"
    )
    start.add_argument("--force", action="store_true", help="do not delay after repeated starts")
    stop = add_action(verbs, "stop", "wait for running turns, then stop the gateway")
    stop.add_argument("--force", action="store_true", help="do not wait for running turns")
    restart = add_action(verbs, "restart", "stop the gateway and start it again")
    restart.add_argument("--force", action="store_true", help="do not wait for running turns")
    status = add_action(
        verbs, "status", "show the gateway's status; exit code 3 if it is not running"
    )
    status.add_argument("--json", action="store_true", help="print JSON")
    status.add_argument(
        "--deep", action="store_true", help="also show service, recent starts and outbox"
    )
    lists = add_action(verbs, "list", "list the gateways of all profiles")
    lists.add_argument("--json", action="store_true", help="print JSON")
    install = add_action(verbs, "install", "install a systemd service that starts at login")
    install.add_argument("--start", action="store_true", help="also start it now")
    install.add_argument("--force", action="store_true", help="replace another home's service")
    install.add_argument("--print", action="store_true", help="only print the service file")
    add_action(verbs, "uninstall", "stop and remove the service")


def run(args: Namespace, context: CliContext) -> int:
    module, _, function = _ACTIONS[args.action].partition(":")
    return getattr(import_module(f"hermes.cli.verbs.gateway.{module}"), function)(args, context)
