"""Which files tell how things are done in a project: by their names, their places and links."""

import os
from collections.abc import Collection, Iterator
from pathlib import Path

from hermes.kit.files import read_regular_file

OWN_NAMES = (".hermes.md", "HERMES.md")
"""Looked for in the workspace and above it, up to the root of the repository."""
COMMON_NAMES = ("AGENTS.md", "CLAUDE.md", ".cursorrules")
CURSOR_RULES = Path(".cursor") / "rules"
MAX_RULES = 100
"""Of one folder that are looked at; only the first of them is followed."""


def candidate_paths(workspace: Path, root: Path | None, rules: int = 1) -> Iterator[Path]:
    """Where such a file may be, the first one first; `root` is that of the repository."""
    folders = [workspace]
    if root is not None:
        folders += [one for one in workspace.parents if one.is_relative_to(root)]
    yield from (folder / name for folder in folders for name in OWN_NAMES)
    yield from (
        folder / name for name in COMMON_NAMES for folder in dict.fromkeys((workspace, folders[-1]))
    )
    yield from _cursor_rules(workspace / CURSOR_RULES)[:rules]


def repository_root(folder: Path) -> Path | None:
    """An empty `.git` is none: anybody may have made one in `/tmp`."""
    return next((one for one in (folder, *folder.parents) if _has_git(one / ".git")), None)


def instruction_files_among(paths: Collection[Path], workspace: Path) -> frozenset[Path]:
    """Those that tell how things are done by their name, or because a link there leads to them."""
    there = candidate_paths(workspace, repository_root(workspace), MAX_RULES)
    linked = {Path(os.path.realpath(one)) for one in there if os.path.lexists(one)}
    return frozenset(path for path in paths if is_instruction_file(path) or path in linked)


def is_instruction_file(path: Path) -> bool:
    decision = path.suffix == ".mdc" and path.parent.parts[-2:] == CURSOR_RULES.parts
    return decision or path.name in (*OWN_NAMES, *COMMON_NAMES)


def instruction_files_for(folder: Path, largest: int) -> Iterator[tuple[Path, bytes]]:
    """All that there are for somebody who works there, with what they say."""
    for path in candidate_paths(folder, repository_root(folder), MAX_RULES):
        if os.path.lexists(path):
            try:
                yield path, read_regular_file(Path(os.path.realpath(path)), largest)
            except OSError:
                continue


def _cursor_rules(folder: Path) -> list[Path]:
    try:
        return sorted(folder / one for one in os.listdir(folder) if one.endswith(".mdc"))  # noqa: PTH208 - a path for each is dear
    except OSError:
        return []


def _has_git(place: Path) -> bool:
    """Also where it is closed to us, which is no error here."""
    return os.path.isfile(place) or os.path.exists(place / "HEAD")  # noqa: PTH110, PTH113 - as above
