"""Reviews run after due turns and save what is worth keeping."""

import asyncio
from pathlib import Path

import anyio
import pytest
from msgspec import structs

from hermes.learning.review.reviewer import (
    ALLOWED_TOOLS,
    MAX_STEPS,
    ReviewedTurn,
    Reviewer,
    conversation_digest,
)
from hermes.learning.review.scheduler import (
    MAX_CONCURRENT,
    MAX_WAITING,
    NotificationLevel,
    ReviewRules,
)
from hermes.learning.review.triggers import DueReviews, ReviewIntervals
from hermes.ports.ledger import Author
from hermes.schema.errors import ModelError
from hermes.schema.events import Outcome, RunEnded
from hermes.schema.messages import Text, Trust, Usage, User, text_of
from hermes.schema.scope import OWNER, Role
from hermes.schema.tools import ToolSpec
from hermes.session.turn_request import TurnRequest
from hermes.store.memory import MemoryDatabase
from hermes.testing.scripted_model import Script, ScriptedModel, answer_script
from hermes.tools.memory import MemoryTool
from hermes.tools.skills import SkillManage
from support.conversation import HANGING_SCRIPT, run_turn
from support.learning import (
    finished_reviews,
    learning_harness,
    make_call,
    wait_for_reviews,
    wait_until,
)
from support.turns import assistant_message, tool_call, user_message

EACH = ReviewRules(intervals=ReviewIntervals(memory=1, skills=0))
SKILL = "---\nname: tea\ndescription: How to make tea.\n---\n\nHeat water.\n"


def keeps(text: str, target: str = "user") -> Script:
    return [assistant_message(tool_call("memory", target=target, action="add", content=text))]


async def test_no_review_below_the_threshold(tmp_path: Path) -> None:
    rules = ReviewRules(intervals=ReviewIntervals(memory=2, skills=2))
    async with learning_harness(tmp_path, answer_script("Hello."), rules=rules) as one:
        await one.talk.submit("hi")
        await wait_for_reviews(one)
        assert await one.sessions("review") == []
        assert len(one.talk.model.requests) == 1


async def test_saved_change_is_announced_and_can_be_undone(tmp_path: Path) -> None:
    scripts = [
        answer_script("Hello."),
        keeps("prefers short answers"),
        answer_script("Nothing more."),
    ]
    async with learning_harness(tmp_path, *scripts, rules=EACH) as one:
        await one.talk.submit("Be brief with me, please.")
        (session,) = await finished_reviews(one)
        assert one.files() == {"memories/USER.md": b"prefers short answers"}
        (entry,) = await one.learning.ledger.log()
        assert entry.change.by is Author.REVIEW
        assert (entry.change.origin.session, session.parent) == (
            session.id,
            one.talk.conversation.session.id,
        )
        (notice,) = one.notices
        assert notice.startswith("💾")
        assert "prefers short answers" in notice
        assert "/changes" in notice
        await one.learning.ledger.undo(entry.change.id)
        assert one.files() == {}


@pytest.mark.parametrize("how", ["undone", "rejected"])
async def test_undone_change_is_not_saved_again(tmp_path: Path, how: str) -> None:
    def tea() -> Script:
        create = make_call("skill_manage", action="create", name="tea", content=SKILL)
        return [
            assistant_message(
                tool_call("memory", target="user", action="add", content="Likes tea."), create
            )
        ]

    again = [
        assistant_message(tool_call("memory", target="memory", action="add", content="likes  tea"))
    ]
    scripts: list[Script] = [
        answer_script("Hello."), tea(), answer_script("Kept."), answer_script("Yes?"), tea(), again,
        answer_script("Kept."),
    ]  # fmt: skip
    async with learning_harness(tmp_path, *scripts, rules=EACH) as one:
        ledger = one.learning.ledger
        if how == "rejected":
            notebook, editor = one.learning.memory_store, one.learning.skill_editor
            memory = MemoryTool(notebook, lambda: True)
            manage = SkillManage(editor, lambda: True)
            one.talk.planner.tools = {**one.tools, "memory": memory, "skill_manage": manage}
        await one.talk.submit("I like tea.")
        await finished_reviews(one)
        for proposal in await ledger.waiting():
            await ledger.decide(proposal, accepted=False)
        for entry in await ledger.log():
            await ledger.undo(entry.change.id)
        assert one.files() == {}
        await one.talk.submit("Now to something else.")
        await finished_reviews(one, 2)
        assert one.files() == {}
        assert await ledger.waiting() == []
        messages = [text_of(message) for message in one.talk.model.requests[-1].messages]
        assert sum("undid this before" in text for text in messages) == 3
        assert len(one.notices) == 1


