"""Choose what a turn runs with: model, prompt, tools and limits."""

import os
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from hermes.agent.loop_guard import GuardLimits
from hermes.agent.plan import Plan, RuntimePlan
from hermes.agent.prompts import PromptFacts, build_prompt
from hermes.app.chat_settings import ChatSettings
from hermes.app.models import ModelSelector
from hermes.app.prompt_context import (
    PromptContext,
    PromptRequest,
    PromptSections,
    personality_text,
    read_prefill,
)
from hermes.app.toolbox import Toolbox
from hermes.config.home import Home
from hermes.config.schema import Config
from hermes.config.sections.execution import Limits
from hermes.gateway.roles import permitted_tools
from hermes.kit.clock import Clock
from hermes.kit.files import file_error, read_regular_file
from hermes.models.settings import ModelOverrides
from hermes.ports.approvals import Approvals
from hermes.ports.plugins import RuntimeProvider
from hermes.ports.runtime import Runtime
from hermes.ports.store import Store
from hermes.ports.tool import SupportsRestore, Tool
from hermes.sandbox.backends import remote_location
from hermes.schema.messages import Message
from hermes.schema.scope import Role, Scope, policy_platform
from hermes.schema.sessions import Session
from hermes.schema.tools import ToolSpec
from hermes.session.spend_guard import SpendCaps, SpendGuard

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hermes.ports.turn import TurnHooks


def no_text(name: str) -> str:
    return ""


class ModelInfo(Protocol):
    """What a prompt says about a model."""

    @property
    def name(self) -> str: ...
    @property
    def provider(self) -> str: ...
    @property
    def window(self) -> int: ...


class TurnSettings(Struct, frozen=True, kw_only=True):
    """Settings and flags that apply to every turn."""

    steps: int
    guard: GuardLimits
    effort: str | None
    user_home: Path
    extra_prompt: str
    commands_at: Callable[[str], str] = no_text  # by platform: where commands run, if elsewhere
    personality: Callable[[str], str] = no_text  # text by name; "" is the default one
    prompt_context: PromptContext | None = None  # the skills, project and memory sections
    spend_guard: SpendGuard | None = None
    efforts: Mapping[str, str] = {}  # reasoning effort by model name
    prefill: Sequence[Message] = ()  # precedes every conversation


def turn_settings(
    config: Config,
    home: Home,
    *,
    user_home: Path,
    steps: int | None,
    system_prompt: str,
    prompt_context: PromptContext,
    spend_guard: SpendGuard | None,
) -> TurnSettings:
    """What the settings say about turns; `steps` and `system_prompt` are flags."""
    agent = config.agent
    prompts = (agent.environment_hint.strip(), agent.system_prompt, system_prompt)
    overrides = agent.reasoning_overrides.items()
    prefill = config.prefill_messages_file.strip()
    return TurnSettings(
        steps=steps or agent.max_turns,
        guard=_guard_limits(config),
        effort=agent.reasoning_effort or None,
        personality=partial(personality_text, config),
        prompt_context=prompt_context,
        user_home=user_home,
        extra_prompt="\n\n".join(filter(None, prompts)),
        commands_at=partial(remote_location, config.terminal),
        efforts={name: effort for name, effort in overrides if isinstance(effort, str)},
        prefill=read_prefill(home, prefill) if prefill else (),
        spend_guard=spend_guard,
    )


def configured_spend_guard(limits: Limits, store: Store, clock: Clock) -> SpendGuard | None:
    """None without a limit."""
    caps = SpendCaps(
        session=limits.usd_per_session, day=limits.usd_per_day, principal=limits.usd_per_principal
    )
    return None if caps == SpendCaps() else SpendGuard(store, clock, caps)


def _guard_limits(config: Config) -> GuardLimits:
    guardrails = config.tool_loop_guardrails
    return GuardLimits(
        warns=guardrails.warnings_enabled,
        stops=guardrails.hard_stop_enabled,
        warn_same_failure=guardrails.warn_after.exact_failure,
        warn_tool_failures=guardrails.warn_after.same_tool_failure,
        warn_no_progress=guardrails.warn_after.idempotent_no_progress,
        stop_same_failure=guardrails.hard_stop_after.exact_failure,
        stop_tool_failures=guardrails.hard_stop_after.same_tool_failure,
        stop_no_progress=guardrails.hard_stop_after.idempotent_no_progress,
    )


