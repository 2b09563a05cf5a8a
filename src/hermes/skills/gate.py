"""Whether a skill can be used here and now: system, tools, variables, programs."""

import sys
from collections.abc import Callable, Collection, Sequence

from msgspec import Struct

from hermes.skills.document import Head
from hermes.skills.shelf import Skill

_SYSTEMS = {"linux": "linux", "darwin": "macos", "win32": "windows"}


class Surroundings(Struct, frozen=True, kw_only=True):
    """`has_variable` and `has_program` are asked only about what a skill names."""

    tools: Collection[str]
    toolsets: Collection[str]
    has_variable: Callable[[str], bool]
    has_program: Callable[[str], bool]
    system: str = _SYSTEMS.get(sys.platform, sys.platform)
    environments: Collection[str] = ()
    disabled: Collection[str] = ()


class Missing(Struct, frozen=True, kw_only=True):
    """What a skill needs and this place does not have."""

    variables: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.variables or self.programs)


def shown(skills: Sequence[Skill], here: Surroundings) -> list[Skill]:
    """Those that the model is told of: of this system, with tools it has, not switched off."""
    return [
        skill for skill in skills if _fits(skill.head, here) and skill.name not in here.disabled
    ]


def missing(head: Head, here: Surroundings) -> Missing:
    return Missing(
        variables=tuple(v.name for v in head.variables if not here.has_variable(v.name)),
        programs=tuple(name for name in head.commands if not here.has_program(name)),
    )


def _fits(head: Head, here: Surroundings) -> bool:
    if head.platforms and here.system not in {name.lower() for name in head.platforms}:
        return False
    if head.environments and not set(head.environments) & set(here.environments):
        return False
    if not set(head.requires_tools) <= set(here.tools):
        return False
    if not set(head.requires_toolsets) <= set(here.toolsets):
        return False
    # A fallback is for when the better way is not there.
    better = set(head.fallback_for_tools) & set(here.tools)
    return not better and not set(head.fallback_for_toolsets) & set(here.toolsets)
