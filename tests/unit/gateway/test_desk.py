"""Slash commands in a chat act for their caller and on the caller's session."""

from pathlib import Path

import pytest

from hermes.commands.command import CommandContext
from hermes.commands.registry import standard_commands
from hermes.gateway.hooks import HookContext, HookDecision, HookVerdict
from hermes.gateway.messages import Admitted, BusyMode, Rejected
from hermes.ports.channel import Inbound
from hermes.schema.messages import Trust
from hermes.schema.scope import OWNER, Address, Role
from hermes.schema.sessions import Session, SessionFilter
from hermes.session.conversation import Conversation
from hermes.testing.clock import FakeClock
from hermes.testing.scripted_model import answer_script
from support.conversation import HANGING_SCRIPT
from support.gateway import (
    GatewayHarness,
    StolenLeaseRunner,
    gateway_harness,
    session_key_of,
    wait_until,
)
from support.slash_commands import FakeFacts, FakeModelSelector, FakeServices

pytestmark = pytest.mark.anyio

KEY = "agent:main:fake:dm:1"


async def owner_or_member(inbound: Inbound) -> Admitted | Rejected:
    """Ann is the owner; everyone else is a member with separate sessions."""
    if inbound.sender == "ann":
        return Admitted(key=session_key_of(inbound))
    return Admitted(
        key=session_key_of(inbound),
        principal=f"fake:{inbound.sender}",
        trust=Trust.GUEST,
        role=Role.MEMBER,
    )


def add_commands(one: GatewayHarness) -> FakeServices:
    fake_services, models, facts = FakeServices(), FakeModelSelector(), FakeFacts()

    def context(conversation: Conversation) -> CommandContext:
        return CommandContext(conversation, models, facts, services=fake_services.services())

    one.gateway.command_runner.set_commands(standard_commands(), context, {})
    return fake_services


async def last(one: GatewayHarness, text: str, *, chat: str = "1", sender: str = "ann") -> str:
    """Send a message and return the reply."""
    before = len(one.channel.texts_in(chat))
    await one.channel.say(text, chat=chat, sender=sender)
    await wait_until(lambda: len(one.channel.texts_in(chat)) > before)
    await one.wait_until_idle()
    return one.channel.texts_in(chat)[-1]


async def session_at(one: GatewayHarness, key: str = KEY) -> Session:
    found = await one.store.archive_for(OWNER).by_key(key)
    assert found is not None
    return found


async def test_read_only_commands_start_no_session(tmp_path: Path) -> None:
    async with gateway_harness(tmp_path) as one:
        for line in ("/help", "/stop", "/status", "/usage", "/whoami", "/version"):
            await last(one, line)
        assert await one.store.archive_for(OWNER).list(SessionFilter()) == []


async def test_choices_before_the_first_message_are_stored(tmp_path: Path) -> None:
    async with gateway_harness(tmp_path) as one:
        add_commands(one)
        await last(one, "/title Trip")
        await last(one, "/reasoning high")
        await last(one, "hello")
        session = await session_at(one)
        assert (session.title, session.effort, session.source) == ("Trip", "high", "fake")
        assert len(await one.store.archive_for(OWNER).list(SessionFilter())) == 1


async def test_resume_moves_a_session_to_the_chat(tmp_path: Path) -> None:
    clock = FakeClock()
    async with gateway_harness(tmp_path, clock=clock) as one:
        await last(one, "first")
        first = await session_at(one)
        await clock.advance(5)
        await last(one, "/new")
        await last(one, "second")
        second = await session_at(one)
        assert "first" in await last(one, "/resume")
        told = await last(one, "/resume 1")
        assert told.startswith(f"Resumed session {first.id}, 2 messages.")
        await last(one, "third")
        assert await one.texts() == ["first", "re: first", "third", "re: third"]
        over = await one.store.archive_for(OWNER).get(second.id)
        assert over.end_reason == "resumed another"
        assert (await session_at(one)).id == first.id


