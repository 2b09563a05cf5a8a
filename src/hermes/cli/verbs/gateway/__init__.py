"""`hermes gateway`: run and control the process that serves chat apps, API and webhooks."""

from argparse import Namespace
from importlib import import_module

from hermes.cli.context import CliContext

_ACTIONS = {
    "run": "foreground:run",
    "start": "control:start",
    "stop": "control:stop",
    "restart": "control:restart",
    "status": "status:status",
    "list": "status:list_all",
    "install": "service:install",
    "uninstall": "service:uninstall",
    "setup": "setup:setup",
}


def run(args: Namespace, context: CliContext) -> int:
    module, _, function = _ACTIONS[args.action].partition(":")
    return getattr(import_module(f"hermes.cli.verbs.gateway.{module}"), function)(args, context)
