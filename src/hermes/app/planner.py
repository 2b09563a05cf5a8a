"""Choose what a turn runs with: model, prompt, tools and limits."""

import os
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from hermes.agent.loop_guard import GuardLimits
from hermes.agent.plan import Plan, RuntimePlan
from hermes.agent.system_prompt import PromptFacts, build_prompt
from hermes.app.chat_settings import ChatSettings
from hermes.app.models import ModelSelector
from hermes.app.prompt_context import PromptContext, PromptRequest, PromptSections
from hermes.app.toolbox import Toolbox
from hermes.config.sections.messaging import ChannelOverride
from hermes.gateway.roles import permitted_tools
from hermes.kit.clock import Clock
from hermes.kit.files import file_error, read_regular_file
from hermes.models.settings import ModelOverrides
from hermes.ports.approvals import Approvals
from hermes.ports.runtime import Runtime
from hermes.ports.tool import SupportsRestore, Tool
from hermes.schema.messages import Message
from hermes.schema.scope import InheritedLimits, Role, Scope, policy_platform
from hermes.schema.sessions import Session
from hermes.schema.tools import ToolSpec
from hermes.session.spend_guard import SpendGuard

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hermes.ports.hooks import TurnHooks


def no_personality(personality: str) -> str:
    return ""


class ModelInfo(Protocol):
    """As much of a model as a prompt tells of it."""

    @property
    def name(self) -> str: ...
    @property
    def provider(self) -> str: ...
    @property
    def window(self) -> int: ...


class TurnSettings(Struct, frozen=True, kw_only=True):
    """What the settings and flags say about every turn.

    `personality` gives the words for one of that name; for no name, those of the usual one.
    `briefing` knows the skills, the project and the memory that a prompt tells of; `purse` says
    whether there is money left. `efforts` are for single models, by their names; `prefill` stands
    before every conversation.
    """

    steps: int
    guard: GuardLimits
    effort: str | None
    user_home: Path
    extra_prompt: str
    personality: Callable[[str], str] = no_personality
    briefing: PromptContext | None = None
    purse: SpendGuard | None = None
    efforts: Mapping[str, str] = {}
    prefill: Sequence[Message] = ()


class StandardPlanner:
    def __init__(
        self,
        desk: ModelSelector,
        toolbox: Toolbox,
        chats: ChatSettings,
        settings: TurnSettings,
        soul: Path,
        clock: Clock,
    ) -> None:
        self._desk = desk
        self._toolbox = toolbox
        self._chats = chats
        self._settings = settings
        self._effort = settings.effort
        self._soul = _SoulFile(soul)
        self._clock = clock
        self._counsel: Approvals | None = None
        self.watch: TurnHooks | None = None
        self._ready: Callable[[], Awaitable[None]] | None = None
        self._offers: dict[tuple[str, Role], _ToolOffer] = {}

    def asks(self, counsel: Approvals, watch: "TurnHooks | None" = None) -> None:
        """Whom turns turn to when they may not decide by themselves, and who looks on."""
        self._counsel, self.watch = counsel, watch

    def waits_for(self, ready: Callable[[], Awaitable[None]]) -> None:
        """What comes before every plan: tools that are still on their way."""
        self._ready = ready

    def change_effort(self, effort: str) -> None:
        """For every session that chose none, from its next turn on."""
        self._effort = effort

    async def plan(self, session: Session, scope: Scope, history: Sequence[Message]) -> Plan:
        if self._ready is not None:
            await self._ready()
        model = await self._desk.model_for(
            session, _override_flags(self._chats.override(scope.address))
        )
        offer = self._offered(scope)
        for tool in offer.restorable:
            tool.restore(session.id, history)
        tools, unlisted = self._told(offer, model)
        purse = self._settings.purse
        fresh = partial(self.prompt, session, scope, model, tools)
        # The session's own prompt again, byte for byte, as long as its model stays. It was written
        # for the session's principal and may hold their memory, so nobody else is given it.
        same = (session.model, session.provider) == (model.name, model.provider)
        same = same and scope.principal == session.principal
        return Plan(
            scope=scope,
            model=model,
            system=session.system if session.system and same else fresh(),
            renew=fresh,
            allowed=purse.of(session, scope.principal) if purse else None,
            history=history,
            tools=tools,
            steps=self._settings.steps,
            guard=self._settings.guard,
            effort=session.effort or self._effort_of(model),
            prefill=self._settings.prefill,
            clock=self._clock,
            counsel=self._counsel,
            unlisted=unlisted,
            watch=self.watch,
        )

    def _effort_of(self, model: ModelInfo) -> str | None:
        names = (f"{model.provider}/{model.name}", model.name)
        efforts = self._settings.efforts
        return next((efforts[name] for name in names if name in efforts), self._effort)

    def listed(self, scope: Scope, model: ModelInfo) -> list[ToolSpec]:
        """The tools that a request there tells of."""
        tools, unlisted = self._told(self._offered(scope), model)
        return [tool.spec for name, tool in tools.items() if name not in unlisted]

    def _told(
        self, offer: "_ToolOffer", model: ModelInfo
    ) -> tuple[Mapping[str, Tool], Collection[str]]:
        tools, unlisted = offer.told(self._toolbox, model.window)
        if few := self._desk.profile_of(model).tools:
            tools, unlisted = {name: tools[name] for name in few if name in tools}, ()
        return tools, unlisted

    def offered(self, scope: Scope) -> Mapping[str, Tool]:
        """The tools for who asks there."""
        return self._offered(scope).tools

    def _offered(self, scope: Scope) -> "_ToolOffer":
        """What the place offers, as far as the one who asks may use it; and what has a memory."""
        platform = policy_platform(scope)
        asked = (platform, scope.role)
        tools = self._toolbox.on(platform)
        known = self._offers.get(asked)
        if known is None or known.all_tools is not tools:
            powers = self._chats.powers(platform, scope.role)
            specs = permitted_tools(
                powers, (tool.spec for tool in tools.values()), self._toolbox.tools_named
            )
            chosen = {spec.name: tools[spec.name] for spec in specs}
            known = self._offers[asked] = _ToolOffer(tools, chosen)
        return known.within(scope.bounds)

    def prompt(
        self, session: Session, scope: Scope, model: ModelInfo, tools: Mapping[str, Tool]
    ) -> str:
        """The prompt of a session that begins now, or has to be told anew what it stands on."""
        if words := self._desk.profile_of(model).prompt:
            return self._short_prompt(words, session, scope)
        brief = self._brief(scope, model, tools)
        return build_prompt(
            PromptFacts(
                soul=self._soul.read(),
                system=_machine_name(),
                home=str(self._settings.user_home),
                workspace=scope.workspace,
                today=self._clock.now().astimezone().date(),
                model=model.name,
                provider=model.provider,
                profile=scope.profile,
                commands=self._commands(scope, tools),
                extra=self.extra_instructions(session, scope),
                skills=brief.skills,
                project=brief.project,
                memory=brief.memory,
            )
        )

    def _commands(self, scope: Scope, tools: Mapping[str, Tool]) -> str:
        return (
            self._toolbox.sandboxes.remote_location(policy_platform(scope))
            if "terminal" in tools
            else ""
        )

    def _short_prompt(self, words: str, session: Session, scope: Scope) -> str:
        """For a model that takes minutes over what others read in a moment.

        It is the same in all folders, so that it is read once: paths there are relative anyway.
        """
        today = self._clock.now().astimezone().date()
        parts = [words, f"Today is {today:%A, %Y-%m-%d}.", self.extra_instructions(session, scope)]
        return "\n\n".join(part for part in parts if part)

    def _brief(self, scope: Scope, model: ModelInfo, tools: Mapping[str, Tool]) -> PromptSections:
        if self._settings.briefing is None:
            return PromptSections()
        asked = PromptRequest(
            workspace=scope.workspace,
            role=scope.role,
            platform=policy_platform(scope),
            tools=sorted(tools),
            toolsets=sorted({tool.spec.toolset for tool in tools.values()} - {""}),
            window=model.window,
        )
        return self._settings.briefing.brief(asked)

    def extra_instructions(self, session: Session, scope: Scope) -> str:
        """What the settings say to the model about this place and this session."""
        parts = [
            self._settings.extra_prompt,
            self._chats.prompt(scope),
            self._settings.personality(session.personality),
        ]
        return "\n\n".join(part for part in parts if part)


