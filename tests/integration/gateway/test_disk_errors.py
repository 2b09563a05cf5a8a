"""A disk that is full or failing for a while loses no acknowledged message."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import anyio
import pytest

from hermes.gateway.delivery import RECOVERED_MARK
from hermes.gateway.notices import DISK_FULL, STORE_BROKEN
from hermes.gateway.progress_message import ANSWER_BELOW
from hermes.gateway.replies import RESUMED_BELOW
from hermes.store.sqlite import SqliteStore
from hermes.testing.channel import check_posts
from support.chat_platform.server import PlatformServer, serve_platform
from support.delivery_check import PROGRESS_PREFIX
from support.event_loop_guard import guard_loop
from support.faulty_disk import DiskFailure, FaultyDisk, faulty_disk
from support.homes import CHANNEL_NAME, ProfileSettings, write_profile
from support.profile_gateway import profile_gateway

ACCOUNT = "main"
TIMEOUT = 60.0
POLL_INTERVAL = 0.02
PROGRESS_OVER = (ANSWER_BELOW, RESUMED_BELOW)
OUTAGE_NOTICES = (DISK_FULL, STORE_BROKEN)
CHECK_EVERY = 20
"""Scenarios between two integrity checks of the database."""


class Chat:
    """Three questions in one chat; the second may write a line to a file."""

    def __init__(self, server: PlatformServer, name: str, *, acts: bool) -> None:
        self._server = server
        self._name = name
        act = f' use:terminal {{"command": "echo {name}2 >> effects"}}' if acts else ""
        self._questions = [f"q-{name}1", f"q-{name}2{act}", f"q-{name}3"]
        self.expected = [f"re: q-{name}{number}" for number in (1, 2, 3)]

    def ask(self) -> None:
        for text in self._questions:
            self._server.say(ACCOUNT, self._name, "ann", text)

    def seen(self) -> list[str]:
        """Return what each question led to: its answer, or the reason there is none.

        An unanswered question stays in the transcript and is seen together with the next one,
        so the last question in an answer is the one answered.
        """
        found: list[str] = []
        for text in self.texts():
            if text in PROGRESS_OVER or text in OUTAGE_NOTICES:
                continue
            answered = [one for one in self.expected if one.removeprefix("re: ") in text]
            reply = "could not be" in text and len(found) < len(self.expected)
            mark = RECOVERED_MARK if text.startswith(RECOVERED_MARK) else ""
            found.append(self.expected[len(found)] if reply else mark + (answered or [text])[-1])
        return found

    def is_answered(self) -> bool:
        """Whether all is answered and no progress is left."""
        if any(text.startswith(PROGRESS_PREFIX) for text in self.texts()):
            return False
        answers = {text.removeprefix(RECOVERED_MARK) for text in self.seen()}
        return not self._server.platform.unacknowledged() and set(self.expected) <= answers

    def texts(self) -> list[str]:
        return [post.text for post in self._server.platform.posts_in(ACCOUNT, self._name)]


class DiskScenario:
    def __init__(self, server: PlatformServer, store: SqliteStore, disk: FaultyDisk) -> None:
        self._server = server
        self._store = store
        self._disk = disk
        self._count = 0

    async def live(self, failure: DiskFailure, nth: int, many: int) -> bool:
        """Return whether the disk failed at all."""
        self._count += 1
        chats = [Chat(self._server, f"{self._count}{one}", acts=one == "a") for one in "ab"]
        self._disk.fail(failure, nth, many)
        for chat in chats:
            chat.ask()
        try:
            with anyio.fail_after(TIMEOUT):
                while not await self._is_over(chats):  # noqa: ASYNC110 - the database has no event to wait for
                    await anyio.sleep(POLL_INTERVAL)
        except TimeoutError as error:
            error.add_note(str([chat.texts() for chat in chats]))
            raise
        failed = self._disk.failed > 0
        self._disk.heal()
        for chat in chats:
            check_posts({"": chat.expected}, lambda _, chat=chat: chat.seen(), RECOVERED_MARK)
        if self._count % CHECK_EVERY == 0:
            assert await self._store.maintenance.integrity() == []
        return failed

    async def _is_over(self, chats: Sequence[Chat]) -> bool:
        if not all(chat.is_answered() for chat in chats):
            return False
        queues = self._store.queues
        return not [*await queues.topics("inbox"), *await queues.topics(f"outbox:{CHANNEL_NAME}")]


async def scenarios(folder: Path, cases: Sequence[tuple[DiskFailure, int, int]]) -> str:
    failed, work = 0, folder / "work"
    work.mkdir()
    with faulty_disk() as disk:
        async with serve_platform() as server:
            env = {"MESSAGING_CWD": str(work)}
            write_profile(
                folder / "home", ProfileSettings(account=ACCOUNT, url=server.url, env=env)
            )
            # This disk is implemented in Python, so writing takes time from the event loop.
            async with profile_gateway(folder / "home") as service, guard_loop(limit=0.5):
                world = DiskScenario(server, service.app.store, disk)
                for failure, nth, many in cases:
                    try:
                        failed += await world.live(failure, nth, many)
                    except BaseException as error:
                        error.add_note(f"{failure} for {many} at write {nth}")
                        raise
                assert await service.app.store.maintenance.integrity() == []
    effects = (work / "effects").read_text().splitlines()
    assert len(effects) == len(set(effects))
    return f"{len(cases)} scenarios, in {failed} of them the disk failed: 0 acknowledged rows lost"


@pytest.mark.timeout(1200)
async def test_disk_error_at_each_of_the_first_writes(tmp_path: Path) -> None:
    kinds = (DiskFailure.FULL, DiskFailure.BROKEN)
    cases = [(kinds[nth % 2], nth, 1 + nth % 4) for nth in range(1, 101)]
    cases += [(DiskFailure.UNSYNCED, nth, 1) for nth in range(1, 11)]
    sys.stdout.write(await scenarios(tmp_path, cases))


@pytest.mark.soak
@pytest.mark.timeout(3000)
async def test_each_kind_of_disk_error_at_each_write(
    tmp_path: Path, prove: Callable[[str], None]
) -> None:
    cases = [
        (failure, nth, many)
        for failure in DiskFailure
        for nth in range(1, 101)
        for many in (1, 3, 20)
    ]
    numbers = await scenarios(tmp_path, cases)
    prove(numbers)
