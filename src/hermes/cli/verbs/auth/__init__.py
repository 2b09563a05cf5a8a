"""`hermes auth`: keys and logins for model providers."""

from argparse import ArgumentParser, Namespace

from hermes.cli.context import CliContext
from hermes.cli.parser import add_action


def add_arguments(parser: ArgumentParser) -> None:
    verbs = parser.add_subparsers(prog=parser.prog, dest="action", metavar="ACTION", required=True)
    add = add_action(verbs, "add", "add a key or log in")
    add.add_argument("provider", help="provider, such as anthropic, openai or openrouter")
    add.add_argument("key", nargs="?", help="key; if omitted, it is asked for or read from stdin")
    add.add_argument("--label", default="", metavar="NAME", help="label for the key")
    add.add_argument(
        "--oauth", action="store_true", help="log in with a device code instead of a key"
    )
    show = add_action(verbs, "list", "list the keys (masked) and their state")
    show.add_argument("provider", nargs="?", help="only this provider")
    show.add_argument("--json", action="store_true", help="print JSON")
    remove = add_action(verbs, "remove", "remove a key or login")
    remove.add_argument("provider", help="provider of the key")
    remove.add_argument("which", help="id, label, or number in the list")
    status = add_action(verbs, "status", "show which key is used next, and why")
    status.add_argument("provider", nargs="?", help="only this provider")
    status.add_argument("--json", action="store_true", help="print JSON")
    reset = add_action(verbs, "reset", "make paused keys of a provider available again")
    reset.add_argument("provider", help="provider of the keys")


def run(args: Namespace, context: CliContext) -> int:
    from hermes.cli.verbs.auth.actions import perform
    from hermes.kit.clock import SystemClock

    return perform(args, context, SystemClock())
