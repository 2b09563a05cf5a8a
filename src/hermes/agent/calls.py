"""Run the calls of one answer: readers together, everything else alone, results in order."""

import logging
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import groupby

import anyio
from msgspec import Raw, Struct, structs

from hermes.agent.answers import CUT_OFF
from hermes.agent.bridge import meant
from hermes.agent.cancelling import cancelled_from_outside
from hermes.agent.plan import Entrusted, Plan
from hermes.agent.repair import LONGEST, is_object
from hermes.agent.sources import quotes_strangers, sources_for
from hermes.agent.strangers import Strangers
from hermes.agent.watched import held_back, tell_made
from hermes.kit.ids import new_id
from hermes.kit.text import head_and_tail, one_line
from hermes.ports.counsel import PutOff, Ruling, Wish, nobody_answers, nobody_to_ask
from hermes.ports.sink import Emit
from hermes.ports.tool import Output, Sources, Tool, ToolContext
from hermes.schema.errors import ToolError
from hermes.schema.events import ToolProgress, ToolStarted
from hermes.schema.messages import Media, Message, Result, Text, ToolCall
from hermes.schema.scope import Scope
from hermes.schema.tools import Effect

log = logging.getLogger(__name__)

PARALLEL = 8
MAX_TEXT = 200_000
"""Characters that one result brings to the model; a tool has its own, smaller limits."""
MAX_PARTS = 100
MAX_PROGRESS = 10_000


class Ended(Struct, frozen=True):
    """A call with its result, and how many seconds were spent on it."""

    call: ToolCall
    effect: Effect
    result: Result
    took: float = 0.0


Tell = Callable[[Ended], Awaitable[None]]


class Calls:
    """One answer's calls. However they end, each of them is told exactly once, in order.

    Only where one is put off, it and those behind it are left for the next start.
    """

    def __init__(
        self,
        plan: Plan | Entrusted,
        calls: Sequence[ToolCall],
        emit: Emit,
        tell: Tell,
        strangers: Strangers | None = None,
    ) -> None:
        self._strangers = strangers or Strangers(plan.tools)
        self._plan = plan
        self._calls = [meant(call, plan.tools) for call in calls]
        self._emit = emit
        self._tell = tell
        self._started: set[int] = set()
        self._leaves = _Leaves()
        self._ended: list[Ended | None] = [None] * len(calls)
        self._told = 0
        self._telling = False

    async def run(self) -> None:
        try:
            for alone, batch in groupby(range(len(self._calls)), key=self._place):
                if alone >= 0:
                    await self._run_one(alone)
                else:
                    await self._run_together(list(batch))
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await self._tell_interrupted()
            raise

    def _place(self, number: int) -> int:
        """Neighbouring readers share -1 and run as one batch; anything else is its own."""
        tool = self._plan.tools.get(self._calls[number].name)
        alone = tool is not None and tool.spec.alone
        return number if alone or self._effect(number) is not Effect.READ else -1

    def _effect(self, number: int) -> Effect:
        tool = self._plan.tools.get(self._calls[number].name)
        return tool.spec.effect if tool else Effect.READ

    async def _run_together(self, batch: Sequence[int]) -> None:
        limit = anyio.CapacityLimiter(PARALLEL)

        async def run(number: int) -> None:
            async with limit:
                await self._run_one(number)

        if len(batch) == 1:
            await self._run_one(batch[0])
            return
        try:
            async with anyio.create_task_group() as group:
                for number in batch:
                    group.start_soon(run, number)
        except ExceptionGroup as failures:
            # What goes wrong in a tool is a result. Here somebody could not be told, or a question
            # is put off until the next start: one such error says it all.
            raise failures.exceptions[0] from None

    async def _run_one(self, number: int) -> None:
        clock = self._plan.clock
        began = clock.monotonic()
        result = await self._result_of(number)
        took = clock.monotonic() - began
        self._ended[number] = Ended(self._calls[number], self._effect(number), result, took)
        await self._tell_ended()
        if number in self._started:
            await tell_made(self._plan, self._calls[number], result)

    async def _tell_ended(self) -> None:
        """Tell what has ended, up to the first call that still runs; one teller keeps the order."""
        if self._telling:
            return
        self._telling = True
        try:
            while self._told < len(self._ended) and (ended := self._ended[self._told]):
                self._told += 1
                with anyio.CancelScope(shield=True):
                    await self._tell(ended)
        finally:
            self._telling = False

    async def _tell_interrupted(self) -> None:
        for number, call in enumerate(self._calls):
            if self._ended[number] is None:
                effect = self._effect(number)
                started = number in self._started and not self._leaves.waits(call.id)
                result = interrupted(call.id, effect, started=started)
                self._ended[number] = Ended(call, effect, result)
        await self._tell_ended()

    async def _result_of(self, number: int) -> Result:
        call = self._calls[number]
        tool = self._plan.tools.get(call.name)
        if tool is None:
            known = ", ".join(sorted(self._plan.tools)) or "none"
            shown = one_line(call.name, LONGEST)
            return failed(call, f"There is no tool named {shown!r}. Tools: {known}.")
        if complaint := _complaint(call) or await held_back(self._plan, call):
            return failed(call, complaint)
        await self._emit(ToolStarted(call, tool.spec.effect))
        self._started.add(number)
        output = bounded(await self._execute(call, tool))
        return Result(
            new_id("msg"),
            call.id,
            output.parts,
            output.failed,
            output.shown,
            output.foreign,
            output.unverified,
        )

    async def _execute(self, call: ToolCall, tool: Tool) -> Output:
        spec = tool.spec
        unknown = "" if spec.effect is Effect.READ else " What it did until then stays done."
        try:
            with anyio.move_on_after(spec.timeout) as limit:
                return await tool.run(call.args, self._context(call, limit))
        except ToolError as error:
            return Output.text(error.sentence, failed=True)
        except PutOff:
            raise
        except anyio.get_cancelled_exc_class():
            if cancelled_from_outside():
                raise
            log.exception("tool %s was cancelled by its own doing", call.name)
        except Exception:
            log.exception("tool %s crashed", call.name)
        else:
            late = f"{call.name} took longer than {spec.timeout:g} s and was stopped."
            return Output.text(late + unknown, failed=True)
        return Output.text(f"{call.name} failed with an internal error.{unknown}", failed=True)

    def _context(self, call: ToolCall, limit: anyio.CancelScope) -> ToolContext:
        spec = self._plan.tools[call.name].spec
        # Whatever runs a turn elsewhere does not make its calls again.
        again = isinstance(self._plan, Plan)
        # What others call reading may do more.
        own_reader = spec.effect is Effect.READ and not spec.foreign
        side = _Side(
            self._plan,
            self._strangers,
            self._emit,
            call,
            _Time(limit),
            self._leaves,
            asks_again=again,
            inquires_again=again and (spec.asks or own_reader),
        )
        return side.context()


