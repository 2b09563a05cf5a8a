"""Questions on the emulated QQ, for runs with kills and whole gateways."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from emulators.qqbot.server import QqServer
from emulators.qqbot.state import APP_ID, GROUP, SECRET, EmulatedPost, EmulatedQq
from support.chat_platform.state import PlatformPost
from support.gateway_process import GatewaySpec
from support.kill_run import KillRun, write_home

ACCOUNT = "qqbot"


def kill_run(server: QqServer, database: Path) -> KillRun[EmulatedPost]:
    return KillRun(
        account=ACCOUNT, server=server, changes=server.qq.posts, read=_post, database=database
    )


def own_posts(qq: EmulatedQq) -> Iterator[PlatformPost]:
    """What the bot has written."""
    return map(_post, qq.posts)


def _post(post: EmulatedPost) -> PlatformPost:
    return PlatformPost(post.id, ACCOUNT, post.chat, post.text)


def addresses(url: str) -> dict[str, object]:
    """The settings with which a channel uses the emulator."""
    return {"base_url": url, "token_url": f"{url}/app/getAppAccessToken"}


def qqbot_home(
    folder: Path, url: str, people: Sequence[str], settings: Mapping[str, object]
) -> GatewaySpec:
    """Write the home and return its spec; the first of the people is owner."""
    variables = {
        "QQ_APP_ID": APP_ID, "QQ_CLIENT_SECRET": SECRET, "QQ_GROUP_ALLOWED_USERS": GROUP,
    }  # fmt: skip
    return write_home(
        folder,
        ACCOUNT,
        model_url=url,
        extra=addresses(url),
        variables=variables,
        settings=settings,
        people=people,
    )
