"""The one post that shows progress: seldom edited, never after the answer."""

from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from gateways import lobby, until
from hermes.gateway.bubble import BELOW, STRIKES, Bubble, Pace
from hermes.gateway.gateway import GatewayRules
from hermes.gateway.leftovers import OVER, bubbles
from hermes.ports.channel import Outgoing, Receipt
from hermes.schema.events import Event, Notice, Said, StreamReset, TextDelta, ToolStarted
from hermes.schema.messages import Text
from hermes.schema.scope import Address
from hermes.schema.tools import Effect
from hermes.testing.clock import FakeClock
from hermes.testing.scripted import Pause, says
from hermes.testing.world import Fault, RoughChannel
from workbench import FakeTool, Gates, answer, call

pytestmark = pytest.mark.anyio

HOME = Address("fake", "1")
PACE = Pace(edit=1.0, typing=500.0, limit=20.0)


class CountingChannel(RoughChannel):
    """Counts edits; while `gate` is closed, an edit is under way."""

    def __init__(self, *faults: Fault) -> None:
        super().__init__(*faults)
        self.edits = 0
        self.gate = anyio.Event()
        self.gate.set()

    async def edit(self, receipt: Receipt, post: Outgoing) -> None:
        self.edits += 1
        await self.gate.wait()
        await super().edit(receipt, post)


