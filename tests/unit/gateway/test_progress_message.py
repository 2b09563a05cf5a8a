"""The progress message: edited at a limited rate, never after the answer."""

from pathlib import Path

import anyio
import pytest
from msgspec import structs

from hermes.gateway.gateway import GatewayRules
from hermes.gateway.progress_message import (
    ANSWER_BELOW,
    MAX_FAILURES,
    UNFINISHED,
    ProgressDisplay,
    ProgressTiming,
)
from hermes.gateway.rate_limiter import RateLimiter
from hermes.gateway.stale_progress import INTERRUPTED_BY_RESTART, LIVE_PROGRESS
from hermes.ports.channel import ChannelCapabilities, NotSent, Outbound, Receipt, Throttled
from hermes.schema.events import (
    Event,
    MessageAdded,
    Notice,
    QuestionAsked,
    StreamReset,
    TextDelta,
    ToolStarted,
)
from hermes.schema.messages import Text, Trust, User
from hermes.schema.questions import Question, QuestionKind
from hermes.schema.scope import Address
from hermes.schema.tools import Effect
from hermes.testing.channel import (
    FAKE_CAPABILITIES,
    THROTTLE_SECONDS,
    FakeFaultyChannel,
    SendFault,
)
from hermes.testing.clock import FakeClock
from hermes.testing.scripted_model import Pause, answer_script
from support.gateway import FinalEdits, gateway_harness, progress_message, wait_until
from support.turns import FakeTool, GatedBody, assistant_message, tool_call

HOME = Address("fake", "1")
PACE = ProgressTiming(edit=1.0, typing=500.0, timeout=20.0)


class CountingChannel(FakeFaultyChannel):
    """Counts edits and typing signals; while `gate` is closed, an edit is in progress."""

    def __init__(self, *faults: SendFault, caps: ChannelCapabilities | None = None) -> None:
        super().__init__(*faults, caps=caps)
        self.edits = 0
        self.signals = 0
        self.typing_fails = False
        self.gate = anyio.Event()
        self.gate.set()

    async def edit(self, receipt: Receipt, post: Outbound) -> None:
        self.edits += 1
        await self.gate.wait()
        await super().edit(receipt, post)

    async def typing(self, to: Address, on: bool) -> None:
        self.signals += on
        if self.typing_fails:
            raise NotSent("The platform shows nothing.")
        await super().typing(to, on)


class SlowTypingChannel(FakeFaultyChannel):
    """Typing signals take three seconds; posts are refused."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(chance=lambda: SendFault.REFUSED)
        self._clock = clock

    async def typing(self, to: Address, on: bool) -> None:
        await self._clock.sleep(3.0)
        await super().typing(to, on)


class SlowChannel(FakeFaultyChannel):
    """A post is in progress until `posting` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.posting = anyio.Event()

    async def send(self, to: Address, post: Outbound) -> Receipt:
        await self.posting.wait()
        return await super().send(to, post)


def started(name: str) -> Event:
    return ToolStarted(tool_call(name, path="a"), Effect.READ)


async def rest() -> None:
    await anyio.wait_all_tasks_blocked()


async def test_tools_are_shown_immediately_and_edits_are_rate_limited() -> None:
    clock, channel = FakeClock(), CountingChannel()
    progress = progress_message(channel, clock, PACE)
    async with anyio.create_task_group() as group:
        group.start_soon(progress.run)
        progress.handle_event(started("look"))
        await rest()
        assert channel.texts_in("1") == ['· look {"path":"a"}']
        assert channel.typing_in == {HOME}
        for number in range(50):
            progress.handle_event(TextDelta(f"{number} "))
        await rest()
        assert channel.edits == 0
        await clock.advance(1.0)
        assert channel.edits == 1
        assert channel.texts_in("1")[0].endswith("48 49 ")
        assert progress.freeze() == "post-1"
        progress.handle_event(started("late"))
        progress.handle_event(TextDelta("late"))
    assert channel.edits == 1
    assert channel.typing_in == set()


