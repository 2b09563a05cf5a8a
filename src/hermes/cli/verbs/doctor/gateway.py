"""Whether the gateway can do its work: what runs, what it left behind, channels and ports."""

import fcntl
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

from msgspec import Struct

from hermes.api.settings import is_enabled
from hermes.api.settings import read_settings as api_settings
from hermes.app.channels import enabled_platforms
from hermes.app.service.lock import read_record
from hermes.app.service.status import GatewayStatus, Phase, gateway_status
from hermes.channels.catalog import MANIFESTS
from hermes.channels.webhook.routes import with_shared_secrets
from hermes.channels.webhook.settings import read_settings as webhook_settings
from hermes.channels.webhook.subscriptions import FILE, Subscriptions, subscribed_routes
from hermes.cli.verbs.doctor.finding import (
    CheckContext,
    Finding,
    error_finding,
    finding_of_error,
    ok_finding,
    warning_finding,
)
from hermes.config.home import Home
from hermes.config.sections.messaging import Platform
from hermes.ipc.client import SOCKET
from hermes.kit.listen_errors import listen_error
from hermes.schema.errors import ConfigError

_FATAL = "fatal"


class ListenAddress(Struct, frozen=True):
    """An address that the gateway would listen at."""

    platform: str
    host: str
    port: int


def check_gateway(home: Home) -> Iterator[Finding]:
    standing = gateway_status(home)
    state = standing.state
    if standing.record is not None:
        phase = state.gateway_state if state else "it has not said how it is"
        yield ok_finding("gateway", f"runs as pid {standing.record.pid}: {phase}")
        yield from _channel_findings(standing)
        return
    if standing.died:
        yield warning_finding(
            "gateway",
            "The gateway was killed, or it crashed.",
            "hermes gateway start   (and why: hermes logs errors)",
        )
    elif state is not None and state.exit_reason and state.gateway_state is not Phase.STOPPED:
        says = f"The gateway does not run: {state.exit_reason}"
        yield warning_finding("gateway", says, "hermes gateway start")
    else:
        yield ok_finding("gateway", "does not run; chats and the API need it: hermes gateway start")
    yield from _stale_files(home)


def _channel_findings(standing: GatewayStatus) -> Iterator[Finding]:
    for name, one in sorted(standing.platforms.items()):
        why = one.error_message or one.error_code or ""
        if one.state == _FATAL:
            yield error_finding("channels", f"{name} has given up: {why}", "hermes gateway restart")
        elif why:
            yield warning_finding(
                "channels", f"{name} is {one.state}: {why}", "hermes gateway status"
            )
        else:
            yield ok_finding("channels", f"{name} is {one.state}")


def _stale_files(home: Home) -> Iterator[Finding]:
    """Files of a gateway that is gone; they stop nobody, but they mislead."""
    for path, is_stale in (
        (home.gateway_lock, _is_stale_lock),
        (home.gateway_pid, _is_stale_record),
        (home.path / SOCKET, _is_stale_socket),
    ):
        if is_stale(path):
            yield warning_finding(
                "gateway",
                f"{path} is left from a gateway that is gone.",
                f"rm {path}",
                mend=_remove_stale(path, is_stale),
            )


def _remove_stale(path: Path, is_stale: Callable[[Path], bool]) -> Callable[[], None]:
    def remove() -> None:
        """Only if it is still nobody's; a gateway may have been started meanwhile."""
        if is_stale(path):
            path.unlink(missing_ok=True)

    return remove


def _is_stale_record(path: Path) -> bool:
    record = read_record(path)
    return record is not None and record.surely_dead


def _is_stale_lock(path: Path) -> bool:
    if not _is_stale_record(path):
        return False
    with suppress(OSError):
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        finally:
            os.close(handle)
        return True
    return False


def _is_stale_socket(path: Path) -> bool:
    if not path.is_socket():
        return False
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as ours:
        ours.settimeout(1.0)
        try:
            ours.connect(str(path))
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
    return False


def check_channels(patient: CheckContext) -> Iterator[Finding]:
    """What the settings ask for and this installation does not have; ports that are taken."""
    wanted = enabled_platforms(patient.config, patient.env)
    for name in wanted:
        if name not in MANIFESTS:
            yield warning_finding(
                "channels",
                f"{name} is switched on, but this installation does not have it.",
                f"hermes config set platforms.{name}.enabled false",
            )
    try:
        if "webhook" in wanted:
            yield from _shared_secrets(patient)
        if gateway_status(patient.home).record is not None:
            return
        for place in _listen_addresses(patient, wanted):
            yield _port_finding(place)
    except ConfigError as error:
        yield finding_of_error("channels", error, "hermes config edit")


def _shared_secrets(patient: CheckContext) -> Iterator[Finding]:
    """No signature of a webhook says which route it is for: a secret must."""
    platform = patient.config.platforms.get("webhook") or Platform()
    settings = webhook_settings(platform.extra, patient.env)
    table = Subscriptions(patient.home.path / FILE).read()
    routes = {**subscribed_routes(table, settings.secret), **settings.routes}
    groups = {route.shares for route in with_shared_secrets(routes).values() if route.shares}
    for group in sorted(groups):
        yield warning_finding(
            "webhooks",
            f"The routes {', '.join(group)} have the same secret: a call signed for one fits all.",
            "hermes webhook remove ROUTE, then subscribe it again with a secret of its own",
        )


def _listen_addresses(patient: CheckContext, wanted: list[str]) -> Iterator[ListenAddress]:
    config, env = patient.config, patient.env
    if is_enabled(config, env):
        api = api_settings(config, env)
        yield ListenAddress("api_server", api.host, api.port)
    if "webhook" in wanted:
        settings = config.platforms.get("webhook") or Platform()
        hook = webhook_settings(settings.extra, env)
        yield ListenAddress("webhook", hook.host, hook.port)


def _port_finding(place: ListenAddress) -> Finding:
    where = f"{place.host}:{place.port}"
    family = socket.AF_INET6 if ":" in place.host else socket.AF_INET
    with closing(socket.socket(family, socket.SOCK_STREAM)) as ours:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            ours.bind((place.host, place.port))
        except OSError as error:
            return finding_of_error(
                "ports", listen_error(place.platform, place.host, place.port, error)
            )
    return ok_finding("ports", f"{place.platform} can listen at {where}")
