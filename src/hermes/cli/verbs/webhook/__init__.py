"""`hermes webhook`: let other programs trigger the agent over HTTP."""

from argparse import ArgumentParser, Namespace

from hermes.cli.context import CliContext
from hermes.cli.parser import add_action

SCHEMES = ("standard", "svix", "v2", "github", "legacy", "gitlab")


def add_arguments(parser: ArgumentParser) -> None:
    verbs = parser.add_subparsers(prog=parser.prog, dest="action", metavar="ACTION", required=True)
    subscribe = add_action(verbs, "subscribe", "create a route and print its secret once")
    subscribe.add_argument("name", help="route name, part of the URL: letters, digits, ., - and _")
    subscribe.add_argument(
        "--prompt",
        metavar="TEXT",
        default="",
        help="prompt for the agent; {a.b} inserts a field of the payload, {__raw__} all of it",
    )
    subscribe.add_argument("--events", metavar="A,B", default="", help="accept only these events")
    subscribe.add_argument(
        "--filter",
        metavar="FIELD=VALUE",
        dest="filters",
        action="append",
        default=[],
        help="accept only calls with this value; can be repeated",
    )
    subscribe.add_argument(
        "--secret", metavar="TEXT", help="secret to use (default: a generated one)"
    )
    subscribe.add_argument(
        "--signature",
        metavar="SCHEME",
        default="v2",
        choices=SCHEMES,
        help=f"required signature scheme: {', '.join(SCHEMES)} (default: v2)",
    )
    subscribe.add_argument(
        "--form",
        action="store_true",
        help="also accept URL-encoded forms (github and legacy only)",
    )
    subscribe.add_argument(
        "--allow-repeats",
        action="store_true",
        help="accept identical bodies with a new id; this also allows replays (github and "
        "legacy only)",
    )
    subscribe.add_argument(
        "--deliver",
        metavar="TARGET",
        default="log",
        help="where to send the answer: log, telegram, telegram:CHAT, … (default: log)",
    )
    subscribe.add_argument(
        "--deliver-only",
        action="store_true",
        help="deliver the filled-in prompt without running the agent",
    )
    subscribe.add_argument("--description", metavar="TEXT", default="", help="note for yourself")
    show = add_action(verbs, "list", "list all routes")
    show.add_argument("--json", action="store_true", help="print one JSON object per line")
    remove = add_action(verbs, "remove", "remove a subscription")
    remove.add_argument("name")
    test = add_action(verbs, "test", "send a signed test call to the running gateway")
    test.add_argument("name")
    test.add_argument(
        "--payload", metavar="JSON", help="payload to send (default: a short example)"
    )


def run(args: Namespace, context: CliContext) -> int:
    from hermes.cli.verbs.webhook.actions import perform
    from hermes.kit.clock import SystemClock

    return perform(args, context, SystemClock())
