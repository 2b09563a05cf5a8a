"""`hermes send`: send a message to a chat."""

from argparse import ArgumentParser, Namespace

from hermes.cli.context import CliContext


def add_arguments(parser: ArgumentParser) -> None:
    parser.epilog = (
        "Exit codes: 0 delivered, or stored in the outbox; 1 could not be delivered; 2 usage error."
    )
    parser.add_argument("message", nargs="?", help="text to send (default: read from stdin)")
    parser.add_argument(
        "-t",
        "--to",
        metavar="TARGET",
        default="origin",
        help="platform, platform:chat[:thread], all, local or origin; separate several with commas "
        "(default: origin, the chat this runs for, or else the first home channel)",
    )
    parser.add_argument(
        "-f", "--file", metavar="FILE", help="read the text from a file; - is stdin"
    )
    parser.add_argument("-s", "--subject", metavar="TEXT", help="first line above the text")
    parser.add_argument("-l", "--list", action="store_true", help="list the known targets")
    parser.add_argument("-q", "--quiet", action="store_true", help="print nothing on success")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--no-wait", action="store_true", help="do not wait for delivery")
    parser.add_argument(
        "--timeout",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="how long to wait for delivery (default: 60)",
    )


def run(args: Namespace, context: CliContext) -> int:
    if args.list:
        from hermes.cli.verbs.send.sender import list_targets

        return list_targets(args, context)
    from hermes.cli.verbs.send.sender import send

    return send(args, context)
