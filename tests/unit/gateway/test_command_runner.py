"""Slash commands in a chat act for their caller and on the caller's session."""

from pathlib import Path

from hermes.commands.command import CommandContext
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


class FakeContext:
    """The context of commands, with services that record their calls."""

    def __init__(self) -> None:
        self.services, self._models, self._facts = FakeServices(), FakeModelSelector(), FakeFacts()

    def __call__(self, conversation: Conversation) -> CommandContext:
        services = self.services.services()
        return CommandContext(conversation, self._models, self._facts, services=services)


async def last(harness: GatewayHarness, text: str, *, chat: str = "1", sender: str = "ann") -> str:
    """Send a message and return the reply."""
    before = len(harness.channel.texts_in(chat))
    await harness.channel.say(text, chat=chat, sender=sender)
    await wait_until(lambda: len(harness.channel.texts_in(chat)) > before)
    await harness.wait_until_idle()
    return harness.channel.texts_in(chat)[-1]


async def session_at(harness: GatewayHarness, key: str = KEY) -> Session:
    found = await harness.store.archive_for(OWNER).by_key(key)
    assert found is not None
    return found


async def test_read_only_commands_start_no_session(tmp_path: Path) -> None:
    async with gateway_harness(tmp_path) as harness:
        for line in ("/help", "/stop", "/status", "/usage", "/whoami", "/version"):
            await last(harness, line)
        assert await harness.store.archive_for(OWNER).list(SessionFilter()) == []


async def test_choices_before_the_first_message_are_stored(tmp_path: Path) -> None:
    async with gateway_harness(tmp_path, context=FakeContext()) as harness:
        await last(harness, "/title Trip")
        await last(harness, "/reasoning high")
        await last(harness, "hello")
        session = await session_at(harness)
        assert (session.title, session.effort, session.source) == ("Trip", "high", "fake")
        assert len(await harness.store.archive_for(OWNER).list(SessionFilter())) == 1


async def test_resume_moves_a_session_to_the_chat(tmp_path: Path) -> None:
    clock = FakeClock()
    async with gateway_harness(tmp_path, clock=clock) as harness:
        await last(harness, "first")
        first = await session_at(harness)
        await clock.advance(5)
        await last(harness, "/new")
        await last(harness, "second")
        second = await session_at(harness)
        assert "first" in await last(harness, "/resume")
        reply = await last(harness, "/resume 1")
        assert reply.startswith(f"Resumed session {first.id}, 2 messages.")
        await last(harness, "third")
        assert await harness.texts() == ["first", "re: first", "third", "re: third"]
        over = await harness.store.archive_for(OWNER).get(second.id)
        assert over.end_reason == "resumed another"
        assert (await session_at(harness)).id == first.id


async def test_owner_can_resume_a_session_from_elsewhere(tmp_path: Path) -> None:
    async with gateway_harness(tmp_path, authorize=owner_or_member) as harness:
        await last(harness, "mine", chat="2", sender="bob")
        theirs = await session_at(harness, "agent:main:fake:dm:2")
        assert theirs.system
        await last(harness, f"/resume {theirs.id}")
        assert (await session_at(harness)).system == ""
        await last(harness, "and now")
        assert (await harness.texts())[0] == "mine"
        await last(harness, "anew", chat="2", sender="bob")
        assert await harness.texts("2") == ["anew", "re: anew"]


async def test_member_cannot_resume_sessions_of_others(tmp_path: Path) -> None:
    async with gateway_harness(tmp_path, authorize=owner_or_member) as harness:
        await last(harness, "mine")
        mine = await session_at(harness)
        await last(harness, "/title Secret")
        for words in (mine.id, "Secret", mine.id[:8]):
            reply = await last(harness, f"/resume {words}", chat="2", sender="bob")
            assert reply.startswith("There is no session")
        reply = await last(harness, "/sessions", chat="2", sender="bob")
        assert reply == "There are no other sessions yet. Just start writing."
        reply = await last(harness, "/insights", chat="2", sender="bob")
        assert reply.endswith("none.")


