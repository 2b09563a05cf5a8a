"""A reply to a question's post answers that question, however many others are open."""

from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from hermes.approvals.messages import ASKED_ELSEWHERE
from hermes.approvals.policy import ApprovalRules
from hermes.approvals.service import ApprovalService
from hermes.gateway.messages import (
    Admitted,
    InboxMessage,
    Rejected,
)
from hermes.gateway.questions import RETENTION, QuestionAnswers, QuestionPosts
from hermes.ports.approvals import ApprovalRequest, Isolation
from hermes.ports.channel import ChannelCapabilities, Inbound
from hermes.ports.tool import ToolContext
from hermes.schema.messages import Result, Trust, User, text_of
from hermes.schema.questions import QuestionKind
from hermes.schema.scope import Address, Role
from hermes.schema.tools import Effect
from hermes.testing.channel import FakeFaultyChannel
from hermes.testing.clock import FakeClock
from hermes.testing.scripted_model import answer_script
from support.gateway import (
    SESSION_KEY,
    GatewayHarness,
    chat_sessions,
    gateway_harness,
    make_inbound,
    session_key_of,
    wait_until,
)
from support.turns import FakeTool, assistant_message, tool_call

RULES = ApprovalRules(home="/home/me")
HOME = Address("fake", "9")


async def act(args: dict[str, Any], context: ToolContext) -> str:
    request = ApprovalRequest(  # noqa: S604 - a word of our own
        tool="shell", action=args["command"], reaching=Isolation.OPEN, shell=True, folder="/work"
    )
    decision = await context.request_approval(request)
    return "done" if decision.allowed else decision.why


async def clarify(args: dict[str, Any], context: ToolContext) -> str:
    return str(await context.ask_person(args["question"], ()))


TOOLS = [
    FakeTool("shell", act, effect=Effect.OUTSIDE),
    FakeTool("clarify", clarify, effect=Effect.WRITE),
]


def request_script(command: str):
    return [assistant_message(tool_call("shell", command=command))]


async def separate_chats(inbound: Inbound) -> Admitted | Rejected:
    """Ann is the owner; others are members, each in a separate chat."""
    if inbound.sender == "ann":
        return Admitted(key=session_key_of(inbound))
    return Admitted(key=session_key_of(inbound), principal=inbound.sender, role=Role.MEMBER)


async def say(harness: GatewayHarness, text: str, key: str, **more: str) -> None:
    sender, chat = more.get("sender", "ann"), more.get("chat", "1")
    inbound = structs.replace(make_inbound(text, key, chat=chat), sender=sender)
    await harness.gateway.intake.accept(structs.replace(inbound, reply_to=more.get("to")))


async def post_with(harness: GatewayHarness, words: str, chat: str) -> str:
    """Return the id of the post with this text, once it is stored as delivered."""

    def found() -> list[str]:
        posts = harness.channel.posts.items()
        return [one for one, (to, post) in posts if to.chat == chat and words in post.text]

    await wait_until(lambda: bool(found()))
    await wait_until(lambda: not any(one.busy for one in harness.gateway.deliveries.values()))
    return found()[0]


async def results(harness: GatewayHarness, chat: str) -> list[str]:
    return [text_of(one) for one in await harness.transcript(chat) if isinstance(one, Result)]


async def user_texts(harness: GatewayHarness, chat: str) -> list[str]:
    return [text_of(one) for one in await harness.transcript(chat) if isinstance(one, User)]


@pytest.mark.parametrize(
    ("first", "second"), [("yes", "no"), ("no", "yes"), ("/approve", "/deny not now")]
)
async def test_reply_answers_the_question_replied_to(
    tmp_path: Path, first: str, second: str
) -> None:
    scripts = [
        request_script("rm -rf build"),
        request_script("rm -rf dist"),
        answer_script("the end"),
        answer_script("the end"),
    ]
    async with gateway_harness(
        tmp_path,
        *scripts,
        tools=TOOLS,
        approval_rules=RULES,
        authorize=separate_chats,
        owner_chat=HOME,
    ) as harness:
        await say(harness, "clean up", "1", sender="bob", chat="1")
        older = await post_with(harness, "rm -rf build", "9")
        await say(harness, "clean up too", "2", sender="cleo", chat="2")
        newer = await post_with(harness, "rm -rf dist", "9")
        await say(harness, first, "3", chat="9", to=older)
        await wait_until(lambda: harness.channel.texts_in("1")[-1] == "the end")
        assert (await results(harness, "1") == ["done"]) == (first in {"yes", "/approve"})
        assert not await results(harness, "2")
        await say(harness, second, "4", chat="9", to=newer)
        await wait_until(lambda: harness.channel.texts_in("2")[-1] == "the end")
        assert (await results(harness, "2") == ["done"]) == (second in {"yes", "/approve"})


