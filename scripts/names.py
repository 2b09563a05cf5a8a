"""Fail when a module, class, function, test, variable or parameter has a retired name.

usage: names.py            check src, tests, bench, demo, scripts and examples

`WORDS` may not be part of a name. `NAMES` are ordinary words that do not say what a thing is: they
may not be the whole name of a module, class, function or test. `FAMILIES` may not end the name of
a class, and `VARIABLES` may not name a variable or parameter. `EXCEPTIONS` lists what may stay, by
file, with the reason.
"""

import ast
import re
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("src", "tests", "bench", "demo", "scripts", "examples")

WORDS = frozenset(
    """
    afterwards backroom bequeath bubble bubbles chores companion companions complaints counsel
    crowd desk desks door doors entrusted errand errands farewell farewells fate gist grumble heard
    hears hearing heart homecoming house houses hush idling keyholder keyholders ladder leftovers
    lent likeness lodging luggage mend nearness nobody nudges occasions office outlet pacer parcel
    parcels patience patiently postscript purse ruin scribe somebody stranger strangers
    surroundings tally tenure told troubles twins whoever wish wishes workbench
    """.split()  # noqa: SIM905 - easier to read and to extend
)
NAMES = frozenset(
    """
    accepting adopt AlreadySo aside bridge checkup collecting dangers ending EngineRoom Entrance
    entry facts far fars flood folding foreign_turns forms guest handed handing hands Held
    held_back here hesitant host hub keeper keeping kept kept_first lanes lasting later lazily leave
    lessons letting_in Letter letters Line line lived marks matters measure meet mirror ModelDesk
    nears odd_values origins outward paper partner pieces Place places plain pressing programs
    recall remembering remote replies returning Ruling seal serving shortening sources spills
    stamps stand standing starts story switching talks taste telling tenant thinking told_keys
    TurnedAway unwrap vital wall watched ways Welcome when wording
    """.split()  # noqa: SIM905 - easier to read and to extend
)
FAMILIES = frozenset("host line near parts place places".split())  # noqa: SIM905
VARIABLES = frozenset("heard nobody somebody told whoever".split())  # noqa: SIM905
_LOWER = frozenset(name.lower() for name in NAMES)
EXCEPTIONS = {
    "bench/*.py": {"measure": "the entry point of a benchmark",
                   "serving": "a context in which a server runs"},
    "src/hermes/agent/tool_calls.py": {"sources": "where the text of a result comes from"},
    "src/hermes/app/board_settings.py": {"sources": "files and memory that describe a profile"},
    "src/hermes/kanban/board_settings.py": {"sources": "files and memory that describe a profile"},
    "src/hermes/learning/review/reviewer.py": {"sources": "where the text of a turn comes from"},
    "src/hermes/api/server.py": {"serving": "a context in which the server runs"},
    "src/hermes/channels/http_listener.py": {"serving": "a context in which the server runs"},
    "src/hermes/channels/webhook/calls.py": {"serving": "a context in which the server runs",
                                             "recall": "the opposite of `remember`"},
    "src/hermes/kanban/service.py": {"serving": "a context in which boards are served"},
    "tests/*.py": {"serving": "a context in which a server or worker runs",
                   "DovecotHost": "a host in the network", "EmulatorHost": "a host in the network",
                   "host": "a host in the network"},
    "tests/emulators/irc/state.py": {"line": "a line of the IRC protocol"},
    "tests/emulators/slack/methods.py": {"replies": "Slack's method conversations.replies"},
    "src/hermes/app/service/lifecycle.py": {"Ending": "how a process ended, a stored value"},
    "src/hermes/app/service/profile_service.py": {"ApiHost": "serves the API of all profiles"},
    "src/hermes/app/service/web_host.py": {"WebHost": "serves the dashboard of all profiles"},
    "src/hermes/app/session_export.py": {"ExportLine": "a line of a JSON lines file"},
    "src/hermes/channels/irc/*.py": {"IrcLine": "a line of the IRC protocol",
                                     "TextLine": "a line of text"},
    "src/hermes/channels/matrix/client_api.py": {"leave": "Matrix's name for leaving a room"},
    "src/hermes/channels/matrix/rooms.py": {"facts": "what is known of a room, a cached value"},
    "src/hermes/channels/slack/web_api.py": {"replies": "Slack's method conversations.replies"},
    "src/hermes/channels/whatsapp_cloud/objects.py": {"Entry": "the platform's name"},
    "src/hermes/cli/output.py": {"line": "prints a line"},
    "src/hermes/cli/verbs/sessions/database.py": {"adopt": "the command `hermes sessions adopt`"},
    "src/hermes/compaction/summary.py": {"plain": "a summary written without a model"},
    "src/hermes/cron/script.py": {"_LastLine": "the last line of a script's output"},
    "src/hermes/gateway/composition.py": {"replies": "builds `replies.py`"},
    "src/hermes/gateway/replies.py": {"replies": "the replies of a chat"},
    "src/hermes/gateway/roles.py": {"recall": "the opposite of `remember`"},
    "src/hermes/kanban/diagnostics.py": {"line": "a finding as a line of text"},
    "src/hermes/kit/numbered_diff.py": {"DiffLine": "a line of a diff"},
    "src/hermes/mcp/transports.py": {"OutputLine": "a line of a server's output"},
    "src/hermes/sandbox/local.py": {"kept": "the kept part of an output"},
    "src/hermes/sandbox/remote.py": {"remote": "a sandbox on another machine"},
    "src/hermes/sandbox/ssh.py": {"SshHost": "a host in the network"},
    "src/hermes/tools/search/ripgrep.py": {"RipgrepLine": "a line of ripgrep's output"},
    "src/hermes/tui/*.py": {"plain": "a widget as plain text", "line": "a list as a line of text",
                            "ResultLine": "a line on the screen"},
    "src/hermes/web/feed.py": {"watched": "the sessions that open pages watch"},
    "src/hermes/tools/files/extraction.py": {"ZipParts": "the files in an archive"},
    "scripts/site.py": {"Entry": "an entry of the navigation"},
}  # fmt: skip
"""Pattern of a path, and the names in it that may stay, each with its reason."""

