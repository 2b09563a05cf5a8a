"""Everything a turn needs, decided before it starts."""

from collections.abc import Awaitable, Callable, Mapping, Sequence

from msgspec import Struct

from hermes.agent.guard import GuardLimits
from hermes.kit.clock import Clock
from hermes.ports.model import Model
from hermes.ports.tool import Tool
from hermes.schema.messages import Message, User
from hermes.schema.scope import Scope

Steer = Callable[[], Awaitable[Sequence[User]]]
"""What people said while the turn was running, each message given out once."""


async def no_steering() -> Sequence[User]:
    return ()


class Plan(Struct, frozen=True, kw_only=True):
    """Chosen once and frozen: a setting changed meanwhile counts from the next turn."""

    scope: Scope
    model: Model
    system: str
    history: Sequence[Message] = ()
    tools: Mapping[str, Tool] = {}
    steps: int = 90
    steer: Steer = no_steering
    guard: GuardLimits = GuardLimits()
    clock: Clock
    effort: str | None = None