class StandardPlanner:
    def __init__(
        self,
        *,
        models: ModelSelector,
        toolbox: Toolbox,
        chats: ChatSettings,
        settings: TurnSettings,
        soul: Path,
        clock: Clock,
        approvals: Callable[[], Approvals],
        hooks: "TurnHooks | None",
        files_changed: Callable[[Scope], Awaitable[bool | None]],
        ready: Callable[[], Awaitable[None]],
    ) -> None:
        """`ready` is awaited before every plan, for example until tools are loaded."""
        self._models = models
        self._toolbox = toolbox
        self._chats = chats
        self._settings = settings
        self._effort = settings.effort
        self._soul = soul
        self._clock = clock
        self._approvals = approvals
        self.hooks = hooks
        self._files_changed = files_changed
        self._ready = ready
        self._offers: dict[tuple[str, Role], _ToolOffer] = {}

    def change_effort(self, effort: str) -> None:
        """Change the effort of sessions that chose none, starting with their next turn."""
        self._effort = effort

    async def plan(self, session: Session, scope: Scope, history: Sequence[Message]) -> Plan:
        await self._ready()
        default = None
        if scope.address is not None:
            override = self._chats.override(scope.address)
            default = ModelOverrides(model=override.model, provider=override.provider)
        model = await self._models.model_for(session, default)
        offer = self._offered(scope)
        for tool in offer.restorable if history else ():
            tool.restore(session.id, history)
        tools, unlisted = self._turn_tools(offer, model)
        guard = self._settings.spend_guard
        build = partial(self.prompt, session, scope, model, tools)
        # Reuse the session's prompt byte for byte while its model stays the same. It was built for
        # the session's principal and may contain their memory, so no one else gets it.
        reusable = (session.model, session.provider) == (model.name, model.provider)
        reusable = reusable and scope.principal == session.principal
        efforts = self._settings.efforts
        effort = efforts.get(model.name, self._effort)
        effort = efforts.get(f"{model.provider}/{model.name}", effort)
        return Plan(
            scope=scope,
            model=model,
            system=session.system if session.system and reusable else build(),
            rebuild_prompt=build,
            check_spend=guard.check_for(session, scope.principal) if guard else None,
            history=history,
            tools=tools,
            steps=self._settings.steps,
            guard=self._settings.guard,
            effort=session.effort or effort,
            prefill=self._settings.prefill,
            clock=self._clock,
            approvals=self._approvals,
            unlisted=unlisted,
            hooks=self.hooks,
            files_changed=partial(self._files_changed, scope),
        )

    def listed_specs(self, scope: Scope, model: ModelInfo) -> list[ToolSpec]:
        """The tools listed in a request of this scope."""
        tools, unlisted = self._turn_tools(self._offered(scope), model)
        return [tool.spec for name, tool in tools.items() if name not in unlisted]

    def _turn_tools(
        self, offer: "_ToolOffer", model: ModelInfo
    ) -> tuple[Mapping[str, Tool], Collection[str]]:
        window, limits = model.window, offer.limits
        if window not in limits:
            limited = self._toolbox.limit(offer.tools, window)
            limits[window] = (limited.tools, limited.unlisted) if limited else (offer.tools, ())
        tools, unlisted = limits[window]
        if few := self._models.profile_of(model).tools:
            from hermes.tools.cautious_tool import CautiousTool  # noqa: PLC0415 - only for small models

            tools = {name: CautiousTool(tools[name]) for name in few if name in tools}
            unlisted = ()
        return tools, unlisted

    def offered(self, scope: Scope) -> Mapping[str, Tool]:
        """The tools available to the requester."""
        return self._offered(scope).tools

    def _offered(self, scope: Scope) -> "_ToolOffer":
        """The tools of the platform that the requester may use."""
        platform = policy_platform(scope)
        key = (platform, scope.role)
        tools = self._toolbox.tools_on(platform)
        offer = self._offers.get(key)
        if offer is None or offer.all_tools is not tools:
            permissions = self._chats.permissions(platform, scope.role)
            specs = permitted_tools(
                permissions, (tool.spec for tool in tools.values()), self._toolbox.tools_named
            )
            chosen = {spec.name: tools[spec.name] for spec in specs}
            offer = self._offers[key] = _ToolOffer(tools, chosen)
        inherited = scope.bounds.tools if scope.bounds is not None else None
        return offer if inherited is None else offer.within(frozenset(inherited))

    def prompt(
        self, session: Session, scope: Scope, model: ModelInfo, tools: Mapping[str, Tool]
    ) -> str:
        """Build the prompt of a new session, or rebuild it after compaction."""
        if short := self._models.profile_of(model).prompt:
            return self._short_prompt(short, session, scope)
        sections = self._sections(scope, model, tools)
        machine = os.uname()
        location = self._settings.commands_at(policy_platform(scope)) if "terminal" in tools else ""
        return build_prompt(
            PromptFacts(
                soul=_read_soul(self._soul),
                system=f"{machine.sysname} {machine.release} ({machine.machine})",
                home=str(self._settings.user_home),
                workspace=scope.workspace,
                today=self._clock.now().astimezone().date(),
                model=model.name,
                provider=model.provider,
                profile=scope.profile,
                commands=location,
                extra=self.extra_instructions(session, scope),
                skills=sections.skills,
                project=sections.project,
                memory=sections.memory,
            )
        )

    def _short_prompt(self, prompt: str, session: Session, scope: Scope) -> str:
        """The prompt for a slow embedded model, the same in all folders, so it is read once."""
        today = self._clock.now().astimezone().date()
        parts = [prompt, f"Today is {today:%A, %Y-%m-%d}.", self.extra_instructions(session, scope)]
        return "\n\n".join(part for part in parts if part)

    def _sections(
        self, scope: Scope, model: ModelInfo, tools: Mapping[str, Tool]
    ) -> PromptSections:
        if self._settings.prompt_context is None:
            return PromptSections()
        request = PromptRequest(
            workspace=scope.workspace,
            role=scope.role,
            platform=policy_platform(scope),
            tools=sorted(tools),
            toolsets=sorted({tool.spec.toolset for tool in tools.values()} - {""}),
            window=model.window,
        )
        return self._settings.prompt_context.sections(request)

    def extra_instructions(self, session: Session, scope: Scope) -> str:
        """Configured instructions for this chat and session."""
        parts = [
            self._settings.extra_prompt,
            self._chats.prompt(scope.address) if scope.address is not None else "",
            self._settings.personality(session.personality),
        ]
        return "\n\n".join(part for part in parts if part)