async def test_review_reuses_the_sessions_prompt_prefix(tmp_path: Path) -> None:
    """Prompt, tools and messages are sent unchanged, plus one more message."""
    scripts = [
        [assistant_message(tool_call("read_file", path="a"))], answer_script("Done."),
        answer_script("Nothing to keep."),
    ]  # fmt: skip
    async with learning_harness(tmp_path, *scripts, content="text", rules=EACH) as one:
        await one.talk.submit("look into a")
        await finished_reviews(one)
        first, last, review = one.talk.model.requests
        assert review.system == last.system == first.system
        assert list(review.tools) == list(last.tools)
        assert list(review.messages)[: len(last.messages)] == list(last.messages)
        *_, answered, question = review.messages
        assert text_of(answered) == "Done."
        assert isinstance(question, User)
        assert question.trust is Trust.PROGRAM


async def test_review_does_not_write_to_the_reviewed_session(tmp_path: Path) -> None:
    scripts = [answer_script("Hello."), keeps("likes tea"), answer_script("Done.")]
    async with learning_harness(tmp_path, *scripts, rules=EACH) as one:
        await one.talk.submit("I like tea")
        (session,) = await finished_reviews(one)
        assert [text_of(row.message) for row in await one.talk.rows()] == ["I like tea", "Hello."]
        archive = one.talk.store.archive_for(OWNER)
        messages = await archive.messages(session.id)
        assert len(messages) == 4
        assert "I like tea" not in text_of(messages[0].message)


async def test_only_memory_and_skill_tools_work(tmp_path: Path) -> None:
    others = ["read_file", "terminal", "web_extract", "execute_code", "delegate_task"]
    calls = assistant_message(*(tool_call(name, path="x") for name in others))
    async with learning_harness(
        tmp_path, answer_script("Hello."), [calls], answer_script("Ah."), rules=EACH
    ) as one:
        await one.talk.submit("hi")
        await finished_reviews(one)
        results = [text_of(message) for message in one.talk.model.requests[-1].messages[-5:]]
        assert all("only memory and skills" in text for text in results)
        assert [one.tools[name].asked for name in others] == [[]] * 5  # type: ignore[attr-defined]
        assert set(ALLOWED_TOOLS) <= {spec.name for spec in one.talk.model.requests[-1].tools}


async def test_review_writes_a_skill(tmp_path: Path) -> None:
    write = [
        assistant_message(make_call("skill_manage", action="create", name="tea", content=SKILL))
    ]
    steps: list[Script] = [
        [assistant_message(tool_call("read_file", path=f"f{n}"))] for n in range(3)
    ]
    rules = ReviewRules(intervals=ReviewIntervals(memory=0, skills=3))
    async with learning_harness(
        tmp_path,
        *steps,
        answer_script("Done."),
        write,
        answer_script("Kept."),
        content="x",
        rules=rules,
    ) as one:
        await one.talk.submit("make tea")
        await finished_reviews(one)
        assert one.files() == {"skills/tea/SKILL.md": SKILL.encode()}
        assert one.learning.usage.get("tea").created_by == "agent"
        assert "read_file f2" in one.notices[0]


async def test_review_ends_after_max_steps(tmp_path: Path) -> None:
    endless = [keeps(f"fact number {number}") for number in range(MAX_STEPS)]
    async with learning_harness(
        tmp_path, answer_script("Hello."), *endless, answer_script("Enough."), rules=EACH
    ) as one:
        await one.talk.submit("hi")
        await finished_reviews(one)
        assert len(one.talk.model.requests) == 1 + MAX_STEPS + 1


