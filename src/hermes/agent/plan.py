"""Everything a turn needs, decided before it starts."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

from msgspec import Struct

from hermes.agent.history import History
from hermes.agent.loop_guard import GuardLimits
from hermes.kit.clock import Clock, SystemClock
from hermes.ports.approvals import Approvals
from hermes.ports.events import Emit
from hermes.ports.model import UNCONSTRAINED, Model, OutputConstraints
from hermes.ports.runtime import Runtime
from hermes.ports.tool import Tool
from hermes.schema.messages import Message, User
from hermes.schema.scope import Scope
from hermes.schema.tools import ToolSpec

TYPE_CHECKING = False
if TYPE_CHECKING:
    # Few people have anybody who looks on.
    from hermes.ports.hooks import TurnHooks

ReadSteering = Callable[[], Awaitable[Sequence[User]]]
"""What people said while the turn was running, each message given out once."""


async def no_steering() -> Sequence[User]:
    return ()


class CompactionNeed(Struct, frozen=True):
    """What the next request would take, as far as is known; `refused`: it was too long."""

    tokens: int
    tell: Emit
    refused: bool = False


CompactHistory = Callable[[History, CompactionNeed], Awaitable[str | None]]
"""Makes a history fit, in place, where that is needed; then the prompt to go on with."""

RebuildPrompt = Callable[[], str]
"""The prompt as it would be put together now."""

CheckSpend = Callable[[], Awaitable[None]]
"""Raises `SpendCapReached` when no more may be spent."""


class Plan(Struct, frozen=True, kw_only=True):
    """Chosen once and frozen: a setting changed meanwhile counts from the next turn.

    `handed` are tools that whoever asks runs: a call of one of them ends the turn. Without a
    `counsel` there is nobody to ask. Tools that are `unlisted` can be called, but requests do not
    tell of them. `compress` is asked before each step, and `allowed`, too. `resumes`: calls at the
    end of the history are still to be made. `watch` looks on. `prefill` stands before the history
    in every request, and is no part of it.
    """

    scope: Scope
    model: Model
    system: str
    history: Sequence[Message] = ()
    tools: Mapping[str, Tool] = {}
    steps: int = 90
    steer: ReadSteering = no_steering
    guard: GuardLimits = GuardLimits()
    clock: Clock
    effort: str | None = None
    handed: Sequence[ToolSpec] = ()
    calling: OutputConstraints = UNCONSTRAINED
    counsel: Approvals | None = None
    unlisted: Collection[str] = ()
    compress: CompactHistory | None = None
    renew: RebuildPrompt | None = None
    allowed: CheckSpend | None = None
    resumes: bool = False
    watch: "TurnHooks | None" = None
    prefill: Sequence[Message] = ()


class RuntimePlan(Struct, frozen=True, kw_only=True):
    """A plan for a turn that is run elsewhere, from the question to the answer.

    `tools` are ours that it may call from there; `counsel` is whom they ask.
    """

    scope: Scope
    runtime: Runtime
    system: str
    history: Sequence[Message] = ()
    steer: ReadSteering = no_steering
    tools: Mapping[str, Tool] = {}
    counsel: Approvals | None = None
    clock: Clock = SystemClock()
    watch: "TurnHooks | None" = None
