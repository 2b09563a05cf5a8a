"""`hermes doctor`: check the installation and suggest fixes."""

from argparse import ArgumentParser, Namespace

from hermes.cli.context import CliContext


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--fix",
        action="store_true",
        help="apply safe fixes: permissions, missing folders, stale locks",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: Namespace, context: CliContext) -> int:
    from hermes.cli.verbs.doctor.runner import run_doctor

    return run_doctor(args, context)
