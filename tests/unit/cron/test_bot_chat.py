"""Results that jobs deliver to `bot-chat` are answered by the profile, in one session."""

from pathlib import Path

import pytest

from hermes.cron.bot_chat import QUEUE, TITLE, DeliveredResult, result_row, split_targets
from hermes.ports.store import ItemStatus
from hermes.schema.errors import ModelError, Unreachable
from hermes.schema.messages import Message, Trust, User, text_of
from hermes.schema.scope import OWNER
from hermes.testing.clock import wait_until_idle
from hermes.testing.scripted_model import Pause, Script, answer_script
from support.cron import CronHarness, cron_harness

pytestmark = pytest.mark.anyio


async def deliver(cron: CronHarness, key: str, text: str, profile: str = "default") -> None:
    await cron.store.commit(result_row(key, DeliveredResult(profile, "mails", text)))


async def messages(cron: CronHarness) -> list[Message]:
    archive = cron.store.archive_for(OWNER)
    session = await archive.find(TITLE)
    return [row.message for row in await archive.messages(session.id)]


async def transcript(cron: CronHarness) -> list[str]:
    return [text_of(one) for one in await messages(cron)]


async def test_results_are_answered_in_one_session_in_their_order(tmp_path: Path) -> None:
    async with cron_harness(tmp_path, answer_script("Read."), answer_script("Again.")) as cron:
        async with cron.serving():
            await deliver(cron, "k1", "42 mails")
            await deliver(cron, "k2", "43 mails")
            await deliver(cron, "k1", "twice")
            cron.bus.wake("cron")
            await wait_until_idle()
        said = await transcript(cron)
        assert [said[0], said[2], said[3], said[5]] == ["42 mails", "Read.", "43 mails", "Again."]
        assert "mails" in said[1]
        trusts = [one.trust for one in await messages(cron) if isinstance(one, User)]
        assert trusts == [Trust.DATA, Trust.PROGRAM] * 2
        assert await cron.store.queues.topics(QUEUE) == []


async def test_session_that_somebody_uses_is_waited_for(tmp_path: Path) -> None:
    async with cron_harness(tmp_path, answer_script("Read."), answer_script("Now.")) as cron:
        async with cron.serving():
            await deliver(cron, "k1", "42 mails")
            cron.bus.wake("cron")
            await wait_until_idle()
            session = await cron.store.archive_for(OWNER).find(TITLE)
            async with cron.talk.runner.holding(session.id):
                await deliver(cron, "k2", "43 mails")
                cron.bus.wake("cron")
                await cron.clock.advance(60)
                assert "43 mails" not in await transcript(cron)
            await cron.clock.advance(10)
        assert (await transcript(cron))[-1] == "Now."


async def test_result_for_another_profile_is_forwarded_once(tmp_path: Path) -> None:
    async with cron_harness(tmp_path) as cron:
        async with cron.serving():
            await deliver(cron, "k1", "42 mails", "ada")
            cron.bus.wake("cron")
            await wait_until_idle()
        async with cron.serving():
            await wait_until_idle()
        assert cron.forwarded == [("ada", "k1")]
        assert cron.model.requests == []


async def test_answer_that_a_process_left_is_continued(tmp_path: Path) -> None:
    scripts: list[Script] = [[Pause.FOREVER], answer_script("Read after all.")]
    async with cron_harness(tmp_path, *scripts) as cron:
        async with cron.serving():
            await deliver(cron, "k1", "42 mails")
            cron.bus.wake("cron")
            await wait_until_idle()
        async with cron.serving():
            await wait_until_idle()
        said = await transcript(cron)
        assert said.count("42 mails") == 1
        assert said[-1] == "Read after all."


async def test_unreachable_model_is_asked_later_and_other_failures_are_parked(
    tmp_path: Path,
) -> None:
    scripts: list[Script] = [
        [Unreachable("no network")],
        answer_script("Read."),
        [ModelError("bad request")],
    ]
    async with cron_harness(tmp_path, *scripts) as cron:
        async with cron.serving():
            await deliver(cron, "k1", "42 mails")
            cron.bus.wake("cron")
            await cron.clock.advance(60)
            assert (await cron.store.queues.status("k1"))[0] is ItemStatus.WAITING
            await cron.clock.advance(600)
            assert (await transcript(cron))[-1] == "Read."
            await deliver(cron, "k2", "43 mails")
            cron.bus.wake("cron")
            await cron.clock.advance(10)
        assert await cron.store.queues.status("k2") == (ItemStatus.PARKED, "bad request")


def test_bot_chats_are_told_apart_from_other_targets() -> None:
    found = split_targets("bot-chat, telegram:1,Bot-Chat:ada,bot-chat")
    assert found == (["", "ada"], "telegram:1")
    assert split_targets("origin") == ([], "origin")