async def test_quick_answer_shows_no_progress() -> None:
    channel = CountingChannel()
    progress = progress_message(channel, FakeClock(), PACE)
    async with anyio.create_task_group() as group:
        group.start_soon(progress.run)
        progress.handle_event(TextDelta("short"))
        await rest()
        assert progress.freeze() is None
    assert channel.posts == {}


async def test_stream_reset_clears_the_text() -> None:
    clock, channel = FakeClock(), CountingChannel()
    progress = progress_message(channel, clock, PACE)
    async with anyio.create_task_group() as group:
        group.start_soon(progress.run)
        progress.handle_event(TextDelta("wrong"))
        progress.handle_event(StreamReset("again"))
        progress.handle_event(TextDelta("I look."))
        progress.handle_event(MessageAdded(assistant_message("I look.", tool_call("look"))))
        progress.handle_event(Notice("waiting for the provider"))
        progress.handle_event(TextDelta("right"))
        await rest()
        assert channel.texts_in("1") == ["waiting for the provider"]
        await clock.advance(1.0)
        assert channel.texts_in("1") == ["waiting for the provider\nright"]
        progress.freeze()


async def test_text_that_is_gone_before_its_turn_is_not_posted() -> None:
    clock, channel = FakeClock(), CountingChannel()
    rate_limiter = RateLimiter(clock, channel.caps)
    rate_limiter.pause(Throttled("Too much.", wait=5.0), HOME)
    progress = progress_message(channel, clock, PACE, rate_limiter=rate_limiter)
    async with anyio.create_task_group() as group:
        group.start_soon(progress.run)
        progress.handle_event(TextDelta("a text that is long enough to be shown "))
        await clock.advance(2.0)
        progress.handle_event(StreamReset("again"))
        await clock.advance(5.0)
        assert channel.calls == 0
        progress.handle_event(started("look"))
        await rest()
        assert channel.texts_in("1") == ['· look {"path":"a"}']
        progress.freeze()


async def test_display_settings_are_followed() -> None:
    clock, channel = FakeClock(), CountingChannel()
    shows = ProgressDisplay(preview=8, narration=True, typing=False, cursor=" |")
    progress = progress_message(channel, clock, PACE, display=shows)
    async with anyio.create_task_group() as group:
        group.start_soon(progress.run)
        progress.handle_event(MessageAdded(assistant_message("I look\nfirst.", tool_call("look"))))
        progress.handle_event(started("look"))
        await rest()
        assert channel.texts_in("1") == ['I look first.\n· look {"path"…']
        assert channel.typing_in == set()
        progress.handle_event(TextDelta("It is"))
        await clock.advance(1.0)
        assert channel.texts_in("1")[0].endswith("\nIt is |")
        progress.freeze()


@pytest.mark.parametrize(("waited", "text"), [(29.0, "post-1"), (31.0, None)])
async def test_old_post_does_not_become_the_answer(waited: float, text: str | None) -> None:
    clock, channel = FakeClock(), CountingChannel()
    progress = progress_message(
        channel, clock, ProgressTiming(edit=1.0, typing=500.0, max_age=30.0)
    )
    async with anyio.create_task_group() as group:
        group.start_soon(progress.run)
        progress.handle_event(started("look"))
        await rest()
        await clock.advance(waited)
        assert progress.freeze() == text
    assert progress.final_edit == (None if text else ("post-1", ANSWER_BELOW))


async def test_first_words_are_posted_at_once_and_whole() -> None:
    clock, channel = FakeClock(), CountingChannel()
    shows = ProgressDisplay(cursor=" |", least=10)
    progress = progress_message(channel, clock, PACE, display=shows)
    async with anyio.create_task_group() as group:
        group.start_soon(progress.run)
        progress.handle_event(TextDelta("The sea"))
        await rest()
        assert channel.texts_in("1") == []
        progress.handle_event(TextDelta(" is blu"))
        await rest()
        assert channel.texts_in("1") == ["The sea is |"]
        progress.handle_event(TextDelta("e and deep"))
        await rest()
        assert channel.edits == 0
        await clock.advance(1.0)
        assert channel.texts_in("1") == ["The sea is blue and deep |"]
        progress.freeze()


