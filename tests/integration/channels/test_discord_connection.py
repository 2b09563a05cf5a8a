"""What the Discord channel does when connections fail or end; against the emulator."""

from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from pathlib import Path

import anyio
import msgspec
import pytest
from msgspec import structs

from emulators.discord.server import serve_discord
from hermes.channels.account import BadToken
from hermes.channels.discord.channel import open_channel
from hermes.channels.discord.rest_api import MAX_RETRY_SECONDS
from hermes.ports.channel import (
    Inbound,
    Offline,
    Outbound,
)
from hermes.schema.errors import ConfigError
from hermes.schema.messages import Text
from hermes.schema.scope import Address
from hermes.testing.clock import FakeClock
from hermes.testing.contracts.channel import listening, text_of
from support.discord import (
    ANN,
    TOKEN,
    DiscordBench,
    DiscordGuild,
    channel_deps,
    discord_bench,
    emulator,
)
from support.socks import socks_proxy


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncGenerator[DiscordBench]:
    async with discord_bench(tmp_path) as one:
        yield one


def post(text: str, **more: object) -> Outbound:
    return structs.replace(Outbound((Text(text),), plain=text), **more)


class TestConnection:
    async def test_events_during_a_cut_are_replayed(self, bench: DiscordBench) -> None:
        async with listening(bench.channel) as updates:
            await bench.connected()
            for number in range(3):
                bench.discord.say(bench.home.chat, f"message {number}", person=ANN)
                bench.server.gateway.cut()
            await bench.acknowledged()
        assert [text_of(one) for one in updates] == ["message 0", "message 1", "message 2"]
        assert bench.server.gateway.identified == 1

    async def test_messages_are_replayed_after_a_restart(self, bench: DiscordBench) -> None:
        async with listening(bench.channel):
            await bench.connected()
            bench.discord.say(bench.home.chat, "before", person=ANN)
            await bench.acknowledged()
        bench.discord.say(bench.home.chat, "meanwhile", person=ANN)
        async with listening(bench.channel) as updates:
            await bench.acknowledged()
        assert [text_of(one) for one in updates] == ["meanwhile"]
        assert bench.server.gateway.identified == 1

    async def test_missed_messages_of_a_lost_session_are_fetched(self, bench: DiscordBench) -> None:
        server = DiscordGuild(bench)
        async with listening(bench.channel) as first:
            await bench.connected()
            bench.discord.say(bench.home.chat, "before", person=ANN)
            await bench.acknowledged()
        bench.server.gateway.identify_seconds = 0
        bench.server.gateway.forget_sessions()
        bench.discord.say(bench.home.chat, "meanwhile", person=ANN)
        bench.discord.say(server.general, f"{server.bot} here, too", person=ANN)
        async with listening(bench.channel) as updates:
            await bench.connected()
            await bench.server.until(lambda: bench.server.gateway.identified == 2)
            bench.discord.say(bench.home.chat, "live", person=ANN)
            await bench.acknowledged()
        keys = {one.key for one in first}
        found = {one.key: one for one in updates if one.key not in keys}.values()
        assert sorted(text_of(one) for one in found) == ["here, too", "live", "meanwhile"]
        direct = [text_of(one) for one in found if one.address == bench.home]
        assert direct == ["meanwhile", "live"]

    async def test_missed_messages_can_be_left_alone(self, tmp_path: Path) -> None:
        extra = {"missed_message_backfill": {"enabled": False}}
        async with discord_bench(tmp_path, extra=extra) as bench:
            async with listening(bench.channel):
                await bench.connected()
                bench.discord.say(bench.home.chat, "before", person=ANN)
                await bench.acknowledged()
            bench.server.gateway.identify_seconds = 0
            bench.server.gateway.forget_sessions()
            bench.discord.say(bench.home.chat, "meanwhile", person=ANN)
            async with listening(bench.channel) as updates:
                await bench.server.until(lambda: bench.server.gateway.identified == 2)
                bench.discord.say(bench.home.chat, "live", person=ANN)
                await bench.acknowledged()
            assert [text_of(one) for one in updates] == ["live"]

    async def test_search_for_missed_messages_waits_for_the_rate_limit(
        self, tmp_path: Path
    ) -> None:
        async with discord_bench(tmp_path, clock=FakeClock(datetime.now(UTC), auto=True)) as bench:
            async with listening(bench.channel):
                await bench.connected()
                bench.discord.say(bench.home.chat, "before", person=ANN)
                await bench.acknowledged()
            bench.server.gateway.identify_seconds = 0
            bench.server.gateway.forget_sessions()
            bench.discord.say(bench.home.chat, "meanwhile", person=ANN)
            bench.server.history_wait = 2 * MAX_RETRY_SECONDS
            async with listening(bench.channel) as updates:
                await bench.server.until(lambda: bench.server.gateway.identified == 2)
                await bench.acknowledged()
        assert "meanwhile" in [text_of(one) for one in updates]

    async def test_session_that_cannot_be_continued_is_given_up(self, tmp_path: Path) -> None:
        """Discord, "Opcodes and Status Codes": "4007 Invalid seq: The sequence sent when resuming
        the session was invalid. Reconnect and start a new session." """
        async with discord_bench(tmp_path, clock=FakeClock(auto=True)) as bench:
            async with listening(bench.channel):
                await bench.connected()
                bench.discord.say(bench.home.chat, "before", person=ANN)
                await bench.acknowledged()
            bench.server.gateway.identify_seconds = 0
            ahead = structs.replace(bench.stored_position(), sequence=9_999)
            bench.position.write_bytes(msgspec.json.encode(ahead))
            async with listening(bench.channel) as updates:
                await bench.server.until(lambda: bench.server.gateway.identified == 2)
                bench.discord.say(bench.home.chat, "hello", person=ANN)
                await bench.acknowledged()
            # The number was the test's.
            assert bench.server.violations == ["4007 Invalid seq."]
            bench.server.violations.clear()
        assert text_of(updates[-1]) == "hello"

    async def test_failed_storing_is_repeated(self, bench: DiscordBench) -> None:
        async def fail(update: Inbound) -> None:
            raise OSError("the disk is full")

        async def run() -> None:
            with pytest.raises(OSError, match="the disk is full"):
                await bench.channel.run(fail)

        async with anyio.create_task_group() as group:
            group.start_soon(run)
            await bench.connected()
            bench.discord.say(bench.home.chat, "keep me", person=ANN)
        async with listening(bench.channel) as updates:
            await bench.acknowledged()
        assert [text_of(one) for one in updates] == ["keep me"]

    async def test_deaf_connection_is_replaced(self, tmp_path: Path) -> None:
        """Discord, "Gateway": "If a client does not receive a heartbeat ACK between its attempts at
        sending heartbeats, this may be due to a failed or "zombied" connection. The client should
        immediately terminate the connection with any close code besides 1000 or 1001, then
        reconnect and attempt to Resume." """
        extra = {"websocket_heartbeat_ack_max_age_seconds": 0.4}
        async with discord_bench(tmp_path, extra=extra) as bench:
            bench.server.gateway.heartbeat_ms = 100
            async with listening(bench.channel) as updates:
                await bench.connected()
                bench.server.gateway.deafen()
                bench.discord.say(bench.home.chat, "can you hear me?", person=ANN)
                await bench.acknowledged()
            assert [text_of(one) for one in updates] == ["can you hear me?"]
            assert bench.server.gateway.resumed >= 1

    async def test_request_for_a_heartbeat_is_followed(self, bench: DiscordBench) -> None:
        """Discord, "Gateway": "Upon receiving the event, your app should immediately send back
        another Heartbeat event without waiting the remainder of the current interval." """
        gateway = bench.server.gateway
        async with listening(bench.channel):
            await bench.server.until(lambda: gateway.heartbeats == 1)
            gateway.ask_for_heartbeat()
            await bench.server.until(lambda: gateway.heartbeats == 2)

    async def test_session_is_begun_again_after_a_refusal(self, bench: DiscordBench) -> None:
        """Discord, "Gateway": "Apps are limited by maximum concurrency", "If your app exceeds this
        limit, Discord will respond with a Invalid Session (opcode 9) event." """
        gateway = bench.server.gateway
        bench.discord.bot.started_at = bench.discord.clock.monotonic()
        async with listening(bench.channel) as updates:
            await bench.server.until(lambda: gateway.invalidated > 0)
            gateway.identify_seconds = 0
            await bench.server.until(lambda: gateway.identified == 1)
            bench.discord.say(bench.home.chat, "hello", person=ANN)
            await bench.acknowledged()
        assert [text_of(one) for one in updates] == ["hello"]

    async def test_request_to_reconnect_is_followed(self, bench: DiscordBench) -> None:
        """Discord, "Opcodes and Status Codes": "7 Reconnect: You should attempt to reconnect and
        resume immediately." """
        async with listening(bench.channel) as updates:
            await bench.connected()
            bench.server.gateway.ask_to_reconnect()
            await bench.server.until(lambda: bench.server.gateway.resumed == 1)
            bench.discord.say(bench.home.chat, "hello", person=ANN)
            await bench.acknowledged()
        assert [text_of(one) for one in updates] == ["hello"]

    async def test_exhausted_session_starts_are_named(self, bench: DiscordBench) -> None:
        bench.discord.bot.starts_left = 0
        with pytest.raises(Offline, match="no new sessions for this bot for 14400 seconds"):
            await bench.channel.run(ignore)

    async def test_replaced_token_is_used_without_a_restart(self, tmp_path: Path) -> None:
        env = {"DISCORD_BOT_TOKEN": "revoked.bot.token"}
        async with serve_discord(emulator()) as server:
            deps = channel_deps(tmp_path, server.api_url)
            deps = structs.replace(deps, current_env=lambda: env)
            async with open_channel(deps) as channel:
                with pytest.raises(BadToken, match="does not accept the bot token"):
                    await channel.run(ignore)
                env["DISCORD_BOT_TOKEN"] = TOKEN
                async with listening(channel):
                    await server.until(lambda: bool(server.gateway.sessions))

    async def test_proxy_is_used(self, tmp_path: Path) -> None:
        """The emulator serves as a proxy: it gets the whole address of the API."""
        async with serve_discord(emulator()) as server:
            env = {"DISCORD_PROXY": server.url}
            deps = channel_deps(tmp_path, "http://discord.invalid/api/v10", env=env)
            server.gateway.url = server.discord.gateway_url = "ws://discord.invalid/gateway"
            async with open_channel(deps) as channel:
                home = Address("discord", server.discord.direct(ANN))
                await channel.send(home, post("through the proxy"))
                async with listening(channel):
                    await server.until(lambda: bool(server.gateway.sessions))
            assert [one.text for one in server.discord.posts(home.chat)] == ["through the proxy"]

    async def test_socks_proxy_is_used(self, tmp_path: Path) -> None:
        async with serve_discord(emulator()) as server, socks_proxy() as proxy:
            there = server.api_url.replace("127.0.0.1", "discord.invalid")
            server.gateway.url = server.gateway.url.replace("127.0.0.1", "discord.invalid")
            server.discord.gateway_url = server.gateway.url
            deps = channel_deps(tmp_path, there, env={"DISCORD_PROXY": proxy.url})
            async with open_channel(deps) as channel, listening(channel):
                await server.until(lambda: bool(server.gateway.sessions))
            assert set(proxy.hosts) == {"discord.invalid"}

    @pytest.mark.parametrize(
        ("env", "says"),
        [
            ({"DISCORD_BOT_TOKEN": ""}, "has no bot token"),
            ({"DISCORD_BOT_TOKEN": "abc"}, "no valid bot token"),
            ({"DISCORD_PROXY": "ftp://localhost:1"}, "not supported"),
            ({"DISCORD_HISTORY_BACKFILL_LIMIT": "many"}, "DISCORD_HISTORY_BACKFILL_LIMIT cannot"),
        ],
    )
    async def test_wrong_settings_are_named(
        self, tmp_path: Path, env: dict[str, str], says: str
    ) -> None:
        with pytest.raises(ConfigError, match=says):
            async with open_channel(channel_deps(tmp_path, "http://127.0.0.1:1", env=env)):
                pass


async def ignore(update: Inbound) -> None:
    """Accept an update without looking at it."""
