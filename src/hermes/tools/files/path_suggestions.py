"""Suggest existing paths for one that does not exist."""

from difflib import get_close_matches
from itertools import islice
from pathlib import Path

MAX_SCANNED = 2_000
MAX_LISTED = 40
MAX_COMPARED = 60
"""Characters of a name; comparing may take cubic time."""


def suggest_path(path: Path) -> str:
    """Return a sentence about the nearest existing path."""
    parent = path.parent
    if not parent.is_dir():
        existing = next((folder for folder in parent.parents if folder.is_dir()), Path("/"))
        return f"The folder {parent} does not exist; {existing} does."
    try:
        names = [entry.name for entry in islice(parent.iterdir(), MAX_SCANNED)]
    except OSError as error:
        return f"{parent} cannot be listed: {error.strerror}."
    by_case = {name.lower()[:MAX_COMPARED]: name for name in names}
    close = get_close_matches(path.name.lower()[:MAX_COMPARED], by_case, n=3, cutoff=0.6)
    if close:
        return "Did you mean " + " or ".join(str(parent / by_case[name]) for name in close) + "?"
    return f"{parent} contains nothing of that name."


def list_folder(folder: Path) -> str:
    """List the first names in a folder, folders with a slash."""
    names = sorted(
        f"{entry.name}/" if entry.is_dir() else entry.name
        for entry in islice(folder.iterdir(), MAX_SCANNED)
    )
    more = "" if len(names) <= MAX_LISTED else f", and {len(names) - MAX_LISTED} more"
    return (", ".join(names[:MAX_LISTED]) + more) or "nothing"
