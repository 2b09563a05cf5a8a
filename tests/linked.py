"""Two real gateways and the link between them; the near one has a fake chat before it."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec import Struct

from api_house import KEY, House, house
from gateways import Lobby
from hermes.api.words import spoken_text
from hermes.gateway.letters import Busy
from hermes.schema.messages import Assistant, Message, User, text_of
from hermes.testing.cut_link import CutLink, cut_link
from hermes.testing.mock_openai import Call, Reply, Rule, Script
from nears import near, session_of


class Linked(Struct, frozen=True):
    lobby: Lobby
    far: House
    link: CutLink

    async def there(self, chat: str = "1") -> list[Message]:
        """The transcript that the far side keeps of a chat."""
        return await self.far.said(await session_of(self.lobby, chat))


@asynccontextmanager
async def linked(
    path: Path, script: Script, *, busy: Busy = Busy.QUEUE, config: str = ""
) -> AsyncGenerator[Linked]:
    (path / "near").mkdir(exist_ok=True)
    (path / "far").mkdir(exist_ok=True)
    async with (
        house(path / "far", script) as far,
        cut_link(far.server.port) as link,
        near(path / "near", link.url, key=KEY, busy=busy, config=config) as lobby,
    ):
        yield Linked(lobby, far, link)


def question(number: int) -> str:
    return f"Question {number}?"


def tokens(number: int, count: int) -> str:
    """Every token is another one, so that a lost or doubled one shows."""
    return " ".join(f"{number}.{place}" for place in range(count))


def exam(turns: int, count: int, *, pace: float = 0.0) -> Script:
    """Every third question needs a tool first."""
    rules: list[Rule] = []
    for number in range(turns):
        last = Reply(tokens(number, count), chunk=6, pace=pace)
        look = Reply(f"Let me look, {number}.", calls=[Call("todo", {})])
        steps = [look, last] if number % 3 == 0 else [last]
        rules.append(Rule(question(number), steps))
    return Script(rules=rules)


def asked_in(messages: Sequence[Message]) -> list[str]:
    return [text_of(message) for message in messages if isinstance(message, User)]


def answers_in(messages: Sequence[Message]) -> list[str]:
    """What was said after each question, with all its steps."""
    answers: list[str] = []
    since: list[Message] = []
    for message in (*messages, None):
        if message is None or isinstance(message, User):
            if any(isinstance(one, Assistant) for one in since):
                answers.append(spoken_text(since))
            since = []
        else:
            since.append(message)
    return answers