async def test_shared_chat_lists_only_own_sessions(tmp_path: Path) -> None:
    """The chat's session is the owner's; a member sees none of the owner's other sessions."""
    async with gateway_harness(tmp_path, authorize=owner_or_member) as harness:
        await last(harness, "private", chat="9")
        await last(harness, "hello all")
        reply = await last(harness, "/sessions", sender="bob")
        assert "private" not in reply
        status = await last(harness, "/status", sender="bob")
        assert "/work" not in status
        assert "/work" in await last(harness, "/status")


async def test_session_busy_elsewhere_is_not_resumed(tmp_path: Path) -> None:
    async with gateway_harness(tmp_path, HANGING_SCRIPT) as harness:
        await harness.channel.say("work", chat="2")
        await wait_until(lambda: len(harness.model.requests) == 1)
        busy = await session_at(harness, "agent:main:fake:dm:2")
        await harness.channel.say(f"/resume {busy.id}")
        await wait_until(lambda: len(harness.channel.texts_in("1")) == 1)
        assert "in the middle of a turn" in harness.channel.texts_in("1")[0]
        assert (await session_at(harness, "agent:main:fake:dm:2")).id == busy.id


async def test_session_with_lost_lease_is_not_resumed(tmp_path: Path) -> None:
    async with gateway_harness(tmp_path) as harness:
        await last(harness, "theirs", chat="2")
        await last(harness, "mine")
        theirs, mine = await session_at(harness, "agent:main:fake:dm:2"), await session_at(harness)
    async with gateway_harness(tmp_path, channel=harness.channel, runs=StolenLeaseRunner) as two:
        assert "no longer holds" in await last(two, f"/resume {theirs.id}")
        assert (await session_at(two)).id == mine.id
        assert (await session_at(two, "agent:main:fake:dm:2")).id == theirs.id


async def test_branch_in_a_chat(tmp_path: Path) -> None:
    async with gateway_harness(tmp_path) as harness:
        await last(harness, "first")
        old = await session_at(harness)
        await last(harness, "/branch Other")
        copy = await session_at(harness)
        assert (copy.parent, copy.title, copy.key) == (old.id, "Other", KEY)
        await last(harness, "second")
        assert await harness.texts() == ["first", "re: first", "second", "re: second"]
        ended = await harness.store.archive_for(OWNER).get(old.id)
        assert ended.end_reason == "branched"
        assert len(await harness.store.archive_for(OWNER).messages(old.id)) == 2


async def test_busy_is_owner_only_and_applies_to_the_next_turn(tmp_path: Path) -> None:
    context = FakeContext()
    fake_services = context.services
    async with gateway_harness(tmp_path, authorize=owner_or_member, context=context) as harness:
        assert "interrupt it" in await last(harness, "/busy")
        refused = await last(harness, "/busy queue", sender="bob")
        assert refused.startswith("Only an owner may change this")
        await last(harness, "/busy queue")
        assert harness.gateway.actors.busy is BusyMode.QUEUE
        assert fake_services.saved == [BusyMode.QUEUE]


async def test_whoami(tmp_path: Path) -> None:
    async with gateway_harness(tmp_path, authorize=owner_or_member) as harness:
        lines = (await last(harness, "/whoami", sender="bob")).splitlines()
        facts = dict(line.split(maxsplit=1) for line in lines)
        assert (facts["id"], facts["platform"], facts["role"]) == ("bob", "fake", "member")
        listed = (await last(harness, "/help", sender="bob")).splitlines()
        assert "/whoami: Show your identity and role here." in listed
        assert not any(line.startswith(("/restart", "/save")) for line in listed)


