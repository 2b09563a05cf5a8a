"""Questions on the emulated Mattermost, for whole gateways."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from emulators.mattermost.state import TOKEN
from support.gateway_process import GatewaySpec
from support.kill_run import write_home


def mattermost_home(
    folder: Path, url: str, people: Sequence[str], settings: Mapping[str, object]
) -> GatewaySpec:
    """Write the home of a gateway on the emulator and return its spec; the first one is owner."""
    return write_home(
        folder,
        "mattermost",
        model_url=url,
        extra={},
        variables={"MATTERMOST_URL": url, "MATTERMOST_TOKEN": TOKEN},
        settings=settings,
        people=people,
    )
