"""Messages to other chats: the owner's own need no approval, all others do."""

from collections.abc import AsyncGenerator
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from msgspec import Raw

from hermes.app.message_sender import OutboxSender
from hermes.bus.memory import MemoryBus
from hermes.config.env import Env
from hermes.config.home import Home
from hermes.gateway.messages import OutboxMessage, outbox_name, read_outbox_message, topic_of
from hermes.ports.approvals import ApprovalRequest, Decision
from hermes.ports.tool import ToolContext
from hermes.schema.errors import ToolError
from hermes.schema.scope import Address, Scope
from hermes.store.sqlite import SqliteStore
from hermes.testing.clock import FakeClock
from hermes.testing.memory_store import open_memory_store
from hermes.tools.send_message import SendMessage

pytestmark = pytest.mark.anyio


class SendMessageHarness:
    def __init__(self, home: Path, store: SqliteStore, clock: FakeClock) -> None:
        env = Env({"TELEGRAM_BOT_TOKEN": "t", "TELEGRAM_HOME_CHANNEL": "42"})
        self.store = store
        self.bus = MemoryBus()
        self.outgoing = OutboxSender(Home(home, home), env, store, clock, self.bus)
        self.tool = SendMessage(self.outgoing)
        self.requests: list[ApprovalRequest] = []
        self.allowed = True

    async def ask(self, request: ApprovalRequest) -> Decision:
        self.requests.append(request)
        return Decision(self.allowed, "" if self.allowed else "The owner said no.")

    async def send(
        self, target: str, message: str = "hi", *, foreign: bool = False
    ) -> dict[str, object]:
        async def progress(text: str) -> None:
            raise AssertionError(text)

        scope = Scope("p", "s", "r", "/", address=Address("telegram", "7"))
        args = Raw(msgspec.json.encode({"target": target, "message": message}))
        ctx = ToolContext(scope, "c", progress, request_approval=self.ask, foreign=foreign)
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
async def harness(tmp_path: Path) -> AsyncGenerator[SendMessageHarness]:
    clock = FakeClock()
    async with open_memory_store(clock) as store:
        yield SendMessageHarness(tmp_path, store, clock)


@pytest.mark.parametrize(("target", "chat"), [("telegram", "42"), ("origin", "7"), ("all", "42")])
async def test_owner_chats_need_no_approval(
    harness: SendMessageHarness, target: str, chat: str
) -> None:
    with harness.bus.listen(outbox_name("telegram")) as wakeups:
        answer = await harness.send(target)
        assert list(wakeups.take()) == [topic_of(Address("telegram", chat))]
    assert answer == {
        "success": True,
        "results": [{"target": f"telegram:{chat}", "status": "queued"}],
    }
    assert await harness.outbox() == [(chat, "hi")]
    assert harness.requests == []


async def test_only_other_sessions_record_the_message(harness: SendMessageHarness) -> None:
    await harness.send("telegram")
    await harness.send("origin")
    brought = {message.address.chat: message.cross_post for message in await harness.replies()}
    assert brought == {"42": True, "7": False}


async def test_approval_for_other_chat_shows_exact_text(harness: SendMessageHarness) -> None:
    await harness.send("telegram:99", "Meet at ten.")
    (request,) = harness.requests
    assert request.action == "to telegram:99:\nMeet at ten."
    assert await harness.outbox() == [("99", "Meet at ten.")]


async def test_denied_message_is_not_sent(harness: SendMessageHarness) -> None:
    harness.allowed = False
    with pytest.raises(ToolError, match="The owner said no"):
        await harness.send("telegram:99")
    with pytest.raises(ToolError, match="The owner said no"):
        await harness.send("telegram", foreign=True)
    assert await harness.outbox() == []


async def test_unknown_platform_is_reported(harness: SendMessageHarness) -> None:
    answer = await harness.send("discord")
    assert answer["success"] is False
    assert "no such platform" in str(answer["results"])
    assert await harness.outbox() == []


@pytest.mark.parametrize(
    ("target", "message"), [("", "x"), ("te legram", "x"), ("telegram", " "), ("all", "x" * 20_001)]
)
async def test_invalid_arguments_are_refused(
    harness: SendMessageHarness, target: str, message: str
) -> None:
    with pytest.raises(ToolError):
        await harness.send(target, message)
    assert await harness.outbox() == []
