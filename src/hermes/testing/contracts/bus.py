"""Contract of a bus: no lost event or wake-up, and topics do not affect each other."""

import anyio

from hermes.ports.bus import Bus, Wakeups
from hermes.schema.events import Event, Notice, Outcome, RunEnded, RunStarted, TextDelta

MANY = 5_000


class BusContract:
    """Subclass this and provide a fixture `bus`."""

    async def test_subscriber_gets_events_in_order(self, bus: Bus) -> None:
        events: list[Event] = [RunStarted("r1", "s1"), TextDelta("a"), RunEnded("r1", Outcome.DONE)]
        with bus.subscribe("run.r1") as subscription:
            for event in events:
                bus.publish("run.r1", event)
            assert list(await subscription.read()) == events

    async def test_event_of_another_topic_is_not_received(self, bus: Bus) -> None:
        with bus.subscribe("run.r1") as subscription:
            bus.publish("run.r2", TextDelta("other"))
            bus.publish("run.r1", TextDelta("mine"))
            assert list(await subscription.read()) == [TextDelta("mine")]

    async def test_event_without_a_subscriber_is_dropped(self, bus: Bus) -> None:
        bus.publish("run.r1", TextDelta("early"))
        with bus.subscribe("run.r1") as subscription:
            bus.publish("run.r1", TextDelta("late"))
            assert list(await subscription.read()) == [TextDelta("late")]

    async def test_each_subscriber_gets_every_event(self, bus: Bus) -> None:
        with bus.subscribe("run.r1") as subscription, bus.subscribe("run.r1") as other:
            bus.publish("run.r1", TextDelta("a"))
            assert list(await subscription.read()) == list(await other.read()) == [TextDelta("a")]

    async def test_reader_waits_for_an_event(self, bus: Bus) -> None:
        got: list[Event] = []
        with bus.subscribe("run.r1") as subscription:
            async with anyio.create_task_group() as tasks:

                async def read() -> None:
                    got.extend(await subscription.read())

                tasks.start_soon(read)
                await anyio.wait_all_tasks_blocked()
                assert not got
                bus.publish("run.r1", TextDelta("a"))
        assert got == [TextDelta("a")]

    async def test_unread_events_can_be_taken_without_waiting(self, bus: Bus) -> None:
        with bus.subscribe("run.r1") as subscription:
            assert not subscription.take()
            bus.publish("run.r1", TextDelta("a"))
            assert list(subscription.take()) == [TextDelta("a")]
            bus.publish("run.r1", TextDelta("b"))
            assert list(await subscription.read()) == [TextDelta("b")]

    async def test_reader_keeps_waiting_if_another_task_took_the_events(self, bus: Bus) -> None:
        got: list[Event] = []
        with bus.subscribe("run.r1") as subscription, anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:

                async def read() -> None:
                    got.extend(await subscription.read())

                tasks.start_soon(read)
                await anyio.wait_all_tasks_blocked()
                bus.publish("run.r1", TextDelta("a"))
                assert list(subscription.take()) == [TextDelta("a")]
                await anyio.wait_all_tasks_blocked()
                bus.publish("run.r1", TextDelta("b"))
        assert got == [TextDelta("b")]

    async def test_closed_subscription_is_read_to_its_end(self, bus: Bus) -> None:
        with bus.subscribe("run.r1") as subscription, anyio.fail_after(60):
            bus.publish("run.r1", TextDelta("a"))
            subscription.close()
            assert list(await subscription.read()) == [TextDelta("a")]
            assert not await subscription.read()

    async def test_closing_ends_a_waiting_reader(self, bus: Bus) -> None:
        ended = anyio.Event()
        with bus.subscribe("run.r1") as subscription, anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:

                async def read() -> None:
                    assert not await subscription.read()
                    ended.set()

                tasks.start_soon(read)
                await anyio.wait_all_tasks_blocked()
                subscription.close()
        assert ended.is_set()

    async def test_slow_reader_gets_joined_text_and_every_fact(self, bus: Bus) -> None:
        with bus.subscribe("run.r1") as subscription:
            for number in range(MANY):
                bus.publish("run.r1", TextDelta(f"{number} "))
            bus.publish("run.r1", Notice("slow"))
            bus.publish("run.r1", RunEnded("r1", Outcome.DONE))
            events = list(await subscription.read())
        assert len(events) < MANY
        text = "".join(event.text for event in events if isinstance(event, TextDelta))
        assert text == "".join(f"{number} " for number in range(MANY))
        assert events[-2:] == [Notice("slow"), RunEnded("r1", Outcome.DONE)]

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

    async def test_publishing_after_the_close_of_all_readers_does_not_fail(self, bus: Bus) -> None:
        with bus.listen("t"), bus.subscribe("t"):
            pass
        bus.wake("t")
        bus.publish("t", TextDelta("a"))


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
