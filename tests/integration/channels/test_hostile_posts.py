"""Answers with hostile content stay within the rules of Discord and Slack, and nothing is lost."""

import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal, TypeAlias

import pytest
from msgspec import Struct

from emulators.discord.markdown import read_markdown
from emulators.slack.mrkdwn import read_mrkdwn, shown_text
from hermes.channels.discord import DiscordOptions
from hermes.channels.discord.commands import own_commands
from hermes.gateway.rendering.posts import compose_posts
from hermes.ports.channel import Attachment, Block, Channel, Choice, Choices, NotSent, Outbound
from hermes.schema.messages import Text
from hermes.schema.scope import Address
from hermes.store.blobs import FileBlobs
from support import discord, slack

Platform: TypeAlias = Literal["discord", "slack"]


class Shown(Struct):
    """A post as people see it."""

    text: str
    labels: list[str]
    files: dict[str, bytes]


class Bench(Struct, frozen=True):
    channel: Channel
    home: Address
    blobs: FileBlobs
    platform: discord.DiscordBench | slack.SlackBench

    async def send(self, *blocks: Block) -> list[Shown]:
        """Send an answer as the gateway does; the emulator refuses what breaks a rule."""
        for post in compose_posts(blocks, self.channel.caps):
            await self.channel.send(self.home, post)
        return self.shown()

    async def file(self, name: str, caption: str = "") -> Attachment:
        data = name.encode() or b"x"
        media = await self.blobs.put(data, "application/octet-stream", name)
        return Attachment(media, len(data), caption)

    def shown(self) -> list[Shown]:
        if isinstance(self.platform, discord.DiscordBench):
            return [
                Shown(read_markdown(one.text).text, [*one.buttons().values()], one.files)
                for one in self.platform.discord.posts(self.home.chat)
            ]
        return [
            Shown(shown_text(one), [*one.buttons().values()], one.files)
            for one in self.platform.slack.posts(self.home.chat)
        ]


@asynccontextmanager
async def opened(platform: Platform, folder: Path) -> AsyncGenerator[Bench]:
    if platform == "discord":
        async with discord.discord_bench(folder, discord.emulator(limited=False)) as one:
            yield Bench(one.channel, one.home, one.blobs, one)
    else:
        async with slack.slack_bench(folder, slack.emulator(limited=False)) as two:
            yield Bench(two.channel, two.home, two.blobs, two)


@pytest.fixture(params=["discord", "slack"])
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Bench]:
    async with opened(request.param, tmp_path) as one:
        yield one


def choices(*labels: str) -> Choices:
    return Choices(tuple(Choice(label, f"q:{number}") for number, label in enumerate(labels)))


async def test_a_hundred_choices_are_numbered(bench: Bench) -> None:
    posts = await bench.send(Text("Which?"), choices(*(f"Option {n}" for n in range(100))))
    assert not any(post.labels for post in posts)
    found = re.findall(r"Option (\d+)", "\n".join(post.text for post in posts))
    assert found == [str(n) for n in range(100)]


@pytest.mark.parametrize("count", [1, 5, 6, 10, 11, 25])
async def test_long_labels_are_shortened_and_numbered(bench: Bench, count: int) -> None:
    (post,) = await bench.send(Text("Which?"), choices(*["very long label " * 50] * count))
    assert len(set(post.labels)) == len(post.labels) == count


async def test_blank_labels_and_emoji_are_shown(bench: Bench) -> None:
    (post,) = await bench.send(Text("Which?"), choices("", " \n", "👩‍👧" * 100, "<b>&"))
    assert len(post.labels) == 4
    assert all(label.strip() for label in post.labels)


async def test_long_question_has_its_buttons_below_the_last_post(bench: Bench) -> None:
    text = "\n\n".join(f"Paragraph {n}.\n\n---" for n in range(700))
    posts = await bench.send(Text(text), choices("Yes", "No"))
    assert [len(post.labels) for post in posts] == [0] * (len(posts) - 1) + [2]
    found = re.findall(r"Paragraph (\d+)", "\n".join(post.text for post in posts))
    assert found == [str(n) for n in range(700)]


