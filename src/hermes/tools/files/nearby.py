"""What the asker may have meant: neighbours of a path that does not exist."""

from difflib import get_close_matches
from itertools import islice
from pathlib import Path

LOOKED_AT = 2_000
LISTED = 40
COMPARED = 60
"""Characters of a name; comparing may take the cube of it."""


def suggestion(path: Path) -> str:
    """One sentence about the nearest thing that does exist."""
    parent = path.parent
    if not parent.is_dir():
        there = next((folder for folder in parent.parents if folder.is_dir()), Path("/"))
        return f"The folder {parent} does not exist; {there} does."
    try:
        names = [entry.name for entry in islice(parent.iterdir(), LOOKED_AT)]
    except OSError as error:
        return f"{parent} cannot be listed: {error.strerror}."
    by_case = {name.lower()[:COMPARED]: name for name in names}
    close = get_close_matches(path.name.lower()[:COMPARED], by_case, n=3, cutoff=0.6)
    if close:
        return "Did you mean " + " or ".join(str(parent / by_case[name]) for name in close) + "?"
    return f"{parent} has nothing of that name."


def listing(folder: Path) -> str:
    """The first names in a folder, folders with a slash."""
    names = sorted(
        f"{entry.name}/" if entry.is_dir() else entry.name
        for entry in islice(folder.iterdir(), LOOKED_AT)
    )
    more = "" if len(names) <= LISTED else f", and {len(names) - LISTED} more"
    return (", ".join(names[:LISTED]) + more) or "nothing"
