"""Contract of a bus: no lost fact, no lost wake-up, no effect on topics of others."""

import anyio

from hermes.ports.bus import Bus
from hermes.schema.events import Event, Notice, Outcome, RunEnded, RunStarted, TextDelta

MANY = 5_000


class BusContract:
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
        with bus.subscribe("run.r1") as one, bus.subscribe("run.r1") as other:
            bus.publish("run.r1", TextDelta("a"))
            assert list(await one.read()) == list(await other.read()) == [TextDelta("a")]

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

    async def test_reader_waits_on_if_another_task_took_the_events(self, bus: Bus) -> None:
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
            with anyio.move_on_after(0) as scope:
                await wakeups.wait()
            assert scope.cancelled_caught

    async def test_listener_learns_each_key_once(self, bus: Bus) -> None:
        with bus.listen("t") as wakeups, bus.listen("u") as others:
            assert not wakeups.take()
            for key in ("a", "b", "a"):
                bus.wake("t", key)
            await wakeups.wait()
            assert sorted(wakeups.take()) == ["a", "b"]
            assert not wakeups.take()
            assert not others.take()

    async def test_keys_taken_early_do_not_prevent_the_return_of_a_wait(self, bus: Bus) -> None:
        with bus.listen("t") as wakeups, anyio.fail_after(60):
            bus.wake("t", "a")
            assert list(wakeups.take()) == ["a"]
            await wakeups.wait()

    async def test_every_listener_of_a_topic_is_woken(self, bus: Bus) -> None:
        with bus.listen("t") as one, bus.listen("t") as other, bus.listen("u") as another:
            bus.wake("t")
            with anyio.fail_after(60):
                await one.wait()
                await other.wait()
            with anyio.move_on_after(0) as scope:
                await another.wait()
            assert scope.cancelled_caught

    async def test_closed_listener_and_subscriber_are_forgotten(self, bus: Bus) -> None:
        with bus.listen("t"), bus.subscribe("t"):
            pass
        bus.wake("t")
        bus.publish("t", TextDelta("a"))
