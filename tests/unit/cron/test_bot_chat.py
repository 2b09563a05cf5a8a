"""Results that jobs deliver to `bot-chat` are answered by the profile, in one session."""

from pathlib import Path

import pytest
from msgspec import Raw

from hermes.cron.bot_chat import KEY, QUEUE, TITLE, DeliveredResult, result_row, split_targets
from hermes.ports.store import EnqueueItem, ItemStatus, OpenSession, QueueItem
from hermes.schema.errors import ModelError, StoreCorrupt, Unreachable
from hermes.schema.messages import Message, Trust, Usage, User, text_of
from hermes.schema.scope import OWNER
from hermes.schema.sessions import Session
from hermes.testing.clock import wait_until_idle
from hermes.testing.scripted_model import Pause, Script, answer_script
from support.cron import CronHarness, cron_harness
from support.turns import assistant_message, tool_call


async def deliver(cron: CronHarness, key: str, text: str, profile: str = "default") -> None:
    await cron.store.commit(result_row(key, DeliveredResult(profile, "mails", text)))


async def messages(cron: CronHarness) -> list[Message]:
    archive = cron.store.archive_for(OWNER)
    session = await archive.by_key(KEY)
    assert session is not None
    assert session.principal == OWNER
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
        history = await transcript(cron)
        assert [history[0], history[2], history[3], history[5]] == [
            "42 mails",
            "Read.",
            "43 mails",
            "Again.",
        ]
        assert "mails" in history[1]
        trusts = [one.trust for one in await messages(cron) if isinstance(one, User)]
        assert trusts == [Trust.DATA, Trust.PROGRAM] * 2
        assert await cron.store.queues.topics(QUEUE) == []


async def test_session_in_use_is_waited_for(tmp_path: Path) -> None:
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
        messages = await transcript(cron)
        assert messages.count("42 mails") == 1
        assert messages[-1] == "Read after all."


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


@pytest.mark.parametrize("principal", [OWNER, "guest"])
async def test_session_of_the_same_title_is_not_used(tmp_path: Path, principal: str) -> None:
    async with cron_harness(tmp_path, answer_script("Read."), answer_script("Again.")) as cron:
        now = cron.clock.now()
        other = Session(id="other", started_at=now, title=TITLE, principal=principal)
        await cron.store.commit(OpenSession(other))
        async with cron.serving():
            await deliver(cron, "k1", "42 mails")
            await deliver(cron, "k2", "43 mails")
            cron.bus.wake("cron")
            await wait_until_idle()
        assert await cron.store.archive_for(OWNER).messages("other") == []
        assert [(await transcript(cron))[number] for number in (2, 5)] == ["Read.", "Again."]


async def test_ticks_while_the_session_is_in_use_do_not_count(tmp_path: Path) -> None:
    scripts: list[Script] = [
        answer_script("Read."),
        [Unreachable("no network")],
        answer_script("Now."),
    ]
    async with cron_harness(tmp_path, *scripts) as cron:
        (tmp_path / "cron").mkdir()
        await deliver(cron, "k1", "42 mails")
        await cron.worker().run_once()
        session = await cron.store.archive_for(OWNER).find(TITLE)
        await deliver(cron, "k2", "43 mails")
        async with cron.talk.runner.holding(session.id):
            for _ in range(6):
                await cron.worker().run_once()
        await cron.worker().run_once()
        assert await cron.store.queues.status("k2") == (ItemStatus.WAITING, "no network")
        await cron.clock.advance(600)
        await cron.worker().run_once()
        assert (await transcript(cron))[-1] == "Now."


async def test_answer_that_processes_left_is_given_up_until_it_is_sent_again(
    tmp_path: Path,
) -> None:
    scripts: list[Script] = [*[[Pause.FOREVER]] * 4, answer_script("Read after all.")]
    async with cron_harness(tmp_path, *scripts) as cron:
        await deliver(cron, "k1", "42 mails")
        for _ in range(5):
            async with cron.serving():
                await wait_until_idle()
        status, reason = await cron.store.queues.status("k1")
        assert (status, len(cron.model.requests)) == (ItemStatus.PARKED, 4)
        assert "stopped several times" in reason
        async with cron.serving():
            await cron.store.queues.retry("k1", cron.clock.now(), "sent again")
            cron.bus.wake(QUEUE, "default")
            await wait_until_idle()
        assert (await transcript(cron))[-1] == "Read after all."