async def test_first_words_of_a_script_without_spaces_are_posted() -> None:
    channel, text = CountingChannel(), "海は青くて深い" * 8
    progress = progress_message(channel, FakeClock(), PACE)
    async with anyio.create_task_group() as group:
        group.start_soon(progress.run)
        progress.handle_event(TextDelta(text))
        await rest()
        assert channel.texts_in("1") == [text + UNFINISHED]
        progress.freeze()


async def test_short_text_is_posted_once_it_stops_growing() -> None:
    clock, channel = FakeClock(), CountingChannel()
    progress = progress_message(channel, clock, PACE)
    async with anyio.create_task_group() as group:
        group.start_soon(progress.run)
        progress.handle_event(TextDelta("Wait. "))
        await clock.advance(0.9)
        assert channel.texts_in("1") == []
        await clock.advance(0.1)
        assert channel.texts_in("1") == ["Wait." + UNFINISHED]
        progress.freeze()


@pytest.mark.parametrize("cursor", ["", " |"])
async def test_post_without_receipt_looks_unfinished_and_is_not_repeated(cursor: str) -> None:
    clock, channel = FakeClock(), CountingChannel(SendFault.LOST_REPLY)
    shows = ProgressDisplay(cursor=cursor, least=8)
    progress = progress_message(channel, clock, PACE, display=shows)
    async with anyio.create_task_group() as group:
        group.start_soon(progress.run)
        for number in range(3):
            progress.handle_event(TextDelta(f"the answer {number} "))
            await clock.advance(2.0)
        assert channel.texts_in("1") == ["the answer 0" + (cursor or UNFINISHED)]
        assert progress.freeze() is None


async def test_lost_receipt_is_recovered_where_the_platform_knows_the_key() -> None:
    clock, caps = FakeClock(), structs.replace(FAKE_CAPABILITIES, idempotent=True)
    channel = CountingChannel(SendFault.LOST_REPLY, caps=caps)
    progress = progress_message(channel, clock, PACE, display=ProgressDisplay(least=8))
    async with anyio.create_task_group() as group:
        group.start_soon(progress.run)
        for number in range(3):
            progress.handle_event(TextDelta(f"the answer {number} "))
            await clock.advance(2.0)
        assert channel.texts_in("1") == ["the answer 0 the answer 1 the answer 2 "]
        assert progress.freeze() == "post-1"


@pytest.mark.parametrize("then", [(), (SendFault.REFUSED,)], ids=["found", "refused first"])
async def test_recovered_post_gets_the_newest_text(then: tuple[SendFault, ...]) -> None:
    """The platform returns the post of the first attempt, with the text it had."""
    clock, caps = FakeClock(), structs.replace(FAKE_CAPABILITIES, idempotent=True)
    channel = CountingChannel(SendFault.LOST_REPLY, *then, caps=caps)
    progress = progress_message(channel, clock, PACE)
    async with anyio.create_task_group() as group:
        group.start_soon(progress.run)
        progress.handle_event(started("look"))
        await rest()
        progress.handle_event(started("act"))
        await clock.advance(5.0)
        assert channel.texts_in("1") == ['· look {"path":"a"}\n· act {"path":"a"}']
        assert channel.edits == 1
        progress.freeze()


async def test_typing_is_not_shown_beside_a_post_that_grows() -> None:
    clock, channel = FakeClock(), CountingChannel()
    progress = progress_message(channel, clock, structs.replace(PACE, typing=4.0))
    async with anyio.create_task_group() as group:
        group.start_soon(progress.run)
        await rest()
        assert channel.signals == 1
        for number in range(12):
            progress.handle_event(started(f"look{number}"))
            await clock.advance(1.0)
        assert channel.signals == 1
        await clock.advance(4.0)
        assert channel.signals == 2
        progress.freeze()


