"""The home of a gateway on the emulated Signal."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from emulators.signal.state import ACCOUNT
from support.gateway_process import GatewaySpec
from support.kill_run import write_home


def signal_home(
    folder: Path, url: str, people: Sequence[str], settings: Mapping[str, object]
) -> GatewaySpec:
    """Write the home and return its spec; the first of the people is owner."""
    variables = {
        "SIGNAL_HTTP_URL": url,
        "SIGNAL_ACCOUNT": ACCOUNT,
        "SIGNAL_GROUP_ALLOWED_USERS": "*",
    }
    return write_home(
        folder,
        "signal",
        model_url=url,
        extra={},
        variables=variables,
        settings=settings,
        people=people,
    )
