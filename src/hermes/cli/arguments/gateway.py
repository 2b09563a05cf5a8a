"""The arguments of the commands for the gateway, messages, people and webhooks."""

import math
from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError
from collections.abc import Callable, Mapping

from hermes.cli.parser import add_action, add_actions, add_json_flag, add_switch

SCHEMES = ("standard", "svix", "v2", "github", "legacy", "gitlab")


def _add_gateway_arguments(parser: ArgumentParser) -> None:
    verbs = add_actions(parser)
    run = add_action(verbs, "run", "run the gateway in the foreground until Ctrl+C")
    add_switch(run, "--replace", "replace a gateway that is already running")
    add_switch(run, "--force", "start at once, even after repeated starts")
    run.add_argument("-v", "--verbose", action="count", default=0, help="show the log")
    run.add_argument("-q", "--quiet", action="store_true", help="print nothing")
    add_switch(
        run,
        "--external-supervisor",
        "to restart, exit with code 75 so that a supervisor starts it again",
    )
    run.add_argument("--ready-fd", type=int, help=SUPPRESS)
    start = add_action(
        verbs, "start", "start the gateway in the background and wait until it is ready"
    )
    add_switch(start, "--force", "start at once, even after repeated starts")
    stop = add_action(verbs, "stop", "wait for running turns, then stop the gateway")
    restart = add_action(verbs, "restart", "stop the gateway and start it again")
    for action in (stop, restart):
        add_switch(action, "--force", "do not wait for running turns")
    status = add_action(
        verbs, "status", "show the gateway's status; exit code 3 if it is not running"
    )
    add_json_flag(status)
    add_switch(status, "--deep", "also show service, recent starts and outbox")
    add_json_flag(add_action(verbs, "list", "list the gateways of all profiles"))
    install = add_action(verbs, "install", "install a systemd service that starts at login")
    add_switch(install, "--start", "also start it now")
    add_switch(install, "--force", "replace another home's service")
    add_switch(install, "--print", "only print the service file")
    add_action(verbs, "uninstall", "stop and remove the service")
    setup = add_action(verbs, "setup", "connect a chat app: ask for its token and check it")
    setup.add_argument("platform", nargs="?", help="platform, such as telegram")
    add_switch(setup, "--token-stdin", "read the token from stdin")
    setup.add_argument(
        "--allow", metavar="IDS", help="user ids that may talk to the agent; separate with commas"
    )


def _add_dashboard_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--host", help="address to listen on (default: dashboard.host)")
    parser.add_argument(
        "--port", type=_parse_port, help="port to listen on (default: dashboard.port)"
    )
    add_switch(
        parser, "--status", "show the address of the dashboard; exit code 3 if it is not running"
    )
    add_switch(parser, "--stop", "stop the dashboard started by `hermes dashboard`")
    add_switch(parser, "--no-open", "print the login link instead of opening a browser")
    parser.add_argument(
        "--set-password", metavar="USER", help="set a user name and a password to log in with"
    )


def _add_send_arguments(parser: ArgumentParser) -> None:
    parser.epilog = (
        "Exit codes: 0 delivered, or stored in the outbox; 1 could not be delivered; 2 usage error."
    )
    parser.add_argument("message", nargs="?", help="text to send (default: read from stdin)")
    parser.add_argument("more", nargs="*", help=SUPPRESS)  # refused, with a better hint
    parser.add_argument(
        "-t", "--to", metavar="TARGET", default="origin",
        help="target: platform, platform:chat[:thread], all, local or origin; separate several "
        "with commas (default: origin, the chat this runs for, or the first home channel)",
    )  # fmt: skip
    parser.add_argument(
        "-f", "--file", metavar="FILE", help="read the text from a file; - is stdin"
    )
    parser.add_argument("-s", "--subject", metavar="TEXT", help="first line above the text")
    parser.add_argument("-l", "--list", action="store_true", help="list the known targets")
    failed = parser.add_mutually_exclusive_group()
    failed.add_argument(
        "--failed", action="store_true", help="list the messages that could not be delivered"
    )
    failed.add_argument("--retry", metavar="ID", help="try a failed message again, or `all`")
    failed.add_argument("--discard", metavar="ID", help="remove a failed message, or `all`")
    parser.add_argument("-q", "--quiet", action="store_true", help="print nothing on success")
    add_json_flag(parser)
    add_switch(parser, "--no-wait", "do not wait for delivery")
    parser.add_argument(
        "--timeout", type=_parse_seconds, default=60.0, metavar="SECONDS",
        help="how long to wait for delivery (default: 60)",
    )  # fmt: skip


