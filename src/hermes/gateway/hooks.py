"""Run the owner's hooks: emit events without waiting, and ask about commands with a timeout.

Every hook has its own threads, so one that hangs blocks nothing else. A command that a hook wants
to decide about is denied while the hook cannot answer.
"""

import asyncio
import inspect
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from enum import StrEnum
from queue import Empty, SimpleQueue
from typing import Protocol, TypeAlias, TypeVar

import anyio
import msgspec
from msgspec import Struct

from hermes.kit.clock import Clock
from hermes.kit.tasks import DeadlineExceeded, Worker, run_with_timeout
from hermes.schema.errors import HermesError

log = logging.getLogger(__name__)
T = TypeVar("T")

HookContext: TypeAlias = Mapping[str, object]
HookHandler: TypeAlias = Callable[[str, dict[str, object]], object]
"""A hook handler; may be async. Its return value only matters for commands."""

EVENTS = frozenset(
    (
        "gateway:startup", "session:start", "session:end", "session:reset", "agent:start",
        "agent:step", "agent:end", "pre_approval_request", "post_approval_response",
    )
)  # fmt: skip
COMMAND_PREFIX = "command:"

NEVER_BLOCKED = frozenset({"command:stop"})
"""Emitted but never decided: stopping a turn must always work."""


class HookVerdict(StrEnum):
    ALLOW = "allow"
    DENY = "deny"
    HANDLED = "handled"


class HookDecision(Struct, frozen=True):
    """A hook's decision about a command; the message is shown to the user."""

    decision: HookVerdict
    message: str = ""


class Hooks(Protocol):
    def emit(self, event: str, context: HookContext) -> None:
        """Notify hooks of an event. Never waits and never fails."""
        ...

    async def decide(self, event: str, context: HookContext) -> HookDecision | None:
        """Notify hooks and return the first decision that denies or handles the command.

        A hook that cannot answer counts as denying it.
        """
        ...


class HookRules(Struct, frozen=True, kw_only=True):
    """Timeouts in seconds for loading, deciding, an async handler and closing.

    `waiting` is how many events are queued for a hook before more are dropped.
    """

    load: float = 10.0
    decide: float = 2.0
    handle: float = 60.0
    close: float = 5.0
    waiting: int = 100


class HookSource(Struct, frozen=True, kw_only=True):
    """A hook before loading; `load` runs in the hook's own thread."""

    name: str
    events: tuple[str, ...]
    load: Callable[[], HookHandler]


class _Job(Struct, frozen=True):
    event: str
    context: dict[str, object]
    outcome: "Future[object] | None" = None


class _Thread:
    """Calls the handler for queued events, one after the other.

    `ready` runs first in the thread; if it returns None, the thread ends.
    """

    def __init__(self, name: str, clock: Clock, rules: HookRules) -> None:
        self.dropped = 0
        self._name = name
        self._clock = clock
        self._rules = rules
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._since: float | None = None
        self._worker: Worker | None = None

    def start(self, ready: Callable[[], HookHandler | None]) -> None:
        self._worker = Worker(f"hook-{self._name}", lambda: self._work(ready))
        self._worker.start()

    @property
    def stuck(self) -> bool:
        """Whether one event has taken longer than the decision timeout."""
        since = self._since
        return since is not None and self._clock.monotonic() - since >= self._rules.decide

    def offer(self, job: _Job) -> bool:
        if self._jobs.qsize() >= self._rules.waiting:
            self.dropped += 1
            # Log at powers of two only, so that a hanging hook does not fill the log.
            if self.dropped & (self.dropped - 1) == 0:
                log.warning("hook %s does not keep up: %d events dropped", self._name, self.dropped)
            return False
        self._jobs.put(job)
        return True

    async def close(self) -> None:
        """Process what is queued; the caller sets the timeout."""
        self._jobs.put(None)
        if self._worker is not None:
            await self._worker.ended()

    def drop_pending(self) -> None:
        try:
            while True:
                self._jobs.get_nowait()
        except Empty:
            self._jobs.put(None)

    def _work(self, ready: Callable[[], HookHandler | None]) -> None:
        handle = ready()
        while handle is not None and (job := self._jobs.get()) is not None:
            self._run(handle, job)

    def _run(self, handle: HookHandler, job: _Job) -> None:
        if job.outcome is not None and not job.outcome.set_running_or_notify_cancel():
            return
        self._since = self._clock.monotonic()
        value: object = None
        failure: Exception | None = None
        try:
            value = handle(job.event, job.context)
            if inspect.isawaitable(value):
                value = asyncio.run(_finished(value, self._rules.handle))
        except (Exception, SystemExit) as error:
            log.exception("hook %s failed at %s", self._name, job.event)
            failure = _HandlerFailed(repr(error))
        finally:
            self._since = None
        if job.outcome is not None and failure is not None:
            job.outcome.set_exception(failure)
        elif job.outcome is not None:
            job.outcome.set_result(value)


class _HandlerFailed(Exception):
    """The handler raised; the error is in the log."""


