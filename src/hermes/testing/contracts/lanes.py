"""What the durable inbox and outbox of every store must do."""

from datetime import timedelta

import pytest
from msgspec import Raw

from hermes.kit.holder import this_process
from hermes.ports.store import Amend, Done, Fate, OpenSession, Parcel, Parked, Post, Store
from hermes.schema.errors import NotFound
from hermes.schema.scope import OWNER
from hermes.testing.clock import FakeClock
from hermes.testing.contracts.samples import session

MINUTE = timedelta(minutes=1)


def parcel(key: str, lane: str = "inbox", topic: str = "s1", body: bytes = b'{"a": 1 }') -> Parcel:
    return Parcel(key=key, lane=lane, topic=topic, body=Raw(body))


async def take(store: Store, limit: int = 10, holder: str = "me") -> list[str]:
    return [got.key for got in await store.lanes.claim("inbox", None, holder, MINUTE, limit)]


class LanesContract:
    async def test_a_parcel_comes_out_as_it_went_in(self, store: Store) -> None:
        sent = parcel("k1")
        assert await store.lanes.put(sent)
        (got,) = await store.lanes.claim("inbox", "s1", "me", MINUTE)
        assert got == sent
        assert bytes(got.body) == b'{"a": 1 }'

    async def test_a_key_is_accepted_once_and_for_all(self, store: Store, clock: FakeClock) -> None:
        assert await store.lanes.put(parcel("k1"))
        assert not await store.lanes.put(parcel("k1", topic="other", body=b"2"))
        await store.commit(OpenSession(session(clock, "s1")), Post(parcel("k1", body=b"3")))
        (got,) = await store.lanes.claim("inbox", None, "me", MINUTE, 10)
        assert bytes(got.body) == b'{"a": 1 }'
        await store.commit(Done("k1"))
        assert not await store.lanes.put(parcel("k1"))
        assert await take(store) == []

    async def test_oldest_first_by_lane_and_topic(self, store: Store) -> None:
        for key, lane, topic in [
            ("k1", "inbox", "a"),
            ("k2", "outbox", "a"),
            ("k3", "inbox", "b"),
            ("k4", "inbox", "a"),
        ]:
            await store.lanes.put(parcel(key, lane, topic))
        got = await store.lanes.claim("inbox", "b", "me", MINUTE, 10)
        assert [item.key for item in got] == ["k3"]
        assert await take(store, limit=1) == ["k1"]
        assert await take(store) == ["k4"]
        assert await take(store) == []
        (last,) = await store.lanes.claim("outbox", None, "me", MINUTE, 10)
        assert last.key == "k2"

    async def test_not_before_it_is_due(self, store: Store, clock: FakeClock) -> None:
        later = Parcel(key="k1", lane="inbox", topic="s1", body=Raw(b"1"), due=clock.now() + MINUTE)
        await store.lanes.put(later)
        assert await take(store) == []
        await clock.advance(60)
        assert await store.lanes.claim("inbox", None, "me", MINUTE) == [later]

    async def test_a_lapsed_lease_is_due_again(self, store: Store, clock: FakeClock) -> None:
        await store.lanes.put(parcel("k1"))
        (first,) = await store.lanes.claim("inbox", None, "me", MINUTE)
        assert first.attempts == 0
        assert await take(store, holder="other") == []
        await clock.advance(60)
        (again,) = await store.lanes.claim("inbox", None, "other", MINUTE)
        assert (again.key, again.attempts) == ("k1", 1)

    @pytest.mark.parametrize("step", [86400.0, -86400.0])
    async def test_a_step_of_the_clock_neither_frees_nor_keeps_a_claim(
        self, store: Store, clock: FakeClock, step: float
    ) -> None:
        await store.lanes.put(parcel("k1"))
        assert await take(store) == ["k1"]
        clock.step(step)
        await clock.advance(59)
        assert await take(store, holder="other") == []
        await clock.advance(2)
        assert await take(store, holder="other") == ["k1"]

    async def test_what_a_dead_process_held_is_due_at_once(self, store: Store) -> None:
        await store.lanes.put(parcel("k1"))
        dead = this_process().rpartition("/")[0] + "/1"
        assert await take(store, holder=dead) == ["k1"]
        (again,) = await store.lanes.claim("inbox", None, this_process(), MINUTE)
        assert again.attempts == 1
        assert await take(store, holder="other") == []

    async def test_retry_waits_and_counts(self, store: Store, clock: FakeClock) -> None:
        await store.lanes.put(parcel("k1"))
        await take(store)
        await store.lanes.retry("k1", clock.now() + MINUTE, "busy")
        assert await take(store) == []
        await clock.advance(60)
        (again,) = await store.lanes.claim("inbox", None, "me", MINUTE)
        assert again.attempts == 1
        with pytest.raises(NotFound):
            await store.lanes.retry("unknown", clock.now(), "busy")

    async def test_done_stays_done(self, store: Store, clock: FakeClock) -> None:
        await store.lanes.put(parcel("k1"))
        await store.commit(Done("k1"), Done("unknown"))
        await store.lanes.retry("k1", clock.now(), "too late")
        await store.lanes.park("k1", "too late")
        assert await take(store) == []

    async def test_parked_until_somebody_acts(self, store: Store, clock: FakeClock) -> None:
        await store.lanes.put(parcel("k1"))
        await take(store)
        await store.lanes.park("k1", "no such chat")
        await clock.advance(3600)
        assert await take(store) == []
        assert not await store.lanes.put(parcel("k1"))
        await store.lanes.retry("k1", clock.now(), "asked to")
        assert await take(store) == ["k1"]
        with pytest.raises(NotFound):
            await store.lanes.park("unknown", "why")

    async def test_topics_are_those_with_something_open(self, store: Store) -> None:
        for key, topic in [("k1", "b"), ("k2", "a"), ("k3", "b"), ("k4", "c"), ("k5", "d")]:
            await store.lanes.put(parcel(key, topic=topic))
        await store.lanes.put(parcel("o1", "outbox", "z"))
        await store.lanes.claim("inbox", "a", "me", MINUTE)
        await store.lanes.park("k4", "why")
        await store.commit(Done("k5"))
        assert list(await store.lanes.topics("inbox")) == ["b", "a"]
        assert list(await store.lanes.topics("nowhere")) == []

    async def test_what_is_left_is_all_of_topics_with_a_claim(self, store: Store) -> None:
        for key, topic in [("k1", "a"), ("k2", "b"), ("k3", "a"), ("k4", "a")]:
            await store.lanes.put(parcel(key, topic=topic))
        assert list(await store.lanes.left("inbox", 10)) == []
        await store.lanes.claim("inbox", "a", "me", MINUTE)
        await store.commit(Done("k4"))
        for _ in range(2):
            assert [one.key for one in await store.lanes.left("inbox", 10)] == ["k1", "k3"]

    async def test_parked_ones_are_shown_with_their_reason(self, store: Store) -> None:
        await store.lanes.put(parcel("k1"))
        await store.lanes.put(parcel("k2"))
        await store.lanes.park("k2", "no such chat")
        assert list(await store.lanes.parked("inbox")) == [Parked(parcel("k2"), "no such chat")]

    async def test_what_became_of_a_parcel_can_be_asked(
        self, store: Store, clock: FakeClock
    ) -> None:
        for key in ("k1", "k2", "k3"):
            await store.lanes.put(parcel(key))
        assert await store.lanes.fate("k1") == (Fate.WAITING, "")
        await store.lanes.claim("inbox", None, "me", timedelta(minutes=1))
        assert await store.lanes.fate("k1") == (Fate.WAITING, "")
        await store.commit(Done("k1"))
        await store.lanes.park("k2", "no such chat")
        await store.lanes.retry("k3", clock.now(), "too much at once")
        assert await store.lanes.fate("k1") == (Fate.DONE, "")
        assert await store.lanes.fate("k2") == (Fate.PARKED, "no such chat")
        assert await store.lanes.fate("k3") == (Fate.WAITING, "too much at once")
        with pytest.raises(NotFound):
            await store.lanes.fate("k4")

    async def test_what_a_parcel_holds_can_change_until_it_is_done(self, store: Store) -> None:
        await store.lanes.put(parcel("k1"))
        await store.commit(Amend("k1", Raw(b"2")), Amend("unknown", Raw(b"2")))
        (got,) = await store.lanes.claim("inbox", None, "me", timedelta(0))
        assert bytes(got.body) == b"2"
        await store.commit(Done("k1"), Amend("k1", Raw(b"3")))
        assert await take(store) == []

    async def test_a_session_takes_its_parcels_along(self, store: Store, clock: FakeClock) -> None:
        for name in ("s1", "s2"):
            await store.commit(OpenSession(session(clock, name)))
        for key, topic in [("k1", "s1"), ("k2", "s2"), ("k3", "s1"), ("k4", "s1"), ("k5", "s1")]:
            await store.lanes.put(parcel(key, topic=topic))
        await store.commit(Done("k3"))
        await store.lanes.park("k4", "why")
        await store.lanes.claim("inbox", "s1", "me", MINUTE)
        assert await store.seen_by("stranger").delete(["s1"]) == 0
        assert list(await store.lanes.topics("inbox")) == ["s1", "s2"]
        assert await store.seen_by(OWNER).delete(["s1"]) == 1
        assert list(await store.lanes.parked("inbox")) == []
        await clock.advance(60)
        assert await take(store) == ["k2"]

    async def test_a_parcel_is_posted_with_the_rest_or_not_at_all(
        self, store: Store, clock: FakeClock
    ) -> None:
        await store.commit(OpenSession(session(clock, "s1")))
        with pytest.raises(Exception, match="s1"):
            await store.commit(Post(parcel("k1")), OpenSession(session(clock, "s1")))
        assert await take(store) == []
        await store.commit(Post(parcel("k1")))
        assert await take(store) == ["k1"]
