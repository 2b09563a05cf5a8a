"""A disk that is full or broken for a while costs nobody a message that was acknowledged."""

import sys
from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest

from hermes.gateway.delivery import MARK
from hermes.gateway.gateway import Gateway
from hermes.kit.clock import SystemClock
from hermes.ports.channel import Inbound
from hermes.schema.errors import HermesError
from hermes.schema.messages import Text
from hermes.schema.scope import Address
from hermes.store.sqlite import SqliteStore, open_store
from hermes.testing.bad_disk import BadDisk, Failure, bad_disk
from hermes.testing.channel import FakeChannel
from hermes.testing.household import ActingTool, Household, patient_rules
from hermes.testing.loop_guard import guarded
from hermes.testing.obliging import Obliging
from hermes.testing.world import check_seen

pytestmark = pytest.mark.anyio

CHATS = ("a", "b")
TEXTS = ("1", "2 use:act", "3")


def update(chat: str, text: str) -> Inbound:
    said = f"q-{chat}{text}"
    return Inbound(said, Address("fake", chat), "ann", (Text(said),), None, said)


async def insist(channel: FakeChannel, chat: str) -> int:
    """As a platform does: what was not acknowledged is given out again."""
    refused = 0
    for text in TEXTS:
        while update(chat, text).key not in channel.acknowledged:
            try:
                await channel.type(update(chat, text))
            except HermesError:
                refused += 1
    return refused


def expected(chat: str) -> list[str]:
    return [f"re: q-{chat}{text}" for text in TEXTS]


def seen(channel: FakeChannel, chat: str) -> list[str]:
    """What each question came to: its answer, or a sentence that says why there is none.

    A question that could not be answered is in the transcript still, so that the model sees it
    together with the next one: the last one in an answer is what it answers.
    """
    found: list[str] = []
    for text in channel.seen_in(chat):
        said = [one for one in expected(chat) if one.removeprefix("re: ") in text]
        told = "could not be" in text and len(found) < len(TEXTS)
        mark = MARK if text.startswith(MARK) else ""
        found.append(expected(chat)[len(found)] if told else mark + (said or [text])[-1])
    return found


async def scenario(folder: Path, disk: BadDisk, failure: Failure, nth: int, many: int) -> bool:
    """Returns whether the disk failed at all."""
    clock, channel = SystemClock(), FakeChannel()
    async with open_store(folder / "state.db", clock) as store:
        household = Household(
            profile="default",
            store=store,
            clock=clock,
            channels={"fake": channel},
            model=Obliging(),
            tools=[ActingTool(folder / "effects")],
        )
        gateway = Gateway(household.build(), patient_rules(progress=False))
        disk.fail(failure, nth, many)
        async with anyio.create_task_group() as group:
            group.start_soon(gateway.run)
            with anyio.fail_after(30):
                async with anyio.create_task_group() as people:
                    for chat in CHATS:
                        people.start_soon(insist, channel, chat)
                while not await is_over(store, channel):
                    await clock.sleep(0.005)
            failed = disk.failed > 0
            disk.heal()
            gateway.close()
        for chat in CHATS:
            check_seen({chat: expected(chat)}, lambda chat: seen(channel, chat), MARK)
        assert await store.integrity() == []
    effects = (folder / "effects").read_text().splitlines()
    assert len(effects) == len(set(effects))
    return failed


async def is_over(store: SqliteStore, channel: FakeChannel) -> bool:
    if not all(set(expected(chat)) <= answers(channel, chat) for chat in CHATS):
        return False
    return not [*await store.lanes.topics("inbox"), *await store.lanes.topics("outbox:fake")]


def answers(channel: FakeChannel, chat: str) -> set[str]:
    return {text.removeprefix(MARK) for text in seen(channel, chat)}


async def scenarios(folder: Path, cases: Sequence[tuple[Failure, int, int]]) -> str:
    failed = 0
    with bad_disk() as disk:
        # This disk is made of Python, so that writing to it takes time from the loop, too.
        async with guarded(limit=0.5):
            for number, (failure, nth, many) in enumerate(cases):
                try:
                    failed += await scenario(folder / str(number), disk, failure, nth, many)
                except BaseException as error:
                    error.add_note(f"{failure} for {many} at write {nth}")
                    raise
    return f"{len(cases)} scenarios, in {failed} of them the disk failed: nothing was lost"


async def test_errors_at_each_of_the_first_writes(tmp_path: Path) -> None:
    kinds = (Failure.FULL, Failure.BROKEN)
    cases = [(kinds[nth % 2], nth, 1 + nth % 4) for nth in range(1, 101)]
    cases += [(Failure.UNSYNCED, nth, 1) for nth in range(1, 11)]
    sys.stdout.write(await scenarios(tmp_path, cases))


@pytest.mark.soak
@pytest.mark.timeout(3000)
async def test_errors_of_each_kind_at_each_write(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cases = [
        (failure, nth, many) for failure in Failure for nth in range(1, 101) for many in (1, 3, 20)
    ]
    numbers = await scenarios(tmp_path, cases)
    with capsys.disabled():
        sys.stdout.write(f"\n{numbers}\n")