async def test_sethome_and_restart(tmp_path: Path) -> None:
    context = FakeContext()
    fake_services = context.services
    async with gateway_harness(tmp_path, authorize=owner_or_member, context=context) as harness:
        for line in ("/sethome", "/restart", "/debug", "/platform"):
            assert "Only an owner" in await last(harness, line, chat="2", sender="bob")
        await last(harness, "/sethome@somebot")
        assert fake_services.saved == [(Address("fake", "1"), "")]
        await last(harness, "/restart")
        assert fake_services.restarts == 1


class DecidingHooks:
    """Hooks that record events and return preset decisions."""

    def __init__(self) -> None:
        self.recorded: list[tuple[str, HookContext]] = []
        self.asked: list[str] = []
        self.decisions: dict[str, HookDecision] = {}

    def emit(self, event: str, context: HookContext) -> None:
        if event.startswith("command:") or event in {"session:end", "session:reset"}:
            self.recorded.append((event, context))

    async def decide(self, event: str, context: HookContext) -> HookDecision | None:
        self.asked.append(event)
        self.recorded.append((event, context))
        return self.decisions.get(event)


async def test_hooks_receive_commands_and_can_deny_them(tmp_path: Path) -> None:
    censor = DecidingHooks()
    async with gateway_harness(tmp_path, hooks=censor) as harness:
        await last(harness, "hello")
        censor.decisions["command:undo"] = HookDecision(HookVerdict.DENY, "Not on Sundays.")
        assert await last(harness, "/undo 2") == "Not on Sundays."
        assert await harness.texts() == ["hello", "re: hello"]
        censor.decisions["command:title"] = HookDecision(HookVerdict.HANDLED, "Noted.")
        assert await last(harness, "/title Cats") == "Noted."
        assert (await session_at(harness)).title == ""
        censor.decisions["command:version"] = HookDecision(HookVerdict.ALLOW, "?")
        assert (await last(harness, "/v")).startswith("Hermes ")
        event, context = censor.recorded[0]
        assert event == "command:undo"
        assert context == {
            "platform": "fake",
            "user_id": "ann",
            "chat_id": "1",
            "thread_id": "",
            "chat_type": "dm",
            "session_id": (await session_at(harness)).id,
            "message": "/undo 2",
            "command": "undo",
            "args": "2",
        }


async def test_hooks_cannot_block_stop(tmp_path: Path) -> None:
    censor = DecidingHooks()
    censor.decisions["command:stop"] = HookDecision(HookVerdict.DENY)
    async with gateway_harness(tmp_path, HANGING_SCRIPT, hooks=censor) as harness:
        await harness.channel.say("work")
        await wait_until(lambda: harness.running() is not None)
        assert await last(harness, "/stop") == "Stopped."
        assert [event for event, _ in censor.recorded] == ["command:stop"]
        assert censor.asked == []


async def test_hooks_receive_resets(tmp_path: Path) -> None:
    censor = DecidingHooks()
    async with gateway_harness(tmp_path, hooks=censor) as harness:
        await last(harness, "hello")
        old = await session_at(harness)
        await last(harness, "/reset")
        new = await session_at(harness)
        reply = [(event, context["session_id"]) for event, context in censor.recorded]
        assert reply == [
            ("command:new", old.id),
            ("session:end", old.id),
            ("session:reset", new.id),
        ]


async def test_unknown_command_reaches_no_hook(tmp_path: Path) -> None:
    censor = DecidingHooks()
    async with gateway_harness(tmp_path, hooks=censor) as harness:
        await last(harness, "/nonsense")
        await last(harness, "/quit")
        assert censor.recorded == []


async def test_hooks_decide_about_gateway_commands(tmp_path: Path) -> None:
    async def approve(order: object) -> str:
        return "Approved."

    censor = DecidingHooks()
    async with gateway_harness(
        tmp_path, answer_script("x"), own_commands={"approve": approve}, hooks=censor
    ) as harness:
        assert await last(harness, "/approve") == "Approved."
        censor.decisions["command:approve"] = HookDecision(HookVerdict.DENY)
        assert await last(harness, "/approve") == "/approve is not allowed here."