async def test_failed_typing_does_not_stop_the_progress() -> None:
    clock, channel = FakeClock(), CountingChannel()
    channel.typing_fails = True
    progress = progress_message(channel, clock, structs.replace(PACE, typing=4.0))
    async with anyio.create_task_group() as group:
        group.start_soon(progress.run)
        await clock.advance(4.0 * MAX_FAILURES)
        assert channel.signals > MAX_FAILURES
        progress.handle_event(started("look"))
        await rest()
        assert channel.texts_in("1") == ['· look {"path":"a"}']
        progress.freeze()


async def test_slow_typing_does_not_hide_failed_posts() -> None:
    clock = FakeClock()
    channel = SlowTypingChannel(clock)
    progress = progress_message(channel, clock, structs.replace(PACE, typing=0.5))
    async with anyio.create_task_group() as group:
        group.start_soon(progress.run)
        for number in range(20):
            progress.handle_event(started(f"look{number}"))
            await clock.advance(1.0)
        assert channel.calls == MAX_FAILURES
        progress.freeze()
        await clock.advance(3.0)


async def test_edit_in_progress_cannot_overwrite_the_answer() -> None:
    """The post gets its final text only after that edit has finished."""
    clock, channel, final_edits = FakeClock(), CountingChannel(), FinalEdits()
    progress = progress_message(channel, clock, PACE, final_edits=final_edits)
    async with anyio.create_task_group() as group:
        group.start_soon(progress.run)
        progress.handle_event(started("look"))
        await rest()
        channel.gate = anyio.Event()
        progress.handle_event(started("act"))
        await clock.advance(1.0)
        assert progress.freeze() is None
        await rest()
        assert final_edits.behind == []
        channel.gate.set()
    assert final_edits.behind == [("post-1", ANSWER_BELOW)]
    assert channel.edits == 1


async def test_no_post_is_made_once_the_message_is_frozen() -> None:
    channel, checked = CountingChannel(), anyio.Event()

    async def held() -> bool:
        await checked.wait()
        return True

    progress = progress_message(channel, FakeClock(), PACE, held=held)
    async with anyio.create_task_group() as group:
        group.start_soon(progress.run)
        progress.handle_event(started("look"))
        await rest()
        assert progress.freeze() is None
        checked.set()
    assert channel.calls == 0


async def test_post_not_reused_once_is_never_reused() -> None:
    channel, final_edits = SlowChannel(), FinalEdits()
    final_edits.noted = anyio.Event()
    progress = progress_message(channel, FakeClock(), PACE, final_edits=final_edits)
    async with anyio.create_task_group() as group:
        group.start_soon(progress.run)
        progress.handle_event(started("look"))
        await rest()
        assert progress.freeze() is None
        channel.posting.set()
        await rest()
        assert channel.texts_in("1") == ['· look {"path":"a"}']
        assert progress.freeze() is None
        final_edits.noted.set()
    assert final_edits.behind == [("post-1", ANSWER_BELOW)]


@pytest.mark.parametrize("late", [False, True])
async def test_reused_post_gets_final_text_when_there_is_no_answer(*, late: bool) -> None:
    """The taker of the post is responsible for it; until then there is no final edit."""
    channel, final_edits = CountingChannel(), FinalEdits()
    progress = progress_message(channel, FakeClock(), PACE, final_edits=final_edits)
    async with anyio.create_task_group() as group:
        group.start_soon(progress.run)
        progress.handle_event(started("look"))
        await rest()
        assert progress.freeze() == "post-1"
        if late:
            await rest()
            assert final_edits.behind == []
        progress.end_without_answer("Again, below.")
    assert set(final_edits.behind) == {("post-1", "Again, below.")}


