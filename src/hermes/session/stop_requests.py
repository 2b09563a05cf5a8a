"""Stop a turn that runs in another process: a stored request, which that process answers."""

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TypeAlias

import anyio
import msgspec
from msgspec import Raw, Struct, structs

from hermes.kit.clock import Clock
from hermes.kit.ids import new_id
from hermes.kit.tasks import DeadlineExceeded, run_with_timeout
from hermes.ports.bus import Bus, Wakeups
from hermes.ports.store import AmendItem, CompleteItem, ItemStatus, QueueItem, Store
from hermes.schema.errors import StoreError

log = logging.getLogger(__name__)

STOPS = "stops"
"""Queue of requests; a row's topic names what to stop: a chat's session key, or an API run."""
ANSWER_SECONDS = 5.0
"""Time a request waits for its answer."""
_REPEAT_SECONDS = 0.5
"""Time without an answer after which the target's process is woken again."""
_POLL_SECONDS = 1.0
"""Time between polls for requests in a process that cannot be woken."""
_ANSWERS = "stop_answers"
_MAX_REQUESTS = 1000


class StopAnswer(Struct, frozen=True, kw_only=True):
    """`run`: what was cancelled, if anything. `waiting`: how many messages were dropped."""

    run: str = ""
    waiting: int = 0
    is_slow: bool = False


class StopRequest(Struct, frozen=True, kw_only=True):
    """Stop only this `run`, or only what this `principal` asked for, if given.

    `until`: when it is withdrawn, on the monotonic clock that the processes of a store share.
    """

    run: str | None = None
    principal: str | None = None
    until: float = 0.0
    answer: StopAnswer | None = None


StopHere: TypeAlias = Callable[[str, StopRequest], Awaitable[StopAnswer | None]]
"""Stops a target; returns None if it does not run in this process."""


class StopRequests:
    def __init__(self, *, store: Store, clock: Clock, bus: Bus) -> None:
        self._store = store
        self._clock = clock
        self._bus = bus

    async def ask(self, target: str, request: StopRequest) -> StopAnswer | None:
        """Return the answer of the process that runs the target; None if there was none in time.

        A request without an answer is withdrawn, so that it stops nothing later.
        """
        key, own = new_id("stop"), self._store.workers.own
        request = structs.replace(request, until=self._clock.monotonic() + ANSWER_SECONDS)
        item = QueueItem(key=key, queue=STOPS, topic=target, body=_encode(request))
        with self._bus.listen(_ANSWERS) as wakeups:
            try:
                await self._store.queues.put(item, own)
                work = partial(self._wait_for_answer, item, wakeups)
                return await run_with_timeout(self._clock, ANSWER_SECONDS, work)
            except DeadlineExceeded:
                return None
            finally:
                with anyio.CancelScope(shield=True):
                    await self._withdraw(key)

    async def serve(self, stop: StopHere) -> None:
        """Answer the requests for what runs in this process, until cancelled."""
        carried_out: dict[str, StopAnswer | None] = {}
        with self._bus.listen(STOPS) as wakeups:
            while True:
                try:
                    await self._answer_all(stop, carried_out)
                except StoreError as error:
                    log.warning("requests to stop a turn cannot be answered: %s", error)
                if self._bus.misses_wakeups:
                    await self._wait(wakeups, _POLL_SECONDS)
                else:
                    await wakeups.wait()
                wakeups.take()

    async def _wait_for_answer(self, request: QueueItem, wakeups: Wakeups) -> StopAnswer:
        while True:
            self._bus.wake(STOPS, request.topic)
            await self._wait(wakeups, _REPEAT_SECONDS)
            wakeups.take()
            for item in await self._store.queues.unfinished(STOPS, _MAX_REQUESTS):
                if item.key == request.key and (answer := _decode(item).answer) is not None:
                    return answer

    async def _wait(self, wakeups: Wakeups, seconds: float) -> None:
        with suppress(DeadlineExceeded):
            await run_with_timeout(self._clock, seconds, wakeups.wait)

    async def _withdraw(self, key: str) -> None:
        try:
            await self._store.commit(CompleteItem(key))
        except StoreError as error:
            # The request expires soon, and is then ignored.
            log.warning("a request to stop a turn cannot be withdrawn: %s", error)

    async def _answer_all(self, stop: StopHere, carried_out: dict[str, StopAnswer | None]) -> None:
        queues, own = self._store.queues, self._store.workers.own
        requests = await queues.unfinished(STOPS, _MAX_REQUESTS)
        for key in carried_out.keys() - {item.key for item in requests}:
            del carried_out[key]
        if not requests:
            return
        # Requests of dead processes wait for no answer.
        dead = {item.key for item in await queues.claim_abandoned(STOPS, own, _MAX_REQUESTS)}
        await self._store.commit(*map(CompleteItem, dead))
        for item in requests:
            if item.key in dead:
                continue
            try:
                await self._answer(item, stop, carried_out)
            except msgspec.MsgspecError as error:
                log.warning("a request to stop a turn cannot be read: %s", error)
                await self._store.commit(CompleteItem(item.key))
            except Exception:
                # One request must not affect the others, nor the turns that run here.
                log.exception("the request to stop %s cannot be answered", item.topic)

    async def _answer(
        self, item: QueueItem, stop: StopHere, carried_out: dict[str, StopAnswer | None]
    ) -> None:
        request = _decode(item)
        if self._clock.monotonic() >= request.until + ANSWER_SECONDS:
            # The requester could not withdraw it.
            await self._store.commit(CompleteItem(item.key))
        if request.answer is not None:
            return
        if item.key not in carried_out:
            if await self._is_withdrawn(item.key, request):
                return
            # If it fails, it is not repeated: a turn that began meanwhile must not be stopped.
            carried_out[item.key] = None
            if (answer := await stop(item.topic, request)) is None:
                del carried_out[item.key]
                return
            carried_out[item.key] = answer
        if (answer := carried_out[item.key]) is not None:
            answered = structs.replace(request, answer=answer)
            await self._store.commit(AmendItem(item.key, _encode(answered)))
            self._bus.wake(_ANSWERS, item.key)

    async def _is_withdrawn(self, key: str, request: StopRequest) -> bool:
        status, _ = await self._store.queues.status(key)
        return status is not ItemStatus.WAITING or self._clock.monotonic() >= request.until


def _encode(request: StopRequest) -> Raw:
    return Raw(msgspec.json.encode(request))


def _decode(item: QueueItem) -> StopRequest:
    return msgspec.json.decode(item.body, type=StopRequest)
