"""Questions that outlive the process that asked: asked once, used once, and not for long."""

import anyio
import pytest
from msgspec import structs

from desks import ALLOWED, ME, SCOPE, TURN, WISH, House, UnderWay, answered
from hermes.approvals.rows import QuestionRow, Rows
from hermes.approvals.waiting import Carrying, Waiting
from hermes.approvals.wording import NOT_RUN
from hermes.ports.counsel import Left, PutOff, Reaching, Wish
from hermes.ports.matters import PutMatter
from hermes.ports.store import Done
from hermes.schema.questions import Choice
from hermes.schema.scope import Scope

pytestmark = pytest.mark.anyio


async def cut_off(house: House, scope: Scope = TURN, wish: Wish = WISH) -> None:
    """The process ends while it asks; nothing is written any more."""
    await house.begun()
    async with anyio.create_task_group() as group:
        group.start_soon(house.rule, wish, scope)
        await house.asked()
        house.desk.leave()
        group.cancel_scope.cancel()
    house.opened()


async def test_a_question_that_outlives_its_process_is_not_asked_twice(house: House) -> None:
    await cut_off(house)
    (first,) = house.questions
    ruling = await answered(house, Choice.ONCE)
    assert ruling.allowed
    assert [one.id for one in house.questions] == [first.id, first.id]
    assert (await answered(house, Choice.DENY)).allowed is False
    assert house.questions[-1].id != first.id


async def test_what_was_answered_meanwhile_counts_exactly_once(house: House) -> None:
    await cut_off(house)
    heard = await house.desk.answer(ME, Choice.ONCE)
    assert heard.count == 1
    assert (await house.rule(scope=TURN)).allowed
    assert len(house.questions) == 1
    alone = structs.replace(SCOPE, attended=False)
    assert not (await house.rule(scope=alone)).allowed


async def test_a_yes_does_not_count_for_what_has_changed_since(house: House) -> None:
    """Neither for another kind of leave, nor where what it was given for is no longer the same."""
    wish = Wish(tool="t", action="t {}", reaching=Reaching.BEYOND, kind="every call", seal="old")
    await cut_off(house, wish=wish)
    assert (await house.desk.answer(ME, Choice.ONCE)).count == 1
    alone = structs.replace(TURN, attended=False)
    for other in (structs.replace(wish, seal="new"), structs.replace(wish, kind="this call")):
        assert not (await house.rule(other, alone)).allowed
    assert (await house.rule(wish, TURN)).allowed


async def test_an_old_answer_does_not_count(house: House) -> None:
    await cut_off(house)
    await house.desk.answer(ME, Choice.ONCE)
    await house.clock.advance(3600)
    alone = structs.replace(SCOPE, attended=False)
    assert not (await house.rule(scope=alone)).allowed


async def test_too_late_after_a_restart(house: House) -> None:
    await cut_off(house, SCOPE)
    await house.clock.advance(61)
    heard = await house.desk.answer(ME, Choice.ONCE)
    assert heard.told.startswith("Too late")


@pytest.mark.parametrize("why", ["nothing can take it up", "it was stopped", "another session"])
async def test_nobody_waits_for_what_is_not_taken_up_again(house: House, why: str) -> None:
    await cut_off(house, structs.replace(TURN, call="") if why.startswith("nothing") else TURN)
    who = structs.replace(ME, session="s2") if why.startswith("another") else ME
    if why == "it was stopped":
        await house.store.commit(Done(f"letter for {TURN.key}"))
    assert not await house.desk.takes(who, "yes")
    assert (await house.desk.answer(who, Choice.ONCE)).count == 0
    await house.desk.sweep()
    assert await house.desk.waits() is why.startswith("another")


async def test_words_are_no_answer_to_what_nobody_waits_for(house: House) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(house.desk.inquire, SCOPE, "Which colour?", ("red",), house.tell)
        await house.asked()
        house.desk.leave()
        group.cancel_scope.cancel()
    house.opened()
    assert not await house.desk.takes(ME, "please also buy milk")


async def test_a_turn_that_goes_on_asks_again_and_uses_what_was_answered(house: House) -> None:
    await cut_off(house)
    assert await house.desk.left("s1", resumed=True) == Left(waiting=frozenset({"call_1"}))
    assert await house.desk.takes(ME, "yes")
    assert (await house.desk.answer(ME, Choice.ONCE)).count == 1
    assert await house.rule(scope=TURN) == ALLOWED
    assert len(house.questions) == 1
    # Now it was begun, and nobody knows how far it came.
    assert await house.opened().left("s1", resumed=True) == Left()


