"""The connection of the Slack channel: duplicates, missed messages, tokens and workspaces."""

from collections.abc import AsyncGenerator, Callable
from pathlib import Path

import anyio
import pytest
from msgspec import structs

from emulators.slack.server import serve_slack
from hermes.channels.account import BadToken
from hermes.channels.slack.channel import open_channel
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
from support.slack import (
    ANN,
    APP_TOKEN,
    BOB,
    SECOND_TOKEN,
    TOKEN,
    SlackBench,
    channel_deps,
    emulator,
    mention,
    received,
    slack_bench,
)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncGenerator[SlackBench]:
    async with slack_bench(tmp_path) as one:
        yield one


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
        """Slack, "Using Socket Mode": "You may receive a warning about 10 seconds before the
        disconnect", "Even if you don't receive a warning, you'll still want to expect a
        refresh_requested message", "You may want to use multiple connections in order to
        maintain uptime during a connection restart." """
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
            with anyio.fail_after(60):
                path = tmp_path / "cache" / "slack" / "slack.json"
                await holds(lambda: path.exists() and b"handled_until" in path.read_bytes())
            slack.say(bench.home.chat, "two", person=ANN)
            deps = channel_deps(tmp_path, bench.server.api_url)
            async with open_channel(deps) as again, listening(again) as inbound:
                await holds(lambda: "two" in [text_of(one) for one in inbound])

    async def test_socket_mode_that_is_off_is_named(self, bench: SlackBench) -> None:
        """Slack, "Using Socket Mode": "Here's a disconnect message you'll receive if you toggle
        off Socket Mode", with the reason link_disabled"""
        bench.server.sockets.refuse_with = "link_disabled"
        with pytest.raises(Offline, match="Socket Mode is turned off"):
            await bench.channel.run(ignore)

    async def test_too_many_connections_end_the_attempts(self, tmp_path: Path) -> None:
        async with slack_bench(tmp_path, clock=FakeClock(auto=True)) as bench:
            bench.server.sockets.refuse_with = "too_many_websockets"
            with pytest.raises(Offline, match="Cannot connect to Slack"):
                await bench.channel.run(ignore)


async def holds(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - the channel tells nobody
        await anyio.sleep(0.01)


async def ignore(update: Inbound) -> None:
    """Take an update and forget it."""


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

    async def test_revoked_token_ends_the_run_and_the_new_one_is_used(self, tmp_path: Path) -> None:
        """The socket, which has a token of its own, stays open."""
        env = {"SLACK_BOT_TOKEN": TOKEN, "SLACK_APP_TOKEN": APP_TOKEN}
        slack = emulator()
        home, answer = Address("slack", slack.direct(ANN)), Outbound((Text("here"),), plain="here")
        async with serve_slack(slack) as server:
            deps = channel_deps(tmp_path, server.api_url)
            deps = structs.replace(deps, current_env=lambda: env)
            async with open_channel(deps) as channel:

                async def revoke() -> None:
                    await server.connected()
                    slack.workspaces["xoxb-new"] = slack.workspaces.pop(TOKEN)
                    with pytest.raises(BadToken):
                        await channel.send(home, answer)

                async with anyio.create_task_group() as group:
                    group.start_soon(revoke)
                    with pytest.raises(BadToken, match="no longer accepts"):
                        await channel.run(ignore)
                env["SLACK_BOT_TOKEN"] = "xoxb-new"
                async with listening(channel):
                    await server.connected()
                    await channel.send(home, answer)
        assert [one.text for one in slack.posts(home.chat)] == ["here"]

    async def test_refused_token_is_not_shown(self, tmp_path: Path) -> None:
        env = {"SLACK_BOT_TOKEN": "xoxb-wrong"}
        async with slack_bench(tmp_path, env=env) as bench:
            with pytest.raises(BadToken) as caught:
                await bench.channel.run(ignore)
        assert "xoxb" not in str(caught.value)