async def test_owner_can_resume_a_session_from_elsewhere(tmp_path: Path) -> None:
    async with gateway_harness(tmp_path, door=owner_or_member) as one:
        await last(one, "mine", chat="2", sender="bob")
        theirs = await session_at(one, "agent:main:fake:dm:2")
        assert theirs.system
        await last(one, f"/resume {theirs.id}")
        assert (await session_at(one)).system == ""
        await last(one, "and now")
        assert (await one.texts())[0] == "mine"
        await last(one, "anew", chat="2", sender="bob")
        assert await one.texts("2") == ["anew", "re: anew"]


async def test_member_cannot_resume_sessions_of_others(tmp_path: Path) -> None:
    async with gateway_harness(tmp_path, door=owner_or_member) as one:
        await last(one, "mine")
        mine = await session_at(one)
        await last(one, "/title Secret")
        for words in (mine.id, "Secret", mine.id[:8]):
            told = await last(one, f"/resume {words}", chat="2", sender="bob")
            assert told.startswith("There is no session")
        told = await last(one, "/sessions", chat="2", sender="bob")
        assert told == "There are no other sessions yet. Just start writing."
        told = await last(one, "/insights", chat="2", sender="bob")
        assert told.endswith("none.")


async def test_shared_chat_lists_only_own_sessions(tmp_path: Path) -> None:
    """The chat's session is the owner's; a member sees none of the owner's other sessions."""
    async with gateway_harness(tmp_path, door=owner_or_member) as one:
        await last(one, "private", chat="9")
        await last(one, "hello all")
        told = await last(one, "/sessions", sender="bob")
        assert "private" not in told
        status = await last(one, "/status", sender="bob")
        assert "/work" not in status
        assert "/work" in await last(one, "/status")


async def test_session_busy_elsewhere_is_not_resumed(tmp_path: Path) -> None:
    async with gateway_harness(tmp_path, HANGING_SCRIPT) as one:
        await one.channel.say("work", chat="2")
        await wait_until(lambda: len(one.model.requests) == 1)
        busy = await session_at(one, "agent:main:fake:dm:2")
        await one.channel.say(f"/resume {busy.id}")
        await wait_until(lambda: len(one.channel.texts_in("1")) == 1)
        assert "in the middle of a turn" in one.channel.texts_in("1")[0]
        assert (await session_at(one, "agent:main:fake:dm:2")).id == busy.id


async def test_session_with_lost_lease_is_not_resumed(tmp_path: Path) -> None:
    async with gateway_harness(tmp_path) as one:
        await last(one, "theirs", chat="2")
        await last(one, "mine")
        theirs, mine = await session_at(one, "agent:main:fake:dm:2"), await session_at(one)
    async with gateway_harness(tmp_path, channel=one.channel, runs=StolenLeaseRunner) as two:
        assert "no longer holds" in await last(two, f"/resume {theirs.id}")
        assert (await session_at(two)).id == mine.id
        assert (await session_at(two, "agent:main:fake:dm:2")).id == theirs.id


async def test_branch_in_a_chat(tmp_path: Path) -> None:
    async with gateway_harness(tmp_path) as one:
        await last(one, "first")
        old = await session_at(one)
        await last(one, "/branch Other")
        copy = await session_at(one)
        assert (copy.parent, copy.title, copy.key) == (old.id, "Other", KEY)
        await last(one, "second")
        assert await one.texts() == ["first", "re: first", "second", "re: second"]
        ended = await one.store.archive_for(OWNER).get(old.id)
        assert ended.end_reason == "branched"
        assert len(await one.store.archive_for(OWNER).messages(old.id)) == 2


async def test_busy_is_owner_only_and_applies_to_the_next_turn(tmp_path: Path) -> None:
    async with gateway_harness(tmp_path, door=owner_or_member) as one:
        fake_services = add_commands(one)
        assert "interrupt it" in await last(one, "/busy")
        refused = await last(one, "/busy queue", sender="bob")
        assert refused.startswith("Only an owner may change this")
        await last(one, "/busy queue")
        assert one.gateway.actors.busy is BusyMode.QUEUE
        assert fake_services.saved == [BusyMode.QUEUE]


async def test_whoami(tmp_path: Path) -> None:
    async with gateway_harness(tmp_path, door=owner_or_member) as one:
        lines = (await last(one, "/whoami", sender="bob")).splitlines()
        facts = dict(line.split(maxsplit=1) for line in lines)
        assert (facts["id"], facts["platform"], facts["role"]) == ("bob", "fake", "member")
        listed = (await last(one, "/help", sender="bob")).splitlines()
        assert "/whoami: Show your identity and role here." in listed
        assert not any(line.startswith(("/restart", "/save")) for line in listed)


