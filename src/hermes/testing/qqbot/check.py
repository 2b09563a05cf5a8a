"""The home of a gateway on the emulated QQ."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from hermes.testing.gateway_process import GatewaySpec
from hermes.testing.kill_run import write_home
from hermes.testing.qqbot.state import APP_ID, GROUP, SECRET


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
        "qqbot",
        model_url=url,
        extra=addresses(url),
        variables=variables,
        settings=settings,
        people=people,
    )
