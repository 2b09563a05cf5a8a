"""`hermes auth`: keys and logins for model providers."""

from argparse import ArgumentParser, Namespace

from hermes.cli.context import CliContext
from hermes.cli.parser import add_action


def add_arguments(parser: ArgumentParser) -> None:
    verbs = parser.add_subparsers(prog=parser.prog, dest="action", metavar="ACTION", required=True)
    add = add_action(verbs, "add", "add a key, or log in")
    add.add_argument("provider", help="such as anthropic, openai, openrouter")
    add.add_argument("key", nargs="?", help="asked for, or read from a pipe, when left out")
    add.add_argument("--label", default="", metavar="NAME", help="a name to know it by")
    add.add_argument("--oauth", action="store_true", help="log in with a code instead of a key")
    show = add_action(verbs, "list", "show the keys there are, masked, and which of them rest")
    show.add_argument("provider", nargs="?", help="only of this provider")
    show.add_argument("--json", action="store_true", help="print the list as JSON")
    remove = add_action(verbs, "remove", "forget a key or login")
    remove.add_argument("provider", help="whose key")
    remove.add_argument("which", help="its id, its label, or its number in the list")
    status = add_action(verbs, "status", "tell which key would be used next, and why")
    status.add_argument("provider", nargs="?", help="only of this provider")
    status.add_argument("--json", action="store_true", help="print it as JSON")
    reset = add_action(verbs, "reset", "let the keys of a provider rest no longer")
    reset.add_argument("provider", help="whose keys")


def run(args: Namespace, context: CliContext) -> int:
    from hermes.cli.verbs.auth.actions import perform
    from hermes.kit.clock import SystemClock

    return perform(args, context, SystemClock())
