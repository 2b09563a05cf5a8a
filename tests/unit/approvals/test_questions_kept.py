"""Questions that outlive the process that asked: asked once, used once, and not for long."""

import anyio
import pytest
from msgspec import structs

from hermes.approvals.approval_store import ApprovalStore, QuestionRecord
from hermes.approvals.messages import NOT_RUN
from hermes.approvals.questions import ForwardedQuestions, QuestionWaiter
from hermes.ports.approvals import ApprovalRequest, Isolation, RecoveredQuestions, TurnSuspended
from hermes.ports.records import PutRecord
from hermes.ports.store import CompleteItem
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

pytestmark = pytest.mark.anyio


async def cut_off(
    house: ApprovalHarness, scope: Scope = RESUMED_SCOPE, wish: ApprovalRequest = APPROVAL_REQUEST
) -> None:
    """The process ends while it asks; nothing is written any more."""
    await house.begun()
    async with anyio.create_task_group() as group:
        group.start_soon(house.rule, wish, scope)
        await house.asked()
        house.desk.leave()
        group.cancel_scope.cancel()
    house.opened()


async def test_a_question_that_outlives_its_process_is_not_asked_twice(
    house: ApprovalHarness,
) -> None:
    await cut_off(house)
    (first,) = house.questions
    decision = await answer_request(house, ApprovalChoice.ONCE)
    assert decision.allowed
    assert [one.id for one in house.questions] == [first.id, first.id]
    assert (await answer_request(house, ApprovalChoice.DENY)).allowed is False
    assert house.questions[-1].id != first.id


async def test_what_was_answered_meanwhile_counts_exactly_once(house: ApprovalHarness) -> None:
    await cut_off(house)
    heard = await house.desk.answer(OWNER_ANSWERER, ApprovalChoice.ONCE)
    assert heard.count == 1
    assert (await house.rule(scope=RESUMED_SCOPE)).allowed
    assert len(house.questions) == 1
    alone = structs.replace(SCOPE, attended=False)
    assert not (await house.rule(scope=alone)).allowed


async def test_a_yes_does_not_count_for_what_has_changed_since(house: ApprovalHarness) -> None:
    """Neither for another kind of leave, nor where what it was given for is no longer the same."""
    wish = ApprovalRequest(
        tool="t", action="t {}", reaching=Isolation.BEYOND, kind="every call", seal="old"
    )
    await cut_off(house, wish=wish)
    assert (await house.desk.answer(OWNER_ANSWERER, ApprovalChoice.ONCE)).count == 1
    alone = structs.replace(RESUMED_SCOPE, attended=False)
    for other in (structs.replace(wish, seal="new"), structs.replace(wish, kind="this call")):
        assert not (await house.rule(other, alone)).allowed
    assert (await house.rule(wish, RESUMED_SCOPE)).allowed


async def test_an_old_answer_does_not_count(house: ApprovalHarness) -> None:
    await cut_off(house)
    await house.desk.answer(OWNER_ANSWERER, ApprovalChoice.ONCE)
    await house.clock.advance(3600)
    alone = structs.replace(SCOPE, attended=False)
    assert not (await house.rule(scope=alone)).allowed


async def test_too_late_after_a_restart(house: ApprovalHarness) -> None:
    await cut_off(house, SCOPE)
    await house.clock.advance(61)
    heard = await house.desk.answer(OWNER_ANSWERER, ApprovalChoice.ONCE)
    assert heard.told.startswith("Too late")


@pytest.mark.parametrize("why", ["nothing can take it up", "it was stopped", "another session"])
async def test_nobody_waits_for_what_is_not_taken_up_again(
    house: ApprovalHarness, why: str
) -> None:
    await cut_off(
        house,
        structs.replace(RESUMED_SCOPE, call="") if why.startswith("nothing") else RESUMED_SCOPE,
    )
    who = (
        structs.replace(OWNER_ANSWERER, session="s2")
        if why.startswith("another")
        else OWNER_ANSWERER
    )
    if why == "it was stopped":
        await house.store.commit(CompleteItem(f"letter for {RESUMED_SCOPE.key}"))
    assert not await house.desk.takes(who, "yes")
    assert (await house.desk.answer(who, ApprovalChoice.ONCE)).count == 0
    await house.desk.sweep()
    assert await house.desk.waits() is why.startswith("another")


async def test_words_are_no_answer_to_what_nobody_waits_for(house: ApprovalHarness) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(house.desk.inquire, SCOPE, "Which colour?", ("red",), house.tell)
        await house.asked()
        house.desk.leave()
        group.cancel_scope.cancel()
    house.opened()
    assert not await house.desk.takes(OWNER_ANSWERER, "please also buy milk")


async def test_a_turn_that_goes_on_asks_again_and_uses_what_was_answered(
    house: ApprovalHarness,
) -> None:
    await cut_off(house)
    assert await house.desk.left("s1", resumed=True) == RecoveredQuestions(
        waiting=frozenset({"call_1"})
    )
    assert await house.desk.takes(OWNER_ANSWERER, "yes")
    assert (await house.desk.answer(OWNER_ANSWERER, ApprovalChoice.ONCE)).count == 1
    assert await house.rule(scope=RESUMED_SCOPE) == ALLOWED
    assert len(house.questions) == 1
    # Now it was begun, and nobody knows how far it came.
    assert await house.opened().left("s1", resumed=True) == RecoveredQuestions()