async def test_clarification_and_approval_at_the_same_time(tmp_path: Path) -> None:
    ask = [assistant_message(tool_call("clarify", question="Which colour?"))]
    scripts = [
        request_script("rm -rf build"),
        ask,
        answer_script("the end"),
        answer_script("the end"),
    ]
    async with gateway_harness(
        tmp_path,
        *scripts,
        tools=TOOLS,
        approval_rules=RULES,
        authorize=separate_chats,
        owner_chat=HOME,
    ) as harness:
        await say(harness, "clean up", "1", sender="bob", chat="1")
        leave = await post_with(harness, "rm -rf build", "9")
        await say(harness, "paint", "2", chat="9")
        colour = await post_with(harness, "Which colour?", "9")
        await say(harness, "yes", "3", chat="9", to=colour)
        await wait_until(lambda: harness.channel.texts_in("9")[-1] == "the end")
        assert await results(harness, "9") == ["yes"]
        assert not await results(harness, "1")
        await say(harness, "no", "4", chat="9", to=leave)
        await wait_until(lambda: harness.channel.texts_in("1")[-1] == "the end")
        assert await results(harness, "1") != ["done"]


async def test_undecided_reply_leaves_the_question_open(tmp_path: Path) -> None:
    scripts = [request_script("rm -rf build"), answer_script("the end")]
    async with gateway_harness(tmp_path, *scripts, tools=TOOLS, approval_rules=RULES) as harness:
        await say(harness, "clean up", "1")
        post = await post_with(harness, "rm -rf build", "1")
        await say(harness, "what does that do?", "2", to=post)
        await wait_until(lambda: "Nothing is decided yet" in harness.channel.texts_in("1")[-1])
        await say(harness, "yes", "3", to=post)
        await wait_until(lambda: harness.channel.texts_in("1")[-1] == "the end")
        assert await results(harness, "1") == ["done"]


async def test_reply_to_a_closed_question(tmp_path: Path) -> None:
    """A late yes is refused; other text is a normal message."""
    clock = FakeClock()
    scripts = [request_script("rm -rf build"), answer_script("the end")]
    async with gateway_harness(
        tmp_path, *scripts, tools=TOOLS, approval_rules=RULES, clock=clock
    ) as harness:
        await say(harness, "clean up", "1")
        post = await post_with(harness, "rm -rf build", "1")
        await say(harness, "no", "2", to=post)
        await wait_until(lambda: harness.channel.texts_in("1")[-1] == "the end")
        await harness.wait_until_idle()
        await say(harness, "yes", "3", to=post)
        await wait_until(lambda: "Already answered" in harness.channel.texts_in("1")[-1])
        await say(harness, "then do it by hand", "4", to=post)
        await wait_until(lambda: harness.channel.texts_in("1")[-1] == "re: then do it by hand")


async def test_every_post_of_a_long_question_counts(tmp_path: Path) -> None:
    command = f"rm -rf build # {'x' * 300}"
    channel = FakeFaultyChannel(caps=ChannelCapabilities(max_text=200))
    scripts = [request_script(command), answer_script("the end")]
    async with gateway_harness(
        tmp_path, *scripts, tools=TOOLS, approval_rules=RULES, channel=channel
    ) as harness:
        await say(harness, "clean up", "1")
        await post_with(harness, "rm -rf build", "1")
        posts = list(channel.posts)
        assert len(posts) > 1
        for number, post in enumerate(posts):
            await say(harness, "perhaps", f"p{number}", to=post)
            await wait_until(lambda: "Nothing is decided yet" in channel.texts_in("1")[-1])
        await say(harness, "yes", "2", to=posts[-1])
        await wait_until(lambda: harness.channel.texts_in("1")[-1] == "the end")
        assert await results(harness, "1") == ["done"]


