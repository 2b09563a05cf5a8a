"""`hermes logs`: show or follow the logs, filtered by session, level or time."""

from argparse import ArgumentParser, Namespace

from hermes.cli.context import CliContext

LOGS = {
    "agent": "everything",
    "errors": "only warnings and errors",
    "gateway": "output of a background gateway",
}
LEVELS = ("debug", "info", "warning", "error", "critical")


def add_arguments(parser: ArgumentParser) -> None:
    which = "; ".join(f"{name}: {what}" for name, what in LOGS.items())
    parser.add_argument(
        "log", nargs="?", default="agent", choices=tuple(LOGS), help=f"{which} (default: agent)"
    )
    parser.add_argument(
        "-n", "--number", type=int, default=50, metavar="N", help="how many (default: 50)"
    )
    parser.add_argument(
        "-f", "--follow", action="store_true", help="wait for new records until Ctrl+C"
    )
    parser.add_argument("--session", metavar="ID", help="only records about this session")
    parser.add_argument("--level", choices=LEVELS, help="minimum level")
    parser.add_argument("--since", metavar="TIME", help="only newer records: 2h, today or a date")


def run(args: Namespace, context: CliContext) -> int:
    from hermes.cli.verbs.logs.viewer import show_logs

    return show_logs(args, context)
