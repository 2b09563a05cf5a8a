"""The one post that shows progress: seldom edited, never after the answer."""

from pathlib import Path

import anyio
import pytest

from gateways import lobby, until
from hermes.gateway.bubble import BEGUN, BELOW, STRIKES, Bubble, Pace, Shows
from hermes.gateway.gateway import GatewayRules
from hermes.gateway.leftovers import BUBBLES, OVER
from hermes.ports.channel import Outgoing, Receipt
from hermes.schema.events import Asked, Event, Notice, Said, StreamReset, TextDelta, ToolStarted
from hermes.schema.messages import Text, Trust, User
from hermes.schema.questions import Asking, Question
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


class Left:
    """Who watches a bubble; until `noted` is set, its post is being written down."""

    def __init__(self) -> None:
        self.behind: list[tuple[str, str]] = []
        self.noted = anyio.Event()
        self.noted.set()

    async def posted(self, post: str) -> None:
        await self.noted.wait()

    def __call__(self, post: str, words: str) -> None:
        self.behind.append((post, words))


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
        assert channel.seen_in("1") == ["waiting for the provider"]
        await clock.advance(1.0)
        assert channel.seen_in("1") == ["waiting for the provider\nright"]
        bubble.freeze()


async def test_what_is_shown_is_what_the_settings_say() -> None:
    clock, channel = FakeClock(), CountingChannel()
    shows = Shows(preview=8, between=True, typing=False, cursor=" |")
    bubble = Bubble(channel, HOME, clock, PACE, shows)
    async with anyio.create_task_group() as group:
        group.start_soon(bubble.run)
        bubble.hear(Said(answer("I look\nfirst.", call("look"))))
        bubble.hear(started("look"))
        await rest()
        assert channel.seen_in("1") == ['I look first.\n· look {"path"…']
        assert channel.typing_in == set()
        bubble.hear(TextDelta("It is"))
        await clock.advance(1.0)
        assert channel.seen_in("1")[0].endswith("\nIt is |")
        bubble.freeze()


@pytest.mark.parametrize(("waited", "given"), [(29.0, "post-1"), (31.0, None)])
async def test_an_old_post_does_not_become_the_answer(waited: float, given: str | None) -> None:
    clock, channel = FakeClock(), CountingChannel()
    bubble = Bubble(channel, HOME, clock, Pace(edit=1.0, typing=500.0, old=30.0))
    async with anyio.create_task_group() as group:
        group.start_soon(bubble.run)
        bubble.hear(started("look"))
        await rest()
        await clock.advance(waited)
        assert bubble.freeze() == given
    assert bubble.owed == (None if given else ("post-1", BELOW))


async def test_a_post_whose_receipt_was_lost_never_reads_as_an_answer() -> None:
    clock, channel = FakeClock(), CountingChannel(Fault.LOST_REPLY)
    bubble = Bubble(channel, HOME, clock, PACE)
    async with anyio.create_task_group() as group:
        group.start_soon(bubble.run)
        for number in range(3):
            bubble.hear(TextDelta(f"the answer {number}"))
            await clock.advance(2.0)
        assert channel.seen_in("1")[0] == BEGUN
        assert "the answer" in channel.seen_in("1")[1]
        bubble.freeze()


async def test_an_edit_under_way_cannot_cover_the_answer() -> None:
    """The post is left behind with its farewell, and not before that edit is over."""
    clock, channel, left = FakeClock(), CountingChannel(), Left()
    bubble = Bubble(channel, HOME, clock, PACE)
    bubble.is_watched_by(left.posted, left)
    async with anyio.create_task_group() as group:
        group.start_soon(bubble.run)
        bubble.hear(started("look"))
        await rest()
        channel.gate = anyio.Event()
        bubble.hear(started("act"))
        await clock.advance(1.0)
        assert bubble.freeze() is None
        await rest()
        assert left.behind == []
        channel.gate.set()
    assert left.behind == [("post-1", BELOW)]
    assert channel.edits == 1


