"""Edits, deletions, reactions and button presses on messages that wait, run or are answered."""

from collections.abc import Sequence
from pathlib import Path

import anyio
import anyio.lowlevel
from msgspec import structs

from hermes.gateway.chat_runs import QueuedMessage
from hermes.gateway.message_changes import DELETED, EDITED, MAX_CONTEXT, apply_changes
from hermes.gateway.messages import INBOX, Admitted, BusyMode, InboxKind, InboxMessage, Rejected
from hermes.ports.channel import (
    ChangedReaction,
    ChannelCapabilities,
    DeletedMessage,
    EditedMessage,
    Inbound,
    Markup,
)
from hermes.ports.store import AmendItem, CompleteItem
from hermes.schema.messages import Text, User, text_of
from hermes.schema.scope import Address, Requester
from hermes.testing.channel import FakeFaultyChannel
from hermes.testing.scripted_model import answer_script
from support.gateway import (
    GATED_SCRIPT,
    NO_POLLING,
    GatewayHarness,
    gated_tool,
    gateway_harness,
    gateway_rules,
    start_gated_turn,
    wait_until,
)
from support.polling import pause

HOME = Address("fake", "1")
QUEUE = gateway_rules(BusyMode.QUEUE)


def queued(
    key: str, text: str = "", kind: InboxKind = InboxKind.MESSAGE, message: str = "m"
) -> QueuedMessage:
    return QueuedMessage(
        key,
        InboxMessage(
            user=User(key, (Text(text),)),
            address=HOME,
            asker=Requester(message=message),
            kind=kind,
        ),
    )


def texts(waiting: Sequence[QueuedMessage]) -> list[str]:
    return [text_of(one.message.user) for one in waiting]


def test_edit_changes_the_waiting_message_only() -> None:
    rows = [
        queued("a", "helo"),
        queued("b", "more", message="m2"),
        queued("c", "hello", InboxKind.EDIT),
    ]
    applied = apply_changes(rows, (), {"a", "b", "c"})
    assert texts(applied.waiting) == ["hello", "more"]
    amend, done = applied.writes
    assert isinstance(amend, AmendItem)
    assert (amend.key, done) == ("a", CompleteItem("c"))


def test_deletion_removes_the_waiting_message() -> None:
    rows = [queued("a", "helo"), queued("c", "", InboxKind.DELETE)]
    applied = apply_changes(rows, (), {"a", "c"})
    assert applied.waiting == []
    assert applied.writes == [CompleteItem("a"), CompleteItem("c")]


def test_change_of_an_answered_message_is_ignored() -> None:
    rows = [queued("c", "new", InboxKind.EDIT), queued("d", "", InboxKind.DELETE)]
    applied = apply_changes(rows, (), {"c", "d"})
    assert applied.waiting == []
    assert applied.writes == [CompleteItem("c"), CompleteItem("d")]


def test_change_by_another_person_is_ignored() -> None:
    edit = queued("c", "new", InboxKind.EDIT)
    other = structs.replace(edit, message=structs.replace(edit.message, principal="fake:eve"))
    applied = apply_changes([queued("a", "old"), other], (), {"a", "c"})
    assert texts(applied.waiting) == ["old"]


def test_change_of_a_running_message_steers() -> None:
    rows = [queued("c", "new", InboxKind.EDIT), queued("d", "", InboxKind.DELETE)]
    applied = apply_changes(rows, [queued("a", "old")], {"c", "d"})
    assert texts(applied.waiting) == [f"{EDITED}new", DELETED]
    assert {one.message.busy_mode for one in applied.waiting} == {BusyMode.STEER}


def test_message_of_an_earlier_process_is_not_changed_in_place() -> None:
    rows = [queued("a", "old"), queued("c", "new", InboxKind.EDIT)]
    applied = apply_changes(rows, (), {"c"})
    assert texts(applied.waiting) == ["old", f"{EDITED}new"]


def test_old_context_is_dropped() -> None:
    rows = [queued(f"k{n}", str(n), InboxKind.CONTEXT) for n in range(MAX_CONTEXT + 2)]
    applied = apply_changes(rows, (), set())
    assert len(applied.waiting) == MAX_CONTEXT
    assert applied.writes == [CompleteItem("k0"), CompleteItem("k1")]


