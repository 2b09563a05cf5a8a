"""What the Slack channel receives: messages, mentions, files and commands."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from hermes.ports.channel import (
    EditedMessage,
    Outbound,
)
from hermes.schema.messages import Media, Text
from hermes.schema.scope import Address
from hermes.testing.contracts.channel import text_of
from support.slack import (
    ANN,
    BOB,
    SlackBench,
    mention,
    received,
    slack_bench,
)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncGenerator[SlackBench]:
    async with slack_bench(tmp_path) as one:
        yield one


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

    async def test_first_mention_in_a_thread_includes_earlier_messages(
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

    async def test_link_preview_does_not_count_as_an_edit(self, bench: SlackBench) -> None:
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
