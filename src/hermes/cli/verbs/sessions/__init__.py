"""`hermes sessions`: list, search, show, export and tidy past sessions."""

from argparse import Namespace

from hermes.cli.context import CliContext
from hermes.cli.verbs.sessions.arguments import add_arguments

__all__ = ["add_arguments", "run"]


def run(args: Namespace, context: CliContext) -> int:
    from hermes.cli.verbs.sessions.dispatch import perform
    from hermes.kit.clock import SystemClock

    return perform(args, context, SystemClock())