class _Hook:
    """One handler with one thread for events and another for decisions.

    A slow event handler therefore does not delay decisions.
    """

    def __init__(self, source: HookSource, clock: Clock, rules: HookRules) -> None:
        self.name = source.name
        self.loaded: Future[HookHandler] = Future()
        self.events = _Thread(source.name, clock, rules)
        decides = any(name.startswith(COMMAND_PREFIX) or name == "*" for name in source.events)
        self.decisions = _Thread(source.name, clock, rules) if decides else self.events
        self._source = source

    @property
    def threads(self) -> tuple[_Thread, ...]:
        return (self.events,) if self.decisions is self.events else (self.events, self.decisions)

    @property
    def dropped(self) -> int:
        return sum(thread.dropped for thread in self.threads)

    def start(self) -> None:
        self.events.start(self._load)

    def start_deciding(self, handle: HookHandler) -> None:
        """Start the decision thread once the handler is loaded."""
        if self.decisions is not self.events:
            self.decisions.start(lambda: handle)

    def wants(self, event: str) -> bool:
        patterns = self._source.events
        return event in patterns or any(
            pattern.endswith("*") and event.startswith(pattern[:-1]) for pattern in patterns
        )

    def drop_pending(self) -> None:
        for thread in self.threads:
            thread.drop_pending()

    def _load(self) -> HookHandler | None:
        # After this it cannot be cancelled, only abandoned.
        if not self.loaded.set_running_or_notify_cancel():
            return None
        try:
            handle = self._source.load()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - foreign code; logged by open_hooks
            reason = str(error) if isinstance(error, HermesError) else repr(error)
            self.loaded.set_exception(RuntimeError(reason))
            return None
        self.loaded.set_result(handle)
        return handle


class HookBus:
    """The hooks of one profile; created by `open_hooks`."""

    def __init__(self, hooks: Sequence[_Hook], clock: Clock, rules: HookRules) -> None:
        self._hooks = hooks
        self._clock = clock
        self._rules = rules
        self.warnings: list[str] = []

    @property
    def names(self) -> list[str]:
        return [hook.name for hook in self._hooks]

    def dropped(self) -> dict[str, int]:
        return {hook.name: hook.dropped for hook in self._hooks if hook.dropped}

    def emit(self, event: str, context: HookContext) -> None:
        for hook in self._hooks:
            if hook.wants(event):
                hook.events.offer(_Job(event, dict(context)))

    async def decide(self, event: str, context: HookContext) -> HookDecision | None:
        if event in NEVER_BLOCKED:
            self.emit(event, context)
            return None
        hooks = [hook for hook in self._hooks if hook.wants(event)]
        values: list[HookDecision | None] = [None] * len(hooks)

        async def ask(index: int, hook: _Hook) -> None:
            values[index] = await self._ask(hook, event, dict(context))

        async with anyio.create_task_group() as group:
            for index, hook in enumerate(hooks):
                group.start_soon(ask, index, hook)
        decisions = (decision for decision in values if decision is not None)
        return next(
            (decision for decision in decisions if decision.decision is not HookVerdict.ALLOW), None
        )

    async def _ask(
        self, hook: _Hook, event: str, context: dict[str, object]
    ) -> HookDecision | None:
        command = event.removeprefix(COMMAND_PREFIX)
        reason = f"/{command} was not run: the hook {hook.name} did not answer. Try again."
        denied = HookDecision(HookVerdict.DENY, reason)
        if hook.decisions.stuck:
            log.warning("hook %s hangs, so it was not called for %s", hook.name, event)
            return denied
        outcome: Future[object] = Future()
        if not hook.decisions.offer(_Job(event, context, outcome)):
            return denied
        try:
            value = await run_with_timeout(self._clock, self._rules.decide, lambda: _value(outcome))
        except DeadlineExceeded:
            log.warning("hook %s did not decide about %s in time", hook.name, event)
            return denied
        except _HandlerFailed:
            return denied
        return _decision(hook.name, value)


@asynccontextmanager
async def open_hooks(
    sources: Sequence[HookSource], clock: Clock, rules: HookRules | None = None
) -> AsyncGenerator[HookBus]:
    """Load all hooks in their threads; a hook that fails to load becomes a warning."""
    rules = rules or HookRules()
    hooks = [_Hook(source, clock, rules) for source in sources]
    warnings: dict[str, str] = {}

    async def load(hook: _Hook) -> None:
        hook.start()
        try:
            handle = await run_with_timeout(clock, rules.load, lambda: _value(hook.loaded))
        except DeadlineExceeded:
            warnings[hook.name] = f"it took more than {rules.load:g} seconds to load"
        except RuntimeError as error:
            warnings[hook.name] = str(error)
        else:
            hook.start_deciding(handle)

    async with anyio.create_task_group() as group:
        for hook in hooks:
            group.start_soon(load, hook)
    good = [hook for hook in hooks if hook.name not in warnings]
    for hook in hooks:
        if hook.name in warnings:
            # If it recovers later, its thread ends.
            hook.drop_pending()
    bus = HookBus(good, clock, rules)
    bus.warnings = [f"hook {name} is disabled: {reason}" for name, reason in warnings.items()]
    for warning in bus.warnings:
        log.warning("%s", warning)
    try:
        yield bus
    finally:
        with anyio.CancelScope(shield=True):
            await _close(good, clock, rules)


async def _close(hooks: Sequence[_Hook], clock: Clock, rules: HookRules) -> None:
    async def close_all() -> None:
        async with anyio.create_task_group() as group:
            for hook in hooks:
                for thread in hook.threads:
                    group.start_soon(thread.close)

    try:
        await run_with_timeout(clock, rules.close, close_all)
    except DeadlineExceeded:
        log.warning("some hooks did not stop in time; their queued events are lost")
        for hook in hooks:
            hook.drop_pending()


async def _value(outcome: "Future[T]") -> T:
    return await asyncio.wrap_future(outcome)


async def _finished(value: Awaitable[object], seconds: float) -> object:
    async with asyncio.timeout(seconds):
        return await value


def _decision(name: str, value: object) -> HookDecision | None:
    if value is None:
        return None
    try:
        return msgspec.convert(value, HookDecision)
    except msgspec.ValidationError as error:
        log.warning("hook %s returned an invalid decision: %s", name, error)
        return None