class _Leaves:
    """Which calls wait for somebody's leave, and which were given it."""

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()
        self._given: set[str] = set()

    @contextmanager
    def asked(self, call: str) -> Generator[None]:
        """An interruption leaves it as waiting: then nothing was done."""
        self._open[call] += 1
        yield
        self._open[call] -= 1

    def waits(self, call: str) -> bool:
        """Whether it has done nothing yet."""
        return self._open[call] > 0 and call not in self._given

    def given(self, call: str) -> None:
        self._given.add(call)

    def is_untouched(self, call: str) -> bool:
        """Whether it was given no leave yet: tools ask before they act."""
        return call not in self._given


class _Side(Struct, frozen=True):
    """What one call may turn to while it runs.

    Whether it can be begun anew where its process ends while it `asks` for leave, or `inquires`,
    which some do after they have acted.
    """

    plan: Plan | Entrusted
    strangers: Strangers
    emit: Emit
    call: ToolCall
    time: "_Time"
    leaves: _Leaves
    asks_again: bool = False
    inquires_again: bool = False

    def context(self) -> ToolContext:
        return ToolContext(
            self.plan.scope,
            self.call.id,
            self.progress,
            self.ask,
            self.inquire,
            self.use,
            self.strangers.heard,
            self.sources,
            self.quotes,
            tools=self.plan.tools if isinstance(self.plan, Plan) else None,
        )

    async def progress(self, text: str) -> None:
        await self.emit(ToolProgress(self.call.id, text[-MAX_PROGRESS:]))

    async def use(self, name: str, args: Raw) -> Output:
        other = self.plan.tools.get(name)
        if other is None or name == self.call.name:
            raise ToolError(f"{name} cannot be called from {self.call.name}.")
        call = ToolCall(self.call.id, name, args)
        with self.time.stopped():
            why = await held_back(self.plan, call)
        if why:
            raise ToolError(why)
        within = structs.replace(self.context(), within=True)
        try:
            output = bounded(await other.run(args, within))
        except ToolError as error:
            await tell_made(self.plan, call, failed(call, error.sentence))
            raise
        self.strangers.heard |= output.foreign
        text = "".join(part.text for part in output.parts if isinstance(part, Text))
        self.strangers.got(call, text, output)
        with self.time.stopped():
            await tell_made(
                self.plan, call, Result("", call.id, output.parts, failed=output.failed)
            )
        return output

    async def ask(self, wish: Wish) -> Ruling:
        wish = structs.replace(wish, foreign=wish.foreign or self.strangers.heard)
        counsel = self.plan.counsel
        if counsel is None:
            return await nobody_to_ask(wish)
        with self.leaves.asked(self.call.id), self.time.stopped():
            ruling = await counsel.rule(self._asking(again=self.asks_again), wish, self.emit)
        if ruling.allowed:
            self.leaves.given(self.call.id)
        return ruling

    async def inquire(self, text: str, choices: Sequence[str]) -> str | None:
        counsel = self.plan.counsel
        if counsel is None:
            return await nobody_answers(text, choices)
        scope = self._asking(again=self.inquires_again)
        waits = self.leaves.asked(self.call.id) if self.inquires_again else nullcontext()
        with waits, self.time.stopped():
            return await counsel.inquire(scope, text, choices, self.emit)

    def _asking(self, *, again: bool) -> Scope:
        fresh = again and self.leaves.is_untouched(self.call.id)
        return structs.replace(self.plan.scope, call=self.call.id) if fresh else self.plan.scope

    def sources(self, text: str) -> Sources:
        return sources_for(text, self._said, self.plan.tools, self.strangers.used_by_tools)

    def quotes(self, text: str) -> bool:
        return quotes_strangers(text, self._said, self.plan.tools, self.strangers.used_by_tools)

    @property
    def _said(self) -> Sequence[Message]:
        return [*self.plan.history, *self.strangers.said]


