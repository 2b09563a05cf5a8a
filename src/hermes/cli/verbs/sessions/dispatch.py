"""From the name of an action to the function that does it."""

from argparse import Namespace
from importlib import import_module

from hermes.cli.context import CliContext
from hermes.cli.verbs.sessions.desk import Desk
from hermes.kit.clock import Clock

_ACTIONS = {
    "list": "listing:list_sessions",
    "show": "showing:show",
    "search": "searching:search",
    "stats": "totals:stats",
    "export": "exporting:export",
    "import": "importing:bring",
    "adopt": "keeping:adopt",
    "backup": "keeping:backup",
    "optimize": "keeping:optimize",
    "rename": "tidying:rename",
    "delete": "tidying:delete",
    "prune": "tidying:prune",
}


def perform(args: Namespace, context: CliContext, clock: Clock) -> int:
    module, _, function = _ACTIONS[args.action].partition(":")
    action = getattr(import_module(f"hermes.cli.verbs.sessions.{module}"), function)
    return action(Desk(args, context, clock))