async def test_model_that_stays_unreachable_is_asked_when_the_result_is_sent_again(
    tmp_path: Path,
) -> None:
    scripts: list[Script] = [*[[Unreachable("no network")]] * 4, answer_script("Read.")]
    async with cron_harness(tmp_path, *scripts) as cron:
        async with cron.serving():
            await deliver(cron, "k1", "42 mails")
            cron.bus.wake("cron")
            await cron.clock.advance(3600)
            assert await cron.store.queues.status("k1") == (ItemStatus.PARKED, "no network")
            await cron.store.queues.retry("k1", cron.clock.now(), "sent again")
            cron.bus.wake(QUEUE, "default")
            await wait_until_idle()
        assert (await transcript(cron))[-1] == "Read."


async def test_unreadable_result_is_parked_and_the_next_one_answered(tmp_path: Path) -> None:
    async with cron_harness(tmp_path, answer_script("Read.")) as cron:
        row = QueueItem(key="k1", queue=QUEUE, topic="default", body=Raw(b'{"profile": 1}'))
        await cron.store.commit(EnqueueItem(row))
        await deliver(cron, "k2", "42 mails")
        async with cron.serving():
            await wait_until_idle()
        assert (await cron.store.queues.status("k1"))[0] is ItemStatus.PARKED
        assert (await transcript(cron))[-1] == "Read."


@pytest.mark.parametrize("error", [StoreCorrupt("broken"), OSError("broken")])
async def test_profile_that_cannot_be_reached_does_not_block_others(
    tmp_path: Path, error: Exception
) -> None:
    async with cron_harness(tmp_path, answer_script("Read.")) as cron:
        cron.forward_error = error
        await deliver(cron, "k1", "42 mails", "ada")
        await deliver(cron, "k2", "43 mails")
        async with cron.serving():
            await cron.clock.advance(60)
            assert (await transcript(cron))[-1] == "Read."
            assert await cron.store.queues.status("k1") == (ItemStatus.WAITING, "broken")
            cron.forward_error = None
            await cron.clock.advance(300)
        assert cron.forwarded == [("ada", "k1")]


async def test_error_of_ours_parks_the_result(tmp_path: Path) -> None:
    async with cron_harness(tmp_path, answer_script("Read.")) as cron:
        cron.forward_error = RuntimeError("a bug")
        await deliver(cron, "k1", "42 mails", "ada")
        await deliver(cron, "k2", "43 mails")
        async with cron.serving():
            await wait_until_idle()
        assert (await transcript(cron))[-1] == "Read."
        reason = "An error in Hermes: a bug"
        assert await cron.store.queues.status("k1") == (ItemStatus.PARKED, reason)


async def test_answer_has_the_tools_and_the_spend_cap_of_the_job(tmp_path: Path) -> None:
    call = assistant_message("looking", tool_call("nothing"), usage=Usage(10, 10))
    scripts: list[Script] = [answer_script("Read."), [call], [call], answer_script("never")]
    async with cron_harness(tmp_path, *scripts) as cron:
        async with cron.serving():
            for key in ("k1", "k2"):
                result = DeliveredResult("default", "mails", "42", ("web_search",), 0.007)
                await cron.store.commit(result_row(key, result))
            cron.bus.wake("cron")
            await wait_until_idle()
        limits = [scope.bounds for scope in cron.talk.planner.scopes]
        assert [one and one.tools for one in limits] == [("web_search",)] * 2
        reason = "It reached its limit of $0.007."
        assert await cron.store.queues.status("k2") == (ItemStatus.PARKED, reason)


def test_bot_chat_targets_are_separated_from_other_targets() -> None:
    found = split_targets("bot-chat, telegram:1,Bot-Chat:ada,bot-chat")
    assert found == (["", "ada"], "telegram:1")
    assert split_targets("origin") == ([], "origin")
