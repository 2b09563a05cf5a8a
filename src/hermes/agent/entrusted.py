"""A turn that a runtime runs: tell what was asked, entrust it, and pass on what comes back."""

from collections.abc import Sequence

import anyio
import anyio.lowlevel

from hermes.agent.calls import Calls, Ended
from hermes.agent.plan import Entrusted
from hermes.agent.repair import History, says_something
from hermes.agent.strangers import Strangers
from hermes.agent.watched import added
from hermes.ports.runtime import Ending, Errand, Heard
from hermes.ports.sink import Emit
from hermes.schema.errors import ModelError, UsageError
from hermes.schema.events import (
    Answered,
    Asked,
    Event,
    Outcome,
    RunStarted,
    Said,
    ToolStarted,
)
from hermes.schema.messages import Assistant, Message, Result, ToolCall, Usage, User


class EntrustedTurn:
    """What people say meanwhile is for the runtime, or makes a new errand after the answer."""

    def __init__(self, plan: Entrusted, emit: Emit) -> None:
        self._plan = plan
        self._emit = emit
        past = plan.history
        self._history = past if isinstance(past, History) else History(past)
        self._strangers = Strangers(plan.tools)
        self.usage = Usage()
        self.steps = 0

    async def run(self, asked: Sequence[User]) -> Ending:
        new = not self._history
        await self.tell(RunStarted(self._plan.scope.run, self._plan.scope.session))
        if not asked:
            self._strangers.recall(self._history)
        for message in asked:
            await self._say(message)
        for message in await added(self._plan, asked, new=new):
            await self._say(message)
        ending = await self._entrust()
        while ending.outcome is Outcome.DONE and await self._hear(ending.unheard):
            ending = await self._entrust()
        return ending

    async def tell(self, event: Event) -> None:
        """Facts are told to the end, also when somebody interrupts just now."""
        with anyio.CancelScope(shield=True):
            await self._emit(event)

    async def _entrust(self) -> Ending:
        # Shielded work may have hidden that somebody wants an end: nothing is begun then.
        await anyio.lowlevel.checkpoint_if_cancelled()
        plan = self._plan
        said = list(self._history)
        if not said or isinstance(said[-1], Assistant):
            raise UsageError("There is nothing to answer.", hint="Say something first.")
        specs = [plan.tools[name].spec for name in sorted(plan.tools)]
        errand = Errand(
            plan.scope,
            plan.system,
            said,
            plan.steer,
            specs,
            self._use,
            self._strangers.heard,
            self._strangers_heard,
        )
        ending = await plan.runtime.run(errand, self._pass_on)
        if ending.outcome is Outcome.DONE and not isinstance(self._history[-1], Assistant):
            raise ModelError(f"{plan.runtime.name} came back without an answer.", hint="Try again.")
        return ending

    def _strangers_heard(self) -> None:
        self._strangers.heard = True

    async def _pass_on(self, event: Heard) -> None:
        match event:
            case Said(message=message):
                await self._say(message)
            case ToolStarted() | Asked() | Answered():
                await self.tell(event)
            case _:
                await self._emit(event)

    async def _use(self, call: ToolCall) -> Result:
        """One of our tools, for a runtime that calls it: as in a turn of our own."""
        came: list[Result] = []

        async def keep(ended: Ended) -> None:
            came.append(ended.result)

        await Calls(self._plan, [call], self._emit, keep, self._strangers).run()
        self._strangers.used(call.name)
        return came[0]

    async def _say(self, message: Message) -> None:
        await self.tell(Said(message))
        self._history.add(message)
        self._strangers.hear(message)
        if isinstance(message, Assistant):
            self.usage += message.usage
            self.steps += 1

    async def _hear(self, unheard: Sequence[User]) -> bool:
        """Take in what people said meanwhile."""
        meanwhile = (*unheard, *await self._plan.steer())
        heard = [message for message in meanwhile if says_something(message)]
        for message in heard:
            await self._say(message)
        return bool(heard)
