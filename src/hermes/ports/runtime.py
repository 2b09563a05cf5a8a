"""A mind that runs whole turns by itself, tools included, as the codex app-server does."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from hermes.ports.sink import Emit
from hermes.schema.events import Outcome
from hermes.schema.messages import Message, User
from hermes.schema.scope import Scope


class Errand(Struct, frozen=True):
    """All a foreign runtime is given for one turn."""

    scope: Scope
    system: str
    history: Sequence[Message]
    asked: User


class Runtime(Protocol):
    @property
    def name(self) -> str: ...

    async def run(self, errand: Errand, emit: Emit) -> Outcome:
        """Emits what `agent.run_turn` would: every message as a fact, one `RunEnded`."""
        ...

    async def close(self) -> None: ...
