"""`hermes sessions`: list, search, show, export and delete sessions."""

from argparse import ArgumentParser, ArgumentTypeError, Namespace, RawDescriptionHelpFormatter

from hermes.cli.context import CliContext
from hermes.cli.dates import TimePoint, parse_age

__all__ = ["add_arguments", "run"]


def run(args: Namespace, context: CliContext) -> int:
    from hermes.cli.verbs.sessions.actions import perform
    from hermes.kit.clock import SystemClock

    return perform(args, context, SystemClock())


SESSION_METAVAR = "ID"
"""The metavar of session arguments; shell completion offers sessions for it."""

_NAMES_HELP = "Sessions are named by id, by a unique prefix of the id, or by title."

_JSON_HELP = "print JSON; see below"

_LIST_HELP = """\
With --json each session is one line:
  {"id", "title", "source", "principal", "model", "provider", "cwd", "parent",
   "started_at", "ended_at", "end_reason", "last_at", "messages", "tool_calls",
   "model_calls", "usage": {"input", "output", "cache_read", "cache_write",
   "reasoning"}, "cost" (null: a price is unknown), "preview"}
Times are ISO 8601 in UTC."""

_SHOW_HELP = """\
With --json the output is one document, as in a line of `hermes sessions export`:
the fields of the session, "messages" in the format of the OpenAI chat API (each
with a "hermes" object for what that format lacks), and "usage" per model. File
contents are omitted."""

_SEARCH_HELP = """\
Words match in any order; "quoted words" are a phrase; a word ending in * is a
prefix. With the extra `recall` similar wording is found as well, except for
phrases and prefixes.
With --json each match is one line:
  {"session", "title", "source", "seq", "at", "role", "snippet"}
where the snippet marks matches as >>>this<<<."""

_EXPORT_HELP = """\
jsonl holds everything, one session per line, and can be imported with
`hermes sessions import`; md and html are for reading."""

_STATS_HELP = """\
With --json the output is one document:
  {"path", "bytes", "sessions", "messages", "sources": [{"source", "sessions",
   "messages"}], "models": [{"model", "provider", "calls", "usage", "cost"}]}
where "cost" is null if the model's price is unknown."""


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
        verb("list", "List sessions, most recently used first.", _LIST_HELP),
        verb("show", "Print the transcript of a session.", _SHOW_HELP),
        verb("search", "Search the messages of all sessions.", _SEARCH_HELP),
        verb("stats", "Show counts, tokens and cost.", _STATS_HELP),
    )
    _add_copy_arguments(
        verb("export", "Export sessions to a file or stdout.", _EXPORT_HELP),
        verb("import", "Import sessions from an export (jsonl)."),
        verb("adopt", "Convert the state.db of an upstream Hermes; the old file is kept."),
        verb("backup", "Copy the database to a file, even while it is in use."),
    )
    _add_cleanup_arguments(
        verb("rename", "Set the title of a session; an empty one removes it."),
        verb("delete", "Delete sessions permanently.", _NAMES_HELP),
        verb("prune", "Delete sessions by age and other filters."),
        verb("optimize", "Compact and optimize the database."),
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
        help="maximum number (default: 20)",
    )
    _add_filters(listing)
    listing.add_argument("--json", action="store_true", help=_JSON_HELP)
    show.add_argument("session", metavar=SESSION_METAVAR, help="id, unique id prefix, or title")
    style = show.add_mutually_exclusive_group()
    style.add_argument(
        "--full", action="store_true", help="include reasoning, full tool calls and results"
    )
    style.add_argument("--json", action="store_true", help=_JSON_HELP)
    style.add_argument("--raw", action="store_true", help="only the text, exactly as stored")
    search.add_argument("query", metavar="QUERY", nargs="+", help="words to search for")
    search.add_argument(
        "-n",
        "--limit",
        metavar="N",
        type=parse_positive,
        default=20,
        help="maximum number (default: 20)",
    )
    search.add_argument("--role", choices=("user", "assistant", "tool"), help="role of the speaker")
    search.add_argument("--json", action="store_true", help=_JSON_HELP)
    stats.add_argument("--json", action="store_true", help=_JSON_HELP)


def _add_copy_arguments(
    export: ArgumentParser, import_: ArgumentParser, _adopt: ArgumentParser, backup: ArgumentParser
) -> None:
    export.add_argument("sessions", metavar=SESSION_METAVAR, nargs="*", help="sessions to export")
    export.add_argument("--all", action="store_true", help="all sessions, or all that match")
    export.add_argument("-o", "--output", metavar="FILE", help="output file (default: stdout)")
    export.add_argument(
        "--format",
        choices=("jsonl", "md", "html"),
        help="default: by file name; jsonl for stdout",
    )
    _add_filters(export)
    import_.add_argument("file", metavar="FILE", help="exported file, or - for stdin")
    backup.add_argument("file", metavar="FILE", help="target file; must not exist")


def _add_cleanup_arguments(
    rename: ArgumentParser, delete: ArgumentParser, prune: ArgumentParser, _optimize: ArgumentParser
) -> None:
    rename.add_argument("session", metavar=SESSION_METAVAR, help="session to rename")
    rename.add_argument("title", metavar="TITLE", nargs="+", help="new title")
    delete.add_argument("sessions", metavar=SESSION_METAVAR, nargs="+", help="sessions to delete")
    _add_filters(prune)
    prune.add_argument("--dry-run", action="store_true", help="only show what would be deleted")
    for parser in (delete, prune):
        parser.add_argument("-y", "--yes", action="store_true", help="do not ask for confirmation")


def _add_filters(parser: ArgumentParser) -> None:
    filters = parser.add_argument_group("filters (all must match)")
    filters.add_argument("--source", metavar="NAME", help="source: cli, telegram, ...")
    filters.add_argument("--model", metavar="NAME", help="model used")
    filters.add_argument("--title", metavar="TEXT", help="text in the title")
    filters.add_argument("--cwd", metavar="DIR", help="working directory")
    filters.add_argument(
        "--since", metavar="WHEN", type=TimePoint, help="started since: 2026-01-31, 7d"
    )
    filters.add_argument("--before", metavar="WHEN", type=TimePoint, help="started before")
    filters.add_argument(
        "--older-than", metavar="AGE", type=parse_age, help="unused for: 30d, 12h, 6mo"
    )
    filters.add_argument("--min-messages", metavar="N", type=parse_count, help="minimum messages")
    filters.add_argument("--max-messages", metavar="N", type=parse_count, help="maximum messages")


def parse_count(text: str) -> int:
    if not text.isdecimal() or len(text) > 18:
        raise ArgumentTypeError(f"{text!r} is not a number")
    return int(text)


def parse_positive(text: str) -> int:
    number = parse_count(text)
    if number == 0:
        raise ArgumentTypeError("must be at least 1")
    return number
