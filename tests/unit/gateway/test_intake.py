"""Intake stores each update once, before it is acknowledged."""

from pathlib import Path

import anyio
import pytest
from msgspec import structs

from hermes.gateway.command_queue import COMMAND_TIMEOUT
from hermes.gateway.messages import (
    COMMANDS,
    Admitted,
    BusyMode,
    InboxMessage,
    Rejected,
    inbox_item,
)
from hermes.gateway.run_display import SEEN_REACTION
from hermes.ports.channel import ChannelCapabilities, Inbound, InboundDetails
from hermes.schema.messages import Assistant, Text, Trust, User
from hermes.schema.scope import Address
from hermes.store.sqlite import open_store
from hermes.testing.channel import FakeChannel, FakeFaultyChannel
from hermes.testing.clock import FakeClock
from hermes.testing.scripted_model import answer_script
from support.conversation import HANGING_SCRIPT
from support.gateway import (
    GATEWAY_TIMEOUT,
    admit_everyone,
    gateway_harness,
    gateway_rules,
    make_inbound,
    wait_until,
)


async def test_message_is_answered_in_its_chat(tmp_path: Path) -> None:
    async with gateway_harness(tmp_path, answer_script("Good day.")) as harness:
        await harness.channel.say("hello", chat="7")
        await harness.wait_for_posts("Good day.", chat="7")
        await harness.wait_until_idle()
        assert await harness.texts("7") == ["hello", "Good day."]
        assert await harness.open_rows() == []
        assert await harness.open_rows("outbox:fake") == []


async def test_duplicate_update_is_ignored(tmp_path: Path) -> None:
    async with gateway_harness(tmp_path) as harness:
        for _ in range(3):
            await harness.channel.type(make_inbound("hello", "u1"))
        await harness.wait_for_posts("re: hello")
        await harness.channel.type(make_inbound("hello", "u1"))
        await harness.channel.type(make_inbound("bye", "u2"))
        await harness.wait_for_posts("re: hello", "re: bye")
        await harness.wait_until_idle()
        assert len(harness.model.requests) == 2


async def test_message_from_unknown_user_starts_nothing(tmp_path: Path) -> None:
    async def authorize(inbound: Inbound) -> Admitted | Rejected:
        return Rejected("Who are you?" if inbound.sender == "ann" else "")

    async with gateway_harness(tmp_path, authorize=authorize) as harness:
        await harness.channel.say("hello")
        await harness.channel.say("hello", sender="bob", chat="2")
        await harness.channel.say("/stop", sender="bob", chat="2")
        await harness.wait_for_posts("Who are you?")
        assert await harness.open_rows() == []
    assert harness.model.requests == []
    assert harness.channel.texts_in("2") == []


async def test_principal_is_stored_with_the_session(tmp_path: Path) -> None:
    async def authorize(inbound: Inbound) -> Admitted | Rejected:
        return Admitted(key="agent:main:fake:dm:1", principal="fake:ann", trust=Trust.GUEST)

    async with gateway_harness(tmp_path, authorize=authorize) as harness:
        await harness.channel.say("hello")
        await harness.wait_for_posts("re: hello")
        session = await harness.store.archive_for("fake:ann").by_key("agent:main:fake:dm:1")
        question, _ = await harness.transcript()
    assert session is not None
    assert (session.source, session.cwd) == ("fake", "/work")
    assert isinstance(question, User)
    assert question.trust is Trust.GUEST


async def test_reaction_comes_before_the_answer(tmp_path: Path) -> None:
    channel = FakeFaultyChannel()
    async with gateway_harness(tmp_path, HANGING_SCRIPT, channel=channel) as harness:
        await harness.channel.type(make_inbound("hello", "u1"))
        await wait_until(lambda: channel.reactions == [("m-u1", "👀")])
        await harness.channel.type(make_inbound("hello", "u1"))
    assert len(channel.reactions) == 1


async def test_answer_does_not_wait_for_the_reaction(tmp_path: Path) -> None:
    """The chat gets one message in a minute, and the clock stands still."""
    caps = ChannelCapabilities(1000, chat_rate=1 / 60)
    channel = FakeFaultyChannel(caps=caps)
    async with gateway_harness(tmp_path, channel=channel) as harness:
        await harness.channel.type(make_inbound("hello", "u1"))
        await wait_until(lambda: channel.texts_in("1") == ["re: hello"])
        await wait_until(lambda: channel.reactions == [("m-u1", "👀"), ("m-u1", "✅")])


async def test_typing_is_shown_at_once_without_reactions(tmp_path: Path) -> None:
    rules = structs.replace(gateway_rules(BusyMode.QUEUE, debounce=5.0), progress=True)
    channel = FakeChannel()
    async with gateway_harness(tmp_path, channel=channel, rules=rules) as harness:
        await channel.say("hello")
        await wait_until(lambda: channel.typing_in == {Address("fake", "1")})
        assert harness.running() is None
        assert channel.texts_in("1") == []


