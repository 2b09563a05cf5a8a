"""Messages to other chats: the owner's own need no approval, all others do."""

import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

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
from hermes.sandbox.local import LocalSandbox
from hermes.sandbox.spawner import Spawner
from hermes.schema.errors import ToolError
from hermes.schema.scope import Address, Scope
from hermes.store.blobs import FileBlobs
from hermes.store.sqlite import SqliteStore
from hermes.testing.clock import FakeClock
from hermes.testing.memory_store import open_memory_store
from hermes.tools.collaborators import ToolCollaborators
from hermes.tools.send_message import build_send_message
from hermes.tools.terminal.shell import find_shell

_UNUSED: Any = object()


class SendMessageHarness:
    def __init__(self, home: Path, store: SqliteStore, clock: FakeClock) -> None:
        env = Env({"TELEGRAM_BOT_TOKEN": "t", "TELEGRAM_HOME_CHANNEL": "42"})
        self.store = store
        self.bus = MemoryBus()
        self.outgoing = OutboxSender(Home(home, home), env, store, clock, self.bus)
        self.blobs = FileBlobs(home / "blobs")
        deps = ToolCollaborators(
            sandbox=LocalSandbox(Spawner()),
            blobs=self.blobs,
            clock=clock,
            env=lambda scope: {},
            redact=str,
            home=home / "home",
            spill_folder=home / "spill",
            shell=find_shell("/usr/bin:/bin"),
            rg=None,
            processes=_UNUSED,
            python=lambda place: sys.executable,
            message_sender=self.outgoing,
            private_files=[home / "private.txt"],
        )
        self.tool = build_send_message(deps)
        self.requests: list[ApprovalRequest] = []
        self.allowed = True
        self.while_asking: Callable[[], object] = lambda: None

    async def ask(self, request: ApprovalRequest) -> Decision:
        self.requests.append(request)
        self.while_asking()
        return Decision(self.allowed, "" if self.allowed else "The owner said no.")

    async def send(
        self,
        target: str,
        message: str = "hi",
        *,
        foreign: bool = False,
        files: Sequence[object] = (),
        address: Address | None = Address("telegram", "7"),  # noqa: B008 - it is frozen
        source: str = "telegram",
    ) -> dict[str, object]:
        async def progress(text: str) -> None:
            raise AssertionError(text)

        scope = Scope("p", "s", "r", "/", address=address, source=source)
        arguments = {"target": target, "message": message, "files": [str(one) for one in files]}
        args = Raw(msgspec.json.encode(arguments))
        ctx = ToolContext(scope, "c", progress, request_approval=self.ask, foreign=foreign)
        output = await self.tool.run(args, ctx)
        answer = msgspec.json.decode(output.parts[0].text)  # type: ignore[union-attr]
        assert output.failed is not answer["success"]
        return answer

    async def outbox(self) -> list[tuple[str, str]]:
        return [(one.address.chat, one.text) for one in await self.stored_replies()]

    async def stored_replies(self, channel: str = "telegram") -> list[OutboxMessage]:
        rows = await self.store.queues.claim(outbox_name(channel), None, "me", timedelta(0), 100)
        return [read_outbox_message(row.body) for row in rows]


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
    brought = {
        message.address.chat: message.cross_post for message in await harness.stored_replies()
    }
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


async def test_message_goes_where_it_was_approved_for(
    harness: SendMessageHarness, tmp_path: Path
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text('platforms: {discord: {home_channel: "1"}}')
    harness.while_asking = partial(config.write_text, 'platforms: {discord: {home_channel: "2"}}')
    await harness.send("discord", foreign=True)
    assert [one.address.chat for one in await harness.stored_replies("discord")] == ["1"]


async def test_unknown_platform_is_reported_without_asking(harness: SendMessageHarness) -> None:
    answer = await harness.send("discord,local", foreign=True)
    assert answer == {
        "success": False,
        "results": [
            {"target": "discord", "status": "failed", "error": "no such platform is configured"},
            {"target": "local", "status": "failed", "error": "this is a file, not a chat"},
        ],
    }
    assert (await harness.outbox(), harness.requests) == ([], [])


@pytest.mark.parametrize(
    ("target", "message"), [("", "x"), ("te legram", "x"), ("telegram", " "), ("all", "x" * 20_001)]
)
async def test_invalid_arguments_are_refused(
    harness: SendMessageHarness, target: str, message: str
) -> None:
    with pytest.raises(ToolError):
        await harness.send(target, message)
    assert await harness.outbox() == []


async def test_files_are_stored_and_sent(harness: SendMessageHarness, tmp_path: Path) -> None:
    (tmp_path / "chart.png").write_bytes(b"png")
    (tmp_path / "note.ogg").write_bytes(b"OggS")
    files = [tmp_path / "chart.png", tmp_path / "note.ogg"]
    await harness.send("origin", "", files=files)
    (reply,) = await harness.stored_replies()
    chart, note = reply.attachments
    assert (chart.media.media_type, chart.size, chart.voice) == ("image/png", 3, False)
    assert note.voice
    assert await harness.blobs.read(chart.media.digest) == b"png"
    assert harness.requests == []


async def test_files_for_others_are_named_in_the_request(
    harness: SendMessageHarness, tmp_path: Path
) -> None:
    (tmp_path / "chart.png").write_bytes(b"png")
    await harness.send("telegram:999", "Here", files=[tmp_path / "chart.png"])
    (request,) = harness.requests
    assert "Here\n" in request.action
    assert "chart.png" in request.action


async def test_file_that_cannot_be_sent_is_named(
    harness: SendMessageHarness, tmp_path: Path
) -> None:
    (tmp_path / "empty.txt").touch()
    (tmp_path / "private.txt").write_text("mine")
    harness.allowed = False
    for name in ("missing.txt", "empty.txt", "private.txt"):
        with pytest.raises(ToolError):
            await harness.send("origin", files=[tmp_path / name])
    with pytest.raises(ToolError, match="at most 10"):
        await harness.send("origin", files=["x"] * 11)
    assert await harness.stored_replies() == []
    (request,) = harness.requests
    assert request.action == f"send the file {tmp_path / 'private.txt'}"


async def test_files_are_shown_without_a_chat(harness: SendMessageHarness, tmp_path: Path) -> None:
    (tmp_path / "chart.png").write_bytes(b"png")
    (tmp_path / "private.txt").write_text("mine")
    page = partial(harness.send, "origin", address=None, source="web")
    answer = await page(files=[tmp_path / "chart.png"], foreign=True)
    assert answer["files"] == [str(tmp_path / "chart.png")]
    with pytest.raises(ToolError):
        await page(files=[tmp_path / "private.txt"])
    assert not (await page("Only words."))["success"]
    assert (await harness.stored_replies(), harness.requests) == ([], [])
