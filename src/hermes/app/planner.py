"""Choose what a turn runs with: model, prompt, tools and limits."""

import os
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
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
    personality_text,
    read_prefill,
)
from hermes.app.toolbox import McpService, Toolbox
from hermes.config.env import read_text
from hermes.config.home import Home
from hermes.config.schema import Config
from hermes.gateway.roles import permitted_tools
from hermes.kit.clock import Clock
from hermes.kit.files import settled_stamp
from hermes.models.resilient_model import ResilientModel
from hermes.models.settings import ModelOverrides
from hermes.ports.approvals import Approvals
from hermes.ports.plugins import RuntimeProvider
from hermes.ports.runtime import Runtime
from hermes.ports.tool import SupportsRestore, Tool
from hermes.sandbox.backends import remote_location
from hermes.schema.messages import Message
from hermes.schema.scope import Role, Scope, policy_platform
from hermes.schema.sessions import Session
from hermes.schema.tools import ToolSpec
from hermes.session.spend_guard import SpendGuard

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
    commands_at: Callable[[str], str] | None = None  # by platform: where they run, if elsewhere
    personality: str = ""  # the name of the default one
    personality_text: Callable[[str], str] = no_text  # by name
    efforts: Mapping[str, str] = {}  # reasoning effort by model name
    prefill: Sequence[Message] = ()  # precedes every conversation


def turn_settings(
    config: Config,
    home: Home,
    *,
    user_home: Path,
    steps: int | None,
    system_prompt: str,
) -> TurnSettings:
    """What the settings say about turns; `steps` and `system_prompt` are flags."""
    agent, terminal, guardrails = config.agent, config.terminal, config.tool_loop_guardrails
    over_ssh = "ssh" in {terminal.backend, *terminal.backend_by_platform.values()}
    prompts = (agent.environment_hint.strip(), agent.system_prompt, system_prompt)
    overrides = agent.reasoning_overrides.items()
    prefill = config.prefill_messages_file.strip()
    return TurnSettings(
        steps=steps or agent.max_turns,
        guard=GuardLimits(
            warns=guardrails.warnings_enabled,
            stops=guardrails.hard_stop_enabled,
            warn_same_failure=guardrails.warn_after.exact_failure,
            warn_tool_failures=guardrails.warn_after.same_tool_failure,
            warn_no_progress=guardrails.warn_after.idempotent_no_progress,
            stop_same_failure=guardrails.hard_stop_after.exact_failure,
            stop_tool_failures=guardrails.hard_stop_after.same_tool_failure,
            stop_no_progress=guardrails.hard_stop_after.idempotent_no_progress,
        ),
        effort=agent.reasoning_effort or None,
        personality=config.display.personality,
        personality_text=partial(personality_text, config),
        user_home=user_home,
        extra_prompt="\n\n".join(filter(None, prompts)),
        commands_at=partial(remote_location, terminal) if over_ssh else None,
        efforts={name: effort for name, effort in overrides if isinstance(effort, str)},
        prefill=read_prefill(home, prefill) if prefill else (),
    )


class _Soul(Struct):
    """The owner's description of the agent; its file is read again after it changed."""

    _path: Path
    _stamp: tuple[int, int, int] | None = None
    _text: str = ""

    def read(self) -> str:
        stamp = None
        with suppress(OSError):
            stamp = settled_stamp(str(self._path))
        if stamp is None or stamp != self._stamp:
            self._text, self._stamp = read_text(self._path, errors="replace"), stamp
        return self._text


