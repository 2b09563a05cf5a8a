"""Check what the emulator shows: each question answered once, in order, in its own chat."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from emulators.slack.mrkdwn import shown_text
from emulators.slack.server import SlackServer
from emulators.slack.state import EmulatedMessage, EmulatedSlack
from support.chat_platform.state import PlatformPost
from support.gateway_process import GatewaySpec
from support.kill_run import KillRun, write_home

ACCOUNT = "slack"


def kill_run(server: SlackServer, database: Path) -> KillRun[EmulatedMessage]:
    return KillRun(
        account=ACCOUNT,
        server=server,
        changes=server.slack.changes,
        read=lambda message: _post("", message),
        database=database,
    )


def own_posts(slack: EmulatedSlack) -> Iterator[PlatformPost]:
    """What the bot has written."""
    for chat in slack.channels:
        for message in slack.posts(chat):
            yield _post(chat, message)


def _post(chat: str, message: EmulatedMessage) -> PlatformPost:
    return PlatformPost(f"{chat}/{message.id}", ACCOUNT, chat, shown_text(message))


def slack_home(
    folder: Path,
    urls: tuple[str, str],
    tokens: tuple[str, str],
    people: Sequence[str],
    settings: dict[str, object],
) -> GatewaySpec:
    """Write the home of a gateway on the emulator and return its spec; the first one is owner.

    `urls` are those of the emulator and of its API, `tokens` those of the bots and of the app.
    """
    url, api_url = urls
    return write_home(
        folder,
        "slack",
        model_url=url,
        extra={"base_url": api_url},
        variables={"SLACK_BOT_TOKEN": tokens[0], "SLACK_APP_TOKEN": tokens[1]},
        settings=settings,
        people=people,
    )