class _ToolOffer(Struct, dict=True):
    """The permitted tools of a platform and role."""

    all_tools: Mapping[str, Tool]
    tools: Mapping[str, Tool]
    limits: dict[int, tuple[Mapping[str, Tool], Collection[str]]] = {}
    """By size of the window: the tools of a turn, and which of them its requests do not list."""

    @cached_property
    def restorable(self) -> Sequence[SupportsRestore]:
        return [tool for tool in self.tools.values() if isinstance(tool, SupportsRestore)]

    def within(self, inherited: Collection[str]) -> "_ToolOffer":
        """Limit a subagent to its parent's tools."""
        chosen = {name: tool for name, tool in self.tools.items() if name in inherited}
        return _ToolOffer(self.all_tools, chosen)


class RuntimePlanner:
    """Plans every turn for one runtime."""

    def __init__(self, runtime: Runtime, standard: StandardPlanner) -> None:
        self._runtime = runtime
        self._standard = standard

    async def plan(
        self, session: Session, scope: Scope, history: Sequence[Message]
    ) -> Plan | RuntimePlan:
        return RuntimePlan(
            scope=scope,
            runtime=self._runtime,
            system=self._standard.extra_instructions(session, scope),
            history=history,
            hooks=self._standard.hooks,
        )


class RuntimeSelector(Struct, kw_only=True):
    """Plans a turn for the first registered runtime that takes it, otherwise as usual."""

    standard: StandardPlanner
    runtimes: Sequence[RuntimeProvider]
    approvals: Callable[[], Approvals]
    clock: Clock

    async def plan(
        self, session: Session, scope: Scope, history: Sequence[Message]
    ) -> Plan | RuntimePlan:
        for provider in self.runtimes:
            turn = await provider.turn_for(session, scope, history, self.standard.offered)
            if turn is None:
                continue
            model = turn.prompt_for
            return RuntimePlan(
                scope=scope,
                runtime=turn.runtime,
                system=self.standard.extra_instructions(session, scope)
                if model is None
                else self.standard.prompt(session, scope, model, turn.tools),
                history=history,
                tools=turn.tools,
                approvals=self.approvals,
                clock=self.clock,
                hooks=self.standard.hooks,
            )
        return await self.standard.plan(session, scope, history)


def _read_soul(path: Path) -> str:
    try:
        return read_regular_file(path).decode("utf-8", "replace")
    except FileNotFoundError:
        return ""
    except OSError as error:
        hint = f"Make it a readable file, or rename it: mv {path} {path}.old"
        raise file_error(error, f"Cannot read {path}: {error.strerror}.", hint) from error
