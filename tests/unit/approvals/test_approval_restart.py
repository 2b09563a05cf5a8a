"""Questions that survive a restart are asked once and used once."""

import anyio
import pytest
from msgspec import structs

from hermes.approvals.approval_store import ApprovalStore
from hermes.approvals.messages import NOT_RUN
from hermes.approvals.questions import ForwardedQuestions, QuestionWaiter
from hermes.ports.approval_records import QuestionRecord
from hermes.ports.approvals import ApprovalRequest, Isolation, RecoveredQuestions, TurnSuspended
from hermes.ports.store import CompleteItem, Write
from hermes.schema.questions import ApprovalChoice
from hermes.schema.scope import Scope
from support.approvals import (
    ALLOWED,
    APPROVAL_REQUEST,
    OWNER_ANSWERER,
    RESUMED_SCOPE,
    SCOPE,
    ApprovalHarness,
    PendingApproval,
    answer_request,
)


async def interrupt_while_asking(
    harness: ApprovalHarness,
    scope: Scope = RESUMED_SCOPE,
    request: ApprovalRequest = APPROVAL_REQUEST,
) -> None:
    """End the process while it waits for an answer."""
    await harness.queue_turn()
    async with anyio.create_task_group() as group:
        group.start_soon(harness.decide, request, scope)
        await harness.wait_for_question()
        harness.service.prepare_shutdown()
        group.cancel_scope.cancel()
    harness.restart()


async def test_question_is_not_asked_twice_after_a_restart(
    harness: ApprovalHarness,
) -> None:
    await interrupt_while_asking(harness)
    (first,) = harness.questions
    decision = await answer_request(harness, ApprovalChoice.ONCE)
    assert decision.allowed
    assert [one.id for one in harness.questions] == [first.id, first.id]
    assert (await answer_request(harness, ApprovalChoice.DENY)).allowed is False
    assert harness.questions[-1].id != first.id


async def test_answer_given_during_a_restart_counts_once(harness: ApprovalHarness) -> None:
    await interrupt_while_asking(harness)
    result = await harness.service.answer(OWNER_ANSWERER, ApprovalChoice.ONCE)
    assert result.count == 1
    assert (await harness.decide(scope=RESUMED_SCOPE)).allowed
    assert len(harness.questions) == 1
    alone = structs.replace(SCOPE, attended=False)
    assert not (await harness.decide(scope=alone)).allowed


async def test_answer_does_not_count_for_a_changed_request(harness: ApprovalHarness) -> None:
    request = ApprovalRequest(
        tool="t", action="t {}", reaching=Isolation.BEYOND, kind="every call", seal="old"
    )
    await interrupt_while_asking(harness, request=request)
    assert (await harness.service.answer(OWNER_ANSWERER, ApprovalChoice.ONCE)).count == 1
    alone = structs.replace(RESUMED_SCOPE, attended=False)
    for other in (structs.replace(request, seal="new"), structs.replace(request, kind="this call")):
        assert not (await harness.decide(other, alone)).allowed
    assert (await harness.decide(request, RESUMED_SCOPE)).allowed


async def test_old_answer_does_not_count(harness: ApprovalHarness) -> None:
    await interrupt_while_asking(harness)
    await harness.service.answer(OWNER_ANSWERER, ApprovalChoice.ONCE)
    await harness.clock.advance(3600)
    alone = structs.replace(SCOPE, attended=False)
    assert not (await harness.decide(scope=alone)).allowed


async def test_answer_after_restart_and_timeout_is_too_late(harness: ApprovalHarness) -> None:
    await interrupt_while_asking(harness, SCOPE)
    await harness.clock.advance(61)
    result = await harness.service.answer(OWNER_ANSWERER, ApprovalChoice.ONCE)
    assert result.message.startswith("Too late")


@pytest.mark.parametrize("why", ["not resumable", "stopped", "another session"])
async def test_question_without_a_resumable_turn_is_closed(
    harness: ApprovalHarness, why: str
) -> None:
    await interrupt_while_asking(
        harness,
        structs.replace(RESUMED_SCOPE, call="") if why.startswith("not") else RESUMED_SCOPE,
    )
    who = (
        structs.replace(OWNER_ANSWERER, session="s2")
        if why.startswith("another")
        else OWNER_ANSWERER
    )
    if why == "stopped":
        await harness.store.commit(CompleteItem(f"message for {RESUMED_SCOPE.key}"))
    assert not await harness.service.would_answer(who, "yes")
    assert (await harness.service.answer(who, ApprovalChoice.ONCE)).count == 0
    await harness.service.close_abandoned()
    assert await harness.service.has_open_questions() is why.startswith("another")


async def test_message_does_not_answer_an_abandoned_clarification(harness: ApprovalHarness) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(harness.service.ask_person, SCOPE, "Which colour?", ("red",), harness.emit)
        await harness.wait_for_question()
        harness.service.prepare_shutdown()
        group.cancel_scope.cancel()
    harness.restart()
    assert not await harness.service.would_answer(OWNER_ANSWERER, "please also buy milk")