async def test_what_was_not_given_for_the_answer_is_not_given_later() -> None:
    channel, left = SlowToPost(), Left()
    left.noted = anyio.Event()
    bubble = Bubble(channel, HOME, FakeClock(), PACE)
    bubble.is_watched_by(left.posted, left)
    async with anyio.create_task_group() as group:
        group.start_soon(bubble.run)
        bubble.hear(started("look"))
        await rest()
        assert bubble.freeze() is None
        channel.posting.set()
        await rest()
        assert channel.seen_in("1") == ['· look {"path":"a"}']
        assert bubble.freeze() is None
        left.noted.set()
    assert left.behind == [("post-1", BELOW)]


@pytest.mark.parametrize("late", [False, True])
async def test_a_post_that_was_given_is_taken_back_when_there_is_no_answer(*, late: bool) -> None:
    """Whoever was given it answers for it: until then nothing is left behind."""
    channel, left = CountingChannel(), Left()
    bubble = Bubble(channel, HOME, FakeClock(), PACE)
    bubble.is_watched_by(left.posted, left)
    async with anyio.create_task_group() as group:
        group.start_soon(bubble.run)
        bubble.hear(started("look"))
        await rest()
        assert bubble.freeze() == "post-1"
        if late:
            await rest()
            assert left.behind == []
        bubble.take_back("Again, below.")
    assert set(left.behind) == {("post-1", "Again, below.")}


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


async def test_after_a_word_in_between_the_answer_comes_below_it(tmp_path: Path) -> None:
    gates = Gates()
    tool = FakeTool("wait", gates)
    script = [answer(call("wait", gate="a"))]
    rules = GatewayRules(pace=PACE)
    async with lobby(tmp_path, script, says("Done."), tools=[tool], rules=rules) as one:
        await one.channel.say("work")
        await gates.reached("a")
        await until(lambda: one.channel.seen_in("1") == ['· wait {"gate":"a"}'])
        await one.channel.say("/steer and be quick")
        gates.open("a")
        await one.sees(BELOW, "Passed on.", "Done.")


@pytest.mark.parametrize("word", ["asked", "said"])
async def test_a_post_above_what_was_said_meanwhile_does_not_become_the_answer(word: str) -> None:
    clock, channel, left = FakeClock(), CountingChannel(), Left()
    question = Question(
        id="q", kind=Asking.CLARIFY, session="s", run="r", text="Which?", until=clock.now()
    )
    said = User("msg_1", (Text("the left one"),), Trust.OWNER)
    bubble = Bubble(channel, HOME, clock, PACE)
    bubble.is_watched_by(left.posted, left)
    async with anyio.create_task_group() as group:
        group.start_soon(bubble.run)
        bubble.hear(Said(said))
        await rest()
        assert channel.seen_in("1") == []
        bubble.hear(started("look"))
        await rest()
        assert len(channel.seen_in("1")) == 1
        bubble.hear(Asked(question) if word == "asked" else Said(said))
        assert bubble.freeze() is None
    assert [words for _, words in left.behind] == [BELOW]


async def test_a_tool_that_only_asks_is_seen_by_its_question(tmp_path: Path) -> None:
    gates = Gates()
    tools = [FakeTool("inquire", gates, asks=True), FakeTool("wait", gates)]
    script = [answer(call("inquire", gate="b"), call("wait", gate="a"))]
    rules = GatewayRules(pace=Pace(edit=0.0))
    async with lobby(tmp_path, script, says("Done.", id="a2"), tools=tools, rules=rules) as one:
        await one.channel.say("work")
        await gates.reached("a")
        await until(lambda: one.channel.seen_in("1") == ['· wait {"gate":"a"}'])
        gates.open("a")
        gates.open("b")
        await one.sees("Done.")


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
        assert await two.open_rows(BUBBLES) == []


@pytest.mark.slow
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
        assert await one.open_rows(BUBBLES) == []
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
        assert await one.open_rows(BUBBLES) == []
