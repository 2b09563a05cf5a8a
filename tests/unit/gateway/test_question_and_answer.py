"""Whatever people do and in whatever order: answer k is for question k, and nothing comes twice."""

import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateways import Lobby, lobby, until, update
from hermes.gateway.delivery import MARK
from hermes.gateway.gateway import GatewayRules
from hermes.gateway.letters import Busy
from hermes.gateway.runs import ActorRules
from hermes.ports.model import Request
from hermes.testing.clock import FakeClock
from hermes.testing.scripted import Pause, Step
from hermes.testing.world import RoughChannel

ACTS = ["say", "say", "say", "again", "stop", "queue", "steer", "settle", "hang", "restart"]


class Story:
    """Plays acts on a gateway and remembers what was asked, in which order."""

    def __init__(self, folder: Path, busy: Busy) -> None:
        self.folder = folder
        self.rules = GatewayRules(actors=ActorRules(busy=busy), progress=False)
        self.channel = RoughChannel()
        self.clock = FakeClock()
        self.asked: list[str] = []
        self.transcript: list[str] = []
        self.stops = 0
        self.hung = 0

    async def play(self, acts: Sequence[str]) -> None:
        lives = " ".join(acts).split("restart")
        for number, life in enumerate(lives, start=1):
            self.hung = 0
            async with lobby(
                self.folder, channel=self.channel, rules=self.rules, clock=self.clock
            ) as one:
                for act in life.split():
                    await self.act(one, act)
                if number == len(lives):
                    await self.finish(one)

    async def act(self, one: Lobby, act: str) -> None:
        match act:
            case "say":
                await self.ask(one, "{}")
            case "queue" | "steer":
                await self.ask(one, f"/{act} {{}}")
            case "again" if self.asked:
                await one.channel.type(update("repeated", f"k{len(self.asked)}"))
            case "stop":
                await self.stop(one)
            case "hang":
                one.model.scripts.append(self.hang)
            case "settle":
                await until(lambda: self.rests(one))
            case _:
                pass

    async def ask(self, one: Lobby, form: str) -> None:
        self.asked.append(f"q{len(self.asked)}")
        await one.channel.type(update(form.format(self.asked[-1]), f"k{len(self.asked)}"))

    async def stop(self, one: Lobby) -> None:
        self.stops += 1
        await one.channel.type(update("/stop", f"s{self.stops}"))

    def hang(self, request: Request) -> Sequence[Step]:
        self.hung += 1
        return [Pause.FOREVER]

    def rests(self, one: Lobby) -> bool:
        return not one.gateway.actors.snapshot() or self.hung > one.model.left_early

    async def finish(self, one: Lobby) -> None:
        """Nothing hangs any more; one more question must be answered like any other."""
        one.model.scripts.clear()
        await self.stop(one)
        await one.calm()
        await self.ask(one, "{}")
        await until(lambda: self.asked[-1] in self.questions())
        await one.calm()
        assert await one.open_rows() == []
        self.transcript = await one.texts()

    def questions(self) -> list[str]:
        """What the visible answers are for: the last word each repeats."""
        seen = self.channel.seen_in("1")
        # What may have arrived before a cut comes again, and says so.
        first = [
            text
            for text in seen
            if text.removeprefix(MARK) == text or text[len(MARK) :] not in seen
        ]
        return [text.split()[-1] for text in first if "re: " in text]


@pytest.mark.slow
@pytest.mark.parametrize("busy", list(Busy))
@settings(max_examples=15, deadline=None)
@given(acts=st.lists(st.sampled_from(ACTS), max_size=12))
def test_every_answer_is_for_its_question(busy: Busy, acts: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        story = Story(Path(folder), busy)
        anyio.run(story.play, acts)
    order = [story.asked.index(word) for word in story.questions() if word in story.asked]
    assert len(order) == len(set(order))
    # A steering word is for the running turn, so it may overtake what is queued behind that.
    if busy is not Busy.STEER and "steer" not in acts:
        assert order == sorted(order)
    heard = Counter(text for text in story.transcript if text in story.asked)
    assert set(heard.values()) == {1}
    assert "repeated" not in story.transcript
