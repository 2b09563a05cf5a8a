"""Find the instruction files of a project: by name, location and link target."""

import os
from collections.abc import Collection, Iterator
from pathlib import Path

from hermes.kit.files import read_regular_file

OWN_NAMES = (".hermes.md", "HERMES.md")
"""Searched in the workspace and its parents up to the root of the repository."""
COMMON_NAMES = ("AGENTS.md", "CLAUDE.md", ".cursorrules")
CURSOR_RULES = Path(".cursor") / "rules"
MAX_RULES = 100
"""Rules of one folder that are considered; only the first is followed."""


def candidate_paths(workspace: Path, root: Path | None, rules: int = 1) -> Iterator[Path]:
    """Yield possible paths of instruction files, best first; `root` is the repository's."""
    folders = [workspace]
    if root is not None:
        folders += [folder for folder in workspace.parents if folder.is_relative_to(root)]
    yield from (folder / name for folder in folders for name in OWN_NAMES)
    yield from (
        folder / name for name in COMMON_NAMES for folder in dict.fromkeys((workspace, folders[-1]))
    )
    yield from _cursor_rules(workspace / CURSOR_RULES)[:rules]


def repository_root(folder: Path) -> Path | None:
    """Find the repository; an empty `.git` does not count, anyone can create one in `/tmp`."""
    return next((one for one in (folder, *folder.parents) if _has_git(one / ".git")), None)


def instruction_files_among(paths: Collection[Path], workspace: Path) -> frozenset[Path]:
    """Return the instruction files among the paths, by name or because a link points to them."""
    candidates = candidate_paths(workspace, repository_root(workspace), MAX_RULES)
    linked = {Path(os.path.realpath(path)) for path in candidates if os.path.lexists(path)}
    return frozenset(path for path in paths if is_instruction_file(path) or path in linked)


def is_instruction_file(path: Path) -> bool:
    is_rule = path.suffix == ".mdc" and path.parent.parts[-2:] == CURSOR_RULES.parts
    return is_rule or path.name in (*OWN_NAMES, *COMMON_NAMES)


def instruction_files_for(folder: Path, largest: int) -> Iterator[tuple[Path, bytes]]:
    """Yield all instruction files for work in a folder, with their content."""
    for path in candidate_paths(folder, repository_root(folder), MAX_RULES):
        if os.path.lexists(path):
            try:
                yield path, read_regular_file(Path(os.path.realpath(path)), largest)
            except OSError:
                continue


def _cursor_rules(folder: Path) -> list[Path]:
    try:
        return sorted(folder / one for one in os.listdir(folder) if one.endswith(".mdc"))  # noqa: PTH208 - creating paths is slow
    except OSError:
        return []


def _has_git(place: Path) -> bool:
    """Also works for folders we cannot read."""
    return os.path.isfile(place) or os.path.exists(place / "HEAD")  # noqa: PTH110, PTH113 - as above
