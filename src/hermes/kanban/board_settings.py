"""The settings and descriptions of profiles that concern boards."""

from collections.abc import Mapping
from typing import Protocol

from msgspec import Struct


class ViewSettings(Struct, frozen=True, kw_only=True):
    """Display settings for programs that show boards."""

    default_tenant: str = ""
    lane_by_profile: bool = True
    include_archived_by_default: bool = False
    render_markdown: bool = True


class Orchestration(Struct, frozen=True, kw_only=True):
    """The profiles that plan tasks and get unassigned ones; empty means the default."""

    orchestrator_profile: str = ""
    default_assignee: str = ""
    auto_decompose: bool = True


class ProfileDescription(Struct, frozen=True):
    """What a profile can do; `automatic` if a model wrote the description."""

    text: str = ""
    automatic: bool = False


class BoardSettings(Protocol):
    """Reads and writes the board settings of the service's own profile."""

    def view(self) -> ViewSettings: ...

    def orchestration(self) -> Orchestration: ...

    def change_orchestration(self, changes: Mapping[str, str | bool]) -> None:
        """Change the given settings; an empty text removes one."""
        ...

    def description(self, profile: str) -> ProfileDescription: ...

    def describe(self, profile: str, description: ProfileDescription) -> None: ...

    def sources(self, profile: str) -> str:
        """The text from which a profile can be described."""
        ...