_DEFINITION = re.compile(r"\s*(?:async +)?(?P<kind>def|class) +(?P<name>\w+)\s*[(:\[]")
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_VARIABLE = re.compile(rf"\b_?({'|'.join(sorted(VARIABLES))})\b")


def words(name: str) -> list[str]:
    return [part.lower() for part in _PARTS.findall(name)]


def defined_names(path: Path, lines: list[str]) -> Iterator[tuple[int, str, bool]]:
    """Yield line, name and whether it is a class, for the module, its classes and functions.

    Definitions are found by their lines, as parsing every file takes ten times as long.
    """
    yield 1, path.parent.name if path.stem == "__init__" else path.stem, False
    for number, line in enumerate(lines, 1):
        if found := _DEFINITION.match(line):
            yield number, found["name"], found["kind"] == "class"


def retired_parts(name: str, *, is_class: bool) -> set[str]:
    bare = name.strip("_").removeprefix("test_")
    parts = words(bare)
    found = WORDS.intersection(parts)
    if bare in NAMES or (is_class and bare.lower() in _LOWER):
        found = found | {bare}
    elif is_class and parts and parts[-1] in FAMILIES:
        found = found | {parts[-1]}
    return found


def variables(path: Path, text: str) -> Iterator[tuple[int, str]]:
    """Yield line and name of the variables and parameters that have a retired name."""
    if not _VARIABLE.search(text):
        return
    for node in ast.walk(ast.parse(text, path)):
        match node:
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()):
                pass
            case ast.Attribute(attr=name, ctx=ast.Store()):
                pass
            case _:
                continue
        if name.strip("_") in VARIABLES:
            yield node.lineno, name


def allowed_in(file: str) -> set[str]:
    return {
        name for pattern, names in EXCEPTIONS.items() if fnmatch(file, pattern) for name in names
    }


def findings() -> Iterator[str]:
    for path in sorted(one for folder in FOLDERS for one in (ROOT / folder).rglob("*.py")):
        file, text = path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")
        allowed = allowed_in(file)
        for line, name, is_class in defined_names(path, text.splitlines()):
            if name in allowed:
                continue
            for word in sorted(retired_parts(name, is_class=is_class) - allowed):
                yield f"{file}:{line}: {name}: {word!r} is a retired word"
        for line, name in variables(path, text):
            yield f"{file}:{line}: {name} is a retired name"


def main() -> int:
    found = [*findings()]
    sys.stdout.writelines(f"{line}\n" for line in found)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