@pytest.mark.parametrize(
    ("fault", "calls"),
    [(SendFault.REFUSED, MAX_FAILURES), (SendFault.BREAKS, 1), (SendFault.HANGS, 1)],
)
async def test_failing_posts_only_stop_the_progress(fault: SendFault, calls: int) -> None:
    """A post that may have arrived is not repeated."""
    clock, channel = FakeClock(), CountingChannel(*[fault] * 10)
    progress = progress_message(channel, clock, PACE)
    async with anyio.create_task_group() as group:
        group.start_soon(progress.run)
        for number in range(MAX_FAILURES + 1):
            progress.handle_event(started(f"look{number}"))
            await clock.advance(30.0)
        assert channel.calls == calls
        assert progress.freeze() is None


async def test_throttled_post_is_made_after_the_wait() -> None:
    clock, channel = FakeClock(), CountingChannel(*[SendFault.THROTTLED] * 5)
    progress = progress_message(channel, clock, PACE)
    async with anyio.create_task_group() as group:
        group.start_soon(progress.run)
        progress.handle_event(started("look"))
        await clock.advance(5 * THROTTLE_SECONDS - 1.0)
        assert channel.texts_in("1") == []
        await clock.advance(2.0)
        assert channel.texts_in("1") == ['· look {"path":"a"}']
        progress.freeze()


async def test_progress_message_becomes_the_answer(tmp_path: Path) -> None:
    gates = GatedBody()
    tool = FakeTool("wait", gates)
    script = [assistant_message(tool_call("wait", gate="a"))]
    rules = GatewayRules(progress_timing=PACE)
    async with gateway_harness(
        tmp_path, script, answer_script("Done."), tools=[tool], rules=rules
    ) as harness:
        await harness.channel.say("work")
        await gates.reached("a")
        await wait_until(lambda: harness.channel.texts_in("1") == ['· wait {"gate":"a"}'])
        await wait_until(lambda: harness.channel.typing_in != set())
        gates.open("a")
        await harness.wait_for_posts("Done.")
        await wait_until(lambda: harness.channel.typing_in == set())


async def test_answer_is_posted_below_a_later_message(tmp_path: Path) -> None:
    gates = GatedBody()
    tool = FakeTool("wait", gates)
    script = [assistant_message(tool_call("wait", gate="a"))]
    rules = GatewayRules(progress_timing=PACE)
    async with gateway_harness(
        tmp_path, script, answer_script("Done."), tools=[tool], rules=rules
    ) as harness:
        await harness.channel.say("work")
        await gates.reached("a")
        await wait_until(lambda: harness.channel.texts_in("1") == ['· wait {"gate":"a"}'])
        await harness.channel.say("/steer and be quick")
        gates.open("a")
        await harness.wait_for_posts(ANSWER_BELOW, "Sent to the running turn.", "Done.")


@pytest.mark.parametrize("word", ["asked", "message"])
async def test_post_above_a_later_message_is_not_reused(word: str) -> None:
    clock, channel, final_edits = FakeClock(), CountingChannel(), FinalEdits()
    question = Question(
        id="q", kind=QuestionKind.CLARIFY, session="s", run="r", text="Which?", until=clock.now()
    )
    message = User("msg_1", (Text("the left one"),), Trust.OWNER)
    progress = progress_message(channel, clock, PACE, final_edits=final_edits)
    async with anyio.create_task_group() as group:
        group.start_soon(progress.run)
        progress.handle_event(MessageAdded(message))
        await rest()
        assert channel.texts_in("1") == []
        progress.handle_event(started("look"))
        await rest()
        assert len(channel.texts_in("1")) == 1
        progress.handle_event(QuestionAsked(question) if word == "asked" else MessageAdded(message))
        assert progress.freeze() is None
    assert [words for _, words in final_edits.behind] == [ANSWER_BELOW]


