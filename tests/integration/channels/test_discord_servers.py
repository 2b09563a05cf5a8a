"""Which messages of Discord servers start a turn, and where it answers; against the emulator."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from msgspec import structs

from hermes.channels.discord.channel import open_channel
from hermes.channels.discord.inbound import ROLE_SECONDS
from hermes.ports.channel import (
    Inbound,
    Outbound,
)
from hermes.schema.messages import Media, Text, User, attachments_of, typed_text
from hermes.schema.scope import Address
from hermes.testing.clock import FakeClock
from hermes.testing.contracts.channel import listening, text_of
from support.discord import (
    ANN,
    BOB,
    DiscordBench,
    DiscordGuild,
    channel_deps,
    discord_bench,
    emulator,
)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncGenerator[DiscordBench]:
    async with discord_bench(tmp_path) as one:
        yield one


def user_of(inbound: Inbound) -> User:
    return User("m", inbound.parts)


def post(text: str, **more: object) -> Outbound:
    return structs.replace(Outbound((Text(text),), plain=text), **more)


class TestServers:
    async def received(
        self,
        bench: DiscordBench,
        server: DiscordGuild,
        *texts: str,
        channel: str = "",
        person: str = ANN,
    ) -> list[Inbound]:
        async with listening(bench.channel) as updates:
            await bench.connected()
            for text in texts:
                bench.discord.say(channel or server.general, text, person=person)
            await bench.acknowledged()
        return updates

    async def test_mention_opens_a_thread_with_the_first_post(self, bench: DiscordBench) -> None:
        server = DiscordGuild(bench)
        (inbound,) = await self.received(bench, server, f"{server.bot} plan the trip\nto Rome")
        assert inbound.about.mentions
        assert inbound.address == Address("discord", server.general, inbound.message)
        assert text_of(inbound) == "plan the trip\nto Rome"
        thread = str(inbound.message)
        assert thread not in bench.discord.channels, "nobody has answered yet"
        await bench.channel.react(inbound.address, thread, "👀")
        await bench.channel.typing(inbound.address, True)
        assert bench.discord.channels[thread]["name"] == "plan the trip"
        sent = await bench.channel.send(inbound.address, post("Sure", reply_to=thread))
        assert [one.text for one in bench.discord.posts(thread)] == ["Sure"]
        await bench.channel.edit(sent, post("Sure!"))
        assert [one.text for one in bench.discord.posts(thread)] == ["Sure!"]
        reactions = bench.discord.messages[server.general, thread].reactions
        assert reactions == [(bench.discord.bot.id, "👀")]

    async def test_in_its_thread_no_mention_is_needed(self, bench: DiscordBench) -> None:
        server = DiscordGuild(bench)
        (first,) = await self.received(bench, server, f"{server.bot} hello")
        await bench.channel.send(first.address, post("Hello"))
        (more,) = await self.received(bench, server, "and now?", channel=str(first.message))
        assert more.about.mentions
        assert more.address == first.address

    async def test_thread_is_opened_after_a_restart_as_well(
        self, bench: DiscordBench, tmp_path: Path
    ) -> None:
        server = DiscordGuild(bench)
        (first,) = await self.received(bench, server, f"{server.bot} hello")
        async with open_channel(channel_deps(tmp_path, bench.server.api_url)) as channel:
            await channel.send(first.address, post("Hello"))
        assert [one.text for one in bench.discord.posts(str(first.message))] == ["Hello"]

    async def test_without_permission_for_threads_the_answer_is_a_reply(
        self, bench: DiscordBench
    ) -> None:
        server = DiscordGuild(bench)
        bench.discord.threadless.add(server.general)
        (first,) = await self.received(bench, server, f"{server.bot} hello")
        await bench.channel.send(first.address, post("Hello"))
        (shown,) = bench.discord.posts(server.general)
        assert shown.object["message_reference"]["message_id"] == first.message  # pyright: ignore[reportIndexIssue, reportUnknownMemberType]

    @pytest.mark.parametrize("setting", ["no_thread_channels", "free_response_channels"])
    async def test_some_channels_have_no_threads(self, tmp_path: Path, setting: str) -> None:
        discord = emulator()
        guild = discord.add_guild()
        channel = discord.add_channel(guild)
        async with discord_bench(tmp_path, discord, extra={setting: [channel]}) as bench:
            async with listening(bench.channel) as updates:
                await bench.connected()
                discord.say(channel, f"<@{discord.bot.id}> hi", person=ANN)
                await bench.acknowledged()
            assert updates[0].address == Address("discord", channel)

    async def test_only_a_mention_of_the_bot_is_reported(self, bench: DiscordBench) -> None:
        server = DiscordGuild(bench)
        texts = ("between us", f"<@{BOB}> hi", f"{server.bot} <@{BOB}> hi")
        updates = await self.received(bench, server, *texts)
        assert [(typed_text(user_of(one)), one.about.mentions) for one in updates] == [
            ("between us", False),
            ("@Person 1002 hi", True),
        ]

    async def test_messages_of_an_ignored_channel_are_dropped(self, tmp_path: Path) -> None:
        discord = emulator()
        channel = discord.add_channel(discord.add_guild())
        async with discord_bench(
            tmp_path, discord, env={"DISCORD_IGNORED_CHANNELS": channel}
        ) as bench:
            server = DiscordGuild(bench)
            assert await self.received(bench, server, f"{server.bot} hi", channel=channel) == []
            async with listening(bench.channel) as updates:
                await bench.connected()
                discord.command(channel, "help", ANN)
                await bench.acknowledged()
            assert updates == []

    async def test_mention_comes_with_the_messages_before_it(self, bench: DiscordBench) -> None:
        server = DiscordGuild(bench)
        bench.discord.say(server.general, "too old", person=BOB)
        await bench.channel.send(Address("discord", server.general), post("my last post"))
        bench.discord.say(server.general, "we meet at 6", person=BOB)
        (inbound,) = await self.received(bench, server, f"{server.bot} when?")
        (earlier,) = attachments_of(user_of(inbound))
        assert earlier.untrusted
        assert "Person 1002: we meet at 6" in earlier.text
        assert "too old" not in earlier.text

    async def test_roles_of_the_sender_are_known(self, bench: DiscordBench) -> None:
        server = DiscordGuild(bench)
        bench.discord.roles[server.id, ANN] = ["77"]
        (inbound,) = await self.received(bench, server, f"{server.bot} hi")
        assert (inbound.about.roles, inbound.about.guild) == (("77",), server.id)

    async def test_roles_count_in_direct_messages_until_they_are_taken_away(
        self, tmp_path: Path
    ) -> None:
        discord, clock = emulator(), FakeClock()
        guild = discord.add_guild()
        discord.roles[guild, ANN] = ["77"]
        extra = {"allowed_roles": ["77"], "dm_role_auth_guild": guild}
        async with discord_bench(tmp_path, discord, extra=extra, clock=clock) as bench:
            async with listening(bench.channel) as updates:
                await bench.connected()
                discord.say(bench.home.chat, "hi", person=ANN)
                await bench.acknowledged()
                discord.roles[guild, ANN] = []
                clock.skip(ROLE_SECONDS)
                discord.say(bench.home.chat, "still there?", person=ANN)
                await bench.acknowledged()
            assert [one.about.roles for one in updates] == [("77",), ()]

    async def test_files_between_other_people_are_not_downloaded(self, bench: DiscordBench) -> None:
        server = DiscordGuild(bench)
        async with listening(bench.channel) as updates:
            await bench.connected()
            for text in ("between us", f"{server.bot} look"):
                files = {"a.png": (text.encode(), "image/png")}
                bench.discord.say(server.general, text, person=ANN, files=files)
            await bench.acknowledged()
        found = [any(isinstance(part, Media) for part in one.parts) for one in updates]
        assert found == [False, True]

    async def test_post_in_a_forum_holds_the_whole_answer(self, bench: DiscordBench) -> None:
        server = DiscordGuild(bench)
        forum = Address("discord", server.ideas)
        first = await bench.channel.send(forum, post("# A plan\nwith parts", key="run:end:0"))
        second = await bench.channel.send(forum, post("the rest", key="run:end:1"))
        assert bench.discord.channels[first.id]["name"] == "# A plan"
        assert [one.text for one in bench.discord.posts(first.id)][1] == "the rest"
        await bench.channel.edit(first, post("edited"))
        assert bench.discord.messages[first.id, first.id].text == "edited"
        assert second.id != first.id

    async def test_without_the_intent_direct_messages_and_mentions_are_read(
        self, tmp_path: Path
    ) -> None:
        discord = emulator()
        discord.bot.flags = 0
        async with discord_bench(tmp_path, discord) as bench:
            server = DiscordGuild(bench)
            updates = await self.received(bench, server, "hidden", f"{server.bot} hi")
            updates += await self.received(bench, server, "direct", channel=bench.home.chat)
        assert [text_of(one) for one in updates] == ["hi", "direct"]


async def ignore(update: Inbound) -> None:
    """Accept an update without looking at it."""
