"""Fail when a module, class, function or test has a retired name.

usage: names.py            check src, tests, bench, demo, scripts and examples

`WORDS` may not be part of any name. `NAMES` may not be the whole name of a module or a class: in
functions many of them are ordinary words. Exceptions are listed by file, with the reason.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("src", "tests", "bench", "demo", "scripts", "examples")

WORDS = frozenset(
    """
    backroom bequeath bubble bubbles chores companion companions counsel desk desks door doors
    errand errands farewell farewells grumble heard hears heart homecoming house houses hush
    keyholder keyholders leftovers likeness lodging luggage nearness nudges occasions parcel
    parcels patience patiently postscript purse scribe stranger strangers surroundings tenure
    troubles twins wishes workbench
    """.split()  # noqa: SIM905 - easier to read and to extend
)
NAMES = frozenset(
    """
    accepting adopt afterwards AlreadySo aside bequeath bridge bubble checkup chores collecting
    companion complaints counsel Crowd dangers Desk desk Door door ending EngineRoom Entrance
    entrusted entry Errand facts far farewells Fate flood folding foreign_turns forms gist
    grumble guest handed handing hands hearing Heart Held held_back here Homecoming host House
    hub hush idling keeper keeping kept kept_first keyholders ladder lanes lasting later lazily
    leave leftovers Lent lessons Letter letters likeness Line line Lodging luggage marks matters
    measure meet mend mirror ModelDesk nearness nudges occasions odd_values office origins
    outlet outward pacer paper Parcel partner pieces Place places plain postscript pressing
    programs Purse recall remote replies returning ruin Ruling scribe seal serving shortening
    sources spills stamps stand standing starts story strangers surroundings switching talks
    tally taste telling tenant tenure thinking Told told_keys troubles TurnedAway twins unwrap
    vital wall watched ways Welcome when Wish wording Workbench
    """.split()  # noqa: SIM905 - easier to read and to extend
)
EXCEPTIONS = {
    "src/hermes/gateway/replies.py": {
        "replies": "the replies of a chat; retired for the API's idempotency keys"
    },
    "src/hermes/models/embedded/download.py": {"hub": "Hugging Face Hub"},
    "src/hermes/sandbox/remote.py": {"remote": "a sandbox on another machine; retired for ipc"},
}
"""Path of a file, and the names in it that may stay, each with its reason."""

_DEFINITION = re.compile(r"\s*(?:async +)?(?P<kind>def|class) +(?P<name>\w+)\s*[(:\[]")
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


def words(name: str) -> set[str]:
    return {part.lower() for part in _PARTS.findall(name)}


def defined_names(path: Path) -> Iterator[tuple[int, str, bool]]:
    """Yield line, name and whether `NAMES` applies, for the module, its classes and functions.

    Definitions are found by their lines, as parsing every file takes ten times as long.
    """
    yield 1, path.parent.name if path.stem == "__init__" else path.stem, True
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if found := _DEFINITION.match(line):
            yield number, found["name"], found["kind"] == "class"


def findings() -> Iterator[str]:
    for path in sorted(one for folder in FOLDERS for one in (ROOT / folder).rglob("*.py")):
        file = path.relative_to(ROOT).as_posix()
        allowed = EXCEPTIONS.get(file, {})
        for line, name, whole in defined_names(path):
            bare = name.strip("_").removeprefix("test_")
            retired = (words(bare) & WORDS) | ({bare} & NAMES if whole else set())
            for word in sorted(retired - allowed.keys()):
                yield f"{file}:{line}: {name}: {word!r} is a retired word"


def main() -> int:
    found = [*findings()]
    sys.stdout.writelines(f"{line}\n" for line in found)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
