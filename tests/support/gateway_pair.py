"""Two real gateways and the link between them; the local one has a fake chat."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec import Struct

from hermes.api.answer_text import assistant_text
from hermes.gateway.messages import BusyMode
from hermes.schema.messages import Assistant, Message, User, text_of
from hermes.testing.fake_openai import Call, Reply, Rule, Script
from support.api_server import KEY, ApiHarness, api_harness
from support.faulty_link import FaultyLink, faulty_link
from support.gateway import GatewayHarness
from support.local_gateway import local_gateway, session_of


class GatewayPair(Struct, frozen=True):
    local: GatewayHarness
    remote: ApiHarness
    link: FaultyLink

    async def remote_messages(self, chat: str = "1") -> list[Message]:
        """Return the remote transcript of a chat."""
        return await self.remote.messages(await session_of(self.local, chat))


@asynccontextmanager
async def gateway_pair(
    path: Path, script: Script, *, busy: BusyMode = BusyMode.QUEUE, config: str = ""
) -> AsyncGenerator[GatewayPair]:
    (path / "near").mkdir(exist_ok=True)
    (path / "far").mkdir(exist_ok=True)
    async with (
        api_harness(path / "far", script) as far,
        faulty_link(far.server.port) as link,
        local_gateway(path / "near", link.url, key=KEY, busy=busy, config=config) as lobby,
    ):
        yield GatewayPair(lobby, far, link)


def question(number: int) -> str:
    return f"Question {number}?"


def answer_tokens(number: int, count: int) -> str:
    """Return distinct tokens, so that a lost or repeated one shows."""
    return " ".join(f"{number}.{place}" for place in range(count))


def numbered_script(turns: int, count: int, *, pace: float = 0.0) -> Script:
    """Every third question needs a tool first."""
    rules: list[Rule] = []
    for number in range(turns):
        last = Reply(answer_tokens(number, count), chunk=6, pace=pace)
        look = Reply(f"Let me look, {number}.", calls=[Call("todo", {})])
        steps = [look, last] if number % 3 == 0 else [last]
        rules.append(Rule(question(number), steps))
    return Script(rules=rules)


def questions_in(messages: Sequence[Message]) -> list[str]:
    return [text_of(message) for message in messages if isinstance(message, User)]


def answers_in(messages: Sequence[Message]) -> list[str]:
    """Return what was said after each question, with all steps."""
    answers: list[str] = []
    since: list[Message] = []
    for message in (*messages, None):
        if message is None or isinstance(message, User):
            if any(isinstance(one, Assistant) for one in since):
                answers.append(assistant_text(since))
            since = []
        else:
            since.append(message)
    return answers