async def test_there_is_no_moment_in_which_nobody_hears_of_the_answer(
    house: ApprovalHarness,
) -> None:
    """A row that names us as who does is never written before we do."""
    await cut_off(house)
    seen: list[bool] = []

    class Watched(ApprovalStore):
        async def change(
            self,
            before: QuestionRecord | None,
            after: QuestionRecord,
            *more: PutRecord,
            let_go: bool = False,
        ) -> bool:
            seen.append(waiting.has(after.question.id))
            return await super().change(before, after, *more, let_go=let_go)

    rows = Watched(house.store, house.clock, "us")
    waiting = QuestionWaiter(rows, house.clock, ForwardedQuestions(rows, house.clock, "us"))
    assert (await waiting.left("s1", resumed=True)).waiting == {"call_1"}
    (row,) = await rows.all_open()
    async with anyio.create_task_group() as group:
        group.start_soon(waiting.put, RESUMED_SCOPE, row, house.tell)
        await house.asked(2)
        group.cancel_scope.cancel()
    # When it is taken up, when it is asked again, and when its turn is ended.
    assert seen == [True, True, True]


@pytest.mark.parametrize("resumed", [True, False])
async def test_a_turn_that_does_not_ask_again_closes_the_question(
    house: ApprovalHarness, *, resumed: bool
) -> None:
    await cut_off(house)
    left = await house.desk.left("s1", resumed=resumed)
    assert left == (
        RecoveredQuestions(waiting=frozenset({"call_1"}))
        if resumed
        else RecoveredQuestions(told={"call_1": NOT_RUN})
    )
    await house.desk.over("s1")
    assert not await house.desk.waits()
    assert await house.opened().left("s1", resumed=True) == RecoveredQuestions(
        told={"call_1": NOT_RUN}
    )


async def test_what_needs_no_leave_any_more_is_asked_no_more(house: ApprovalHarness) -> None:
    await cut_off(house)
    desk = house.opened(yolo=True)
    await desk.left("s1", resumed=True)
    assert (await house.rule(scope=RESUMED_SCOPE)).allowed
    assert not await desk.waits()


@pytest.mark.parametrize(
    ("choice", "told"), [(ApprovalChoice.DENY, "a person refused"), (ApprovalChoice.ONCE, "")]
)
async def test_what_was_decided_is_told_of_a_call_that_came_to_no_end(
    house: ApprovalHarness, choice: ApprovalChoice, told: str
) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(house.rule, APPROVAL_REQUEST, RESUMED_SCOPE)
        await house.asked()
        await house.desk.answer(OWNER_ANSWERER, choice)
    left = await house.opened().left("s1", resumed=True)
    assert (told in left.told["call_1"]) if told else (left == RecoveredQuestions())


async def test_what_a_person_said_is_told_of_a_call_that_came_to_no_end(
    house: ApprovalHarness,
) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(house.desk.inquire, RESUMED_SCOPE, "Which colour?", (), house.tell)
        await house.asked()
        await house.desk.reply(OWNER_ANSWERER, "blue, please")
    left = await house.opened().left("s1", resumed=True)
    assert "'blue, please'" in left.told["call_1"]


async def test_a_closing_house_puts_off_what_only_waits(house: ApprovalHarness) -> None:
    await house.begun()
    put_off = anyio.Event()

    async def ask() -> None:
        with pytest.raises(TurnSuspended):
            await house.rule(scope=RESUMED_SCOPE)
        put_off.set()

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            group.start_soon(house.rule, APPROVAL_REQUEST, structs.replace(SCOPE, session="s2"))
            await house.asked(2)
            house.desk.leave()
            await put_off.wait()
            # A turn that is not taken up again is given its time.
            assert await house.desk.takes(structs.replace(OWNER_ANSWERER, session="s2"), "yes")
            group.cancel_scope.cancel()
    assert await house.opened().takes(OWNER_ANSWERER, "yes")


async def test_an_answer_that_another_process_took_is_found(house: ApprovalHarness) -> None:
    under_way = PendingApproval(house)
    asking = house.desk
    async with anyio.create_task_group() as group:
        group.start_soon(under_way.run)
        await house.asked()
        other = house.opened()
        house.desk = asking
        assert (await other.answer(OWNER_ANSWERER, ApprovalChoice.ONCE)).count == 1
        with anyio.fail_after(60):
            while under_way.decision is None:
                await house.clock.advance(1)
    assert under_way.decision.allowed


async def test_what_is_over_is_forgotten_after_a_while(house: ApprovalHarness) -> None:
    await answer_request(house, ApprovalChoice.ALWAYS)
    await house.clock.advance(40 * 24 * 3600)
    await house.desk.forget_old()
    assert await house.store.records.find("question") == []
    assert len(await house.desk.grants()) == 1
