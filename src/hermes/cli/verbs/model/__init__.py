"""`hermes model`: list available models and choose one."""

from argparse import ArgumentParser, Namespace

from hermes.cli.context import CliContext


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", help="model to use from now on")
    parser.add_argument(
        "--provider", metavar="NAME", help="provider of the model, or the only one to list"
    )
    parser.add_argument(
        "--force", action="store_true", help="accept a name that the provider does not list"
    )
    parser.add_argument("--all", action="store_true", help="list every model")
    parser.add_argument("--json", action="store_true", help="print the list as JSON")


def run(args: Namespace, context: CliContext) -> int:
    import anyio

    from hermes.cli.verbs.model.actions import show_or_choose

    return anyio.run(show_or_choose, args, context)