class StandardPlanner:
    def __init__(
        self,
        *,
        models: ModelSelector,
        toolbox: Toolbox,
        servers: McpService,
        chats: ChatSettings,
        settings: TurnSettings,
        prompt_context: PromptContext,
        soul: Path,
        clock: Clock,
        approvals: Callable[[], Approvals],
        spend_guard: SpendGuard | None,
        hooks: "TurnHooks | None",
        files_changed: Callable[[Scope], Awaitable[bool | None]],
    ) -> None:
        """`prompt_context` has the skills, project and memory sections of prompts."""
        self._models = models
        self._toolbox = toolbox
        self._servers = servers
        self._chats = chats
        self._settings = settings
        self._effort = settings.effort
        self._prompt_context = prompt_context
        self._soul = _Soul(soul)
        machine = os.uname()
        self._system = f"{machine.sysname} {machine.release} ({machine.machine})"
        self._clock = clock
        self._approvals = approvals
        self._spend_guard = spend_guard
        self.hooks = hooks
        self._files_changed = files_changed
        self._offers: dict[tuple[str, Role, int, tuple[str, ...]], _ToolOffer] = {}

    def change_effort(self, effort: str) -> None:
        """Change the effort of sessions that chose none, starting with their next turn."""
        self._effort = effort

    async def plan(self, session: Session, scope: Scope, history: Sequence[Message]) -> Plan:
        if self._servers.loaded is not None:
            await self._servers.loaded.wait_ready()
        default = None
        if scope.address is not None:
            override = self._chats.override(scope.address)
            default = ModelOverrides(model=override.model, provider=override.provider)
        model = await self._models.model_for(session, default)
        offer = self._offer(scope, model)
        for tool in offer.restorable if history else ():
            tool.restore(session.id, history)
        guard = self._spend_guard
        build = partial(self.prompt, session, scope, model, offer.tools)
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
            tools=offer.tools,
            steps=self._settings.steps,
            guard=self._settings.guard,
            effort=session.effort or effort,
            prefill=self._settings.prefill,
            clock=self._clock,
            approvals=self._approvals,
            unlisted=offer.unlisted,
            hooks=self.hooks,
            files_changed=partial(self._files_changed, scope),
        )

    def listed_specs(self, scope: Scope, model: ModelInfo) -> list[ToolSpec]:
        """The tools listed in a request of this scope."""
        offer = self._offer(scope, model)
        return [tool.spec for name, tool in offer.tools.items() if name not in offer.unlisted]

    def offered(self, scope: Scope) -> Mapping[str, Tool]:
        """The tools available to the requester."""
        return self._offer(scope).tools

    def _offer(self, scope: Scope, model: ModelInfo | None = None) -> "_ToolOffer":
        """The tools of the platform that the requester may use, as the model gets them.

        Without a model, they are not limited to what fits its window.
        """
        platform = policy_platform(scope)
        inherited = scope.bounds.tools if scope.bounds is not None else None
        few = tuple(model.profile.tools) if isinstance(model, ResilientModel) else ()
        key = (platform, scope.role, 0 if model is None else model.window, few)
        offer = self._offers.get(key) if inherited is None else None
        if offer is not None and offer.change == self._toolbox.changes:
            return offer
        change, all_tools = self._toolbox.changes, self._toolbox.tools_on(platform)
        permitted = permitted_tools(
            self._chats.permissions(platform, scope.role),
            (tool.spec for tool in all_tools.values()),
            self._toolbox.tools_named,
        )
        names = [spec.name for spec in permitted if inherited is None or spec.name in inherited]
        tools = {name: all_tools[name] for name in names}
        restorable = [tool for tool in tools.values() if isinstance(tool, SupportsRestore)]
        offer = _ToolOffer(change, tools, restorable)
        if few:
            from hermes.tools.cautious_tool import CautiousTool  # noqa: PLC0415 - only for small models

            offer.tools = {name: CautiousTool(tools[name]) for name in few if name in tools}
        elif model is not None and (limited := self._toolbox.limit(tools, model.window)):
            offer.tools, offer.unlisted = limited.tools, limited.unlisted
        if inherited is None:
            self._offers[key] = offer
        return offer

    def prompt(
        self, session: Session, scope: Scope, model: ModelInfo, tools: Mapping[str, Tool]
    ) -> str:
        """Build the prompt of a new session, or rebuild it after compaction."""
        if isinstance(model, ResilientModel) and model.profile.prompt:
            return self._short_prompt(model.profile.prompt, session, scope)
        platform, commands_at = policy_platform(scope), self._settings.commands_at
        sections = self._prompt_context.sections(
            PromptRequest(
                workspace=scope.workspace,
                role=scope.role,
                platform=platform,
                tools=sorted(tools),
                toolsets=sorted({tool.spec.toolset for tool in tools.values()} - {""}),
                window=model.window,
            )
        )
        return build_prompt(
            PromptFacts(
                soul=self._soul.read(),
                system=self._system,
                home=str(self._settings.user_home),
                workspace=scope.workspace,
                today=self._clock.now().astimezone().date(),
                model=model.name,
                provider=model.provider,
                profile=scope.profile,
                commands=commands_at(platform) if commands_at and "terminal" in tools else "",
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

    def extra_instructions(self, session: Session, scope: Scope) -> str:
        """Configured instructions for this chat and session."""
        personality = session.personality or self._settings.personality
        parts = [
            self._settings.extra_prompt,
            self._chats.prompt(scope.address) if scope.address is not None else "",
            self._settings.personality_text(personality) if personality else "",
        ]
        return "\n\n".join(part for part in parts if part)


class _ToolOffer(Struct):
    """The tools of a platform that a role and a model get, until the next change of the tools."""

    change: int
    tools: Mapping[str, Tool]
    restorable: Sequence[SupportsRestore]
    unlisted: Collection[str] = ()
    """Tools that requests do not list."""


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