class SlowToPost(RoughChannel):
    """A post is under way until `posting` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.posting = anyio.Event()

    async def send(self, to: Address, post: Outgoing) -> Receipt:
        await self.posting.wait()
        return await super().send(to, post)


def started(name: str) -> Event:
    return ToolStarted(call(name, path="a"), Effect.READ)


async def rest() -> None:
    await anyio.wait_all_tasks_blocked()


async def test_tools_show_at_once_and_edits_keep_their_pace() -> None:
    clock, channel = FakeClock(), CountingChannel()
    bubble = Bubble(channel, HOME, clock, PACE)
    async with anyio.create_task_group() as group:
        group.start_soon(bubble.run)
        bubble.hear(started("look"))
        await rest()
        assert channel.seen_in("1") == ['· look {"path":"a"}']
        assert channel.typing_in == {HOME}
        for number in range(50):
            bubble.hear(TextDelta(f"{number} "))
        await rest()
        assert channel.edits == 0
        await clock.advance(1.0)
        assert channel.edits == 1
        assert channel.seen_in("1")[0].endswith("48 49 ")
        assert bubble.freeze() == "post-1"
        bubble.hear(started("late"))
        bubble.hear(TextDelta("late"))
    assert channel.edits == 1
    assert channel.typing_in == set()


async def test_a_quick_answer_needs_no_progress() -> None:
    channel = CountingChannel()
    bubble = Bubble(channel, HOME, FakeClock(), PACE)
    async with anyio.create_task_group() as group:
        group.start_soon(bubble.run)
        bubble.hear(TextDelta("short"))
        await rest()
        assert bubble.freeze() is None
    assert channel.posts == {}


async def test_text_that_starts_over_is_forgotten() -> None:
    clock, channel = FakeClock(), CountingChannel()
    bubble = Bubble(channel, HOME, clock, PACE)
    async with anyio.create_task_group() as group:
        group.start_soon(bubble.run)
        bubble.hear(TextDelta("wrong"))
        bubble.hear(StreamReset("again"))
        bubble.hear(TextDelta("I look."))
        bubble.hear(Said(answer("I look.", call("look"))))
        bubble.hear(Notice("waiting for the provider"))
        bubble.hear(TextDelta("right"))
        await rest()
        assert channel.seen_in("1") == ["waiting for the provider\nright"]
        bubble.freeze()


async def test_an_edit_under_way_cannot_cover_the_answer() -> None:
    clock, channel = FakeClock(), CountingChannel()
    bubble = Bubble(channel, HOME, clock, PACE)
    async with anyio.create_task_group() as group:
        group.start_soon(bubble.run)
        bubble.hear(started("look"))
        await rest()
        channel.gate = anyio.Event()
        bubble.hear(started("act"))
        await clock.advance(1.0)
        assert bubble.freeze() is None
        await channel.send(HOME, Outgoing((Text("the answer"),)))
        channel.gate.set()
    assert channel.seen_in("1") == [BELOW, "the answer"]


async def test_what_was_not_given_for_the_answer_is_not_given_later() -> None:
    channel, noted = SlowToPost(), anyio.Event()

    async def note(post: str) -> None:
        await noted.wait()

    async def forget(post: str) -> None:
        assert channel.seen_in("1") == [BELOW]

    bubble = Bubble(channel, HOME, FakeClock(), PACE)
    bubble.is_watched_by(note, forget)
    async with anyio.create_task_group() as group:
        group.start_soon(bubble.run)
        bubble.hear(started("look"))
        await rest()
        assert bubble.freeze() is None
        channel.posting.set()
        await rest()
        assert channel.seen_in("1") == ['· look {"path":"a"}']
        assert bubble.freeze() is None
        noted.set()
    assert channel.seen_in("1") == [BELOW]


@pytest.mark.parametrize(("comes_back", "forgotten"), [(True, [[BELOW]]), (False, [])])
async def test_what_stands_beside_the_answer_is_put_right_with_patience(
    forgotten: list[list[str]], *, comes_back: bool
) -> None:
    clock, channel = FakeClock(), CountingChannel()
    seen: list[list[str]] = []

    async def note(post: str) -> None:
        assert post == "post-1"

    async def forget(post: str) -> None:
        seen.append(channel.seen_in("1"))

    bubble = Bubble(channel, HOME, clock, PACE)
    bubble.is_watched_by(note, forget)
    async with anyio.create_task_group() as group:
        group.start_soon(bubble.run)
        bubble.hear(started("look"))
        await rest()
        channel.gate = anyio.Event()
        bubble.hear(started("act"))
        await clock.advance(1.0)
        assert bubble.freeze() is None
        channel.down = True
        channel.gate.set()
        await rest()
        assert seen == []
        channel.down = not comes_back
        await clock.advance(PACE.limit + 1)
    assert seen == forgotten


async def test_a_post_that_was_given_is_taken_back_when_there_is_no_answer() -> None:
    channel = CountingChannel()
    bubble = Bubble(channel, HOME, FakeClock(), PACE)
    async with anyio.create_task_group() as group:
        group.start_soon(bubble.run)
        bubble.hear(started("look"))
        await rest()
        assert bubble.freeze() == "post-1"
    await bubble.take_back("Again, below.")
    assert channel.seen_in("1") == ["Again, below."]


@pytest.mark.parametrize("fault", [Fault.REFUSED, Fault.BREAKS, Fault.HANGS, Fault.THROTTLED])
async def test_trouble_with_progress_ends_the_progress_only(fault: Fault) -> None:
    clock, channel = FakeClock(), CountingChannel(*[fault] * 10)
    bubble = Bubble(channel, HOME, clock, PACE)
    async with anyio.create_task_group() as group:
        group.start_soon(bubble.run)
        for number in range(STRIKES + 1):
            bubble.hear(started(f"look{number}"))
            await clock.advance(30.0)
        assert channel.calls == STRIKES
        assert bubble.freeze() is None


async def test_the_bubble_becomes_the_answer(tmp_path: Path) -> None:
    gates = Gates()
    tool = FakeTool("wait", gates)
    script = [answer(call("wait", gate="a"))]
    rules = GatewayRules(pace=PACE)
    async with lobby(tmp_path, script, says("Done."), tools=[tool], rules=rules) as one:
        await one.channel.say("work")
        await gates.reached("a")
        await until(lambda: one.channel.seen_in("1") == ['· wait {"gate":"a"}'])
        await until(lambda: one.channel.typing_in != set())
        gates.open("a")
        await one.sees("Done.")
        await until(lambda: one.channel.typing_in == set())


async def test_progress_of_a_run_that_died_is_put_right_at_the_next_start(tmp_path: Path) -> None:
    channel = RoughChannel()
    rules = GatewayRules(pace=Pace(edit=0.5))
    clock = FakeClock()
    async with lobby(
        tmp_path, [TextDelta("half an answer"), Pause.FOREVER], channel=channel, rules=rules,
        clock=clock,
    ) as one:  # fmt: skip
        await channel.say("hello")
        await until(lambda: len(one.model.requests) == 1)
        await clock.advance(2.0)
        await one.sees("half an answer")
    async with lobby(tmp_path, channel=channel, rules=rules, clock=clock) as two:
        await clock.advance(5.0)
        await until(lambda: OVER in channel.seen_in("1"))
        await until(lambda: channel.seen_in("1")[-1].startswith("re: "))
        assert channel.seen_in("1")[0] == OVER
        await two.calm()
        assert await two.open_rows(bubbles("fake")) == []


async def test_a_post_that_became_the_answer_is_no_leftover(tmp_path: Path) -> None:
    channel = RoughChannel()
    rules = GatewayRules(pace=Pace(edit=0.5))
    clock = FakeClock()
    script = [TextDelta("an "), 2.0, *says("an answer", id="a1")]
    async with lobby(tmp_path, script, channel=channel, rules=rules, clock=clock) as one:
        await channel.say("hello")
        await until(lambda: len(one.model.requests) == 1)
        await clock.advance(3.0)
        await one.sees("an answer")
        await one.calm()
        assert await one.open_rows(bubbles("fake")) == []
    async with lobby(tmp_path, channel=channel, rules=rules, clock=clock) as two:
        await two.calm()
        await two.sees("an answer")


async def test_an_answer_never_stands_above_an_older_one_that_was_held_up(tmp_path: Path) -> None:
    gates, channel, clock = Gates(), RoughChannel(Fault.REFUSED), FakeClock()
    scripts = (says("older", id="a1"), [answer(call("wait", gate="a"))], says("newer", id="a2"))
    async with lobby(
        tmp_path, *scripts, tools=[FakeTool("wait", gates)], channel=channel,
        rules=GatewayRules(pace=PACE), clock=clock,
    ) as one:  # fmt: skip
        await channel.say("one")
        await until(lambda: channel.calls == 1 and not one.gateway.actors.snapshot())
        await channel.say("two")
        await gates.reached("a")
        await one.sees('· wait {"gate":"a"}')
        await clock.advance(5.0)
        await one.sees('· wait {"gate":"a"}', "older")
        gates.open("a")
        await one.sees(BELOW, "older", "newer")
        await one.calm()
        assert await one.open_rows(bubbles("fake")) == []
