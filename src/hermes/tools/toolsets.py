"""Names for groups of tools, as the configuration and the user write them."""

from collections.abc import Iterable, Mapping

from hermes.schema.errors import UsageError

TOOLSETS: Mapping[str, tuple[str, ...]] = {
    "file": ("read_file", "write_file", "patch", "search_files"),
    "terminal": ("terminal", "process"),
    "todo": ("todo",),
    "clarify": ("clarify",),
}
"""What each plain toolset holds."""

COMPOSITES: Mapping[str, tuple[str, ...]] = {
    "coding": ("terminal", "file", "todo"),
    "debugging": ("terminal", "file"),
    "hermes-cli": ("terminal", "file", "todo", "clarify"),
    "safe": (),
}
"""Toolsets made of others; `safe` has only tools that touch neither files nor processes."""


def known_toolsets() -> list[str]:
    return sorted({*TOOLSETS, *COMPOSITES})


def tools_of(names: Iterable[str]) -> list[str]:
    """The tools of several toolsets, each once, in a stable order. Raises `UsageError`."""
    tools: dict[str, None] = {}
    for name in names:
        for plain in COMPOSITES.get(name, (name,)):
            if plain not in TOOLSETS:
                known = ", ".join(known_toolsets())
                raise UsageError(f"there is no toolset {name!r}", hint=f"Known toolsets: {known}.")
            tools.update(dict.fromkeys(TOOLSETS[plain]))
    return list(tools)
