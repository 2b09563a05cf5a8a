"""A request to stop a turn of another process is answered by that process, or withdrawn."""

import anyio
import pytest
from msgspec import Raw, field

from hermes.bus.memory import MemoryBus
from hermes.ports.store import QueueItem
from hermes.session.stop_requests import (
    ANSWER_SECONDS,
    STOPS,
    StopAnswer,
    StopRequest,
    StopRequests,
)
from hermes.testing.clock import FakeClock, wait_until_idle
from hermes.testing.memory_store import open_memory_store
from support.polling import wait_until


class Process:
    """Runs one turn; `stopped` are the requests it has carried out."""

    def __init__(self, target: str) -> None:
        self._target = target
        self.stopped: list[StopRequest] = []

    async def stop(self, target: str, request: StopRequest) -> StopAnswer | None:
        if target != self._target:
            return None
        self.stopped.append(request)
        return StopAnswer(run="run_1", waiting=2)


async def test_process_with_the_turn_answers_once() -> None:
    clock, one, other = FakeClock(), Process("chat"), Process("another chat")
    async with open_memory_store(clock) as store, anyio.create_task_group() as group:
        requests = StopRequests(store=store, clock=clock, bus=MemoryBus())
        for process in (one, other):
            group.start_soon(requests.serve, process.stop)
        await anyio.wait_all_tasks_blocked()
        answer = await requests.ask("chat", StopRequest(principal="ann"))
        assert answer == StopAnswer(run="run_1", waiting=2)
        assert [request.principal for request in one.stopped] == ["ann"]
        assert not other.stopped
        assert not await store.queues.topics(STOPS)
        group.cancel_scope.cancel()


async def test_request_without_an_answer_is_withdrawn() -> None:
    """A process that comes back later must not stop a turn that began meanwhile."""
    clock, late = FakeClock(), Process("chat")
    async with open_memory_store(clock) as store, anyio.create_task_group() as group:
        requests = StopRequests(store=store, clock=clock, bus=MemoryBus())
        answers: list[StopAnswer | None] = []

        async def ask() -> None:
            answers.append(await requests.ask("chat", StopRequest()))

        group.start_soon(ask)
        await wait_until(lambda: ANSWER_SECONDS in clock.slept)
        await clock.advance(ANSWER_SECONDS)
        await wait_until(lambda: answers == [None])
        assert not await store.queues.topics(STOPS)
        group.start_soon(requests.serve, late.stop)
        await anyio.wait_all_tasks_blocked()
        assert not late.stopped
        group.cancel_scope.cancel()


async def test_request_of_a_dead_process_stops_nothing() -> None:
    clock, process = FakeClock(), Process("chat")
    async with open_memory_store(clock) as store, anyio.create_task_group() as group:
        item = QueueItem(key="k", queue=STOPS, topic="chat", body=Raw(b"{}"))
        await store.queues.put(item, "elsewhere/boot/1/1/dead")
        requests = StopRequests(store=store, clock=clock, bus=MemoryBus())
        group.start_soon(requests.serve, process.stop)
        await anyio.wait_all_tasks_blocked()
        assert not process.stopped
        assert not await store.queues.topics(STOPS)
        group.cancel_scope.cancel()


async def test_request_withdrawn_while_another_is_carried_out_stops_nothing() -> None:
    clock = FakeClock()
    carried_out: list[str] = []
    answers: list[StopAnswer | None] = []

    async def stop(target: str, _: StopRequest) -> StopAnswer:
        carried_out.append(target)
        await clock.sleep(ANSWER_SECONDS + 1)
        return StopAnswer(run="run_1")

    async with open_memory_store(clock) as store, anyio.create_task_group() as group:
        requests = StopRequests(store=store, clock=clock, bus=MemoryBus())

        async def ask() -> None:
            answers.append(await requests.ask("chat", StopRequest()))

        group.start_soon(ask)
        group.start_soon(ask)
        await wait_until_idle()
        group.start_soon(requests.serve, stop)
        await clock.advance(ANSWER_SECONDS)
        await wait_until(lambda: answers == [None, None])
        await clock.advance(2 * ANSWER_SECONDS)
        assert carried_out == ["chat"]
        group.cancel_scope.cancel()


async def test_unreadable_or_failing_request_does_not_affect_others() -> None:
    clock, process = FakeClock(), Process("chat")
    failed: list[str] = []

    async def stop(target: str, request: StopRequest) -> StopAnswer | None:
        if target == "broken":
            failed.append(target)
            raise ValueError("unexpected")
        return await process.stop(target, request)

    async with open_memory_store(clock) as store, anyio.create_task_group() as group:
        for key, topic, body in (("a", "chat", b"[]"), ("b", "broken", b'{"until": 5.0}')):
            item = QueueItem(key=key, queue=STOPS, topic=topic, body=Raw(body))
            await store.queues.put(item, store.workers.own)
        requests = StopRequests(store=store, clock=clock, bus=MemoryBus())
        group.start_soon(requests.serve, stop)
        await anyio.wait_all_tasks_blocked()
        assert await requests.ask("chat", StopRequest()) is not None
        assert await store.queues.topics(STOPS) == ["broken"]
        assert failed == ["broken"]
        group.cancel_scope.cancel()


class LossyBus(MemoryBus):
    """Loses the first wake-ups of each topic."""

    lost: int
    misses: bool
    _count: dict[str, int] = field(default_factory=dict)

    def wake(self, topic: str, key: str = "") -> None:
        self._count[topic] = self._count.get(topic, 0) + 1
        if self._count[topic] > self.lost:
            super().wake(topic, key)

    @property
    def misses_wakeups(self) -> bool:
        return self.misses


@pytest.mark.parametrize("bus", [LossyBus(1, misses=False), LossyBus(1_000, misses=True)])
async def test_request_is_answered_in_time_if_wake_ups_are_lost(bus: LossyBus) -> None:
    clock, process = FakeClock(), Process("chat")
    answers: list[StopAnswer | None] = []
    async with open_memory_store(clock) as store, anyio.create_task_group() as group:
        requests = StopRequests(store=store, clock=clock, bus=bus)

        async def ask() -> None:
            answers.append(await requests.ask("chat", StopRequest()))

        group.start_soon(requests.serve, process.stop)
        await wait_until_idle()
        group.start_soon(ask)
        await wait_until_idle()
        await clock.advance(ANSWER_SECONDS / 2)
        assert answers == [StopAnswer(run="run_1", waiting=2)]
        assert len(process.stopped) == 1
        group.cancel_scope.cancel()