def _add_pairing_arguments(parser: ArgumentParser) -> None:
    verbs = add_actions(parser)
    show = add_action(verbs, "list", "list pending requests and approved users")
    approve = add_action(verbs, "approve", "approve the person who received this code")
    revoke = add_action(verbs, "revoke", "revoke a person's access")
    clear = add_action(verbs, "clear-pending", "discard all pending codes")
    for action in (show, clear):
        action.add_argument("platform", nargs="?", help="only this platform")
    for action in (approve, revoke):
        action.add_argument("platform", help="platform, such as telegram")
    approve.add_argument("code", help="the 8-character code that the person received")
    revoke.add_argument("user", help="user id shown by `hermes pairing list`")


def _add_people_arguments(parser: ArgumentParser) -> None:
    verbs = add_actions(parser)
    add_action(verbs, "list", "list people with several accounts")
    link = add_action(
        verbs, "link", "treat accounts as one person, with the permissions of all of them"
    )
    unlink = add_action(verbs, "unlink", "treat an account as a separate person again")
    for action in (link, unlink):
        action.add_argument("account", help="account as platform:user, such as telegram:42")
    link.add_argument(
        "others", nargs="+", metavar="account", help="other accounts of the same person"
    )


def _add_webhook_arguments(parser: ArgumentParser) -> None:
    verbs = add_actions(parser)
    subscribe = add_action(verbs, "subscribe", "create a route and print its secret once")
    _add_subscribe_arguments(subscribe)
    show = add_action(verbs, "list", "list all routes")
    add_switch(show, "--json", "print one JSON object per line")
    remove = add_action(verbs, "remove", "remove a route")
    test = add_action(verbs, "test", "send a signed test call to the running gateway")
    for action in (remove, test):
        action.add_argument("name", help="name of the route")
    test.add_argument(
        "--payload", metavar="JSON", help="payload to send (default: a short example)"
    )


def _add_subscribe_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("name", help="route name, part of the URL: letters, digits, ., - and _")
    parser.add_argument(
        "--prompt", metavar="TEXT", default="",
        help="prompt for the agent; {a.b} inserts a field of the payload, {__raw__} all of it",
    )  # fmt: skip
    parser.add_argument("--events", metavar="A,B", default="", help="accept only these events")
    parser.add_argument(
        "--filter", metavar="FIELD=VALUE", dest="filters", action="append", default=[],
        help="accept only calls with this value; can be repeated",
    )  # fmt: skip
    parser.add_argument("--secret", metavar="TEXT", help="secret to use (default: a generated one)")
    parser.add_argument(
        "--signature", metavar="SCHEME", default="v2", choices=SCHEMES,
        help=f"required signature scheme: {', '.join(SCHEMES)} (default: v2)",
    )  # fmt: skip
    add_switch(parser, "--form", "also accept URL-encoded forms (github and legacy only)")
    add_switch(
        parser,
        "--allow-repeats",
        "accept identical bodies with a new id; this also allows replays (github and legacy only)",
    )
    parser.add_argument(
        "--deliver", metavar="TARGET", default="log",
        help="where to send the answer: log, telegram, telegram:CHAT, … (default: log)",
    )  # fmt: skip
    add_switch(parser, "--deliver-only", "deliver the filled-in prompt without running the agent")
    parser.add_argument("--description", metavar="TEXT", default="", help="note for yourself")


def _add_slack_arguments(parser: ArgumentParser) -> None:
    manifest = add_action(add_actions(parser), "manifest", "print the manifest to paste into Slack")
    manifest.add_argument("--name", default="Hermes", help="name of the app (default: Hermes)")


def _parse_port(text: str) -> int:
    if not text.isdecimal() or len(text) > 5 or int(text) > 65535:
        raise ArgumentTypeError("expected a whole number from 0 to 65535")
    return int(text)


def _parse_seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise ArgumentTypeError("expected a number of seconds, 0 or more")
    return seconds


ARGUMENTS: Mapping[str, Callable[[ArgumentParser], None]] = {
    "gateway": _add_gateway_arguments,
    "dashboard": _add_dashboard_arguments,
    "send": _add_send_arguments,
    "pairing": _add_pairing_arguments,
    "people": _add_people_arguments,
    "webhook": _add_webhook_arguments,
    "slack": _add_slack_arguments,
}