class SlowReactions(FakeFaultyChannel):
    """The platform takes the first reaction only when it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.release = anyio.Event()

    async def react(self, to: Address, message: str, sign: str) -> None:
        if sign == SEEN_REACTION:
            await self.release.wait()
        await super().react(to, message, sign)


async def test_reactions_to_a_message_keep_their_order(tmp_path: Path) -> None:
    channel = SlowReactions()
    async with gateway_harness(tmp_path, channel=channel) as harness:
        await harness.channel.type(make_inbound("hello", "u1"))
        await wait_until(lambda: channel.texts_in("1") == ["re: hello"])
        await wait_until(lambda: harness.running() is None)
        channel.release.set()
        await wait_until(lambda: len(channel.reactions) == 2)
    assert channel.reactions == [("m-u1", "👀"), ("m-u1", "✅")]


async def test_commands_run_while_a_turn_hangs(tmp_path: Path) -> None:
    async with gateway_harness(tmp_path, HANGING_SCRIPT) as harness:
        await harness.channel.say("work")
        await wait_until(lambda: len(harness.model.requests) == 1)
        await harness.channel.say("/status")
        await wait_until(lambda: len(harness.channel.texts_in("1")) == 1)
        await harness.channel.say("/title Big plan")
        await wait_until(lambda: len(harness.channel.texts_in("1")) == 2)
        await harness.channel.say("/undo")
        await wait_until(lambda: len(harness.channel.texts_in("1")) == 3)
        status, title, undo = harness.channel.texts_in("1")
        assert harness.running() is not None
    assert "running for 0 s, 0 messages queued" in status
    assert title == "Session title: “Big plan”."
    assert "in the middle of a turn" in undo


async def test_duplicate_command_runs_once(tmp_path: Path) -> None:
    async with gateway_harness(tmp_path) as harness:
        await harness.channel.say("hello")
        await harness.wait_for_posts("re: hello")
        for _ in range(2):
            await harness.channel.type(make_inbound("/undo", "c1"))
        await harness.channel.type(make_inbound("/history", "c2"))
        await harness.wait_for_posts(
            "re: hello", "Undid 1 turn, starting with “hello”.", "The conversation is empty."
        )


async def test_unknown_command_is_reported(tmp_path: Path) -> None:
    async with gateway_harness(tmp_path) as harness:
        await harness.channel.say("/stpo")
        await harness.wait_for_posts("Unknown command: /stpo. Did you mean /stop?")
        await harness.channel.say("/etc/hosts is a file")
        await wait_until(lambda: harness.channel.texts_in("1")[-1] == "re: /etc/hosts is a file")


async def test_forbidden_command_is_refused(tmp_path: Path) -> None:
    async def authorize(inbound: Inbound) -> Admitted | Rejected:
        return Admitted(key="agent:main:fake:dm:1", commands=frozenset({"help"}))

    async with gateway_harness(tmp_path, authorize=authorize) as harness:
        await harness.channel.say("/new")
        await harness.wait_for_posts("You cannot use /new here. /help lists your commands.")


async def test_new_starts_a_new_session(tmp_path: Path) -> None:
    async with gateway_harness(tmp_path) as harness:
        await harness.channel.say("first")
        await harness.wait_for_posts("re: first")
        await harness.channel.say("/new@somebot Trip")
        await wait_until(lambda: len(harness.channel.texts_in("1")) == 2)
        await harness.channel.say("second")
        await wait_until(lambda: len(harness.channel.texts_in("1")) == 3)
        assert await harness.texts() == ["second", "re: second"]
    assert len(harness.model.requests[1].messages) == 1


async def test_command_for_another_bot_is_ignored(tmp_path: Path) -> None:
    def typed(text: str, key: str, about: InboundDetails) -> Inbound:
        return structs.replace(make_inbound(text, key), about=about)

    group = InboundDetails(chat_type="group")
    async with gateway_harness(tmp_path) as harness:
        await harness.channel.type(typed("/title@otherbot Ours", "1", group))
        await harness.channel.type(
            typed("/title@us Ours", "2", structs.replace(group, mentions=True))
        )
        await harness.channel.type(typed("/title Mine", "3", group))
        await harness.channel.type(typed("mail me@home", "4", group))
        called = "Session title: “{}”."
        await harness.wait_for_posts(
            called.format("Ours"), called.format("Mine"), "re: mail me@home"
        )


async def test_retry_repeats_the_question(tmp_path: Path) -> None:
    async with gateway_harness(
        tmp_path, answer_script("bad", id="a1"), answer_script("good", id="a2")
    ) as harness:
        await harness.channel.say("question")
        await harness.wait_for_posts("bad")
        await harness.wait_until_idle()
        await harness.channel.say("/retry")
        await harness.wait_for_posts("bad", "good")
        assert await harness.texts() == ["question", "good"]


async def test_gateway_commands_can_be_added(tmp_path: Path) -> None:
    async def approve(order: object) -> str:
        return "Approved."

    async with gateway_harness(
        tmp_path, HANGING_SCRIPT, own_commands={"approve": approve}
    ) as harness:
        await harness.channel.say("work")
        await wait_until(lambda: harness.running() is not None)
        await harness.channel.say("/approve")
        await harness.wait_for_posts("Approved.")


async def test_command_interrupted_by_a_crash_is_reported(tmp_path: Path) -> None:
    clock = FakeClock()
    async with open_store(tmp_path / "hermes.db", clock) as store:
        message = InboxMessage(user=User("m1", (Text("/undo 3"),)), address=Address("fake", "1"))
        await store.queues.put(inbox_item("fake:c1", "agent:main:fake:dm:1", message, COMMANDS))
    async with gateway_harness(tmp_path, clock=clock) as harness:
        await harness.wait_for_posts(
            "“/undo 3” was interrupted and may not be done. Send it again if you still need it."
        )
        await harness.wait_until_idle()
        assert await harness.open_rows(COMMANDS) == []


async def stuck(order: object) -> str:
    await anyio.sleep_forever()
    raise AssertionError("unreachable")


async def test_hanging_command_times_out(tmp_path: Path) -> None:
    clock = FakeClock()
    async with gateway_harness(tmp_path, clock=clock, own_commands={"dig": stuck}) as harness:
        async with anyio.create_task_group() as group:
            group.start_soon(harness.channel.type, make_inbound("/dig deep", "c1"))
            await wait_until(lambda: harness.gateway.command_queue.count == 1)
            await clock.advance(COMMAND_TIMEOUT + 1)
        await harness.wait_for_posts("“/dig deep” timed out. It may be partly done.")
        await harness.wait_until_idle()
        assert await harness.open_rows(COMMANDS) == []


async def test_hanging_command_does_not_block_shutdown_and_is_reported(tmp_path: Path) -> None:
    clock = FakeClock()
    with anyio.fail_after(GATEWAY_TIMEOUT):
        async with (
            anyio.create_task_group() as group,
            gateway_harness(tmp_path, clock=clock, own_commands={"dig": stuck}) as harness,
        ):
            group.start_soon(harness.channel.type, make_inbound("/dig", "c1"))
            await wait_until(lambda: harness.gateway.command_queue.count == 1)
    async with gateway_harness(tmp_path, clock=clock) as two:
        await two.wait_for_posts(
            "“/dig” was interrupted and may not be done. Send it again if you still need it."
        )


async def test_shutdown_lets_a_command_finish(tmp_path: Path) -> None:
    clock, gate = FakeClock(), anyio.Event()

    async def slow(order: object) -> str:
        await gate.wait()
        return "Dug."

    async with (
        gateway_harness(tmp_path, clock=clock, own_commands={"dig": slow}) as harness,
        anyio.create_task_group() as group,
    ):
        group.start_soon(harness.channel.type, make_inbound("/dig", "c1"))
        await wait_until(lambda: harness.gateway.command_queue.count == 1)
        harness.gateway.close()
        await anyio.wait_all_tasks_blocked()
        assert not harness.gateway.delivered.is_set()
        gate.set()
        await harness.gateway.delivered.wait()
        assert harness.channel.texts_in("1") == ["Dug."]


async def test_update_is_not_acknowledged_while_the_store_fails(tmp_path: Path) -> None:
    async with gateway_harness(tmp_path) as harness:
        store = harness.store
        await harness.channel.say("hello")
        await harness.wait_for_posts("re: hello")
        await harness.wait_until_idle()
        await store.close()
        with pytest.raises(Exception, match="closed"):
            await harness.gateway.intake.accept(make_inbound("lost?", "u9"))
    assert harness.channel.acknowledged == ["fake:1"]


@pytest.mark.slow
async def test_two_hundred_concurrent_sessions(tmp_path: Path) -> None:
    async with gateway_harness(tmp_path, authorize=admit_everyone) as harness:
        async with anyio.create_task_group() as group:
            for chat in range(200):
                group.start_soon(
                    harness.channel.type, make_inbound(f"hi {chat}", f"u{chat}", chat=f"{chat}")
                )
        await wait_until(lambda: len(harness.channel.posts) == 200)
        await harness.wait_until_idle()
        assert await harness.open_rows() == []
    for chat in range(200):
        assert harness.channel.texts_in(str(chat)) == [f"re: hi {chat}"]


async def test_answer_has_the_models_provenance(tmp_path: Path) -> None:
    async with gateway_harness(tmp_path) as harness:
        await harness.channel.say("hello")
        await harness.wait_for_posts("re: hello")
        assert isinstance((await harness.transcript())[-1], Assistant)