async def test_edit_and_deletion_while_another_message_is_answered(tmp_path: Path) -> None:
    gates, tool = gated_tool()
    async with gateway_harness(tmp_path, GATED_SCRIPT, tools=[tool], rules=QUEUE) as house:
        await start_gated_turn(house, gates)
        first = await house.channel.say("helo")
        second = await house.channel.say("never mind")
        await house.channel.change(EditedMessage(), first, Text("hello"))
        await house.channel.change(DeletedMessage(), second)
        gates.open("a")
        await wait_until(lambda: any("re: hello" in one for one in house.channel.texts_in("1")))
        await house.wait_until_idle()
        messages = await house.texts()
        assert "hello" in messages
        assert not {"helo", "never mind"} & set(messages)
        assert await house.open_rows() == []


async def test_edit_of_the_message_being_answered_reaches_the_run(tmp_path: Path) -> None:
    gates, tool = gated_tool()
    scripts = [GATED_SCRIPT, answer_script("Done.")]
    async with gateway_harness(tmp_path, *scripts, tools=[tool], rules=QUEUE) as house:
        update = await house.channel.say("wrk")
        await gates.reached("a")
        await house.channel.change(EditedMessage(), update, Text("work"))
        await _until_steered(house)
        gates.open("a")
        await house.wait_until_idle()
        assert house.channel.texts_in("1")[-1] == "Done."
        assert f"{EDITED}work" in await house.texts()
        assert len(house.model.requests) == 2


async def _until_steered(house: GatewayHarness) -> None:
    with anyio.fail_after(60):
        while not any(
            b"I edited" in bytes(item.body)
            for item in await house.store.queues.unfinished(INBOX, 10)
        ):
            await pause()


async def test_edit_into_a_command_is_ignored(tmp_path: Path) -> None:
    async with gateway_harness(tmp_path) as house:
        update = await house.channel.say("hi")
        await house.wait_until_idle()
        await house.channel.change(EditedMessage(), update, Text("/new"))
        await house.wait_until_idle()
        assert house.channel.texts_in("1") == ["re: hi"]


async def test_reaction_is_ignored_unless_configured(tmp_path: Path) -> None:
    async with gateway_harness(tmp_path) as house:
        update = await house.channel.say("hi")
        await house.wait_until_idle()
        await house.channel.change(ChangedReaction("👍"), update)
        assert await house.open_rows() == []


async def test_configured_reaction_is_context_of_the_next_message(tmp_path: Path) -> None:
    rules = structs.replace(NO_POLLING, reactions_in_context=frozenset({"fake"}))
    async with gateway_harness(tmp_path, rules=rules) as house:
        update = await house.channel.say("hi")
        await house.wait_until_idle()
        await house.channel.change(ChangedReaction("👍"), update)
        await house.wait_until_idle()
        assert len(house.model.requests) == 1
        await house.channel.say("and now?")
        await house.wait_until_idle()
        messages = await house.texts()
        assert messages[2:4] == ["(I reacted with 👍 to one of the messages above.)", "and now?"]
        assert len(house.model.requests) == 2
        assert await house.open_rows() == []


async def test_change_by_an_unknown_sender_gets_no_reply(tmp_path: Path) -> None:
    async def reject(inbound: Inbound) -> Admitted | Rejected:
        return Rejected("Who are you?")

    async with gateway_harness(tmp_path, authorize=reject) as house:
        update = await house.channel.say("hi")
        await house.channel.change(DeletedMessage(), update)
        await house.wait_until_idle()
        assert house.channel.texts_in("1") == ["Who are you?"]


async def test_rejected_markup_is_sent_without_it(tmp_path: Path) -> None:
    caps = ChannelCapabilities(max_text=400, markup=Markup.TELEGRAM)
    channel = FakeFaultyChannel(caps=caps)
    scripts = [answer_script("**Bold** <x>"), answer_script("**Bold** <x>", id="m2")]
    async with gateway_harness(tmp_path, *scripts, channel=channel) as house:
        await channel.say("hi")
        await house.wait_until_idle()
        channel.rejects_markup = True
        await channel.say("again")
        await house.wait_until_idle()
    assert channel.texts_in("1") == ["<b>Bold</b> &lt;x&gt;", "Bold <x>"]
