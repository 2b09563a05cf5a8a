"""Check what the emulator shows: each question answered once, in order, in its own chat."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from hermes.testing.delivery_check import answered_pieces, question_name
from hermes.testing.gateway_process import GatewaySpec
from hermes.testing.platform.state import FakePlatform, PlatformPost, WrittenMessage
from hermes.testing.telegram.state import EmulatedMessage, EmulatedTelegram

ACCOUNT = "telegram"


class Said(Struct, frozen=True):
    """A question that somebody asked; `update` is the number of its update."""

    chat: int
    person: int
    message: int
    update: int
    text: str


def ask(telegram: EmulatedTelegram, chat: int, person: int, text: str) -> Said:
    message = telegram.say(chat, text, person=person)
    update = int(str(telegram.updates_sent[-1]["update_id"]))
    return Said(chat, person, message, update, text)


def as_platform(telegram: EmulatedTelegram, said: Sequence[Said]) -> FakePlatform:
    """The questions and posts in the form that `check_delivery` reads."""
    platform = FakePlatform()
    platform.written += [
        WrittenMessage(f"{telegram.bot.id}", ACCOUNT, str(one.chat), str(one.person), one.text)
        for one in said
    ]
    for (chat, _), message in telegram.messages.items():
        if message.own:
            post = _post(chat, message)
            platform.posts[post.id] = post
    return platform


def _post(chat: int, message: EmulatedMessage) -> PlatformPost:
    return PlatformPost(f"{chat}/{message.id}", ACCOUNT, str(chat), message.text)


class WaitingQuestions:
    """The questions that are not answered yet."""

    def __init__(self, telegram: EmulatedTelegram) -> None:
        self._telegram = telegram
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
        for message in self._telegram.changes[self._read :]:
            self._seen.update(answered_pieces(_post(0, message), {}))
        self._read = len(self._telegram.changes)
        self._names -= self._seen
        return not self._names and not self._telegram.unacknowledged()


def telegram_home(
    folder: Path, url: str, token: str, people: Sequence[int], settings: dict[str, object]
) -> GatewaySpec:
    """Write the home of a gateway on the emulator and return its spec; the first one is owner."""
    home, work = folder / "home", folder / "work"
    home.mkdir(parents=True, exist_ok=True)
    work.mkdir(exist_ok=True)
    ids = [str(one) for one in people]
    extra = {
        "base_url": url,
        "allow_from": ids,
        "allow_admin_from": ids[:1],
        "group_allow_admin_from": ids[:1],
    }
    config: dict[str, object] = {
        "model": {"default": "mock", "provider": "openai", "base_url": f"{url}/main/v1"},
        "platforms": {"telegram": {"extra": extra}},
        "gateway": {"restart_loop_guard": {"enabled": False}, "respawn_storm": {"enabled": False}},
        "display": {"busy_input_mode": "queue"},
        **settings,
    }
    (home / "config.yaml").write_bytes(msgspec.json.format(msgspec.json.encode(config)))
    variables = {
        "OPENAI_API_KEY": "sk-none-of-ours",
        "TELEGRAM_BOT_TOKEN": token,
        "MESSAGING_CWD": str(work),
    }
    (home / ".env").write_text("".join(f"{name}={value}\n" for name, value in variables.items()))
    return GatewaySpec(folder=str(folder), home=str(home))
