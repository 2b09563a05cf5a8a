"""`hermes doctor`: what is wrong, each with the command that puts it right."""

from argparse import ArgumentParser, Namespace

from hermes.cli.context import CliContext


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--fix", action="store_true", help="mend what is safe: rights, missing folders, old locks"
    )
    parser.add_argument("--json", action="store_true", help="for programs")


def run(args: Namespace, context: CliContext) -> int:
    from hermes.cli.verbs.doctor.runner import run_doctor

    return run_doctor(args, context)
