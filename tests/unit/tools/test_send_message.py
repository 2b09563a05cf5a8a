"""Words for other places: the owner's own without asking, everybody else's with leave only."""

from collections.abc import AsyncGenerator
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from msgspec import Raw

from hermes.app.message_sender import OutboxSender
from hermes.config.env import Env
from hermes.config.home import Home
from hermes.gateway.messages import OutboxMessage, read_outbox_message
from hermes.ports.approvals import ApprovalRequest, Decision
from hermes.ports.tool import ToolContext
from hermes.schema.errors import ToolError
from hermes.schema.scope import Address, Scope
from hermes.store.sqlite import SqliteStore, open_store
from hermes.testing.clock import FakeClock
from hermes.tools.send_message import SendMessage

pytestmark = pytest.mark.anyio


class Bench:
    def __init__(self, home: Path, store: SqliteStore, clock: FakeClock) -> None:
        env = Env({"TELEGRAM_BOT_TOKEN": "t", "TELEGRAM_HOME_CHANNEL": "42"})
        self.store = store
        self.announced: list[Address] = []
        self.outgoing = OutboxSender(Home(home, home), env, store, clock)
        self.outgoing.set_posted_callback(self.announced.append)
        self.tool = SendMessage(self.outgoing)
        self.wishes: list[ApprovalRequest] = []
        self.allowed = True

    async def ask(self, wish: ApprovalRequest) -> Decision:
        self.wishes.append(wish)
        return Decision(self.allowed, "" if self.allowed else "The owner said no.")

    async def send(
        self, target: str, message: str = "hi", *, foreign: bool = False
    ) -> dict[str, object]:
        async def progress(text: str) -> None:
            raise AssertionError(text)

        scope = Scope("p", "s", "r", "/", address=Address("telegram", "7"))
        args = Raw(msgspec.json.encode({"target": target, "message": message}))
        ctx = ToolContext(scope, "c", progress, ask=self.ask, foreign=foreign)
        output = await self.tool.run(args, ctx)
        answer = msgspec.json.decode(output.parts[0].text)  # type: ignore[union-attr]
        assert output.failed is not answer["success"]
        return answer

    async def outbox(self) -> list[tuple[str, str]]:
        return [(one.address.chat, one.text) for one in await self.replies()]

    async def replies(self) -> list[OutboxMessage]:
        rows = await self.store.queues.claim("outbox:telegram", None, "me", timedelta(0), 100)
        return [read_outbox_message(row) for row in rows]


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncGenerator[Bench]:
    clock = FakeClock()
    async with open_store(tmp_path / "state.db", clock) as store:
        yield Bench(tmp_path, store, clock)


@pytest.mark.parametrize(("target", "chat"), [("telegram", "42"), ("origin", "7"), ("all", "42")])
async def test_the_owners_own_places_need_no_leave(bench: Bench, target: str, chat: str) -> None:
    answer = await bench.send(target)
    assert answer == {
        "success": True,
        "results": [{"target": f"telegram:{chat}", "status": "queued"}],
    }
    assert await bench.outbox() == [(chat, "hi")]
    assert bench.announced == [Address("telegram", chat)]
    assert bench.wishes == []


async def test_the_session_of_another_place_is_told_and_the_own_one_is_not(bench: Bench) -> None:
    await bench.send("telegram")
    await bench.send("origin")
    told = {one.address.chat: one.brought for one in await bench.replies()}
    assert told == {"42": True, "7": False}


async def test_somebody_else_is_asked_about_with_the_exact_words(bench: Bench) -> None:
    await bench.send("telegram:99", "Meet at ten.")
    (wish,) = bench.wishes
    assert wish.action == "to telegram:99:\nMeet at ten."
    assert await bench.outbox() == [("99", "Meet at ten.")]


async def test_nothing_leaves_without_leave(bench: Bench) -> None:
    bench.allowed = False
    with pytest.raises(ToolError, match="The owner said no"):
        await bench.send("telegram:99")
    with pytest.raises(ToolError, match="The owner said no"):
        await bench.send("telegram", foreign=True)
    assert await bench.outbox() == []


async def test_what_leads_nowhere_is_told(bench: Bench) -> None:
    answer = await bench.send("discord")
    assert answer["success"] is False
    assert "no such platform" in str(answer["results"])
    assert await bench.outbox() == []


@pytest.mark.parametrize(
    ("target", "message"), [("", "x"), ("te legram", "x"), ("telegram", " "), ("all", "x" * 20_001)]
)
async def test_bad_wishes_are_refused(bench: Bench, target: str, message: str) -> None:
    with pytest.raises(ToolError):
        await bench.send(target, message)
    assert await bench.outbox() == []
