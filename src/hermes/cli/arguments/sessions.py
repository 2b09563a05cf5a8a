"""The arguments of `hermes sessions`."""

from argparse import ArgumentParser, ArgumentTypeError, RawDescriptionHelpFormatter
from collections.abc import Callable, Mapping

from hermes.cli.dates import TimePoint, parse_age
from hermes.cli.parser import add_switch, add_yes_flag

SESSION_METAVAR = "ID"
"""The metavar of session arguments; shell completion offers sessions for it."""

_NAMES_HELP = "Sessions are named by id, by a unique prefix of the id, or by title."

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


def _add_sessions_arguments(parser: ArgumentParser) -> None:
    parser.epilog = _NAMES_HELP
    verbs = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    def verb(name: str, summary: str, epilog: str = "") -> ArgumentParser:
        raw = RawDescriptionHelpFormatter
        listed = f"{summary[:1].lower()}{summary[1:].rstrip('.')}"
        return verbs.add_parser(
            name, help=listed, description=summary, epilog=epilog, formatter_class=raw
        )

    _add_view_arguments(
        verb("list", "List sessions, most recently used first.", _LIST_HELP),
        verb("show", "Print the transcript of a session.", _SHOW_HELP),
        verb("search", "Search the messages of all sessions.", _SEARCH_HELP),
        verb("stats", "Show counts, tokens and cost.", _STATS_HELP),
    )
    _add_export_arguments(verb("export", "Export sessions to a file or stdout.", _EXPORT_HELP))
    import_ = verb("import", "Import sessions from an export (jsonl).")
    import_.add_argument("file", metavar="FILE", help="exported file, or - for stdin")
    verb("adopt", "Import new sessions of hermes-agent from its state.db, which is not changed.")
    backup = verb("backup", "Copy the database to a file, even while it is in use.")
    backup.add_argument("file", metavar="FILE", help="target file; must not exist")
    rename = verb("rename", "Set the title of a session; an empty one removes it.")
    rename.add_argument("session", metavar=SESSION_METAVAR, help="session to rename")
    rename.add_argument("title", metavar="TITLE", nargs="+", help="new title")
    delete = verb("delete", "Delete sessions permanently.", _NAMES_HELP)
    delete.add_argument("sessions", metavar=SESSION_METAVAR, nargs="+", help="sessions to delete")
    prune = verb("prune", "Delete sessions by age and other filters.")
    _add_filters(prune)
    add_switch(prune, "--dry-run", "only show what would be deleted")
    add_yes_flag(delete)
    add_yes_flag(prune)
    verb("optimize", "Compact and optimize the database.")


def _add_view_arguments(
    listing: ArgumentParser, show: ArgumentParser, search: ArgumentParser, stats: ArgumentParser
) -> None:
    for parser in (listing, search):
        parser.add_argument(
            "-n", "--limit", metavar="N", type=_parse_positive, default=20,
            help="maximum number (default: 20)",
        )  # fmt: skip
    _add_filters(listing)
    show.add_argument("session", metavar=SESSION_METAVAR, help="id, unique id prefix, or title")
    style = show.add_mutually_exclusive_group()
    add_switch(style, "--full", "include reasoning, notes to Hermes, full tool calls and results")
    search.add_argument("query", metavar="QUERY", nargs="+", help="words to search for")
    search.add_argument("--role", choices=("user", "assistant", "tool"), help="role of the speaker")
    for arguments in (listing, style, search, stats):
        add_switch(arguments, "--json", "print JSON")
    add_switch(style, "--raw", "only the text, exactly as stored")


def _add_export_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("sessions", metavar=SESSION_METAVAR, nargs="*", help="sessions to export")
    add_switch(parser, "--all", "all sessions, or all that match")
    parser.add_argument("-o", "--output", metavar="FILE", help="output file (default: stdout)")
    formats = ("jsonl", "md", "html")
    parser.add_argument("--format", choices=formats, help="default: by file name; jsonl for stdout")
    _add_filters(parser)


def _add_filters(parser: ArgumentParser) -> None:
    filters = parser.add_argument_group("filters (all must match)")
    filters.add_argument("--source", metavar="NAME", help="source: cli, telegram, ...")
    filters.add_argument("--model", metavar="NAME", help="model used")
    filters.add_argument("--title", metavar="TEXT", help="text in the title")
    filters.add_argument("--cwd", metavar="DIR", help="working directory")
    filters.add_argument(
        "--since", metavar="WHEN", type=TimePoint, help="started since, such as 2026-01-31 or 7d"
    )
    filters.add_argument(
        "--before", metavar="WHEN", type=TimePoint, help="started before, in the same form"
    )
    filters.add_argument(
        "--older-than",
        metavar="AGE",
        type=parse_age,
        help="unused for this long, such as 30d, 12h or 6mo",
    )
    filters.add_argument("--min-messages", metavar="N", type=_parse_count, help="minimum messages")
    filters.add_argument("--max-messages", metavar="N", type=_parse_count, help="maximum messages")


def _parse_count(text: str, minimum: int = 0) -> int:
    if not text.isdecimal() or len(text) > 18 or int(text) < minimum:
        raise ArgumentTypeError(f"expected a whole number of at least {minimum}")
    return int(text)


def _parse_positive(text: str) -> int:
    return _parse_count(text, 1)


ARGUMENTS: Mapping[str, Callable[[ArgumentParser], None]] = {
    "sessions": _add_sessions_arguments,
}
