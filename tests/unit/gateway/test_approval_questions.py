"""Approval questions in a chat: who may answer, and what happens then."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from hermes.approvals.policy import ApprovalRules
from hermes.gateway.hook_events import EventSource, RunHookEmitter
from hermes.gateway.hooks import HookDecision
from hermes.gateway.messages import Admitted, Rejected
from hermes.ports.approvals import ApprovalRequest, Isolation
from hermes.ports.channel import Inbound
from hermes.ports.tool import ToolContext
from hermes.schema.events import QuestionAnswered, QuestionAsked
from hermes.schema.messages import Result, text_of
from hermes.schema.questions import Question, QuestionKind
from hermes.schema.scope import Address, Role
from hermes.schema.tools import Effect
from hermes.testing.clock import FakeClock
from hermes.testing.scripted_model import answer_script
from support.gateway import (
    GatewayHarness,
    gateway_harness,
    make_inbound,
    session_key_of,
    wait_until,
)
from support.turns import FakeTool, assistant_message, tool_call

RULES = ApprovalRules(home="/home/me")
COMMAND = "rm -rf build"


async def act(args: dict[str, Any], context: ToolContext) -> str:
    request = ApprovalRequest(  # noqa: S604 - a word of our own
        tool="shell", action=args["command"], reaching=Isolation.OPEN, shell=True, folder="/work",
        reason="to build anew",
    )  # fmt: skip
    decision = await context.request_approval(request)
    return "done" if decision.allowed else decision.why


async def clarify(args: dict[str, Any], context: ToolContext) -> str:
    return str(await context.ask_person(args["question"], args["choices"]))


def shell() -> FakeTool:
    return FakeTool("shell", act, effect=Effect.OUTSIDE)


def script(command: str = COMMAND):
    return [assistant_message(tool_call("shell", command=command))], answer_script("the end")


async def results(harness: GatewayHarness) -> list[str]:
    return [text_of(one) for one in await harness.transcript() if isinstance(one, Result)]


async def asked(harness: GatewayHarness, count: int = 1) -> str:
    """Wait until a question is posted in the chat."""

    def questions() -> list[str]:
        return [text for text in harness.channel.texts_in("1") if "Run this command" in text]

    await wait_until(lambda: len(questions()) >= count)
    return questions()[-1]


async def say(harness: GatewayHarness, text: str, key: str, sender: str = "ann") -> None:
    await harness.gateway.intake.accept(structs.replace(make_inbound(text, key), sender=sender))


async def people(inbound: Inbound) -> Admitted | Rejected:
    """A chat of three: Ann is the owner, Bob and Cleo may talk to the agent."""
    key = session_key_of(inbound).replace(":dm:", ":group:")
    if inbound.sender == "ann":
        return Admitted(key=key)
    return Admitted(key=key, principal=inbound.sender, role=Role.MEMBER)


async def test_question_shows_the_action_and_yes_continues(tmp_path: Path) -> None:
    async with gateway_harness(
        tmp_path, *script(), tools=[shell()], approval_rules=RULES
    ) as harness:
        await say(harness, "clean up", "1")
        question = await asked(harness)
        assert "```\nrm -rf build\n```" in question
        assert "Reason: to build anew" in question
        assert "/approve" in question
        await say(harness, "yes", "2")
        await harness.wait_for_posts(question, "Allowed once: rm -rf build", "the end")
        await harness.wait_until_idle()
        assert await results(harness) == ["done"]
        assert "yes" not in await harness.texts()
        assert await harness.open_rows() == await harness.open_rows("commands") == []


@pytest.mark.parametrize(
    ("line", "reply", "result"),
    [
        ("/approve", "Allowed once: rm -rf build", "done"),
        ("/approve session", "Allowed for this session: rm -rf build", "done"),
        ("/deny too late at night", "Denied: rm -rf build", "too late at night"),
        ("👎", "Denied: rm -rf build", "denied"),
    ],
)
async def test_accepted_answers(tmp_path: Path, line: str, reply: str, result: str) -> None:
    async with gateway_harness(
        tmp_path, *script(), tools=[shell()], approval_rules=RULES
    ) as harness:
        await say(harness, "clean up", "1")
        question = await asked(harness)
        await say(harness, line, "2")
        await harness.wait_for_posts(question, reply, "the end")
        await harness.wait_until_idle()
        assert result in (await results(harness))[0]


async def test_repeated_answer_is_ignored(tmp_path: Path) -> None:
    async with gateway_harness(
        tmp_path, *script(), tools=[shell()], approval_rules=RULES
    ) as harness:
        await say(harness, "clean up", "1")
        question = await asked(harness)
        await say(harness, "yes", "2")
        await say(harness, "yes", "2")
        await harness.wait_for_posts(question, "Allowed once: rm -rf build", "the end")
        await harness.wait_until_idle()
        await say(harness, "yes", "2")
        assert harness.channel.texts_in("1") == [question, "Allowed once: rm -rf build", "the end"]


async def test_only_owner_approves_member_request(tmp_path: Path) -> None:
    async with gateway_harness(
        tmp_path, *script(), tools=[shell()], approval_rules=RULES, authorize=people
    ) as harness:
        await say(harness, "clean up", "1", "bob")
        await asked(harness)
        await say(harness, "/approve", "2", "cleo")
        await wait_until(lambda: "Only the owner" in harness.channel.texts_in("1")[-1])
        await say(harness, "/approve", "3", "bob")
        await wait_until(lambda: len(harness.channel.texts_in("1")) == 3)
        await say(harness, "ok", "4", "ann")
        await wait_until(lambda: harness.channel.texts_in("1")[-1] == "the end")
        assert harness.channel.texts_in("1")[-2] == "Allowed once: rm -rf build"


async def separate_chats(inbound: Inbound) -> Admitted | Rejected:
    """Ann is the owner with a chat of her own; others write in separate chats."""
    if inbound.sender == "ann":
        return Admitted(key=session_key_of(inbound))
    role = Role.GUEST if inbound.sender == "guest" else Role.MEMBER
    return Admitted(key=session_key_of(inbound), principal=inbound.sender, role=role)


@pytest.mark.parametrize(
    ("line", "result"), [("yes {}", "done"), ("/approve {}", "done"), ("no {}", "denied")]
)
async def test_member_question_is_posted_to_owner_chat(
    tmp_path: Path, line: str, result: str
) -> None:
    async with gateway_harness(
        tmp_path,
        *script(),
        tools=[shell()],
        approval_rules=RULES,
        authorize=separate_chats,
        owner_chat=Address("fake", "9"),
    ) as harness:
        await say(harness, "clean up", "1", "bob")
        there = await asked(harness)
        assert "Only the owner can allow this. I have asked, and wait up to" in there
        assert "/approve" not in there
        await wait_until(lambda: bool(harness.channel.texts_in("9")))
        (question,) = harness.channel.texts_in("9")
        assert "```\nrm -rf build\n```" in question
        assert "Asked by: bob" in question
        await say(harness, "/approve", "2", "bob")
        await wait_until(lambda: "Only the owner or" in harness.channel.texts_in("1")[-1])
        name = found[1] if (found := re.search(r"/approve (\w+)", question)) else ""
        bare = structs.replace(make_inbound(line.split(maxsplit=1)[0], "3", chat="9"), sender="ann")
        await harness.gateway.intake.accept(bare)
        await wait_until(lambda: "Nothing decided" in harness.channel.texts_in("9")[-1])
        own = structs.replace(make_inbound(line.format(name), "4", chat="9"), sender="ann")
        await harness.gateway.intake.accept(own)
        await wait_until(lambda: harness.channel.texts_in("1")[-1] == "the end")
        assert result in (await results(harness))[0]


@pytest.mark.parametrize(("sender", "home"), [("bob", None), ("guest", Address("fake", "9"))])
async def test_request_is_denied_for_guests_and_without_owner_chat(
    tmp_path: Path, sender: str, home: Address | None
) -> None:
    async with gateway_harness(
        tmp_path,
        *script(),
        tools=[shell()],
        approval_rules=RULES,
        authorize=separate_chats,
        owner_chat=home,
    ) as harness:
        await say(harness, "clean up", "1", sender)
        await wait_until(lambda: harness.channel.texts_in("1")[-1:] == ["the end"])
        assert "the owner is not in this chat" in (await results(harness))[0]
        assert harness.channel.texts_in("9") == []


async def test_unanswered_question_expires(tmp_path: Path) -> None:
    clock = FakeClock()
    async with gateway_harness(
        tmp_path, *script(), tools=[shell()], approval_rules=RULES, clock=clock
    ) as harness:
        await say(harness, "clean up", "1")
        question = await asked(harness)
        for _ in range(62):
            await clock.advance(1)
        await harness.wait_for_posts(question, "No answer in time, so it was not done.", "the end")
        await harness.wait_until_idle()
        await say(harness, "/approve", "2")
        await wait_until(lambda: harness.channel.texts_in("1")[-1].startswith("Too late"))


async def test_other_message_ends_turn_and_question(tmp_path: Path) -> None:
    async with gateway_harness(
        tmp_path, *script(), tools=[shell()], approval_rules=RULES
    ) as harness:
        await say(harness, "clean up", "1")
        await asked(harness)
        await say(harness, "/stop", "2")
        await wait_until(lambda: "Stopped." in harness.channel.texts_in("1"))
        await harness.wait_until_idle()
        await say(harness, "/approve", "3")
        await wait_until(lambda: harness.channel.texts_in("1")[-1].startswith("Too late"))


async def test_session_approval_is_not_asked_again(tmp_path: Path) -> None:
    async with gateway_harness(
        tmp_path,
        *script(),
        *script(),
        *script("rm -rf dist"),
        tools=[shell()],
        approval_rules=RULES,
    ) as harness:
        await say(harness, "clean up", "1")
        await asked(harness)
        await say(harness, "session", "2")
        await wait_until(lambda: harness.channel.texts_in("1").count("the end") == 1)
        await harness.wait_until_idle()
        await say(harness, "again", "3")
        await wait_until(lambda: harness.channel.texts_in("1").count("the end") == 2)
        await harness.wait_until_idle()
        await say(harness, "/yolo", "4")
        await say(harness, "more", "5")
        await wait_until(lambda: harness.channel.texts_in("1").count("the end") == 3)
        assert await results(harness) == ["done"] * 3
        await say(harness, "/approvals", "6")
        await wait_until(lambda: COMMAND in harness.channel.texts_in("1")[-1])
        await say(harness, "/status", "7")
        await wait_until(lambda: "/yolo is on" in harness.channel.texts_in("1")[-1])


async def test_clarify_uses_the_next_message(tmp_path: Path) -> None:
    ask = assistant_message(tool_call("clarify", question="Which colour?", choices=["red", "blue"]))
    tools = [FakeTool("clarify", clarify, effect=Effect.WRITE)]
    async with gateway_harness(
        tmp_path, [ask], answer_script("the end"), tools=tools, approval_rules=RULES
    ) as harness:
        await say(harness, "paint", "1")
        await wait_until(lambda: bool(harness.channel.texts_in("1")))
        (question,) = harness.channel.texts_in("1")
        assert question.startswith("Which colour?\n1. red\n2. blue\n")
        await say(harness, "2", "2")
        await harness.wait_for_posts(question, "the end")
        await harness.wait_until_idle()
        assert await results(harness) == ["blue"]


async def test_shutdown_leaves_question_open(tmp_path: Path) -> None:
    async with gateway_harness(
        tmp_path, *script(), tools=[shell()], approval_rules=RULES
    ) as harness:
        await say(harness, "clean up", "1")
        question = await asked(harness)
        harness.gateway.close()
        await wait_until(lambda: harness.gateway.actors.draining)
    async with gateway_harness(
        tmp_path, *script(), tools=[shell()], approval_rules=RULES
    ) as harness:
        await wait_until(lambda: len(harness.model.requests) == 1)
        await say(harness, "yes", "2")
        last = ["Allowed once: rm -rf build", "the end"]
        await wait_until(lambda: harness.channel.texts_in("1")[-2:] == last)
        assert sum("Run this command" in text for text in harness.channel.texts_in("1")) <= 1
        assert COMMAND in question


class RecordingHooks:
    """Hooks that record events."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Mapping[str, object]]] = []

    def emit(self, event: str, context: Mapping[str, object]) -> None:
        self.events.append((event, context))

    async def decide(self, event: str, context: Mapping[str, object]) -> HookDecision | None:
        return None


def test_hooks_receive_question_events() -> None:
    hooks = RecordingHooks()
    teller = RunHookEmitter(hooks, EventSource(platform="fake"))
    question = Question(
        id="q", kind=QuestionKind.APPROVAL, session="s", run="r", text="May I?", subject=COMMAND,
        until=FakeClock().now(),
    )  # fmt: skip
    teller.handle_event(QuestionAsked(question))
    teller.handle_event(QuestionAnswered("q", "once", "owner"))
    teller.handle_event(QuestionAnswered("q"))
    assert [event for event, _ in hooks.events] == [
        "pre_approval_request", "post_approval_response", "post_approval_response",
    ]  # fmt: skip
    assert hooks.events[0][1]["command"] == COMMAND
    assert [context.get("choice") for _, context in hooks.events] == [None, "once", "timeout"]
