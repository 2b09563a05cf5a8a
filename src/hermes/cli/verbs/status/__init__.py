"""`hermes status`: an overview of a profile."""

from argparse import ArgumentParser, Namespace

from hermes.cli.context import CliContext


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: Namespace, context: CliContext) -> int:
    from hermes.cli.verbs.status.overview import show_status

    return show_status(args, context)
