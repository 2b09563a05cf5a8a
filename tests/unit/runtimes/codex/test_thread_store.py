"""The stored state of a thread: its fork points and its usage."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw, structs

from hermes.runtimes.codex.notifications import UsageMeter, thread_total
from hermes.runtimes.codex.thread_store import (
    MAX_FORK_POINTS,
    ContextFill,
    ForkPoint,
    StoredThread,
    ThreadStore,
)
from hermes.schema.messages import Usage
from hermes.testing.clock import FakeClock
from support.turns import assistant_message, user_message


def test_thread_is_forked_after_the_last_common_turn() -> None:
    first, messages, second = user_message(), assistant_message("yes"), user_message()
    kept = StoredThread("th", "msg_x", [ForkPoint(messages.id, "tu1"), ForkPoint("msg_x", "tu2")])
    assert kept.common_fork_points([first, messages, second]) == [ForkPoint(messages.id, "tu1")]
    assert kept.common_fork_points([first]) == ()


def test_newer_turn_at_the_same_message_replaces_the_older() -> None:
    kept = StoredThread("th", "m1", [ForkPoint("m0", "tu0"), ForkPoint("m1", "tu1")])
    assert kept.with_fork_point("tu2") == [ForkPoint("m0", "tu0"), ForkPoint("m1", "tu2")]
    assert kept.with_fork_point("") == kept.marks


@given(st.integers(1, 3 * MAX_FORK_POINTS))
def test_number_of_fork_points_is_limited(turns: int) -> None:
    kept = StoredThread("th")
    for number in range(turns):
        kept = structs.replace(kept, seen=f"m{number}")
        kept = structs.replace(kept, marks=kept.with_fork_point(f"tu{number}"))
    assert len(kept.marks) == min(turns, MAX_FORK_POINTS)
    assert kept.marks[-1] == ForkPoint(f"m{turns - 1}", f"tu{turns - 1}")


def test_record_of_an_older_version_can_be_read() -> None:
    kept = msgspec.json.decode(b'{"thread":"th","seen":"m1"}', type=StoredThread)
    assert kept == StoredThread("th", "m1")
    assert msgspec.json.decode(msgspec.json.encode(kept), type=StoredThread) == structs.replace(
        kept, marks=[]
    )


async def test_threads_are_kept_in_memory_without_a_store() -> None:
    threads = ThreadStore(None, FakeClock())
    assert await threads.get("ses_1") is None
    await threads.put("ses_1", StoredThread("th"))
    assert (
        await threads.get("ses_1") == await threads.nearest_ancestor("ses_1") == StoredThread("th")
    )
    assert await threads.nearest_ancestor("ses_2") is None
    assert await threads.nearest_ancestor(None) is None


def usage_params(total: int, last: int, turn: str = "tu1", window: int = 1000) -> Raw:
    tokens = {"totalTokens": last, "inputTokens": last}
    usage = {"total": {"totalTokens": total}, "last": tokens, "modelContextWindow": window}
    return Raw(msgspec.json.encode({"turnId": turn, "tokenUsage": usage}))


def test_repeated_usage_is_counted_once() -> None:
    spending = UsageMeter(total=500)
    for note in (
        usage_params(500, 500),
        usage_params(700, 200),
        usage_params(700, 200),
        usage_params(900, 200),
    ):
        spending.feed(note, "tu1")
    assert spending.take() == Usage(400, 0)
    assert spending.take() == Usage()
    assert (spending.total, spending.filled, spending.filled.share) == (
        900,
        ContextFill(200, 1000),
        0.2,
    )


def test_thread_total_is_read() -> None:
    assert thread_total(usage_params(900, 200)) == 900
    assert thread_total(Raw(b'{"tokenUsage":7}')) is None
    assert ContextFill(10, 0).share == 0.0
