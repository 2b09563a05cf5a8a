"""The event feed: pages resume where they were, or load again."""

import anyio
import pytest

from hermes.web import feed as feed_module
from hermes.web.feed import Feed, FeedEvent


async def first_batch(feed: Feed, session: str, after: str) -> list[FeedEvent]:
    async for batch in feed.follow(session, after):
        return list(batch)
    return []


async def test_page_resumes_after_its_last_event():
    feed = Feed()
    start = feed.position
    feed.publish("entry", {"n": 1}, "s1")
    seen = feed.position
    feed.publish("entry", {"n": 2}, "other")
    feed.publish("entry", {"n": 3}, "s1")
    feed.publish("pending", {"n": 4})
    assert [one.data for one in await first_batch(feed, "s1", seen)] == [b'{"n":3}', b'{"n":4}']
    assert len(await first_batch(feed, "s1", start)) == 3


@pytest.mark.parametrize(
    "after", ["", "other-1", "x", "{epoch}-99", "{epoch}-" + "9" * 5000, "{epoch}-²"]
)
async def test_unknown_position_resets_the_page(after: str):
    feed = Feed()
    feed.publish("entry", {}, "s1")
    (event,) = await first_batch(feed, "s1", after.format(epoch=feed.epoch))
    assert event.kind == "reset"


async def test_page_that_missed_too_much_is_reset(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(feed_module, "MAX_EVENTS", 3)
    feed = Feed()
    start = feed.position
    for number in range(5):
        feed.publish("entry", {"n": number}, "s1")
    assert [one.kind for one in await first_batch(feed, "s1", start)] == ["reset"]


async def test_waiting_page_gets_the_next_event_and_is_watched():
    feed = Feed()
    found: list[FeedEvent] = []

    async def follow() -> None:
        async for batch in feed.follow("s1", feed.position):
            found.extend(batch)

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(follow)
            await anyio.wait_all_tasks_blocked()
            assert feed.watched == ["s1"]
            feed.publish("entry", {"n": 1}, "s1")
            await anyio.wait_all_tasks_blocked()
            feed.close()
    assert [one.kind for one in found] == ["entry"]
    assert feed.watched == []


async def test_page_is_reset_if_its_session_was_not_followed():
    feed = Feed()
    start = feed.position
    feed.skip("s1")
    feed.publish("entry", {}, "s2")
    assert [one.kind for one in await first_batch(feed, "s1", start)] == ["reset"]
    assert [one.kind for one in await first_batch(feed, "s2", start)] == ["entry"]
    feed.expect("s1")
    assert feed.is_wanted("s1")
    assert not feed.is_wanted("s3")


async def test_an_event_larger_than_the_limit_is_kept(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(feed_module, "MAX_BYTES", 10)
    feed = Feed()
    start = feed.position
    feed.publish("entry", {"text": "x" * 20}, "s1")
    assert [one.kind for one in await first_batch(feed, "s1", start)] == ["entry"]


async def test_half_of_a_surrogate_pair_is_sent():
    feed = Feed()
    start = feed.position
    feed.publish("entry", {"text": "a\ud800"}, "s1")
    (event,) = await first_batch(feed, "s1", start)
    assert event.data == b'{"text": "a\\ud800"}'
