"""`hermes webhook`: let other programs wake the agent by an HTTP call."""

from argparse import ArgumentParser, Namespace

from hermes.cli.context import CliContext
from hermes.cli.parser import add_action

SCHEMES = ("standard", "svix", "v2", "github", "legacy", "gitlab")


def add_arguments(parser: ArgumentParser) -> None:
    verbs = parser.add_subparsers(prog=parser.prog, dest="action", metavar="ACTION", required=True)
    subscribe = add_action(verbs, "subscribe", "make a new route; its secret is shown once")
    subscribe.add_argument("name", help="letters, digits, dots, - and _; a part of the URL")
    subscribe.add_argument(
        "--prompt",
        metavar="TEXT",
        default="",
        help="what the agent is asked; {a.b} is a field of the call, {__raw__} all of it",
    )
    subscribe.add_argument("--events", metavar="A,B", default="", help="only these events")
    subscribe.add_argument(
        "--filter",
        metavar="FIELD=VALUE",
        dest="filters",
        action="append",
        default=[],
        help="only calls with this value; may be given several times",
    )
    subscribe.add_argument("--secret", metavar="TEXT", help="default: a new one is made")
    subscribe.add_argument(
        "--signature",
        metavar="SCHEME",
        default="v2",
        choices=SCHEMES,
        help=f"how calls are signed; no other way is taken: {', '.join(SCHEMES)} (default: v2)",
    )
    subscribe.add_argument(
        "--form",
        action="store_true",
        help="take URL-encoded forms, too, where only the body is signed (github, legacy)",
    )
    subscribe.add_argument(
        "--allow-repeats",
        action="store_true",
        help="github, legacy: take equal bodies again under another id; so a replay counts, too",
    )
    subscribe.add_argument(
        "--deliver",
        metavar="TARGET",
        default="log",
        help="who gets the answer: log, telegram, telegram:CHAT, … (default: log)",
    )
    subscribe.add_argument(
        "--deliver-only",
        action="store_true",
        help="ask no agent: the filled prompt itself is delivered",
    )
    subscribe.add_argument("--description", metavar="TEXT", default="", help="a note for yourself")
    show = add_action(verbs, "list", "list all routes, secrets masked")
    show.add_argument("--json", action="store_true", help="for programs: one line for each route")
    remove = add_action(verbs, "remove", "no longer take calls of a subscription")
    remove.add_argument("name")
    test = add_action(verbs, "test", "call a route of the running gateway, signed")
    test.add_argument("name")
    test.add_argument("--payload", metavar="JSON", help="what to send (default: a short example)")


def run(args: Namespace, context: CliContext) -> int:
    from hermes.cli.verbs.webhook.actions import perform
    from hermes.kit.clock import SystemClock

    return perform(args, context, SystemClock())
