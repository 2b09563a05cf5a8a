"""Contract of a bus: no lost event or wake-up, and topics do not affect each other."""

import anyio

from hermes.ports.bus import Bus, Wakeups
from hermes.schema.events import Event, Outcome, RunEnded, RunStarted, TextDelta


class BusContract:
    """Subclass this and provide a fixture `bus`."""

    async def test_subscriber_gets_events_in_order(self, bus: Bus) -> None:
        events: list[Event] = [RunStarted("r1", "s1"), TextDelta("a"), RunEnded("r1", Outcome.DONE)]
        received: list[Event] = []
        with bus.subscribe("run.r1", received.append):
            for event in events:
                bus.publish("run.r1", event)
            await anyio.wait_all_tasks_blocked()
        assert received == events

    async def test_each_subscriber_gets_every_event_of_its_topic_only(self, bus: Bus) -> None:
        first: list[Event] = []
        second: list[Event] = []
        with bus.subscribe("run.r1", first.append), bus.subscribe("run.r1", second.append):
            bus.publish("run.r2", TextDelta("other"))
            bus.publish("run.r1", TextDelta("mine"))
            await anyio.wait_all_tasks_blocked()
        assert first == second == [TextDelta("mine")]

    async def test_events_outside_of_the_subscription_are_not_received(self, bus: Bus) -> None:
        received: list[Event] = []
        bus.publish("run.r1", TextDelta("early"))
        with bus.subscribe("run.r1", received.append):
            pass
        bus.publish("run.r1", TextDelta("late"))
        await anyio.wait_all_tasks_blocked()
        assert not received

    async def test_wake_up_before_the_wait_is_not_lost(self, bus: Bus) -> None:
        with bus.listen("outbox.web") as wakeups, anyio.fail_after(60):
            bus.wake("outbox.web")
            bus.wake("outbox.web")
            await wakeups.wait()

    async def test_several_wake_ups_count_as_one(self, bus: Bus) -> None:
        with bus.listen("t") as wakeups:
            bus.wake("t")
            bus.wake("t")
            await wakeups.wait()
            assert not await _returns_at_once(wakeups)

    async def test_listener_receives_each_key_once(self, bus: Bus) -> None:
        with bus.listen("t") as wakeups, bus.listen("u") as others:
            assert not wakeups.take()
            for key in ("a", "b", "a"):
                bus.wake("t", key)
            await wakeups.wait()
            assert sorted(wakeups.take()) == ["a", "b"]
            assert not wakeups.take()
            assert not others.take()

    async def test_wait_returns_even_if_the_keys_were_taken(self, bus: Bus) -> None:
        with bus.listen("t") as wakeups, anyio.fail_after(60):
            bus.wake("t", "a")
            assert list(wakeups.take()) == ["a"]
            await wakeups.wait()

    async def test_every_listener_of_a_topic_is_woken(self, bus: Bus) -> None:
        with bus.listen("t") as wakeups, bus.listen("t") as other, bus.listen("u") as another:
            bus.wake("t")
            with anyio.fail_after(60):
                await wakeups.wait()
                await other.wait()
            assert not await _returns_at_once(another)

    async def test_wake_up_after_the_close_of_all_listeners_does_not_fail(self, bus: Bus) -> None:
        with bus.listen("t"):
            pass
        bus.wake("t")


async def _returns_at_once(wakeups: Wakeups) -> bool:
    returned = False

    async def wait() -> None:
        nonlocal returned
        await wakeups.wait()
        returned = True

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    return returned
