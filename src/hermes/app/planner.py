"""Choose what a turn runs with: model, prompt, tools and limits."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from hermes.agent.guard import GuardLimits
from hermes.agent.plan import Plan
from hermes.agent.prompt import PromptFacts, build_prompt
from hermes.app.models import ModelDesk
from hermes.kit.clock import Clock
from hermes.ports.model import Model
from hermes.ports.tool import Restores, Tool
from hermes.schema.messages import Message
from hermes.schema.scope import Scope
from hermes.schema.sessions import Session


class TurnSettings(Struct, frozen=True, kw_only=True):
    """What the settings and flags say about every turn."""

    steps: int
    guard: GuardLimits
    effort: str | None
    user_home: Path
    extra_prompt: str


class StandardPlanner:
    def __init__(
        self,
        desk: ModelDesk,
        tools: Mapping[str, Tool],
        settings: TurnSettings,
        soul: Path,
        clock: Clock,
    ) -> None:
        self._desk = desk
        self._tools = tools
        self._settings = settings
        self._soul = soul
        self._clock = clock
        self._restoring = [tool for tool in tools.values() if isinstance(tool, Restores)]

    async def plan(self, session: Session, scope: Scope, history: Sequence[Message]) -> Plan:
        model = await self._desk.model_for(session)
        self._restore(session, history)
        return Plan(
            scope=scope,
            model=model,
            system=self._prompt(session, scope, model),
            history=history,
            tools=self._tools,
            steps=self._settings.steps,
            guard=self._settings.guard,
            effort=self._settings.effort,
            clock=self._clock,
        )

    def _restore(self, session: Session, history: Sequence[Message]) -> None:
        for tool in self._restoring:
            tool.restore(session.id, history)

    def _prompt(self, session: Session, scope: Scope, model: Model) -> str:
        """The session's own prompt again, byte for byte, as long as its model stays."""
        same = (session.model, session.provider) == (model.name, model.provider)
        if session.system and same:
            return session.system
        return build_prompt(
            PromptFacts(
                soul=_read(self._soul),
                system=_machine(),
                home=str(self._settings.user_home),
                workspace=scope.workspace,
                today=self._clock.now().astimezone().date(),
                model=model.name,
                provider=model.provider,
                profile=scope.profile,
                extra=self._settings.extra_prompt,
            )
        )


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except FileNotFoundError:
        return ""


def _machine() -> str:
    name = os.uname()
    return f"{name.sysname} {name.release} ({name.machine})"