async def test_question_posts_survive_restart_and_expire(tmp_path: Path) -> None:
    clock = FakeClock()
    script = request_script("rm -rf build")
    async with gateway_harness(
        tmp_path, script, tools=TOOLS, approval_rules=RULES, clock=clock
    ) as harness:
        await say(harness, "clean up", "1")
        post = await post_with(harness, "rm -rf build", "1")
        harness.gateway.close()
        await wait_until(lambda: harness.gateway.actors.draining)
    again = [script, answer_script("the end")]
    async with gateway_harness(
        tmp_path, *again, tools=TOOLS, approval_rules=RULES, clock=clock
    ) as harness:
        await wait_until(lambda: len(harness.model.requests) == 1)
        await say(harness, "yes", "2", to=post)
        await wait_until(lambda: harness.channel.texts_in("1")[-1:] == ["the end"])
        assert "done" in await results(harness, "1")
        posts = QuestionPosts(harness.store, clock)
        assert await posts.question_in(Address("fake", "1"), post)
        await clock.advance(RETENTION.total_seconds() + 1)
        await posts.forget_old()
        assert not await posts.question_in(Address("fake", "1"), post)


@pytest.mark.parametrize("words", ["yes", "ok", "always"])
@pytest.mark.parametrize("whose", ["the agent's", "a person's"])
async def test_yes_to_another_post_must_name_the_question(
    tmp_path: Path, words: str, whose: str
) -> None:
    scripts = [
        answer_script("lunch at noon?"),
        request_script("rm -rf build"),
        answer_script("the end"),
    ]
    async with gateway_harness(tmp_path, *scripts, tools=TOOLS, approval_rules=RULES) as harness:
        await say(harness, "hello", "0")
        other = await post_with(harness, "lunch", "1")
        await harness.wait_until_idle()
        await say(harness, "clean up", "1")
        await post_with(harness, "rm -rf build", "1")
        await say(harness, words, "2", to=other if whose == "the agent's" else "bobs-message")
        await wait_until(lambda: "Nothing decided" in harness.channel.texts_in("1")[-1])
        assert not await results(harness, "1")
        await say(harness, f"{words} please, the red one", "3", to="bobs-message")
        await wait_until(lambda: harness.channel.texts_in("1")[-1] == "the end")
        assert (await user_texts(harness, "1"))[-1] == f"{words} please, the red one"
        assert "done" not in await results(harness, "1")


async def test_reply_to_another_post_answers_the_named_question(tmp_path: Path) -> None:
    scripts = [request_script("rm -rf build"), answer_script("the end")]
    async with gateway_harness(tmp_path, *scripts, tools=TOOLS, approval_rules=RULES) as harness:
        await say(harness, "clean up", "1")
        post = await post_with(harness, "rm -rf build", "1")
        question = await QuestionPosts(harness.store, harness.clock).question_in(
            Address("fake", "1"), post
        )
        await say(harness, f"yes {question[-6:]}", "2", to="bobs-message")
        await wait_until(lambda: harness.channel.texts_in("1")[-1] == "the end")
        assert await results(harness, "1") == ["done"]


@pytest.mark.parametrize("line", ["/approve", "/approve session", "/deny not now"])
async def test_command_replying_to_another_post_must_name_the_question(
    tmp_path: Path, line: str
) -> None:
    scripts = [request_script("rm -rf build"), answer_script("the end")]
    async with gateway_harness(tmp_path, *scripts, tools=TOOLS, approval_rules=RULES) as harness:
        await say(harness, "clean up", "1")
        post = await post_with(harness, "rm -rf build", "1")
        await say(harness, line, "2", to="bobs-message")
        await wait_until(lambda: "Nothing decided" in harness.channel.texts_in("1")[-1])
        assert not await results(harness, "1")
        await say(harness, "/approve", "3", to=post)
        await wait_until(lambda: harness.channel.texts_in("1")[-1] == "the end")
        assert await results(harness, "1") == ["done"]


