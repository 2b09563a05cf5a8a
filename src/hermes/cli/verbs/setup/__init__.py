"""`hermes setup`: choose a model and store its key."""

from argparse import ArgumentParser, Namespace

from hermes.cli.context import CliContext


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--provider", metavar="NAME", help="provider, such as openrouter, ollama or custom"
    )
    parser.add_argument("--model", metavar="NAME", help="model to use")
    parser.add_argument(
        "--force", action="store_true", help="accept a model that the provider does not list"
    )
    parser.add_argument("--base-url", metavar="URL", help="address of your own server")
    parser.add_argument(
        "--local", action="store_true", help="download a small model that runs inside Hermes"
    )
    key = parser.add_mutually_exclusive_group()
    key.add_argument(
        "--key-env", metavar="NAME", help="read the key from this environment variable"
    )
    key.add_argument("--key-stdin", action="store_true", help="read the key from stdin")
    parser.add_argument(
        "-y",
        "--yes",
        "--non-interactive",
        action="store_true",
        help="do not ask; use what is found, even if it cannot be reached now",
    )


def run(args: Namespace, context: CliContext) -> int:
    from hermes.cli.verbs.setup.wizard import run_setup

    return run_setup(args, context)