class _ToolOffer:
    """The tools for some place and role, `out_of` all that are there; and what has a memory."""

    def __init__(self, all_tools: Mapping[str, Tool], tools: Mapping[str, Tool]) -> None:
        self.all_tools = all_tools
        self.tools = tools
        self.restorable = [tool for tool in tools.values() if isinstance(tool, SupportsRestore)]
        self._told: dict[int, tuple[Mapping[str, Tool], Collection[str]]] = {}

    def within(self, bounds: InheritedLimits | None) -> "_ToolOffer":
        """For who works in another's name: nothing that the other did not have."""
        if bounds is None or bounds.tools is None:
            return self
        had = frozenset(bounds.tools)
        chosen = {name: tool for name, tool in self.tools.items() if name in had}
        return _ToolOffer(self.all_tools, chosen)

    def told(self, toolbox: Toolbox, window: int) -> tuple[Mapping[str, Tool], Collection[str]]:
        """The tools of a turn, and which of them its requests do not tell of."""
        if window not in self._told:
            found = toolbox.narrowed(self.tools, window)
            self._told[window] = (found.tools, found.unlisted) if found else (self.tools, ())
        return self._told[window]


class RuntimePlanner:
    """Entrusts whatever comes to one runtime."""

    def __init__(self, runtime: Runtime, standard: StandardPlanner) -> None:
        self._runtime = runtime
        self._standard = standard

    async def plan(
        self, session: Session, scope: Scope, history: Sequence[Message]
    ) -> Plan | RuntimePlan:
        system = self._standard.extra_instructions(session, scope)
        return RuntimePlan(
            scope=scope,
            runtime=self._runtime,
            system=system,
            history=history,
            watch=self._standard.watch,
        )


def _override_flags(override: ChannelOverride) -> ModelOverrides:
    return ModelOverrides(model=override.model, provider=override.provider)


class _SoulFile:
    """Who the agent is, read again only when the file has changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._name = str(path)
        self._seen: tuple[int, int, int] | None = None
        self._text = ""

    def read(self) -> str:
        try:
            found = os.stat(self._name)  # noqa: PTH116 - every turn looks
        except OSError:
            self._seen = None
            return _read_soul(self._path)
        seen = (found.st_mtime_ns, found.st_size, found.st_ino)
        if seen != self._seen:
            self._text = _read_soul(self._path)
            self._seen = seen
        return self._text


def _read_soul(path: Path) -> str:
    try:
        return read_regular_file(path).decode("utf-8", "replace")
    except FileNotFoundError:
        return ""
    except OSError as error:
        hint = f"Make it a file that you may read, or move it away: mv {path} {path}.old"
        raise file_error(error, f"{path} cannot be read: {error.strerror}.", hint) from error


@cache
def _machine_name() -> str:
    name = os.uname()
    return f"{name.sysname} {name.release} ({name.machine})"
