"""The chat directory and its file."""

import json
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from hermes.app.chat_directory import SAVE_INTERVAL, ChatDirectory, read_directory
from hermes.config.home import Home
from hermes.ports.channel import Inbound, InboundDetails
from hermes.schema.messages import Text
from hermes.schema.scope import Address
from hermes.testing.clock import FakeClock
from support.polling import pause


def met(chat: str, kind: str, name: str = "", user: str = "") -> Inbound:
    about = InboundDetails(chat_type=kind, chat_name=name, user_name=user)
    return Inbound(
        key=chat, address=Address("telegram", chat), sender="1", parts=(Text("hi"),), about=about
    )


async def written(file: Path, clock: FakeClock, known: ChatDirectory, count: int) -> list[dict]:
    """What the file holds once it has so many chats."""
    chats: list[dict] = []
    async with anyio.create_task_group() as group:
        group.start_soon(known.run)
        with anyio.fail_after(60):
            while len(chats) != count:
                await clock.advance(SAVE_INTERVAL)
                await anyio.lowlevel.checkpoint()
                if file.is_file():
                    chats = json.loads(file.read_bytes())["platforms"].get("telegram", [])
        group.cancel_scope.cancel()
    return chats


async def test_direct_chat_has_no_name(tmp_path: Path) -> None:
    clock, file = FakeClock(), tmp_path / "directory.json"
    old = [{"id": "4", "name": "ops", "type": "dm"}, {"id": "5", "name": "team", "type": "group"}]
    file.write_text(json.dumps({"platforms": {"telegram": old}}))
    known = ChatDirectory(file, clock)
    known.record(met("1", "dm", user="ops"))
    known.record(met("2", "dm", name="ops", user="ops"))
    known.record(met("3", "group", name="ops", user="ann"))
    chats = await written(file, clock, known, 5)
    assert {chat["id"]: chat["name"] for chat in chats} == {
        "1": "",
        "2": "",
        "3": "ops",
        "4": "",
        "5": "team",
    }


@pytest.mark.parametrize("writes", [False, True])
async def test_chat_seen_just_before_shutdown_is_saved(tmp_path: Path, writes: bool) -> None:
    """Also when it has begun to write, and the end comes before the disk."""
    clock, file = FakeClock(), tmp_path / "directory.json"
    known = ChatDirectory(file, clock)
    known.record(met("1", "group", name="a"))
    async with anyio.create_task_group() as group:
        group.start_soon(known.run)
        with anyio.fail_after(60):
            while SAVE_INTERVAL not in clock.slept:
                await pause()
            if writes:
                await clock.advance(SAVE_INTERVAL)
                await anyio.wait_all_tasks_blocked()
        known.record(met("2", "group", name="b"))
        group.cancel_scope.cancel()
    chats = json.loads(file.read_bytes())["platforms"]["telegram"]
    assert [chat["id"] for chat in chats] == ["1", "2"]


async def test_lone_surrogate_is_replaced(tmp_path: Path) -> None:
    clock, file = FakeClock(), tmp_path / "directory.json"
    known = ChatDirectory(file, clock)
    known.record(met("1\udc00", "group\ud800", name="Cats \ud83d"))
    assert await written(file, clock, known, 1) == [
        {"id": "1?", "name": "Cats ?", "type": "group?"}
    ]


async def test_failed_write_is_retried(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock, folder = FakeClock(), tmp_path / "gone"
    folder.write_text("in the way")
    known = ChatDirectory(folder / "directory.json", clock)
    known.record(met("1", "group", name="a"))
    async with anyio.create_task_group() as group:
        group.start_soon(known.run)
        with anyio.fail_after(60):
            while "cannot write" not in caplog.text:
                await pause()
            folder.unlink()
            folder.mkdir()
            known.record(met("2", "group", name="b"))
            while not (folder / "directory.json").is_file():
                await clock.advance(SAVE_INTERVAL)
                await pause()
        group.cancel_scope.cancel()


async def test_damaged_file_is_kept_as_a_backup(tmp_path: Path) -> None:
    clock, file = FakeClock(), tmp_path / "channel_directory.json"
    file.write_bytes(b'{"platforms": {"telegram": [{"id": "5"')
    known = ChatDirectory(file, clock)
    async with anyio.create_task_group() as group:
        group.start_soon(known.run)
        known.record(met("6", "group"))
        with anyio.fail_after(60):
            while not file.exists() or b'"6"' not in file.read_bytes():
                await clock.advance(SAVE_INTERVAL)
        group.cancel_scope.cancel()
    (kept,) = tmp_path.glob("channel_directory.json.broken-*")
    assert kept.read_bytes() == b'{"platforms": {"telegram": [{"id": "5"'


async def test_no_error_ends_the_writer(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A path that no file can have is refused as a wrong value, not as a failure of the disk."""
    clock = FakeClock()
    known = ChatDirectory(tmp_path / "a\0b", clock)
    async with anyio.create_task_group() as group:
        group.start_soon(known.run)
        with anyio.fail_after(60):
            for count in (1, 2):
                known.record(met(str(count), "group"))
                while caplog.text.count("cannot write") < count:
                    await clock.advance(SAVE_INTERVAL)
                    await pause()
        group.cancel_scope.cancel()


async def test_webhook_call_is_not_a_chat(tmp_path: Path) -> None:
    clock = FakeClock()
    home = Home(tmp_path, tmp_path)
    old = [{"id": "webhook:ci:1", "name": "ci", "type": "webhook"}, {"id": "5", "type": "group"}]
    home.channel_directory.write_text(json.dumps({"platforms": {"telegram": old}}))
    assert [chat.id for chat in read_directory(home)] == ["5"]
    known = ChatDirectory(home.channel_directory, clock)
    known.record(met("webhook:ci:2", "webhook", name="ci"))
    known.record(met("6", "group", name="ops"))
    chats = await written(home.channel_directory, clock, known, 2)
    assert [chat["id"] for chat in chats] == ["5", "6"]
