"""`hermes logs`: the last records, those of a session or a level, and what comes."""

from argparse import ArgumentParser, Namespace

from hermes.cli.context import CliContext

LOGS = {
    "agent": "everything that was done",
    "errors": "only what went wrong",
    "gateway": "what a gateway in the background printed",
}
LEVELS = ("debug", "info", "warning", "error", "critical")


def add_arguments(parser: ArgumentParser) -> None:
    which = "; ".join(f"{name}: {what}" for name, what in LOGS.items())
    parser.add_argument(
        "log", nargs="?", default="agent", choices=tuple(LOGS), help=f"{which} (agent)"
    )
    parser.add_argument("-n", "--number", type=int, default=50, metavar="N", help="how many (50)")
    parser.add_argument("-f", "--follow", action="store_true", help="go on until Ctrl+C")
    parser.add_argument("--session", metavar="ID", help="only what names this session")
    parser.add_argument("--level", choices=LEVELS, help="only from this level on")
    parser.add_argument("--since", metavar="TIME", help="only from then on: 2h, today or a date")


def run(args: Namespace, context: CliContext) -> int:
    from hermes.cli.verbs.logs.viewer import show_logs

    return show_logs(args, context)
