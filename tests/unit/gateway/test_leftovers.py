"""Progress posts that stand beside their answer, or outlive their run, are put right."""

from pathlib import Path

import anyio
import pytest

from gateways import Lobby, lobby, until
from hermes.gateway.bubble import BELOW, Pace
from hermes.gateway.gateway import GatewayRules
from hermes.gateway.leftovers import OVER, PATIENCE, bubbles, farewells
from hermes.ports.channel import NotSent, Outgoing, Receipt
from hermes.schema.messages import Text
from hermes.testing.clock import FakeClock
from hermes.testing.scripted import says
from hermes.testing.world import RoughChannel
from workbench import FakeTool, Gates, answer, call

pytestmark = pytest.mark.anyio

RULES = GatewayRules(pace=Pace(edit=1.0, typing=500.0, limit=20.0), look=86_400.0)
PROGRESS = '· wait {"gate":"a"}'
WAITS = [answer(call("wait", gate="a"))]


class Stubborn(RoughChannel):
    """Refuses so many edits to each of these words."""

    def __init__(self, **refusals: int) -> None:
        super().__init__()
        self.refusals = refusals

    async def edit(self, receipt: Receipt, post: Outgoing) -> None:
        text = "".join(part.text for part in post.parts if isinstance(part, Text))
        left = self.refusals.get(text, 0)
        if left:
            self.refusals[text] = left - 1
            raise NotSent("The platform said no.")
        await super().edit(receipt, post)


async def at_work(one: Lobby, gates: Gates) -> None:
    await one.channel.say("work")
    await gates.reached("a")
    await until(lambda: one.channel.seen_in("1") == [PROGRESS])


async def passes(one: Lobby, clock: FakeClock) -> None:
    """Let time go by until nothing is left to be put right."""
    with anyio.fail_after(60):
        for lane in (bubbles("fake"), farewells("fake")):
            while await one.store.lanes.topics(lane):
                await clock.advance(1.0)


async def test_a_post_beside_its_answer_is_put_right(tmp_path: Path) -> None:
    gates, clock = Gates(), FakeClock()
    tool = FakeTool("wait", gates)
    channel = Stubborn(**{"Done.": 1, BELOW: 2})
    async with lobby(
        tmp_path, WAITS, says("Done."), tools=[tool], rules=RULES, channel=channel, clock=clock
    ) as one:
        await at_work(one, gates)
        gates.open("a")
        await until(lambda: "Done." in channel.seen_in("1"))
        await one.calm()
        await passes(one, clock)
        assert channel.seen_in("1") == [BELOW, "Done."]
        assert channel.refusals == {"Done.": 0, BELOW: 0}


async def test_a_closing_house_lets_progress_posts_say_their_last_word(tmp_path: Path) -> None:
    """The answer could not take the post's place, and the platform refuses for a while."""
    gates, clock = Gates(), FakeClock()
    tool = FakeTool("wait", gates)
    channel = Stubborn(**{"Stopped.": 9, "This was stopped.": 3})
    async with lobby(
        tmp_path, WAITS, says("Done."), tools=[tool], rules=RULES, channel=channel, clock=clock
    ) as one:
        await at_work(one, gates)
        await one.channel.say("/stop")
        await until(lambda: one.running() is None)
        one.gateway.close()
        with anyio.fail_after(60):
            while not one.gateway.delivered.is_set():
                await clock.advance(1.0)
        assert "This was stopped." in channel.seen_in("1")
        assert PROGRESS not in channel.seen_in("1")
        assert await one.open_rows(bubbles("fake")) == []


async def test_a_house_closes_even_if_they_never_can(tmp_path: Path) -> None:
    gates, clock = Gates(), FakeClock()
    tool = FakeTool("wait", gates)
    channel = Stubborn(**{"This was stopped.": 1_000_000})
    async with lobby(
        tmp_path, WAITS, says("Done."), tools=[tool], rules=RULES, channel=channel, clock=clock
    ) as one:
        await at_work(one, gates)
        await one.channel.say("/stop")
        await until(lambda: one.running() is None)
        begun = clock.monotonic()
        one.gateway.close()
        with anyio.fail_after(60):
            while not one.gateway.delivered.is_set():
                await clock.advance(1.0)
        assert clock.monotonic() - begun <= RULES.drain
    channel.refusals.clear()
    async with lobby(tmp_path, rules=RULES, channel=channel, clock=clock) as two:
        await passes(two, clock)
        assert channel.seen_in("1")[0] == OVER


async def test_while_the_platform_is_away_they_wait_for_another_start(tmp_path: Path) -> None:
    gates, clock, channel = Gates(), FakeClock(), RoughChannel()
    tool = FakeTool("wait", gates)
    async with lobby(
        tmp_path, WAITS, tools=[tool], rules=RULES, channel=channel, clock=clock
    ) as one:
        await at_work(one, gates)
    channel.down = True
    async with lobby(tmp_path, rules=RULES, channel=channel, clock=clock) as two:
        await clock.advance(PATIENCE + 60)
        assert await two.store.lanes.topics(bubbles("fake"))
    channel.down = False
    async with lobby(tmp_path, rules=RULES, channel=channel, clock=clock) as three:
        await passes(three, clock)
        assert channel.seen_in("1")[0] == OVER
