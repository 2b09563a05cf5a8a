"""Named groups of tools, as used in the configuration and on the command line."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache

from hermes.kit.text import did_you_mean
from hermes.schema.errors import UsageError
from hermes.schema.tools import ToolSpec
from hermes.tools.tool_wrappers import load_specs

OPTIONAL = frozenset({"kanban"})
"""Toolsets that must be named; workers on a board have theirs."""


class Toolsets:
    """The toolsets that the specs of the tools name, and those made of others.

    `all` and `hermes-cli` are all but the optional ones, `hermes-api-server` those of them that
    ask no person; `safe` has only tools that touch neither files nor processes.
    """

    def __init__(self, specs: Mapping[str, ToolSpec]) -> None:
        named = dict.fromkeys(spec.toolset for spec in specs.values())
        self.single: Mapping[str, Sequence[str]] = {
            toolset: tuple(name for name, spec in specs.items() if spec.toolset == toolset)
            for toolset in named
        }
        common = tuple(name for name in named if name not in OPTIONAL)
        asking = {spec.toolset for spec in specs.values() if spec.asks}
        self.composites: Mapping[str, Sequence[str]] = {
            "all": tuple(named),
            "coding": ("terminal", "file", "todo", "code_execution"),
            "debugging": ("terminal", "file"),
            "hermes-cli": common,
            "hermes-api-server": tuple(name for name in common if name not in asking),
            "safe": (),
        }

    def names(self) -> list[str]:
        return sorted({*self.single, *self.composites})

    def tools_of(self, names: Iterable[str]) -> list[str]:
        """Return the tools of several toolsets without duplicates. Raises `UsageError`."""
        tools: dict[str, None] = {}
        for name in names:
            for plain in self.composites.get(name, (name,)):
                if plain not in self.single:
                    near = did_you_mean(name, self.names())
                    hint = near or f"Known toolsets: {', '.join(self.names())}."
                    raise UsageError(f"Unknown toolset: {name}.", hint=hint)
                tools.update(dict.fromkeys(self.single[plain]))
        return list(tools)


@cache
def built_in_toolsets() -> Toolsets:
    return Toolsets(load_specs())


def known_toolsets() -> list[str]:
    return built_in_toolsets().names()


def tools_of(names: Iterable[str]) -> list[str]:
    """Return the built-in tools of several toolsets. Raises `UsageError`."""
    return built_in_toolsets().tools_of(names)
