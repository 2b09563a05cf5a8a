"""`hermes sessions`: list, search, show, export and tidy past sessions."""

from argparse import ArgumentParser, ArgumentTypeError, Namespace, RawDescriptionHelpFormatter

from hermes.cli.context import CliContext
from hermes.cli.dates import TimePoint, parse_age

__all__ = ["add_arguments", "run"]


def run(args: Namespace, context: CliContext) -> int:
    from hermes.cli.verbs.sessions.actions import perform
    from hermes.kit.clock import SystemClock

    return perform(args, context, SystemClock())


SESSION_METAVAR = "ID"
"""The metavar of a session's name; completion offers sessions where it stands."""

_NAMES_HELP = "A session is named by its id, a unique beginning of it, or its title."

_JSON_HELP = "for programs; see below"

_LIST_HELP = """\
With --json every session is one line:
  {"id", "title", "source", "principal", "model", "provider", "cwd", "parent",
   "started_at", "ended_at", "end_reason", "last_at", "messages", "tool_calls",
   "model_calls", "usage": {"input", "output", "cache_read", "cache_write",
   "reasoning"}, "cost" (null: a price is unknown), "preview"}
Times are ISO 8601 in UTC."""

_SHOW_HELP = """\
With --json the output is one document, the same as a line of
`hermes sessions export`: the fields of the session, "messages" in the shape of
the OpenAI chat API (each with a "hermes" part for what that shape cannot hold),
and "usage" per model; only the files named in it are left out."""

_SEARCH_HELP = """\
Words may stand in any order; "several words" in quotes are a phrase; a word
that ends in * is a beginning. With the extra `recall` also what says the same
in other words is found; what is in quotes and beginnings find only themselves.
With --json every hit is one line:
  {"session", "title", "source", "seq", "at", "role", "snippet"}
where the snippet marks what was found as >>>this<<<."""

_EXPORT_HELP = """\
jsonl holds everything, one session per line, and comes back with
`hermes sessions import`; md and html are for reading."""

_STATS_HELP = """\
With --json the output is one document:
  {"path", "bytes", "sessions", "messages", "sources": [{"source", "sessions",
   "messages"}], "models": [{"model", "provider", "calls", "usage", "cost"}]}
where "cost" is null when the price of the model is unknown."""


def add_arguments(parser: ArgumentParser) -> None:
    parser.epilog = _NAMES_HELP
    verbs = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    def verb(name: str, summary: str, epilog: str = "") -> ArgumentParser:
        return verbs.add_parser(
            name,
            help=summary,
            description=summary,
            epilog=epilog,
            formatter_class=RawDescriptionHelpFormatter,
        )

    _add_view_arguments(
        verb("list", "List sessions, the last used first.", _LIST_HELP),
        verb("show", "Print what was said in a session.", _SHOW_HELP),
        verb("search", "Find what was said, in all sessions.", _SEARCH_HELP),
        verb("stats", "Count sessions, tokens and cost.", _STATS_HELP),
    )
    _add_copy_arguments(
        verb("export", "Write sessions to a file or to stdout.", _EXPORT_HELP),
        verb("import", "Bring sessions back from an export (jsonl)."),
        verb("adopt", "Take over a state.db of the public system; the old file is kept."),
        verb("backup", "Copy the database to a file, also while it is in use."),
    )
    _add_cleanup_arguments(
        verb("rename", "Give a session a title; an empty one takes it away."),
        verb("delete", "Delete sessions for good.", _NAMES_HELP),
        verb("prune", "Delete many sessions by age and other marks."),
        verb("optimize", "Make the database small and quick again."),
    )


def _add_view_arguments(
    listing: ArgumentParser, show: ArgumentParser, search: ArgumentParser, stats: ArgumentParser
) -> None:
    listing.add_argument(
        "-n",
        "--limit",
        metavar="N",
        type=parse_positive,
        default=20,
        help="at most so many (default 20)",
    )
    _add_filters(listing)
    listing.add_argument("--json", action="store_true", help=_JSON_HELP)
    show.add_argument(
        "session", metavar=SESSION_METAVAR, help="id, unique beginning of an id, or title"
    )
    how = show.add_mutually_exclusive_group()
    how.add_argument(
        "--full", action="store_true", help="also reasoning, whole tool calls and their results"
    )
    how.add_argument("--json", action="store_true", help=_JSON_HELP)
    how.add_argument(
        "--raw", action="store_true", help="only the words, exactly as they are stored"
    )
    search.add_argument("query", metavar="QUERY", nargs="+", help="what to look for")
    search.add_argument(
        "-n",
        "--limit",
        metavar="N",
        type=parse_positive,
        default=20,
        help="at most so many (default 20)",
    )
    search.add_argument("--role", choices=("user", "assistant", "tool"), help="said by whom")
    search.add_argument("--json", action="store_true", help=_JSON_HELP)
    stats.add_argument("--json", action="store_true", help=_JSON_HELP)


def _add_copy_arguments(
    export: ArgumentParser, bring: ArgumentParser, _adopt: ArgumentParser, backup: ArgumentParser
) -> None:
    export.add_argument("sessions", metavar=SESSION_METAVAR, nargs="*", help="which ones")
    export.add_argument("--all", action="store_true", help="all, or all that the marks below fit")
    export.add_argument("-o", "--output", metavar="FILE", help="where to (default: stdout)")
    export.add_argument(
        "--format",
        choices=("jsonl", "md", "html"),
        help="default: by the file's name; jsonl to stdout",
    )
    _add_filters(export)
    bring.add_argument("file", metavar="FILE", help="an export, or - for stdin")
    backup.add_argument("file", metavar="FILE", help="the copy; it must not exist yet")


def _add_cleanup_arguments(
    rename: ArgumentParser, delete: ArgumentParser, prune: ArgumentParser, _optimize: ArgumentParser
) -> None:
    rename.add_argument("session", metavar=SESSION_METAVAR, help="which one")
    rename.add_argument("title", metavar="TITLE", nargs="+", help="the new title")
    delete.add_argument("sessions", metavar=SESSION_METAVAR, nargs="+", help="which ones")
    _add_filters(prune)
    prune.add_argument("--dry-run", action="store_true", help="only say what would go")
    for parser in (delete, prune):
        parser.add_argument("-y", "--yes", action="store_true", help="do not ask")


def _add_filters(parser: ArgumentParser) -> None:
    marks = parser.add_argument_group("which sessions (all given marks must fit)")
    marks.add_argument("--source", metavar="NAME", help="where it was held: cli, telegram, ...")
    marks.add_argument("--model", metavar="NAME", help="with this model")
    marks.add_argument("--title", metavar="WORDS", help="with this in the title")
    marks.add_argument("--cwd", metavar="DIR", help="in this folder")
    marks.add_argument(
        "--since", metavar="WHEN", type=TimePoint, help="begun since: 2026-01-31, 7d"
    )
    marks.add_argument("--before", metavar="WHEN", type=TimePoint, help="begun before")
    marks.add_argument(
        "--older-than", metavar="AGE", type=parse_age, help="not used for: 30d, 12h, 6mo"
    )
    marks.add_argument(
        "--min-messages", metavar="N", type=parse_count, help="with at least so many"
    )
    marks.add_argument("--max-messages", metavar="N", type=parse_count, help="with at most so many")


def parse_count(text: str) -> int:
    if not text.isdecimal() or len(text) > 18:
        raise ArgumentTypeError(f"{text!r} is not a number")
    return int(text)


def parse_positive(text: str) -> int:
    number = parse_count(text)
    if number == 0:
        raise ArgumentTypeError("it must be at least 1")
    return number