async def test_sethome_and_restart(tmp_path: Path) -> None:
    async with gateway_harness(tmp_path, door=owner_or_member) as one:
        fake_services = add_commands(one)
        for line in ("/sethome", "/restart", "/debug", "/platform"):
            assert "Only an owner" in await last(one, line, chat="2", sender="bob")
        await last(one, "/sethome@somebot")
        assert fake_services.saved == [(Address("fake", "1"), "")]
        await last(one, "/restart")
        assert fake_services.restarts == 1


class DecidingHooks:
    """Hooks that record events and return preset decisions."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, HookContext]] = []
        self.asked: list[str] = []
        self.decisions: dict[str, HookDecision] = {}

    def emit(self, event: str, context: HookContext) -> None:
        self.heard.append((event, context))

    async def decide(self, event: str, context: HookContext) -> HookDecision | None:
        self.asked.append(event)
        self.heard.append((event, context))
        return self.decisions.get(event)


async def test_hooks_receive_commands_and_can_deny_them(tmp_path: Path) -> None:
    async with gateway_harness(tmp_path) as one:
        censor = DecidingHooks()
        one.gateway.command_runner.set_hooks(censor)
        await last(one, "hello")
        censor.decisions["command:undo"] = HookDecision(HookVerdict.DENY, "Not on Sundays.")
        assert await last(one, "/undo 2") == "Not on Sundays."
        assert await one.texts() == ["hello", "re: hello"]
        censor.decisions["command:title"] = HookDecision(HookVerdict.HANDLED, "Noted.")
        assert await last(one, "/title Cats") == "Noted."
        assert (await session_at(one)).title == ""
        censor.decisions["command:version"] = HookDecision(HookVerdict.ALLOW, "?")
        assert (await last(one, "/v")).startswith("Hermes ")
        event, context = censor.heard[0]
        assert event == "command:undo"
        assert context == {
            "platform": "fake",
            "user_id": "ann",
            "chat_id": "1",
            "thread_id": "",
            "chat_type": "dm",
            "session_id": (await session_at(one)).id,
            "message": "/undo 2",
            "command": "undo",
            "args": "2",
        }


async def test_hooks_cannot_block_stop(tmp_path: Path) -> None:
    async with gateway_harness(tmp_path, HANGING_SCRIPT) as one:
        censor = DecidingHooks()
        censor.decisions["command:stop"] = HookDecision(HookVerdict.DENY)
        one.gateway.command_runner.set_hooks(censor)
        await one.channel.say("work")
        await wait_until(lambda: one.running() is not None)
        assert await last(one, "/stop") == "Stopped."
        assert [event for event, _ in censor.heard] == ["command:stop"]
        assert censor.asked == []


async def test_hooks_receive_resets(tmp_path: Path) -> None:
    async with gateway_harness(tmp_path) as one:
        censor = DecidingHooks()
        one.gateway.command_runner.set_hooks(censor)
        await last(one, "hello")
        old = await session_at(one)
        await last(one, "/reset")
        new = await session_at(one)
        told = [(event, context["session_id"]) for event, context in censor.heard]
        assert told == [
            ("command:new", old.id),
            ("session:end", old.id),
            ("session:reset", new.id),
        ]


async def test_unknown_command_reaches_no_hook(tmp_path: Path) -> None:
    async with gateway_harness(tmp_path) as one:
        censor = DecidingHooks()
        one.gateway.command_runner.set_hooks(censor)
        await last(one, "/nonsense")
        await last(one, "/quit")
        assert censor.heard == []


async def test_hooks_decide_about_gateway_commands(tmp_path: Path) -> None:
    async def approve(order: object) -> str:
        return "Approved."

    async with gateway_harness(tmp_path, answer_script("x"), urgent={"approve": approve}) as one:
        censor = DecidingHooks()
        one.gateway.command_runner.set_hooks(censor)
        assert await last(one, "/approve") == "Approved."
        censor.decisions["command:approve"] = HookDecision(HookVerdict.DENY)
        assert await last(one, "/approve") == "/approve is not allowed here."