async def test_review_usage_is_recorded(tmp_path: Path) -> None:
    spent = assistant_message("Nothing to keep.", usage=Usage(100, 5))
    async with learning_harness(tmp_path, answer_script("Hello."), [spent], rules=EACH) as one:
        await one.talk.submit("hi")
        (session,) = await finished_reviews(one)
        (use,) = await one.talk.store.archive_for(OWNER).usage(session.id)
        assert (use.usage.input, use.usage.output, use.cost) == (100, 5, 0.005)


async def test_failed_review_is_not_announced(tmp_path: Path) -> None:
    scripts: list[Script] = [
        answer_script("Hello."),
        [ModelError("no")],
        answer_script("Again."),
        answer_script("Nothing."),
    ]
    async with learning_harness(tmp_path, *scripts, rules=EACH) as one:
        await one.talk.submit("hi")
        await finished_reviews(one)
        assert one.notices == []
        await one.talk.submit("hi again")
        await finished_reviews(one, 2)
        assert len(one.talk.model.requests) == 4


async def test_review_does_not_block_turns_or_run_twice(tmp_path: Path) -> None:
    async with learning_harness(
        tmp_path, answer_script("One."), HANGING_SCRIPT, answer_script("Two."), rules=EACH
    ) as one:
        await one.talk.submit("first")
        await wait_until(lambda: len(one.talk.model.requests) == 2)
        await one.talk.submit("second")
        assert len(one.talk.model.requests) == 3
        assert len(await one.sessions("review")) == 1


async def test_waiting_reviews_are_queued_and_limited(tmp_path: Path) -> None:
    async with learning_harness(
        tmp_path, answer_script("One."), HANGING_SCRIPT, HANGING_SCRIPT, rules=EACH
    ) as one:
        await one.talk.submit("first")
        await wait_until(lambda: len(one.talk.model.requests) == 2)
        tasks = len(asyncio.all_tasks())
        for number in range(MAX_WAITING + 10):
            session = structs.replace(one.talk.conversation.session, id=f"s-{number}")
            turn = TurnRequest(session=session, message=user_message("hi"))
            one.reviews.turn_ended(turn, RunEnded("", Outcome.DONE))
        assert len(one.reviews.active_sessions) == MAX_WAITING + 1
        assert len(asyncio.all_tasks()) == tasks + MAX_CONCURRENT - 1


async def test_shutdown_ends_the_review(tmp_path: Path) -> None:
    with anyio.fail_after(60):
        async with learning_harness(
            tmp_path, answer_script("One."), HANGING_SCRIPT, rules=EACH
        ) as one:
            await one.talk.submit("first")
            await wait_until(lambda: len(one.talk.model.requests) == 2)
    assert one.talk.model.abandoned_streams == 1


@pytest.mark.parametrize(
    ("role", "source", "bare"),
    [
        (Role.GUEST, "", False),
        (Role.MEMBER, "", False),
        (Role.OWNER, "subagent", False),
        (Role.OWNER, "cron", False),
        (Role.OWNER, "review", False),
        (Role.OWNER, "", True),
    ],
)
async def test_only_the_owners_turns_are_reviewed(
    tmp_path: Path, role: Role, source: str, bare: bool
) -> None:
    async with learning_harness(tmp_path, answer_script("Hello."), rules=EACH) as one:
        session = one.talk.conversation.session
        turn = TurnRequest(
            session=session, message=user_message("hi"), new=True,
            role=role, principal="" if role is Role.OWNER else "telegram:5",
            source=source, no_tools=bare,
        )  # fmt: skip
        await run_turn(one.talk.runner, turn)
        await wait_for_reviews(one)
        assert len(one.talk.model.requests) == 1


async def test_turn_with_client_tools_is_not_reviewed(tmp_path: Path) -> None:
    async with learning_harness(tmp_path, answer_script("Hello."), rules=EACH) as one:
        turn = TurnRequest(
            session=one.talk.conversation.session,
            message=user_message("hi"),
            new=True,
            client_tools=(ToolSpec("theirs", "A tool of theirs.", {"type": "object"}),),
        )
        await run_turn(one.talk.runner, turn)
        await wait_for_reviews(one)
        assert len(one.talk.model.requests) == 1


