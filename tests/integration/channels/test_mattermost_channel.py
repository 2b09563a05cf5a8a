"""Mattermost on the emulator: documented rules, threads, files, lost events, and no loss."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from emulators.mattermost.state import ANN, BOT, BOT_NAME, TOKEN, EmulatedMattermost, new_id
from hermes.channels.account import BadToken
from hermes.channels.mattermost.setup import NO_CHANNEL, NO_TEAM, check_account
from hermes.ports.channel import (
    Attachment,
    EditedMessage,
    Inbound,
    Markup,
    NewMessage,
    NotSent,
    Outbound,
    TargetGone,
    Throttled,
    UnknownOutcome,
)
from hermes.schema.errors import ConfigError
from hermes.schema.messages import Media, Text
from hermes.schema.scope import Address
from hermes.testing.clock import FakeClock
from hermes.testing.contracts.channel import listening, text_of
from support.mattermost import MattermostBench, mattermost_bench


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncGenerator[MattermostBench]:
    async with mattermost_bench(tmp_path) as one:
        yield one


def post(text: str, key: str = "") -> Outbound:
    return Outbound((Text(text),), markup=Markup.MARKDOWN, plain=text, key=key)


async def test_mention_is_recognized_and_removed(bench: MattermostBench) -> None:
    room = bench.mattermost.add_channel("Town Square", BOT, ANN)
    texts = [
        "@hermes hello", "@Hermes, hello", "hello @hermes", f"@{BOT} hello",
        "not @hermes2", "mail me@hermes.example", "hi all", "ask @hermes about it",
    ]  # fmt: skip
    async with listening(bench.channel) as received:
        await bench.connected()
        for text in texts:
            bench.mattermost.say(room, text)
        await bench.acknowledged(room)
    assert [text_of(one) for one in received] == ["hello"] * 4 + texts[4:]
    mentioned = [one.about.mentions for one in received]
    assert mentioned == [True, True, True, True, False, False, False, True]
    assert {one.about.chat_type for one in received} == {"group"}
    assert received[0].about.chat_name == "Town Square"
    assert received[0].about.user_name == "ann"


async def test_notices_and_own_posts_are_ignored(bench: MattermostBench) -> None:
    async with listening(bench.channel) as received:
        await bench.connected()
        bench.mattermost.say(bench.home.chat, "ann joined", kind="system_join_channel")
        await bench.channel.send(bench.home, post("mine"))
        await bench.acknowledged()
    assert received == []


async def test_answer_to_a_thread_is_in_the_thread(bench: MattermostBench) -> None:
    room = bench.mattermost.add_channel("Room", BOT, ANN)
    async with listening(bench.channel) as received:
        await bench.connected()
        root = bench.mattermost.say(room, "@hermes first")
        bench.mattermost.say(room, "@hermes second", root=root.id)
        await bench.acknowledged(room)
    first, second = received
    assert first.address == Address("mattermost", room)
    assert second.address == Address("mattermost", room, root.id)
    await bench.channel.send(second.address, post("in thread"))
    assert bench.mattermost.shown(room)[-1].root == root.id


async def test_reply_mode_thread_opens_a_thread_in_channels_only(tmp_path: Path) -> None:
    async with mattermost_bench(tmp_path, extra={"reply_mode": "thread"}) as one:
        room = one.mattermost.add_channel("Room", BOT, ANN)
        async with listening(one.channel) as received:
            await one.connected()
            message = one.mattermost.say(room, "@hermes hello")
            await one.acknowledged(room)
            one.mattermost.say(one.home.chat, "hello")
            await one.acknowledged()
    assert [update.address.thread for update in received] == [message.id, None]


async def test_post_for_a_deleted_thread_is_sent_to_the_channel(bench: MattermostBench) -> None:
    """root_id must be a post of the same channel that exists."""
    root = bench.mattermost.say(bench.home.chat, "first")
    bench.mattermost.delete(root.id)
    await bench.channel.send(Address("mattermost", bench.home.chat, root.id), post("answer"))
    assert [one.root for one in bench.mattermost.shown(bench.home.chat)] == [""]


async def test_person_gets_a_direct_message(bench: MattermostBench) -> None:
    receipt = await bench.channel.send(Address("mattermost", ANN), post("hello"))
    assert bench.mattermost.posts[receipt.id].channel == bench.home.chat


async def test_channel_that_cannot_be_written_to_is_gone(bench: MattermostBench) -> None:
    others = bench.mattermost.add_channel("Others", ANN)
    archived = bench.mattermost.add_channel("Old", BOT, ANN)
    bench.mattermost.channels[archived].delete_at = 1
    for chat in (others, archived, new_id("none", 1), "../../users/me"):
        with pytest.raises(TargetGone):
            await bench.channel.send(Address("mattermost", chat), post("hello"))
    with pytest.raises(NotSent) as caught:
        await bench.channel.send(bench.home, post("x" * 17_000))
    assert not isinstance(caught.value, TargetGone)
    assert bench.mattermost.shown(others) == []


async def test_limit_says_how_long_to_wait_and_failure_is_unsure(bench: MattermostBench) -> None:
    """A 429 has the seconds in X-Ratelimit-Reset."""
    bench.server.failing = "store.sql_post.save.app_error"
    with pytest.raises(UnknownOutcome):
        await bench.channel.send(bench.home, post("hello"))
    bench.server.throttled = True
    with pytest.raises(Throttled) as caught:
        await bench.channel.send(bench.home, post("hello"))
    assert (caught.value.wait, caught.value.all_chats) == (2.0, True)


async def test_repeated_post_is_recognized_by_its_key(bench: MattermostBench) -> None:
    """A post with the same pending_post_id is answered with the first one."""
    first = await bench.channel.send(bench.home, post("hello", key="k:0"))
    again = await bench.channel.send(bench.home, post("(recovered) hello", key="k:0"))
    await bench.channel.send(bench.home, post("hello", key="k:1"))
    assert first.id == again.id
    assert len(bench.mattermost.shown(bench.home.chat)) == 2


async def test_files_are_received_and_large_ones_refused(bench: MattermostBench) -> None:
    room = bench.mattermost.add_channel("Room", BOT, ANN)
    picture = bench.mattermost.add_file("a.png", b"\x89PNG", "image/png")
    note = bench.mattermost.add_file("n.txt", b"a note", "text/plain")
    async with listening(bench.channel) as received:
        await bench.connected()
        bench.mattermost.say(bench.home.chat, "look", files=[picture, note])
        await bench.acknowledged()
        bench.mattermost.say(room, "for others", files=[picture])
        await bench.acknowledged(room)
    text, media, attached = received[0].parts
    assert text == Text("look")
    assert isinstance(media, Media)
    assert isinstance(attached, Text)
    assert "a note" in attached.text
    assert received[1].parts == (Text("for others"),), "files of others are not downloaded"
    large = await bench.blobs.put(b"x" * 1_000_001, "application/pdf", "large.pdf")
    with pytest.raises(NotSent):
        await bench.channel.send(bench.home, Outbound((Attachment(large, 1_000_001),)))


async def test_new_reaction_replaces_ours(bench: MattermostBench) -> None:
    message = bench.mattermost.say(bench.home.chat, "hello")
    await bench.channel.react(bench.home, message.id, "👀")
    await bench.channel.react(bench.home, message.id, "✅")
    assert message.reactions == {(BOT, "white_check_mark")}
    await bench.channel.typing(bench.home, True)
    assert bench.mattermost.typing == [(bench.home.chat, "")]


def summary(update: Inbound) -> tuple[str, str]:
    names: dict[object, str] = {NewMessage(): "new", EditedMessage(): "edit"}
    return names.get(update.update, "delete"), text_of(update)


async def test_missed_updates_are_fetched_once_and_in_order(tmp_path: Path) -> None:
    mattermost = EmulatedMattermost()
    async with mattermost_bench(tmp_path, mattermost) as one:
        mattermost.say(one.home.chat, "before the bot began").create_at -= 60_000
        async with listening(one.channel) as received:
            await one.connected()
            edited = mattermost.say(one.home.chat, "helo")
            deleted = mattermost.say(one.home.chat, "never mind")
            await one.acknowledged()
    seen = {update.key for update in received}
    mattermost.say(one.home.chat, "missed 1")
    mattermost.edit(edited.id, "hello")
    mattermost.delete(deleted.id)
    mattermost.delete(mattermost.say(one.home.chat, "written and deleted").id)
    mattermost.users[(bob := new_id("bob", 1))] = "bob"
    mattermost.say(mattermost.direct(bob), "from somebody new", person=bob)
    mattermost.say(one.home.chat, "missed 2")
    async with mattermost_bench(tmp_path, mattermost) as one, listening(one.channel) as later:
        await one.connected()
        await one.acknowledged()
        await one.acknowledged(mattermost.direct(bob))
    new = [summary(update) for update in later if update.key not in seen]
    assert [found for found in new if found[1] != "from somebody new"] == [
        ("edit", "hello"), ("delete", ""), ("new", "missed 1"), ("new", "missed 2"),
    ]  # fmt: skip
    assert ("new", "from somebody new") in new


async def test_more_posts_than_one_list_has_are_fetched(tmp_path: Path) -> None:
    mattermost = EmulatedMattermost()
    async with mattermost_bench(tmp_path, mattermost) as one, listening(one.channel):
        await one.connected()
    for number in range(1_100):
        mattermost.say(one.home.chat, f"missed {number}")
    async with mattermost_bench(tmp_path, mattermost) as one, listening(one.channel) as later:
        await one.connected()
        await one.acknowledged()
    assert [text_of(update) for update in later] == [f"missed {number}" for number in range(1_100)]


async def test_lost_event_and_cut_connection_lose_no_message(bench: MattermostBench) -> None:
    async with listening(bench.channel) as received:
        await bench.connected()
        bench.mattermost.say(bench.home.chat, "one")
        await bench.acknowledged()
        bench.server.lost_events = 1
        bench.mattermost.say(bench.home.chat, "two")
        await bench.acknowledged()
        assert [text_of(update) for update in received] == ["one", "two"]
        bench.server.cut_connections()
        bench.mattermost.say(bench.home.chat, "three")
        await bench.acknowledged()
    assert [text_of(update) for update in received] == ["one", "two", "three"]


async def test_silent_connection_is_replaced(tmp_path: Path) -> None:
    clock = FakeClock()
    async with mattermost_bench(tmp_path, clock=clock) as one, listening(one.channel):
        await one.connected()
        first = one.server.connections[0]
        first.answers_pings = False
        while first in one.server.connections or not one.server.connections:
            await clock.advance(20)


async def test_token_can_be_replaced_and_a_wrong_one_is_named(tmp_path: Path) -> None:
    env = {"MATTERMOST_TOKEN": "wr0ng"}
    async with mattermost_bench(tmp_path, env=env) as one:
        with pytest.raises(BadToken) as caught:
            await one.channel.run(_nothing)
        assert "wr0ng" not in f"{caught.value} {caught.value.hint}"
        one.server.token = "wr0ng"
        async with listening(one.channel):
            await one.connected()


async def test_token_that_is_revoked_while_connected_is_replaced(tmp_path: Path) -> None:
    """The server goes on to answer on the connection, but sends no events."""
    clock = FakeClock()
    async with mattermost_bench(tmp_path, clock=clock) as one, listening(one.channel) as received:
        await one.connected()
        await one.acknowledged()
        first = one.server.connections[0]
        one.server.token = one.env["MATTERMOST_TOKEN"] = "n3w"
        one.mattermost.say(one.home.chat, "hello")
        while first in one.server.connections or not one.server.connections:
            await clock.advance(20)
        await one.acknowledged()
    assert [text_of(update) for update in received] == ["hello"]


async def test_post_after_a_refused_token_is_sent_with_the_new_one(tmp_path: Path) -> None:
    async with mattermost_bench(tmp_path) as one:
        one.server.token = one.env["MATTERMOST_TOKEN"] = "n3w"
        post = Outbound((Text("hello"),))
        with pytest.raises(BadToken):
            await one.channel.send(one.home, post)
        assert (await one.channel.send(one.home, post)).id


async def _nothing(update: Inbound) -> None:
    raise AssertionError(update)


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ({"MATTERMOST_URL": ""}, "needs MATTERMOST_URL"),
        ({"MATTERMOST_URL": "chat.example.com"}, "must be an address"),
        ({"MATTERMOST_TOKEN": ""}, "no bot token"),
        ({"MATTERMOST_REPLY_MODE": "maybe"}, "MATTERMOST_REPLY_MODE"),
        ({"MATTERMOST_PROXY": "ftp://proxy"}, "is not supported"),
    ],
)
async def test_wrong_settings_are_refused(
    tmp_path: Path, env: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        async with mattermost_bench(tmp_path, env=env):
            pass


async def test_setup_lists_missing_settings(bench: MattermostBench) -> None:
    env = {"MATTERMOST_URL": bench.server.url}
    found = await check_account(TOKEN, {}, env)
    assert (found.account, found.notes) == (f"@{BOT_NAME}", (NO_CHANNEL.format(BOT_NAME),))
    bench.mattermost.add_channel("Room", BOT)
    assert (await check_account(TOKEN, {}, env)).notes == ()
    bench.mattermost.in_team = False
    assert (await check_account(TOKEN, {}, env)).notes == (NO_TEAM,)
    with pytest.raises(BadToken):
        await check_account("other", {}, env)
