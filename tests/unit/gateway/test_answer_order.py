"""In any order of actions, answer k belongs to question k and nothing is delivered twice."""

import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.gateway.chat_runs import ActorRules
from hermes.gateway.delivery import RECOVERED_MARK
from hermes.gateway.gateway import GatewayRules
from hermes.gateway.messages import BusyMode
from hermes.ports.model import ModelRequest
from hermes.testing.channel import FakeFaultyChannel
from hermes.testing.clock import FakeClock
from hermes.testing.scripted_model import Pause, ScriptStep
from support.examples import at_most
from support.gateway import GatewayHarness, gateway_harness, make_inbound, wait_until

ACTIONS = ["say", "say", "say", "again", "stop", "queue", "steer", "settle", "hang", "restart"]


class Scenario:
    """Plays actions on a gateway and records the questions in order."""

    def __init__(self, folder: Path, busy: BusyMode) -> None:
        self.folder = folder
        self.rules = GatewayRules(actors=ActorRules(busy=busy), progress=False)
        self.channel = FakeFaultyChannel()
        self.clock = FakeClock()
        self.asked: list[str] = []
        self.transcript: list[str] = []
        self.stops = 0
        self.hung = 0

    async def play(self, acts: Sequence[str]) -> None:
        lives = " ".join(acts).split("restart")
        for number, life in enumerate(lives, start=1):
            self.hung = 0
            async with gateway_harness(
                self.folder, channel=self.channel, rules=self.rules, clock=self.clock
            ) as harness:
                for act in life.split():
                    await self.act(harness, act)
                if number == len(lives):
                    await self.finish(harness)

    async def act(self, harness: GatewayHarness, act: str) -> None:
        match act:
            case "say":
                await self.ask(harness, "{}")
            case "queue" | "steer":
                await self.ask(harness, f"/{act} {{}}")
            case "again" if self.asked:
                await harness.channel.type(make_inbound("repeated", f"k{len(self.asked)}"))
            case "stop":
                await self.stop(harness)
            case "hang":
                harness.model.scripts.append(self.hang)
            case "settle":
                await wait_until(lambda: self.is_idle(harness))
            case _:
                pass

    async def ask(self, harness: GatewayHarness, form: str) -> None:
        self.asked.append(f"q{len(self.asked)}")
        await harness.channel.type(make_inbound(form.format(self.asked[-1]), f"k{len(self.asked)}"))

    async def stop(self, harness: GatewayHarness) -> None:
        self.stops += 1
        await harness.channel.type(make_inbound("/stop", f"s{self.stops}"))

    def hang(self, request: ModelRequest) -> Sequence[ScriptStep]:
        self.hung += 1
        return [Pause.FOREVER]

    def is_idle(self, harness: GatewayHarness) -> bool:
        return not harness.gateway.actors.snapshot() or self.hung > harness.model.abandoned_streams

    async def finish(self, harness: GatewayHarness) -> None:
        """Let everything finish; one more question must be answered normally."""
        harness.model.scripts.clear()
        await self.stop(harness)
        await harness.wait_until_idle()
        await self.ask(harness, "{}")
        await wait_until(lambda: self.asked[-1] in self.questions())
        await harness.wait_until_idle()
        assert await harness.open_rows() == []
        self.transcript = await harness.texts()

    def questions(self) -> list[str]:
        """Return the questions the visible answers belong to: the last word each repeats."""
        seen = self.channel.texts_in("1")
        # What may have arrived before an interruption is repeated with a mark.
        first = [
            text
            for text in seen
            if text.removeprefix(RECOVERED_MARK) == text or text[len(RECOVERED_MARK) :] not in seen
        ]
        return [text.split()[-1] for text in first if "re: " in text]


@pytest.mark.slow
@pytest.mark.parametrize("busy", list(BusyMode))
@at_most(15)
@given(acts=st.lists(st.sampled_from(ACTIONS), max_size=12))
def test_every_answer_belongs_to_its_question(busy: BusyMode, acts: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        builder = Scenario(Path(folder), busy)
        anyio.run(builder.play, acts)
    order = [builder.asked.index(word) for word in builder.questions() if word in builder.asked]
    assert len(order) == len(set(order))
    # A steering message reaches the running turn and may overtake queued ones.
    if busy is not BusyMode.STEER and "steer" not in acts:
        assert order == sorted(order)
    received = Counter(text for text in builder.transcript if text in builder.asked)
    assert set(received.values()) == {1}
    assert "repeated" not in builder.transcript