@pytest.mark.parametrize("text", ["", " ", "\n\n", "\0", "\x02\x0f", "---", "```\n```"])
async def test_text_without_content_breaks_no_rule(bench: Bench, text: str) -> None:
    await bench.send(Text(text))


async def test_eleven_files_are_all_sent(bench: Bench) -> None:
    files = [await bench.file(f"{n}.bin") for n in range(11)]
    posts = await bench.send(Text("Here."), *files)
    names = [name for post in posts for name in post.files]
    assert names == [f"{n}.bin" for n in range(11)]


@pytest.mark.parametrize(
    "name", ["", "a b.txt", 'a"b\n.txt', "../../etc/passwd", "ü" * 120, "💥.bin"]
)
async def test_any_name_of_a_file_is_taken(bench: Bench, name: str) -> None:
    posts = await bench.send(await bench.file(name))
    assert sum(len(post.files) for post in posts) == 1


async def test_edit_with_many_rules_is_whole(bench: Bench) -> None:
    text = "\n\n".join(f"Paragraph {n}.\n\n---" for n in range(700))
    first, *_ = compose_posts([Text(text)], bench.channel.caps)
    sent = await bench.channel.send(bench.home, Outbound((Text("…"),)))
    await bench.channel.edit(sent, first)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    (post,) = bench.shown()
    numbers = re.findall(r"Paragraph (\d+)", post.text)
    assert numbers == re.findall(r"Paragraph (\d+)", first.plain)


async def test_several_files_of_one_post(bench: Bench) -> None:
    files = tuple([await bench.file(f"{n}.bin", f"caption {n}") for n in range(10)])
    await bench.channel.send(bench.home, Outbound(files))
    (post,) = bench.shown()
    assert [*post.files] == [f"{n}.bin" for n in range(10)]
    assert all(f"caption {n}" in post.text for n in range(10))


async def test_caption_mentions_no_one(bench: Bench) -> None:
    """Slack would notify a channel; read_mrkdwn does not accept that."""
    file = await bench.file("a.bin", "<!channel> *now* @everyone")
    await bench.channel.send(bench.home, Outbound((file,)))
    (post,) = bench.shown()
    assert "channel" in post.text


async def test_discord_takes_ten_files_and_25_choices(tmp_path: Path) -> None:
    async with opened("discord", tmp_path) as bench:
        files = tuple([await bench.file(f"{n}.bin") for n in range(11)])
        with pytest.raises(NotSent, match="at most 10 files"):
            await bench.channel.send(bench.home, Outbound(files))
        many = choices(*(f"Option {n}" for n in range(26)))
        with pytest.raises(NotSent, match="at most 25 choices"):
            await bench.channel.send(bench.home, Outbound((Text("?"), many)))
        assert bench.shown() == []


async def test_slack_text_mentions_no_one(tmp_path: Path) -> None:
    async with opened("slack", tmp_path) as bench:
        (post,) = await bench.send(Text("<!channel> <@U1001> `<!here>`\n\n```\n<!everyone>\n```"))
    assert "<!channel>" in post.text
    assert read_mrkdwn("&lt;!channel&gt;").text == "<!channel>"


def test_list_of_commands_keeps_discords_rules() -> None:
    """A name that is there twice, or has no description, would refuse the whole list."""
    given = [("Help", "One"), ("help", "Two"), ("blank", "  "), ("bad name", "x"), ("x" * 40, "x")]
    many = [(f"c{n}", "word " * 60) for n in range(200)]
    found = own_commands([*given, *many], DiscordOptions())
    assert len(found) == 100
    assert [one.name for one in found[:2]] == ["help", "c0"]
    assert all(1 <= len(one.description) <= 100 for one in found)
