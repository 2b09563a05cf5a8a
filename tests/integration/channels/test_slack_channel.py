"""The Slack channel against the emulator: what it receives, misses, acknowledges and sends."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from hermes.channels.account import BadToken
from hermes.channels.slack.channel import open_channel
from hermes.channels.slack.web_api import MissingScope, NotInChannel
from hermes.ports.channel import (
    Choice,
    Choices,
    EditedMessage,
    Inbound,
    Markup,
    NotSent,
    Offline,
    Outbound,
    TargetGone,
    Throttled,
)
from hermes.schema.errors import ConfigError
from hermes.schema.messages import Media, Text
from hermes.schema.scope import Address
from hermes.testing.clock import FakeClock
from hermes.testing.contracts.channel import listening, text_of
from hermes.testing.slack.mrkdwn import shown_text
from hermes.testing.slack.state import EmulatedSlack
from support.slack import (
    ANN,
    BOB,
    SECOND_TOKEN,
    TOKEN,
    SlackBench,
    channel_deps,
    emulator,
    slack_bench,
)

pytestmark = pytest.mark.anyio


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncGenerator[SlackBench]:
    async with slack_bench(tmp_path) as one:
        yield one


@asynccontextmanager
async def received(one: SlackBench) -> AsyncGenerator[list[Inbound]]:
    """What the channel delivers; on leaving, everything is acknowledged."""
    async with listening(one.channel) as inbound:
        await one.server.connected()
        yield inbound
        await one.server.acknowledged()


def mention(slack: EmulatedSlack) -> str:
    return f"<@{slack.workspace.bot}>"


class TestMessages:
    async def test_mention_is_one_message_in_a_thread_of_its_own(self, bench: SlackBench) -> None:
        slack = bench.slack
        channel = slack.add_channel("general")
        async with received(bench) as inbound:
            ts = slack.say(channel, f"{mention(slack)} look at <@{BOB}> & co", person=ANN)
        assert len({one.key for one in inbound}) == 1, "app_mention and message are the same"
        first = inbound[0]
        assert text_of(first) == "look at @Bob & co"
        assert first.address == Address("slack", channel, ts)
        assert first.about.mentions
        about = (first.about.chat_type, first.about.chat_name, first.about.user_name)
        assert about == ("group", "general", "Ann")
        assert first.about.guild == slack.workspace.team

    async def test_reply_needs_no_mention_in_threads_the_bot_is_in(self, bench: SlackBench) -> None:
        slack = bench.slack
        channel = slack.add_channel()
        async with received(bench) as inbound:
            other = slack.say(channel, "among us", person=ANN)
            slack.say(channel, "reply", person=BOB, thread=other)
            begun = slack.say(channel, f"{mention(slack)} hi", person=ANN)
            slack.say(channel, "more", person=BOB, thread=begun)
        mentioned = {text_of(one): one.about.mentions for one in inbound}
        assert mentioned == {"among us": False, "reply": False, "hi": True, "more": True}

    async def test_strict_mention_needs_one_each_time(self, tmp_path: Path) -> None:
        async with slack_bench(tmp_path, extra={"strict_mention": True}) as bench:
            slack = bench.slack
            channel = slack.add_channel()
            async with received(bench) as inbound:
                begun = slack.say(channel, f"{mention(slack)} hi", person=ANN)
                slack.say(channel, "more", person=BOB, thread=begun)
        assert not inbound[-1].about.mentions

    async def test_pattern_counts_as_a_mention(self, tmp_path: Path) -> None:
        extra = {"mention_patterns": ["^hey agent"]}
        async with slack_bench(tmp_path, extra=extra) as bench, received(bench) as inbound:
            bench.slack.say(bench.slack.add_channel(), "Hey agent, hi", person=ANN)
            await bench.server.acknowledged()
        assert inbound[0].about.mentions

    async def test_first_mention_in_a_thread_brings_what_was_said_before(
        self, bench: SlackBench
    ) -> None:
        slack = bench.slack
        channel = slack.add_channel()
        root = slack.say(channel, "the printer burns", person=BOB)
        async with received(bench) as inbound:
            slack.say(channel, f"{mention(slack)} help", person=ANN, thread=root)
            slack.say(channel, "thanks", person=ANN, thread=root)
        texts = [part.text for part in inbound[0].parts if isinstance(part, Text)]
        assert texts[0] == "help"
        assert "Bob: the printer burns" in texts[1]
        assert len(inbound[-1].parts) == 1, "what the bot has seen is not repeated"

    @pytest.mark.parametrize(
        ("extra", "threaded"),
        [
            ({}, True),
            ({"dm_top_level_threads_as_sessions": False}, False),
            ({"reply_in_thread": False}, False),
        ],
    )
    async def test_direct_message_begins_a_thread_unless_turned_off(
        self, tmp_path: Path, extra: dict[str, object], threaded: bool
    ) -> None:
        async with slack_bench(tmp_path, extra=extra) as bench, received(bench) as inbound:
            ts = bench.slack.say(bench.home.chat, "hello", person=ANN)
            await bench.server.acknowledged()
        assert inbound[0].address.thread == (ts if threaded else None)

    async def test_links_and_entities_are_readable(self, bench: SlackBench) -> None:
        slack = bench.slack
        message = slack.messages[bench.home.chat, bench.home.thread or ""]
        message.object["user"] = ANN
        message.object["text"] = (
            "<https://x.org|x.org> <https://x.org/a|here> <#C1|ops> <!here> &lt;b&gt; &amp;quot;"
        )
        async with received(bench) as inbound:
            slack.emit_again(message)
        shown = "https://x.org [here](https://x.org/a) #ops @here <b> &quot;"
        assert text_of(inbound[0]) == shown

    async def test_typed_command_is_recognized(self, bench: SlackBench) -> None:
        async with received(bench) as inbound:
            for text in ("!stop now", "!wow", "! stop"):
                bench.slack.say(bench.home.chat, text, person=ANN)
        assert [text_of(one) for one in inbound] == ["/stop now", "!wow", "! stop"]

    async def test_preview_of_a_link_is_no_edit(self, bench: SlackBench) -> None:
        slack = bench.slack
        async with received(bench) as inbound:
            ts = slack.say(bench.home.chat, "see https://x.org", person=ANN)
            slack.edit(bench.home.chat, ts, "see https://x.org")
            slack.edit(bench.home.chat, ts, "see https://y.org")
        assert [type(one.update).__name__ for one in inbound] == ["NewMessage", "EditedMessage"]
        assert inbound[1].update == EditedMessage()

    async def test_own_posts_and_notices_are_ignored(self, bench: SlackBench) -> None:
        slack = bench.slack
        async with received(bench) as inbound:
            slack.say(bench.home.chat, "me", person=slack.workspace.bot)
            slack.say(bench.home.chat, "joined", person=ANN, subtype="channel_join")
            slack.say(bench.home.chat, "from a bot", person="U77", bot_id="B77")
        (only,) = inbound
        assert only.about.bot

    async def test_event_that_cannot_be_read_is_acknowledged(self, bench: SlackBench) -> None:
        slack = bench.slack
        async with received(bench) as inbound:
            slack.emit(slack.workspace.team, {"type": "message", "channel": "C1", "ts": 5})
            slack.emit(slack.workspace.team, {"type": "channel_rename", "channel": {"id": "C1"}})
            slack.say(bench.home.chat, "after it", person=ANN)
        assert [text_of(one) for one in inbound] == ["after it"]


class TestFiles:
    async def test_received_files_are_parts(self, bench: SlackBench) -> None:
        files = {"a.txt": b"content", "b.png": b"\x89PNG", "c.bin": b"\x00"}
        async with received(bench) as inbound:
            bench.slack.say(bench.home.chat, "see", person=ANN, files=files)
        (update,) = inbound
        assert text_of(update).startswith("see")
        assert "content" in text_of(update)
        media = [part for part in update.parts if isinstance(part, Media)]
        assert [one.name for one in media] == ["b.png", "c.bin"]
        assert await bench.blobs.read(media[1].digest) == b"\x00"

    @pytest.mark.parametrize("login_page", [False, True])
    async def test_missing_scope_is_said_instead_of_the_file(
        self, bench: SlackBench, login_page: bool
    ) -> None:
        workspace = bench.slack.workspace
        workspace.scopes -= {"files:read"}
        bench.server.login_page = login_page
        async with received(bench) as inbound:
            bench.slack.say(bench.home.chat, "see", person=ANN, files={"a.txt": b"x"})
        assert "files:read is missing" in text_of(inbound[0])

    async def test_token_is_not_sent_elsewhere(self, bench: SlackBench) -> None:
        slack = bench.slack
        ts = slack.say(bench.home.chat, "see", person=ANN, files={"a.txt": b"x"})
        message = slack.messages[bench.home.chat, ts]
        file = {**message.object["files"][0], "url_private_download": "http://127.0.0.1:9/a"}  # pyright: ignore[reportIndexIssue, reportUnknownVariableType]
        message.object["files"] = [file]
        async with received(bench) as inbound:
            slack.emit_again(message)
        assert "the download failed" in text_of(inbound[0])


class TestSocket:
    async def test_duplicates_under_way_are_delivered_once_and_all_acknowledged(
        self, bench: SlackBench
    ) -> None:
        sockets = bench.server.sockets
        delivering, durable = anyio.Event(), anyio.Event()
        keys: list[str] = []

        async def deliver(update: Inbound) -> None:
            keys.append(update.key)
            delivering.set()
            await durable.wait()

        async with anyio.create_task_group() as group:
            group.start_soon(bench.channel.run, deliver)
            await bench.server.connected()
            bench.slack.say(bench.home.chat, "hello", person=ANN)
            await delivering.wait()
            (first,) = [one for one in sockets.envelopes.values() if not one.given_up]
            sockets.send("events_api", first.payload)
            await bench.server.until(lambda: len(sockets.open[0].unacknowledged) == 2)
            durable.set()
            await bench.server.acknowledged()
            sockets.send("events_api", first.payload)
            await bench.server.acknowledged()
            group.cancel_scope.cancel()
        assert len(keys) == 1
        assert sum(one.acknowledged for one in sockets.envelopes.values()) == 3

    @pytest.mark.parametrize("reason", ["warning", "refresh_requested"])
    async def test_connection_is_replaced_before_it_ends(
        self, bench: SlackBench, reason: str
    ) -> None:
        sockets = bench.server.sockets
        async with received(bench) as inbound:
            bench.slack.say(bench.home.chat, "before", person=ANN)
            await bench.server.acknowledged()
            await sockets.disconnect(reason)
            await bench.server.until(lambda: sockets.opened == 2)
            assert len(sockets.open) == 2, "there is no time without a connection"
            for number in range(6):
                bench.slack.say(bench.home.chat, f"after {number}", person=ANN)
        assert len(inbound) == 7
        assert "users.conversations" not in bench.server.calls[3:], "so nothing is searched"

    async def test_broken_connection_is_replaced_and_missed_messages_are_fetched(
        self, bench: SlackBench
    ) -> None:
        slack, sockets = bench.slack, bench.server.sockets
        channel = slack.add_channel()
        async with received(bench) as inbound:
            begun = slack.say(channel, f"{mention(slack)} hi", person=ANN)
            await bench.server.acknowledged()
            await sockets.break_all()
            slack.say(channel, "in the thread", person=BOB, thread=begun)
            slack.say(channel, f"{mention(slack)} new", person=BOB)
            slack.say(slack.direct(BOB), "first words", person=BOB)
            assert sockets.lost
            await bench.server.connected()
            texts = ["hi", "in the thread", "new", "first words"]
            await holds(lambda: {text_of(one) for one in inbound} >= {*texts})
        found = {text_of(one): one for one in inbound}
        assert found["in the thread"].about.mentions
        assert found["first words"].about.chat_type == "dm"
        order = [text_of(one) for one in inbound if one.address.chat == channel]
        assert list(dict.fromkeys(order)) == ["hi", "in the thread", "new"]

    async def test_messages_missed_between_two_processes_are_fetched(self, tmp_path: Path) -> None:
        async with slack_bench(tmp_path) as bench:
            slack = bench.slack
            async with received(bench) as inbound:
                slack.say(bench.home.chat, "one", person=ANN)
            with anyio.fail_after(10):
                path = tmp_path / "cache" / "slack" / "slack.json"
                await holds(lambda: path.exists() and b"handled_until" in path.read_bytes())
            slack.say(bench.home.chat, "two", person=ANN)
            deps = channel_deps(tmp_path, bench.server.api_url)
            async with open_channel(deps) as again, listening(again) as inbound:
                await holds(lambda: "two" in [text_of(one) for one in inbound])

    async def test_socket_mode_that_is_off_is_named(self, bench: SlackBench) -> None:
        bench.server.sockets.refuse_with = "link_disabled"
        with pytest.raises(Offline, match="Socket Mode is turned off"):
            await bench.channel.run(ignore)

    async def test_too_many_connections_end_the_attempts(self, tmp_path: Path) -> None:
        async with slack_bench(tmp_path, clock=FakeClock(auto=True)) as bench:
            bench.server.sockets.refuse_with = "too_many_websockets"
            with pytest.raises(Offline, match="connection to Slack fails"):
                await bench.channel.run(ignore)


async def holds(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - the channel tells nobody
        await anyio.sleep(0.01)


async def ignore(update: Inbound) -> None:
    """Take an update and forget it."""


class TestPosts:
    async def test_text_with_markup_is_sent_as_text(self, bench: SlackBench) -> None:
        post = Outbound((Text("*bold* &lt;x&gt;"),), markup=Markup.SLACK, plain="bold <x>")
        receipt = await bench.channel.send(bench.home, post)
        sent = bench.slack.messages[bench.home.chat, receipt.id]
        assert sent.object["blocks"] == []
        assert (shown_text(sent), sent.thread) == ("bold <x>", bench.home.thread)

    async def test_long_answer_can_be_edited_in(self, bench: SlackBench) -> None:
        """Edited text is limited to 4,000 characters, blocks are not."""
        receipt = await bench.channel.send(bench.home, Outbound((Text("…"),)))
        code = "```\n" + "\n".join(f"line {n} &lt;" for n in range(900)) + "\n```"
        text = f"*Title*\n\n{code}\n\n" + "word " * 1000
        await bench.channel.edit(receipt, Outbound((Text(text),), markup=Markup.SLACK))
        shown = shown_text(bench.slack.messages[bench.home.chat, receipt.id])
        assert [line for line in shown.split("\n") if line.startswith("line ")] == [
            f"line {n} <" for n in range(900)
        ]
        assert shown.count("word") == 1000

    async def test_edit_removes_the_buttons(self, bench: SlackBench) -> None:
        asked = Outbound((Text("Sure?"), Choices((Choice("Allow", "q:1"), Choice("Deny", "q:2")))))
        receipt = await bench.channel.send(bench.home, asked)
        post = bench.slack.messages[bench.home.chat, receipt.id]
        styles = [one.get("style") for one in post.object["blocks"][-1]["elements"]]  # pyright: ignore[reportIndexIssue, reportUnknownVariableType, reportUnknownMemberType]
        assert styles == ["primary", "danger"]
        await bench.channel.edit(receipt, Outbound((Text("Allowed."),), markup=Markup.SLACK))
        assert post.buttons() == {}
        assert shown_text(post) == "Allowed."

    async def test_rich_blocks_and_broadcast(self, tmp_path: Path) -> None:
        extra = {"rich_blocks": True, "reply_broadcast": True}
        async with slack_bench(tmp_path, extra=extra) as bench:
            text = "one\n\n———\n\ntwo"
            post = Outbound((Text(text),), markup=Markup.SLACK, plain=text, key="k")
            receipt = await bench.channel.send(bench.home, post)
            sent = bench.slack.messages[bench.home.chat, receipt.id].object
        kinds = [one["type"] for one in sent["blocks"]]  # pyright: ignore[reportGeneralTypeIssues, reportUnknownVariableType]
        assert kinds == ["section", "divider", "section"]
        assert sent["subtype"] == "thread_broadcast"

    async def test_person_is_written_to_directly(self, bench: SlackBench) -> None:
        receipt = await bench.channel.send(Address("slack", BOB), Outbound((Text("hi"),)))
        assert receipt.address.chat == BOB
        assert [shown_text(one) for one in bench.slack.posts(bench.slack.direct(BOB))] == ["hi"]

    async def test_refusals_have_errors_of_their_own(self, bench: SlackBench) -> None:
        slack = bench.slack
        foreign = slack.add_channel("foreign", member=False)
        post = Outbound((Text("x"),))
        with pytest.raises(NotInChannel) as caught:
            await bench.channel.send(Address("slack", foreign), post)
        assert "/invite" in caught.value.hint
        with pytest.raises(TargetGone):
            await bench.channel.send(Address("slack", "C404"), post)
        slack.workspace.scopes -= {"chat:write"}
        with pytest.raises(MissingScope, match="needs chat:write"):
            await bench.channel.send(bench.home, post)
        bench.server.failing["chat.postMessage"] = "internal_error"
        slack.workspace.scopes |= {"chat:write"}
        with pytest.raises(Exception, match="internal_error") as unknown:
            await bench.channel.send(bench.home, post)
        assert not isinstance(unknown.value, NotSent), "it may have been posted"

    async def test_throttled_method_pauses_without_a_call(self, bench: SlackBench) -> None:
        bench.server.throttled = 2.0
        post = Outbound((Text("x"),))
        for _ in range(2):
            with pytest.raises(Throttled) as caught:
                await bench.channel.send(bench.home, post)
        assert 0 < caught.value.wait <= 2.0
        assert bench.server.calls.count("chat.postMessage") == 1
        bench.server.throttled = 0.0
        other = Address("slack", bench.slack.add_channel())
        await bench.channel.send(other, post)

    async def test_edits_leave_a_part_of_the_limit_to_answers(self, bench: SlackBench) -> None:
        receipt = await bench.channel.send(bench.home, Outbound((Text("…"),)))
        for number in range(35):
            await bench.channel.edit(receipt, Outbound((Text(str(number)),)))
        with pytest.raises(Throttled):
            await bench.channel.edit(receipt, Outbound((Text("once more"),)))
        answer = Outbound((Text("the answer"),), markup=Markup.SLACK, plain="the answer")
        await bench.channel.edit(receipt, answer)
        assert bench.server.limits.refused == 0
        for _ in range(14):
            await bench.channel.edit(receipt, answer)
        with pytest.raises(NotSent) as caught:
            await bench.channel.edit(receipt, answer)
        assert not isinstance(caught.value, Throttled), "it is sent as a new post at once"

    async def test_reaction_replaces_the_one_before(self, bench: SlackBench) -> None:
        message = bench.slack.messages[bench.home.chat, bench.home.thread or ""]
        for sign in ("👀", "👀", "✅"):
            await bench.channel.react(bench.home, message.id, sign)
        assert [name for _, name in message.reactions] == ["white_check_mark"]
        with pytest.raises(NotSent):
            await bench.channel.react(bench.home, message.id, "🦖")


class TestAssistant:
    async def test_prompts_title_and_status(self, tmp_path: Path) -> None:
        prompts = [{"title": "Plan", "message": "Plan my day"}]
        async with slack_bench(tmp_path, extra={"suggested_prompts": prompts}) as bench:
            slack = bench.slack
            async with received(bench):
                place = slack.open_assistant(ANN)
                await bench.server.until(lambda: place in slack.prompts)
                slack.say(place[0], "What is new today?", person=ANN, thread=place[1])
                await bench.server.until(lambda: place in slack.titles)
            assert slack.prompts[place] == prompts
            assert slack.titles[place] == "What is new today?"

    async def test_status_is_not_repeated_while_it_is_shown(self, bench: SlackBench) -> None:
        for _ in range(3):
            await bench.channel.typing(bench.home, True)
        await bench.channel.typing(Address("slack", bench.home.chat), True)
        assert bench.server.calls.count("assistant.threads.setStatus") == 1
        await bench.channel.send(bench.home, Outbound((Text("x"),)))
        await bench.channel.typing(bench.home, True)
        assert bench.server.calls.count("assistant.threads.setStatus") == 2

    async def test_status_without_its_scope_is_given_up(self, bench: SlackBench) -> None:
        bench.server.failing["assistant.threads.setStatus"] = "missing_scope"
        for _ in range(2):
            await bench.channel.typing(bench.home, True)
        assert bench.server.calls.count("assistant.threads.setStatus") == 1


class TestCommands:
    async def test_slash_command_goes_to_the_last_thread_of_the_person(
        self, bench: SlackBench
    ) -> None:
        slack = bench.slack
        async with received(bench) as inbound:
            slack.command(bench.home.chat, "hermes", ANN)
            await bench.server.acknowledged()
            ts = slack.say(bench.home.chat, "hello", person=ANN)
            await bench.server.acknowledged()
            slack.command(bench.home.chat, "queue", ANN, "and then")
        assert [text_of(one) for one in inbound] == ["/help", "hello", "/queue and then"]
        assert [one.address.thread for one in inbound] == [None, ts, ts]
        assert inbound[2].about.mentions


class TestWorkspaces:
    async def test_each_chat_is_answered_with_the_token_of_its_workspace(
        self, tmp_path: Path
    ) -> None:
        slack = emulator()
        second = slack.install(SECOND_TOKEN, "Globex")
        env = {"SLACK_BOT_TOKEN": f"{TOKEN}, {SECOND_TOKEN}"}
        async with slack_bench(tmp_path, slack, env=env) as bench:
            other = slack.add_channel("other", second.team)
            async with received(bench) as inbound:
                slack.say(other, f"<@{second.bot}> hi", person=ANN)
            assert inbound[0].about.guild == second.team
            assert inbound[0].about.mentions
            # Without an event, the workspace is looked for.
            silent = slack.add_channel("silent", second.team)
            for chat in (other, silent, bench.home.chat):
                await bench.channel.send(Address("slack", chat), Outbound((Text("x"),)))
            authors = [slack.posts(one)[0].author for one in (other, silent, bench.home.chat)]
        assert authors == [second.bot, second.bot, slack.workspace.bot]

    async def test_two_tokens_of_one_workspace_are_refused(self, tmp_path: Path) -> None:
        slack = emulator()
        slack.workspaces[SECOND_TOKEN] = slack.workspace
        env = {"SLACK_BOT_TOKEN": f"{TOKEN},{SECOND_TOKEN}"}
        async with slack_bench(tmp_path, slack, env=env) as bench:
            with pytest.raises(ConfigError, match="Two bot tokens"):
                await bench.channel.run(ignore)


class TestTokens:
    @pytest.mark.parametrize(
        "env",
        [
            {"SLACK_BOT_TOKEN": "xoxp-a-user"},
            {"SLACK_APP_TOKEN": "xoxb-swapped"},
            {"SLACK_APP_TOKEN": ""},
        ],
    )
    async def test_token_of_another_kind_is_named(
        self, tmp_path: Path, env: dict[str, str]
    ) -> None:
        with pytest.raises(ConfigError, match=r"slack has no (valid )?(bot|app) token"):
            async with open_channel(channel_deps(tmp_path, "http://127.0.0.1:1", env=env)):
                pass

    async def test_refused_token_is_not_shown(self, tmp_path: Path) -> None:
        env = {"SLACK_BOT_TOKEN": "xoxb-wrong"}
        async with slack_bench(tmp_path, env=env) as bench:
            with pytest.raises(BadToken) as caught:
                await bench.channel.run(ignore)
        assert "xoxb" not in str(caught.value)
