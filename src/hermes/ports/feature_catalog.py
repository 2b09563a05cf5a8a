"""The catalog of features: where their verbs, routes, tools and services are.

Everything is named as `module:attribute` and imported on use, so that an unused feature costs
nothing.
"""

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, cast

from msgspec import Struct

from hermes.ports.feature import FeatureRoute, FeatureTool, Verb


class FeatureEntry(Struct, frozen=True, kw_only=True):
    """One feature; `service` builds its service from an open profile.

    `verb` is a command of the command line and of chats, `commands` are of chats only. `open` opens
    the feature for the command line, which may have no open profile.
    """

    routes: str
    service: str
    verb: str = ""
    commands: tuple[str, ...] = ()
    tools: str = ""
    open: str = ""


FEATURES: Mapping[str, FeatureEntry] = {
    "cron": FeatureEntry(
        verb="hermes.cron.verb:VERB",
        routes="hermes.cron.routes:ROUTES",
        tools="hermes.cron.tool:TOOLS",
        service="hermes.app.cron:build_job_service",
        open="hermes.app.cron:open_job_service",
    ),
    "kanban": FeatureEntry(
        verb="hermes.kanban.verb:VERB",
        routes="hermes.kanban.routes:ROUTES",
        tools="hermes.kanban.tool:TOOLS",
        service="hermes.app.kanban:build_board_service",
        open="hermes.app.kanban:open_board_service",
    ),
    "goals": FeatureEntry(
        commands=("hermes.goals.verb:GOAL", "hermes.goals.verb:SUBGOAL"),
        routes="hermes.goals.routes:ROUTES",
        service="hermes.app.goals:build_goal_service",
    ),
}


def load_attribute(name: str) -> Any:
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)


def feature_verb(feature: str) -> Verb[Any]:
    return cast("Verb[Any]", load_attribute(FEATURES[feature].verb))


def feature_commands(feature: str) -> Sequence[Verb[Any]]:
    """The slash commands of a feature."""
    entry = FEATURES[feature]
    names = [name for name in (entry.verb, *entry.commands) if name]
    return [cast("Verb[Any]", load_attribute(name)) for name in names]


def feature_routes(feature: str) -> Sequence[FeatureRoute[Any]]:
    return cast("Sequence[FeatureRoute[Any]]", load_attribute(FEATURES[feature].routes))


def feature_tool(feature: str, tool: str) -> FeatureTool[Any]:
    tools = cast("Sequence[FeatureTool[Any]]", load_attribute(FEATURES[feature].tools))
    return next(one for one in tools if one.name == tool)
