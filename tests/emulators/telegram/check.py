"""Questions on the emulated Telegram, for runs with kills and whole gateways."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from emulators.telegram.server import TelegramServer
from emulators.telegram.state import EmulatedMessage, EmulatedTelegram
from support.chat_platform.state import PlatformPost
from support.gateway_process import GatewaySpec
from support.kill_run import KillRun, write_home

ACCOUNT = "telegram"


def kill_run(server: TelegramServer, database: Path) -> KillRun[EmulatedMessage]:
    telegram = server.telegram
    return KillRun(
        account=ACCOUNT,
        server=server,
        changes=telegram.changes,
        read=lambda message: _post(0, message),
        database=database,
        acknowledged=lambda: not telegram.unacknowledged(),
    )


def own_posts(telegram: EmulatedTelegram) -> Iterator[PlatformPost]:
    """What the bot has written."""
    for (chat, _), message in telegram.messages.items():
        if message.own:
            yield _post(chat, message)


def _post(chat: int, message: EmulatedMessage) -> PlatformPost:
    return PlatformPost(f"{chat}/{message.id}", ACCOUNT, str(chat), message.text)


def telegram_home(
    folder: Path, url: str, token: str, people: Sequence[int], settings: dict[str, object]
) -> GatewaySpec:
    """Write the home of a gateway on the emulator and return its spec; the first one is owner."""
    return write_home(
        folder,
        ACCOUNT,
        model_url=url,
        extra={"base_url": url},
        variables={"TELEGRAM_BOT_TOKEN": token},
        settings=settings,
        people=[str(one) for one in people],
    )
