"""A Slack channel on the emulator, and what tests look at."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec import Struct, structs

from emulators.slack.server import SlackServer, serve_slack
from emulators.slack.state import EmulatedSlack
from hermes.channels.slack.channel import SlackChannel, open_channel
from hermes.kit.clock import Clock
from hermes.ports.channel import ChannelDeps, Inbound
from hermes.schema.scope import Address
from hermes.store.blobs import FileBlobs
from hermes.testing.contracts.channel import listening
from support.channel_deps import Admits, admit_all, new_deps

TOKEN = "xoxb-emulated-1"
SECOND_TOKEN = "xoxb-emulated-2"
APP_TOKEN = "xapp-1-emulated"
ANN = "U1001"
BOB = "U1002"


class SlackBench(Struct, frozen=True):
    """A channel, the emulator, and a thread in the direct messages with Ann."""

    channel: SlackChannel
    server: SlackServer
    slack: EmulatedSlack
    blobs: FileBlobs
    home: Address


def emulator(**options: object) -> EmulatedSlack:
    slack = EmulatedSlack(**options)  # pyright: ignore[reportArgumentType]
    slack.app_tokens.add(APP_TOKEN)
    slack.install(TOKEN)
    slack.people |= {ANN: "Ann", BOB: "Bob"}
    return slack


def channel_deps(
    folder: Path,
    url: str,
    extra: Mapping[str, object] | None = None,
    env: Mapping[str, str] | None = None,
    clock: Clock | None = None,
    *,
    admits: Admits = admit_all,
) -> ChannelDeps:
    variables = {"SLACK_BOT_TOKEN": TOKEN, "SLACK_APP_TOKEN": APP_TOKEN, **(env or {})}
    extra = {"base_url": url, **(extra or {})}
    deps = new_deps("slack", folder, extra=extra, env=variables, clock=clock, admits=admits)
    return structs.replace(deps, commands=(("help", "List commands."), ("stop", "Stop the turn.")))


@asynccontextmanager
async def slack_bench(
    folder: Path,
    slack: EmulatedSlack | None = None,
    extra: Mapping[str, object] | None = None,
    env: Mapping[str, str] | None = None,
    clock: Clock | None = None,
    *,
    admits: Admits = admit_all,
) -> AsyncGenerator[SlackBench]:
    slack = slack or emulator()
    async with serve_slack(slack) as server:
        direct = slack.direct(ANN)
        ts, bot = slack.timestamp(), slack.workspace.bot
        slack.add({"type": "message", "user": bot, "text": "", "ts": ts, "channel": direct})
        home = Address("slack", direct, ts)
        deps = channel_deps(folder, server.api_url, extra, env, clock, admits=admits)
        async with open_channel(deps) as channel:
            yield SlackBench(channel, server, slack, FileBlobs(folder / "cache" / "blobs"), home)
        assert server.violations == []
        assert server.limits.refused == 0


@asynccontextmanager
async def received(one: SlackBench) -> AsyncGenerator[list[Inbound]]:
    """What the channel delivers; on leaving, everything is acknowledged."""
    async with listening(one.channel) as inbound:
        await one.server.connected()
        yield inbound
        await one.server.acknowledged()


def mention(slack: EmulatedSlack) -> str:
    return f"<@{slack.workspace.bot}>"