class _Time:
    """What one call has; it does not run while a person thinks, who has a limit of their own."""

    def __init__(self, limit: anyio.CancelScope) -> None:
        self._limit = limit
        self._left = 0.0
        self._stops = 0

    @contextmanager
    def stopped(self) -> Generator[None]:
        """Several may be asked at once: it runs on when the last of them has answered."""
        if not self._stops:
            self._left = self._limit.deadline - anyio.current_time()
            self._limit.deadline = math.inf
        self._stops += 1
        try:
            yield
        finally:
            self._stops -= 1
            if not self._stops:
                self._limit.deadline = anyio.current_time() + self._left


def bounded(output: Output) -> Output:
    """No tool, ours or a stranger's, fills the model's window or the disk with one result."""
    parts = output.parts
    size = sum(len(part.text) for part in parts if isinstance(part, Text))
    if len(parts) > MAX_PARTS or size > MAX_TEXT:
        kept = tuple(_first(parts[:MAX_PARTS]))
        missing = size - sum(len(part.text) for part in kept if isinstance(part, Text))
        cut = f"\n[… cut here: {missing:,} characters of {size:,} are missing]"
        parts = (*kept, Text(cut))
    shown = head_and_tail(output.shown, MAX_TEXT)
    return structs.replace(output, parts=parts, shown=shown)


def _first(parts: Sequence[Text | Media]) -> Iterator[Text | Media]:
    room = MAX_TEXT
    for part in parts:
        if isinstance(part, Media):
            yield part
        elif room > 0:
            yield Text(part.text[:room])
            room -= len(part.text)


def _complaint(call: ToolCall) -> str:
    """Why the call cannot be run as it came; empty when it can."""
    if call.broken == CUT_OFF:
        return (
            "The answer reached the output limit inside this call, so nothing was run. "
            "Make the call shorter, or split it into several."
        )
    if call.broken:
        shown = one_line(call.broken, 300)
        return f"The arguments were not complete JSON, so nothing was run: {shown}"
    if not is_object(call.args):
        shown = one_line(bytes(call.args).decode("utf-8", "replace"), 300)
        return f"The arguments must be a JSON object, so nothing was run: {shown}"
    return ""


def interrupted(call: str, effect: Effect, *, started: bool) -> Result:
    """What the model is told of a call whose end nobody saw."""
    if not started:
        text = "Not run: the turn was interrupted before this call started."
    elif effect is Effect.READ:
        text = "Interrupted. Nothing was changed; run it again if it is still needed."
    else:
        text = (
            "Interrupted while running; the outcome is unknown. "
            "Look at what it may have changed before doing it again."
        )
    return Result(new_id("msg"), call, (Text(text),), failed=True)


def failed(call: ToolCall, text: str) -> Result:
    return Result(new_id("msg"), call.id, (Text(text),), failed=True)
