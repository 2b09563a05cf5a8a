"""Approvals and clarifications as buttons: a press answers, once, and only for who may."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from hermes.approvals.policy import ApprovalRules
from hermes.gateway.messages import Admitted, InboxMessage, Rejected
from hermes.gateway.questions import CLOSED, question_choices
from hermes.ports.approvals import ApprovalRequest, Isolation
from hermes.ports.channel import Choices, Inbound, PressedButton
from hermes.ports.tool import ToolContext
from hermes.schema.messages import Assistant, Result, Text, User, text_of
from hermes.schema.questions import ApprovalChoice, Question, QuestionKind
from hermes.schema.scope import OWNER, Address, Requester, Role
from hermes.schema.tools import Effect
from hermes.testing.channel import FAKE_CAPABILITIES, FakeFaultyChannel
from hermes.testing.scripted_model import answer_script
from support.gateway import GatewayHarness, gateway_harness, session_key_of, wait_until
from support.turns import FakeTool, assistant_message, tool_call

RULES = ApprovalRules(home="/home/me")


async def act(args: dict[str, Any], context: ToolContext) -> str:
    request = ApprovalRequest(  # noqa: S604 - a word of our own
        tool="shell", action=args["command"], reaching=Isolation.OPEN, shell=True, folder="/work"
    )
    decision = await context.request_approval(request)
    return "done" if decision.allowed else decision.why


async def clarify(args: dict[str, Any], context: ToolContext) -> str:
    return str(await context.ask_person(args["question"], ("tea", "coffee")))


TOOLS = [
    FakeTool("shell", act, effect=Effect.OUTSIDE),
    FakeTool("clarify", clarify, effect=Effect.WRITE),
]
APPROVAL = [assistant_message(tool_call("shell", command="rm -rf build"))]
CLARIFICATION = [assistant_message(tool_call("clarify", question="Which?"))]


async def posts_with_buttons(house: GatewayHarness) -> dict[str, list[str]]:
    """Wait for a question; return the values of the buttons of each post."""

    def found() -> dict[str, list[str]]:
        posts = house.channel.posts.items()
        return {
            name: [one.value for one in post.choices] for name, (_, post) in posts if post.choices
        }

    await wait_until(lambda: bool(found()))
    return found()


async def results(house: GatewayHarness) -> list[str]:
    return [text_of(one) for one in await house.transcript() if isinstance(one, Result)]


@pytest.mark.parametrize(("index", "result"), [(0, "done"), (-1, "denied")])
async def test_press_answers_an_approval(tmp_path: Path, index: int, result: str) -> None:
    scripts = [APPROVAL, answer_script("The end.")]
    async with gateway_harness(tmp_path, *scripts, tools=TOOLS, approval_rules=RULES) as house:
        await house.channel.say("clean up")
        ((post, values),) = (await posts_with_buttons(house)).items()
        await house.channel.press(post, values[index])
        await wait_until(lambda: "The end." in house.channel.texts_in("1"))
        assert result in (await results(house))[0]


async def test_press_answers_a_clarification_with_the_choice(tmp_path: Path) -> None:
    scripts = [CLARIFICATION, answer_script("The end.")]
    async with gateway_harness(tmp_path, *scripts, tools=TOOLS, approval_rules=RULES) as house:
        await house.channel.say("make something")
        ((post, values),) = (await posts_with_buttons(house)).items()
        labels = [one.label for one in house.channel.posts[post][1].choices]
        assert labels == ["tea", "coffee"]
        await house.channel.press(post, values[1])
        await wait_until(lambda: "The end." in house.channel.texts_in("1"))
        assert "coffee" in (await results(house))[0]


async def test_second_press_changes_nothing_and_starts_no_turn(tmp_path: Path) -> None:
    scripts = [APPROVAL, answer_script("The end.")]
    async with gateway_harness(tmp_path, *scripts, tools=TOOLS, approval_rules=RULES) as house:
        await house.channel.say("clean up")
        ((post, values),) = (await posts_with_buttons(house)).items()
        await house.channel.press(post, values[-1])
        await house.wait_until_idle()
        await house.channel.press(post, values[0])
        await house.wait_until_idle()
        assert "denied" in (await results(house))[0]
        assert "Already answered" in house.channel.texts_in("1")[-1]
        assert len(house.model.requests) == 2


async def test_press_by_another_member_is_refused(tmp_path: Path) -> None:
    async def members(inbound: Inbound) -> Admitted | Rejected:
        role = Role.OWNER if inbound.sender == "ann" else Role.MEMBER
        principal = "owner" if inbound.sender == "ann" else inbound.sender
        return Admitted(key=session_key_of(inbound), principal=principal, role=role)

    async with gateway_harness(
        tmp_path, APPROVAL, tools=TOOLS, approval_rules=RULES, authorize=members
    ) as house:
        await house.channel.say("clean up")
        ((post, values),) = (await posts_with_buttons(house)).items()
        await house.channel.press(post, values[0], sender="eve")
        await wait_until(
            lambda: any("Only the owner" in one for one in house.channel.texts_in("1"))
        )
        assert house.running() is not None


@pytest.mark.parametrize(
    ("script", "sender", "requester"),
    [(APPROVAL, "ann", "ann"), (APPROVAL, "eve", "eve"), (CLARIFICATION, "ann", "")],
)
async def test_approval_names_who_requested_it(
    tmp_path: Path, script: list[Assistant], sender: str, requester: str
) -> None:
    async with gateway_harness(tmp_path, script, tools=TOOLS, approval_rules=RULES) as house:
        await house.channel.say("clean up", sender=sender)
        (post,) = await posts_with_buttons(house)
        (choices,) = [
            one for one in house.channel.posts[post][1].blocks if isinstance(one, Choices)
        ]
        assert choices.requester == requester


def test_request_that_only_the_owner_may_approve_names_no_one() -> None:
    message = InboxMessage(
        user=User("m", (Text("clean up"),)),
        address=Address("test", "1"),
        asker=Requester(user="eve"),
        principal="eve",
    )
    question = Question(
        id="ask_1", kind=QuestionKind.APPROVAL, session="s", run="r", text="Delete it?",
        choices=(ApprovalChoice.ONCE,), until=datetime.now(UTC),
    )  # fmt: skip
    for asked, requester in ((OWNER, ""), ("eve", "eve")):
        choices = question_choices(structs.replace(question, answerable_by=asked), message)
        assert choices is not None
        assert choices.requester == requester


async def test_question_without_buttons_lists_the_answers(tmp_path: Path) -> None:
    channel = FakeFaultyChannel(caps=structs.replace(FAKE_CAPABILITIES, buttons=0))
    async with gateway_harness(
        tmp_path, CLARIFICATION, tools=TOOLS, approval_rules=RULES, channel=channel
    ) as house:
        await channel.say("make something")
        await wait_until(lambda: bool(channel.texts_in("1")))
        assert channel.texts_in("1")[0].startswith(
            "Which?\n1. tea\n2. coffee\nAnswer with a number"
        )
        assert house.running() is not None


async def test_press_without_a_question_says_that_it_is_closed(tmp_path: Path) -> None:
    async with gateway_harness(tmp_path, tools=TOOLS, approval_rules=RULES) as house:
        message = await house.channel.say("hi")
        await house.wait_until_idle()
        await house.channel.change(PressedButton("nothing"), message)
        await house.wait_until_idle()
        assert house.channel.texts_in("1")[-1] == CLOSED
