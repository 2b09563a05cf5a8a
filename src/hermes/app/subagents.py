"""Build the subagent service from the settings."""

from collections.abc import Sequence

from hermes.app.followup_router import FollowupRouter
from hermes.config.schema import Config
from hermes.kit.clock import Clock
from hermes.ports.store import Store
from hermes.session.runner import Runner
from hermes.subagents.child import SubagentBudget, SubagentModel, SubagentTimeouts
from hermes.subagents.delegations import DelegationDeps, DelegationRules
from hermes.tools.catalog import known_toolsets, tools_of


def delegation_deps(
    config: Config, store: Store, runner: Runner, clock: Clock, later: FollowupRouter
) -> DelegationDeps:
    settings = config.delegation
    return DelegationDeps(
        store=store,
        runner=runner,
        clock=clock,
        followups=later,
        current_scope=later.current_scope,
        rules=DelegationRules(
            concurrent=max(1, settings.max_concurrent_children),
            depth=settings.max_spawn_depth,
            allow_orchestrators=settings.orchestrator_enabled,
            summary=settings.max_summary_chars,
            budget=SubagentBudget(
                steps=settings.max_iterations,
                auto_approve=settings.subagent_auto_approve,
                timeouts=SubagentTimeouts(total=settings.child_timeout_seconds),
                model=SubagentModel(
                    model=settings.model,
                    provider=settings.provider,
                    effort=settings.reasoning_effort,
                ),
                excluded_tools=_excluded_tools(settings.default_toolsets),
            ),
        ),
    )


def _excluded_tools(toolsets: Sequence[str]) -> frozenset[str]:
    """Our tools that are in none of these toolsets; none if no toolset is named."""
    if not toolsets:
        return frozenset()
    known = known_toolsets()
    named = tools_of(name for name in toolsets if name in known)
    return frozenset(tools_of(known)).difference(named)
