"""Named groups of tools, as used in the configuration and on the command line."""

from collections.abc import Iterable, Mapping

from hermes.kit.text import did_you_mean
from hermes.schema.errors import UsageError

TOOLSETS: Mapping[str, tuple[str, ...]] = {
    "file": ("read_file", "write_file", "patch", "search_files"),
    "terminal": ("terminal", "process"),
    "todo": ("todo",),
    "clarify": ("clarify",),
    "memory": ("memory",),
    "skills": ("skills_list", "skill_view", "skill_manage"),
    "session_search": ("session_search",),
    "code_execution": ("execute_code",),
    "delegation": ("delegate_task",),
    "messaging": ("send_message",),
}
"""The tools of each basic toolset."""

_CORE = (
    "terminal", "file", "todo", "clarify", "memory", "skills", "session_search",
    "code_execution", "delegation", "messaging",
)  # fmt: skip

COMPOSITES: Mapping[str, tuple[str, ...]] = {
    "coding": ("terminal", "file", "todo", "code_execution"),
    "debugging": ("terminal", "file"),
    "hermes-cli": _CORE,
    "hermes-api-server": tuple(name for name in _CORE if name != "clarify"),
    "safe": (),
}
"""Toolsets made of others; `safe` has only tools that touch neither files nor processes."""


def known_toolsets() -> list[str]:
    return sorted({*TOOLSETS, *COMPOSITES})


def tools_of(names: Iterable[str]) -> list[str]:
    """Return the tools of several toolsets without duplicates. Raises `UsageError`."""
    tools: dict[str, None] = {}
    for name in names:
        for plain in COMPOSITES.get(name, (name,)):
            if plain not in TOOLSETS:
                known = ", ".join(known_toolsets())
                near = did_you_mean(name, known_toolsets())
                hint = near or f"Known toolsets: {known}."
                raise UsageError(f"Unknown toolset: {name}.", hint=hint)
            tools.update(dict.fromkeys(TOOLSETS[plain]))
    return list(tools)