@pytest.mark.parametrize("days", [8, 29, 60])
async def test_yes_to_an_old_question_does_not_approve_another(tmp_path: Path, days: int) -> None:
    clock = FakeClock()
    scripts = [
        request_script("rm -rf build"),
        answer_script("one"),
        request_script("rm -rf /srv/data"),
        answer_script("the end"),
    ]
    async with gateway_harness(
        tmp_path, *scripts, tools=TOOLS, approval_rules=RULES, clock=clock
    ) as harness:
        counsel = harness.planner.approvals
        assert isinstance(counsel, ApprovalService)
        await say(harness, "clean up", "1")
        post = await post_with(harness, "rm -rf build", "1")
        await say(harness, "no", "2", to=post)
        await wait_until(lambda: harness.channel.texts_in("1")[-1] == "one")
        await harness.wait_until_idle()
        await clock.advance(days * 86_400)
        await counsel.delete_old()
        await QuestionPosts(harness.store, clock).forget_old()
        await say(harness, "more", "3")
        newer = await post_with(harness, "/srv/data", "1")
        await say(harness, "yes", "4", to=post)
        reply = "Already answered: deny." if days < 30 else "Nothing decided"
        await wait_until(lambda: any(reply in one for one in harness.channel.texts_in("1")))
        await say(harness, "no", "5", to=newer)
        await wait_until(lambda: harness.channel.texts_in("1")[-1] == "the end")
        assert "done" not in await results(harness, "1")


async def test_question_in_another_thread_stays_open(tmp_path: Path) -> None:
    async def by_thread(inbound: Inbound) -> Admitted | Rejected:
        return Admitted(key=f"{session_key_of(inbound)}:{inbound.address.thread or ''}")

    scripts = [request_script("rm -rf build"), answer_script("the end")]
    async with gateway_harness(
        tmp_path, *scripts, tools=TOOLS, approval_rules=RULES, authorize=by_thread
    ) as harness:
        await say(harness, "clean up", "1")
        post = await post_with(harness, "rm -rf build", "1")
        thread = Address("fake", "1", "t")
        for number, words in enumerate(("yes", "/approve")):
            elsewhere = structs.replace(
                make_inbound(words, f"e{number}"), address=thread, reply_to=post
            )
            await harness.gateway.intake.accept(elsewhere)
            await wait_until(lambda: harness.channel.texts_in("1").count(ASKED_ELSEWHERE) > number)  # noqa: B023
        assert not any("Too late" in one for one in harness.channel.texts_in("1"))
        await say(harness, "yes", "2", to=post)
        await wait_until(lambda: harness.channel.texts_in("1")[-1] == "the end")


@pytest.mark.slow
async def test_late_clarification_becomes_a_message(tmp_path: Path) -> None:
    clock = FakeClock()
    ask = [assistant_message(tool_call("clarify", question="Which colour?"))]
    async with gateway_harness(
        tmp_path, ask, answer_script("the end"), tools=TOOLS, approval_rules=RULES, clock=clock
    ) as harness:
        counsel = harness.planner.approvals
        assert isinstance(counsel, ApprovalService)
        await say(harness, "paint", "1")
        post = await post_with(harness, "Which colour?", "1")
        sessions = chat_sessions(harness.store, clock)
        answers = QuestionAnswers(counsel, sessions, QuestionPosts(harness.store, clock))
        inbound = make_inbound("blue", "2")
        user = User("m2", inbound.parts, Trust.OWNER)
        message = InboxMessage(user=user, address=inbound.address, reply_to=post)
        admitted = Admitted(key=session_key_of(inbound))
        assert await answers.is_answer(admitted, message)
        await clock.advance(counsel.seconds(QuestionKind.CLARIFY) + 1)
        await wait_until(lambda: harness.channel.texts_in("1")[-1] == "the end")
        assert await answers.answer(admitted, message) is None


async def test_message_of_another_user_reaches_the_agent(tmp_path: Path) -> None:
    async def shared(inbound: Inbound) -> Admitted | Rejected:
        one = await separate_chats(inbound)
        return structs.replace(one, key=SESSION_KEY) if isinstance(one, Admitted) else one

    scripts = [request_script("rm -rf build"), answer_script("the end")]
    async with gateway_harness(
        tmp_path, *scripts, tools=TOOLS, approval_rules=RULES, authorize=shared
    ) as harness:
        await say(harness, "clean up", "1")
        post = await post_with(harness, "rm -rf build", "1")
        await say(harness, "what does that do?", "2", sender="bob", to=post)
        await say(harness, "yes", "3", to=post)
        await wait_until(lambda: "re: what does that do?" in harness.channel.texts_in("1"))
        assert not any("Nothing is decided yet" in one for one in harness.channel.texts_in("1"))