async def test_there_is_no_moment_in_which_nobody_hears_of_the_answer(house: House) -> None:
    """A row that names us as who does is never written before we do."""
    await cut_off(house)
    seen: list[bool] = []

    class Watched(Rows):
        async def change(
            self,
            before: QuestionRow | None,
            after: QuestionRow,
            *more: PutMatter,
            let_go: bool = False,
        ) -> bool:
            seen.append(waiting.has(after.question.id))
            return await super().change(before, after, *more, let_go=let_go)

    rows = Watched(house.store, house.clock, "us")
    waiting = Waiting(rows, house.clock, Carrying(rows, house.clock, "us"))
    assert (await waiting.left("s1", resumed=True)).waiting == {"call_1"}
    (row,) = await rows.open_everywhere()
    async with anyio.create_task_group() as group:
        group.start_soon(waiting.put, TURN, row, house.tell)
        await house.asked(2)
        group.cancel_scope.cancel()
    # When it is taken up, when it is asked again, and when its turn is ended.
    assert seen == [True, True, True]


@pytest.mark.parametrize("resumed", [True, False])
async def test_a_turn_that_does_not_ask_again_closes_the_question(
    house: House, *, resumed: bool
) -> None:
    await cut_off(house)
    left = await house.desk.left("s1", resumed=resumed)
    assert left == (
        Left(waiting=frozenset({"call_1"})) if resumed else Left(told={"call_1": NOT_RUN})
    )
    await house.desk.over("s1")
    assert not await house.desk.waits()
    assert await house.opened().left("s1", resumed=True) == Left(told={"call_1": NOT_RUN})


async def test_what_needs_no_leave_any_more_is_asked_no_more(house: House) -> None:
    await cut_off(house)
    desk = house.opened(yolo=True)
    await desk.left("s1", resumed=True)
    assert (await house.rule(scope=TURN)).allowed
    assert not await desk.waits()


@pytest.mark.parametrize(("choice", "told"), [(Choice.DENY, "a person refused"), (Choice.ONCE, "")])
async def test_what_was_decided_is_told_of_a_call_that_came_to_no_end(
    house: House, choice: Choice, told: str
) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(house.rule, WISH, TURN)
        await house.asked()
        await house.desk.answer(ME, choice)
    left = await house.opened().left("s1", resumed=True)
    assert (told in left.told["call_1"]) if told else (left == Left())


async def test_what_a_person_said_is_told_of_a_call_that_came_to_no_end(house: House) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(house.desk.inquire, TURN, "Which colour?", (), house.tell)
        await house.asked()
        await house.desk.reply(ME, "blue, please")
    left = await house.opened().left("s1", resumed=True)
    assert "'blue, please'" in left.told["call_1"]


async def test_a_closing_house_puts_off_what_only_waits(house: House) -> None:
    await house.begun()
    put_off = anyio.Event()

    async def ask() -> None:
        with pytest.raises(PutOff):
            await house.rule(scope=TURN)
        put_off.set()

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            group.start_soon(house.rule, WISH, structs.replace(SCOPE, session="s2"))
            await house.asked(2)
            house.desk.leave()
            await put_off.wait()
            # A turn that is not taken up again is given its time.
            assert await house.desk.takes(structs.replace(ME, session="s2"), "yes")
            group.cancel_scope.cancel()
    assert await house.opened().takes(ME, "yes")


async def test_an_answer_that_another_process_took_is_found(house: House) -> None:
    under_way = UnderWay(house)
    asking = house.desk
    async with anyio.create_task_group() as group:
        group.start_soon(under_way.run)
        await house.asked()
        other = house.opened()
        house.desk = asking
        assert (await other.answer(ME, Choice.ONCE)).count == 1
        with anyio.fail_after(60):
            while under_way.ruling is None:
                await house.clock.advance(1)
    assert under_way.ruling.allowed


async def test_what_is_over_is_forgotten_after_a_while(house: House) -> None:
    await answered(house, Choice.ALWAYS)
    await house.clock.advance(40 * 24 * 3600)
    await house.desk.forget_old()
    assert await house.store.matters.find("question") == []
    assert len(await house.desk.grants()) == 1