async def test_resumed_turn_uses_the_answer_given_meanwhile(
    harness: ApprovalHarness,
) -> None:
    await interrupt_while_asking(harness)
    assert await harness.service.recover("s1", resumed=True) == RecoveredQuestions(
        waiting=frozenset({"call_1"})
    )
    assert await harness.service.would_answer(OWNER_ANSWERER, "yes")
    assert (await harness.service.answer(OWNER_ANSWERER, ApprovalChoice.ONCE)).count == 1
    assert await harness.decide(scope=RESUMED_SCOPE) == ALLOWED
    assert len(harness.questions) == 1
    # The call has started, so its progress is unknown.
    assert await harness.restart().recover("s1", resumed=True) == RecoveredQuestions()


async def test_question_is_always_awaited_by_its_holder(
    harness: ApprovalHarness,
) -> None:
    await interrupt_while_asking(harness)
    seen: list[bool] = []

    class RecordingStore(ApprovalStore):
        async def update(
            self,
            before: QuestionRecord | None,
            after: QuestionRecord,
            *more: Write,
            release: bool = False,
        ) -> bool:
            seen.append(waiting.is_waiting(after.question.id))
            return await super().update(before, after, *more, release=release)

    rows = RecordingStore(harness.store, harness.clock, "us")
    waiting = QuestionWaiter(rows, harness.clock, ForwardedQuestions(rows, harness.clock, "us"))
    assert (await waiting.recover("s1", resumed=True)).waiting == {"call_1"}
    (row,) = await rows.all_open()
    async with anyio.create_task_group() as group:
        group.start_soon(waiting.ask_and_wait, RESUMED_SCOPE, row, harness.emit)
        await harness.wait_for_question(2)
        group.cancel_scope.cancel()
    # When it is recovered, asked again, and closed with its turn.
    assert seen == [True, True, True]


@pytest.mark.parametrize("resumed", [True, False])
async def test_turn_that_does_not_ask_again_closes_the_question(
    harness: ApprovalHarness, *, resumed: bool
) -> None:
    await interrupt_while_asking(harness)
    left = await harness.service.recover("s1", resumed=resumed)
    assert left == (
        RecoveredQuestions(waiting=frozenset({"call_1"}))
        if resumed
        else RecoveredQuestions(results={"call_1": NOT_RUN})
    )
    await harness.service.turn_ended("s1")
    assert not await harness.service.has_open_questions()
    assert await harness.restart().recover("s1", resumed=True) == RecoveredQuestions(
        results={"call_1": NOT_RUN}
    )


async def test_question_is_closed_when_approval_is_no_longer_needed(
    harness: ApprovalHarness,
) -> None:
    await interrupt_while_asking(harness)
    service = harness.restart(yolo=True)
    await service.recover("s1", resumed=True)
    assert (await harness.decide(scope=RESUMED_SCOPE)).allowed
    assert not await service.has_open_questions()


@pytest.mark.parametrize(
    ("choice", "expected"), [(ApprovalChoice.DENY, "a person denied it"), (ApprovalChoice.ONCE, "")]
)
async def test_decision_is_reported_for_an_interrupted_call(
    harness: ApprovalHarness, choice: ApprovalChoice, expected: str
) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(harness.decide, APPROVAL_REQUEST, RESUMED_SCOPE)
        await harness.wait_for_question()
        await harness.service.answer(OWNER_ANSWERER, choice)
    left = await harness.restart().recover("s1", resumed=True)
    assert (expected in left.results["call_1"]) if expected else (left == RecoveredQuestions())


async def test_clarification_is_reported_for_an_interrupted_call(
    harness: ApprovalHarness,
) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(
            harness.service.ask_person, RESUMED_SCOPE, "Which colour?", (), harness.emit
        )
        await harness.wait_for_question()
        await harness.service.reply(OWNER_ANSWERER, "blue, please")
    left = await harness.restart().recover("s1", resumed=True)
    assert "'blue, please'" in left.results["call_1"]


async def test_shutdown_suspends_resumable_turns(harness: ApprovalHarness) -> None:
    await harness.queue_turn()
    put_off = anyio.Event()

    async def ask() -> None:
        with pytest.raises(TurnSuspended):
            await harness.decide(scope=RESUMED_SCOPE)
        put_off.set()

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            group.start_soon(harness.decide, APPROVAL_REQUEST, structs.replace(SCOPE, session="s2"))
            await harness.wait_for_question(2)
            harness.service.prepare_shutdown()
            await put_off.wait()
            # A turn that cannot be resumed keeps its timeout.
            assert await harness.service.would_answer(
                structs.replace(OWNER_ANSWERER, session="s2"), "yes"
            )
            group.cancel_scope.cancel()
    assert await harness.restart().would_answer(OWNER_ANSWERER, "yes")


async def test_answer_taken_by_another_process_is_found(harness: ApprovalHarness) -> None:
    pending = PendingApproval(harness)
    asking = harness.service
    async with anyio.create_task_group() as group:
        group.start_soon(pending.run)
        await harness.wait_for_question()
        other = harness.restart()
        harness.service = asking
        assert (await other.answer(OWNER_ANSWERER, ApprovalChoice.ONCE)).count == 1
        with anyio.fail_after(60):
            while pending.decision is None:
                await harness.clock.advance(1)
    assert pending.decision.allowed


async def test_closed_questions_are_deleted_after_retention(harness: ApprovalHarness) -> None:
    await answer_request(harness, ApprovalChoice.ALWAYS)
    await harness.clock.advance(40 * 24 * 3600)
    await harness.service.delete_old()
    assert await harness.store.approvals.questions("s1") == []
    assert len(await harness.service.saved_approvals()) == 1
