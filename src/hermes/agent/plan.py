"""Everything a turn needs, decided before it starts."""

from collections.abc import Awaitable, Callable, Mapping, Sequence

from msgspec import Struct

from hermes.agent.guard import GuardLimits
from hermes.kit.clock import Clock
from hermes.ports.counsel import Counsel
from hermes.ports.model import FREELY, Calling, Model
from hermes.ports.runtime import Runtime
from hermes.ports.tool import Tool
from hermes.schema.messages import Message, User
from hermes.schema.scope import Scope
from hermes.schema.tools import ToolSpec

Steer = Callable[[], Awaitable[Sequence[User]]]
"""What people said while the turn was running, each message given out once."""


async def no_steering() -> Sequence[User]:
    return ()


class Plan(Struct, frozen=True, kw_only=True):
    """Chosen once and frozen: a setting changed meanwhile counts from the next turn.

    `handed` are tools that whoever asks runs: a call of one of them ends the turn. Without a
    `counsel` there is nobody to ask.
    """

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
    handed: Sequence[ToolSpec] = ()
    calling: Calling = FREELY
    counsel: Counsel | None = None


class Entrusted(Struct, frozen=True, kw_only=True):
    """A plan for a turn that is run elsewhere, from the question to the answer."""

    scope: Scope
    runtime: Runtime
    system: str
    history: Sequence[Message] = ()
    steer: Steer = no_steering
