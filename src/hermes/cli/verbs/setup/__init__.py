"""`hermes setup`: from nothing to a model that answers; run again, it changes that."""

from argparse import ArgumentParser, Namespace

from hermes.cli.context import CliContext


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--provider", metavar="NAME", help="such as openrouter, ollama or custom")
    parser.add_argument("--model", metavar="NAME", help="one of its models")
    parser.add_argument(
        "--force", action="store_true", help="take a model that the provider does not list"
    )
    parser.add_argument("--base-url", metavar="URL", help="the address of a server of your own")
    parser.add_argument(
        "--local", action="store_true", help="fetch a small model that runs inside Hermes"
    )
    key = parser.add_mutually_exclusive_group()
    key.add_argument("--key-env", metavar="NAME", help="take the key from this variable")
    key.add_argument("--key-stdin", action="store_true", help="read the key from standard input")
    parser.add_argument(
        "-y",
        "--yes",
        "--non-interactive",
        action="store_true",
        help="ask nothing: take what is found, also what cannot be reached just now",
    )


def run(args: Namespace, context: CliContext) -> int:
    from hermes.cli.verbs.setup.wizard import run_setup

    return run_setup(args, context)