async def test_asking_tool_is_shown_by_its_question(tmp_path: Path) -> None:
    gates = GatedBody()
    tools = [FakeTool("inquire", gates, asks=True), FakeTool("wait", gates)]
    script = [assistant_message(tool_call("inquire", gate="b"), tool_call("wait", gate="a"))]
    rules = GatewayRules(progress_timing=ProgressTiming(edit=0.0))
    async with gateway_harness(
        tmp_path, script, answer_script("Done.", id="a2"), tools=tools, rules=rules
    ) as harness:
        await harness.channel.say("work")
        await gates.reached("a")
        await wait_until(lambda: harness.channel.texts_in("1") == ['· wait {"gate":"a"}'])
        gates.open("a")
        gates.open("b")
        await harness.wait_for_posts("Done.")


async def test_progress_of_dead_run_is_finished_at_next_start(tmp_path: Path) -> None:
    channel = FakeFaultyChannel()
    rules = GatewayRules(progress_timing=ProgressTiming(edit=0.5))
    clock = FakeClock()
    async with gateway_harness(
        tmp_path, [TextDelta("half an answer"), Pause.FOREVER], channel=channel, rules=rules,
        clock=clock,
    ) as harness:  # fmt: skip
        await channel.say("hello")
        await wait_until(lambda: len(harness.model.requests) == 1)
        await clock.advance(2.0)
        await harness.wait_for_posts("half an answer")
    async with gateway_harness(tmp_path, channel=channel, rules=rules, clock=clock) as two:
        await clock.advance(5.0)
        await wait_until(lambda: INTERRUPTED_BY_RESTART in channel.texts_in("1"))
        await wait_until(lambda: channel.texts_in("1")[-1].startswith("re: "))
        assert channel.texts_in("1")[0] == INTERRUPTED_BY_RESTART
        await two.wait_until_idle()
        assert await two.open_rows(LIVE_PROGRESS) == []


@pytest.mark.slow
async def test_post_that_became_the_answer_needs_no_final_edit(tmp_path: Path) -> None:
    channel = FakeFaultyChannel()
    rules = GatewayRules(progress_timing=ProgressTiming(edit=0.5))
    clock = FakeClock()
    script = [TextDelta("an "), 2.0, *answer_script("an answer", id="a1")]
    async with gateway_harness(
        tmp_path, script, channel=channel, rules=rules, clock=clock
    ) as harness:
        await channel.say("hello")
        await wait_until(lambda: len(harness.model.requests) == 1)
        await clock.advance(3.0)
        await harness.wait_for_posts("an answer")
        await harness.wait_until_idle()
        assert await harness.open_rows(LIVE_PROGRESS) == []
    async with gateway_harness(tmp_path, channel=channel, rules=rules, clock=clock) as two:
        await two.wait_until_idle()
        await two.wait_for_posts("an answer")


async def test_answer_is_posted_below_a_delayed_older_one(tmp_path: Path) -> None:
    gates, channel, clock = GatedBody(), FakeFaultyChannel(SendFault.REFUSED), FakeClock()
    scripts = (
        answer_script("older", id="a1"),
        [assistant_message(tool_call("wait", gate="a"))],
        answer_script("newer", id="a2"),
    )
    async with gateway_harness(
        tmp_path, *scripts, tools=[FakeTool("wait", gates)], channel=channel,
        rules=GatewayRules(progress_timing=PACE), clock=clock,
    ) as harness:  # fmt: skip
        await channel.say("one")
        await wait_until(lambda: channel.calls == 1 and not harness.gateway.actors.snapshot())
        await channel.say("two")
        await gates.reached("a")
        await harness.wait_for_posts('· wait {"gate":"a"}')
        await clock.advance(5.0)
        await harness.wait_for_posts('· wait {"gate":"a"}', "older")
        gates.open("a")
        await harness.wait_for_posts(ANSWER_BELOW, "older", "newer")
        await harness.wait_until_idle()
        assert await harness.open_rows(LIVE_PROGRESS) == []
