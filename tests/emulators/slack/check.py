"""Check what the emulator shows: each question answered once, in order, in its own chat."""

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from emulators.slack.mrkdwn import shown_text
from emulators.slack.state import EmulatedMessage, EmulatedSlack
from support.chat_platform.state import FakePlatform, PlatformPost, WrittenMessage
from support.delivery_check import answered_pieces, question_name
from support.gateway_process import GatewaySpec
from support.kill_run import write_home

ACCOUNT = "slack"


class Said(Struct, frozen=True):
    """A question that somebody asked."""

    chat: str
    person: str
    text: str


def as_platform(slack: EmulatedSlack, said: Sequence[Said]) -> FakePlatform:
    """The questions and posts in the form that `check_delivery` reads."""
    platform = FakePlatform()
    platform.written += [
        WrittenMessage(slack.workspace.bot, ACCOUNT, one.chat, one.person, one.text) for one in said
    ]
    for chat in slack.channels:
        for message in slack.posts(chat):
            post = _post(chat, message)
            platform.posts[post.id] = post
    return platform


def _post(chat: str, message: EmulatedMessage) -> PlatformPost:
    return PlatformPost(f"{chat}/{message.id}", ACCOUNT, chat, shown_text(message))


class WaitingQuestions:
    """The questions that are not answered yet."""

    def __init__(self, slack: EmulatedSlack) -> None:
        self._slack = slack
        self._read = 0
        self._names: set[str] = set()
        self._seen: set[str] = set()

    def add(self, said: Said) -> None:
        self._names.add(question_name(said.text))

    @property
    def count(self) -> int:
        self.all_answered()
        return len(self._names)

    def give_up(self, names: Sequence[str]) -> None:
        self._names.difference_update(names)

    def all_answered(self) -> bool:
        for message in self._slack.changes[self._read :]:
            self._seen.update(answered_pieces(_post("", message), {}))
        self._read = len(self._slack.changes)
        self._names -= self._seen
        return not self._names


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
