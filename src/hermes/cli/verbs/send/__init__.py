"""`hermes send`: bring a text to a chat, from a script or by hand."""

from argparse import ArgumentParser, Namespace

from hermes.cli.context import CliContext


def add_arguments(parser: ArgumentParser) -> None:
    parser.epilog = (
        "Exit codes: 0 it is delivered, or accepted and safe in the outbox; 1 it could not be "
        "delivered; 2 the command line is wrong."
    )
    parser.add_argument("message", nargs="?", help="the text; without it, what is piped in")
    parser.add_argument(
        "-t",
        "--to",
        metavar="TARGET",
        default="origin",
        help="platform, platform:chat[:thread], all, local or origin, with commas between several; "
        "origin, which is the default, is the chat this runs for, or else the first home channel",
    )
    parser.add_argument("-f", "--file", metavar="FILE", help="read the text from there; - is stdin")
    parser.add_argument("-s", "--subject", metavar="TEXT", help="a first line above the text")
    parser.add_argument("-l", "--list", action="store_true", help="list where can be sent to")
    parser.add_argument("-q", "--quiet", action="store_true", help="print nothing when all is well")
    parser.add_argument("--json", action="store_true", help="report for programs")
    parser.add_argument("--no-wait", action="store_true", help="do not wait for the delivery")
    parser.add_argument(
        "--timeout", type=float, default=60.0, metavar="SECONDS", help="how long to wait for it"
    )


def run(args: Namespace, context: CliContext) -> int:
    if args.list:
        from hermes.cli.verbs.send.targets import list_targets

        return list_targets(args, context)
    from hermes.cli.verbs.send.sender import send

    return send(args, context)