@pytest.mark.parametrize("how", list(NotificationLevel))
async def test_notification_level_applies(tmp_path: Path, how: NotificationLevel) -> None:
    rules = structs.replace(EACH, notifications=how)
    scripts = [answer_script("Hello."), keeps("likes tea"), answer_script("Done.")]
    async with learning_harness(tmp_path, *scripts, rules=rules) as one:
        await one.talk.submit("I like tea")
        await finished_reviews(one)
        assert len(one.notices) == (how is not NotificationLevel.OFF)
        assert any("+likes tea" in text for text in one.notices) == (
            how is NotificationLevel.VERBOSE
        )
        assert one.files()


async def test_restart_does_not_reset_the_count(tmp_path: Path, database: MemoryDatabase) -> None:
    rules = ReviewRules(intervals=ReviewIntervals(memory=3, skills=0))
    async with learning_harness(
        tmp_path, answer_script("One."), answer_script("Two."), rules=rules, database=database
    ) as one:
        await one.talk.submit("first")
        await one.talk.submit("second")
        await wait_for_reviews(one)
        session = one.talk.conversation.session.id
    again = [answer_script("Three."), answer_script("Nothing to keep."), answer_script("Four.")]
    async with learning_harness(tmp_path, *again, rules=rules, database=database) as one:
        await one.talk.conversation.resume(session)
        await one.talk.submit("third")
        await finished_reviews(one)
        await one.talk.submit("fourth")
        await finished_reviews(one)


async def test_content_of_a_guest_becomes_a_proposal(tmp_path: Path) -> None:
    """Also if they were in another turn than the reviewed one."""
    scripts: list[Script] = [
        answer_script("Hello."),
        answer_script("Yes?"),
        keeps("likes tea"),
        answer_script("Done."),
    ]
    async with learning_harness(tmp_path, *scripts, rules=EACH) as one:
        session = one.talk.conversation.session
        guest = User("msg_g", (Text("Ann likes tea."),), Trust.GUEST)
        turn = TurnRequest(
            session=session, message=guest, new=True,
            role=Role.GUEST, principal="telegram:5",
        )  # fmt: skip
        await run_turn(one.talk.runner, turn)
        await one.talk.conversation.resume(session.id)
        await one.talk.submit("hello")
        await finished_reviews(one)
        assert one.files() == {}
        (proposal,) = await one.learning.ledger.waiting()
        assert "Ann likes tea" in proposal.origin.sources[0]
        assert "needs your decision" in one.notices[0]
        await one.learning.accept(proposal)
        assert one.files() == {"memories/USER.md": b"likes tea"}


async def test_other_model_gets_a_digest_and_knows_the_sources(tmp_path: Path) -> None:
    other = ScriptedModel(keeps("They like tea"), answer_script("Done."), name="other")

    async def choose() -> ScriptedModel:
        return other

    scripts: list[Script] = [
        [assistant_message(tool_call("web_extract", url="u"))],
        answer_script("Read."),
    ]
    async with learning_harness(tmp_path, *scripts, content="tea") as one:
        await one.talk.submit("read u")
        reviewer = Reviewer(structs.replace(one.review_parts(), model=choose))
        occasion = ReviewedTurn(session=one.talk.conversation.session.id, source="cli")
        findings = await reviewer.review(occasion, DueReviews(memory=True))
        request = other.requests[0]
        assert {spec.name for spec in request.tools} == set(ALLOWED_TOOLS)
        assert len(request.messages) == 1
        text = text_of(request.messages[0])
        assert "The person: read u" in text
        assert "A tool: tea" in text
        assert not findings.changes
        (proposal,) = findings.proposals
        assert proposal.origin.sources == ("web_extract u",)


def test_digest_contains_the_last_messages() -> None:
    text = conversation_digest(
        [user_message(f"message {number} " + "x" * 5000) for number in range(30)]
    )
    assert "6 earlier messages" in text
    assert "message 5 " not in text
    assert "message 6 " in text
    assert len(text) < 110_000
