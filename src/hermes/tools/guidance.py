"""Which files tell how things are done in a project: by their names, their places and links."""

import os
from collections.abc import Collection, Iterator
from pathlib import Path

from hermes.kit.files import read_ordinary

OWN = (".hermes.md", "HERMES.md")
"""Looked for in the workspace and above it, up to the root of the repository."""
OTHERS = ("AGENTS.md", "CLAUDE.md", ".cursorrules")
RULES = Path(".cursor") / "rules"
MOST_RULES = 100
"""Of one folder that are looked at; only the first of them is followed."""


def candidates(workspace: Path, root: Path | None, rules: int = 1) -> Iterator[Path]:
    """Where such a file may be, the first one first; `root` is that of the repository."""
    folders = [workspace]
    if root is not None:
        folders += [one for one in workspace.parents if one.is_relative_to(root)]
    yield from (folder / name for folder in folders for name in OWN)
    yield from (
        folder / name for name in OTHERS for folder in dict.fromkeys((workspace, folders[-1]))
    )
    yield from _rules(workspace / RULES)[:rules]


def repository(folder: Path) -> Path | None:
    """An empty `.git` is none: anybody may have made one in `/tmp`."""
    return next((one for one in (folder, *folder.parents) if _has_git(one / ".git")), None)


def guides_among(paths: Collection[Path], workspace: Path) -> frozenset[Path]:
    """Those that tell how things are done by their name, or because a link there leads to them."""
    there = candidates(workspace, repository(workspace), MOST_RULES)
    linked = {Path(os.path.realpath(one)) for one in there if os.path.lexists(one)}
    return frozenset(path for path in paths if is_guide(path) or path in linked)


def is_guide(path: Path) -> bool:
    ruling = path.suffix == ".mdc" and path.parent.parts[-2:] == RULES.parts
    return ruling or path.name in (*OWN, *OTHERS)


def guides_around(folder: Path, largest: int) -> Iterator[tuple[Path, bytes]]:
    """All that there are for somebody who works there, with what they say."""
    for path in candidates(folder, repository(folder), MOST_RULES):
        if os.path.lexists(path):
            try:
                yield path, read_ordinary(Path(os.path.realpath(path)), largest)
            except OSError:
                continue


def _rules(folder: Path) -> list[Path]:
    try:
        return sorted(folder / one for one in os.listdir(folder) if one.endswith(".mdc"))  # noqa: PTH208 - a path for each is dear
    except OSError:
        return []


def _has_git(place: Path) -> bool:
    """Also where it is closed to us, which is no error here."""
    return os.path.isfile(place) or os.path.exists(place / "HEAD")  # noqa: PTH110, PTH113 - as above
