"""Check the gateway: its process, stale files, channels and ports."""

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
from hermes.channels import MANIFESTS
from hermes.channels.webhook.routes import read_settings as webhook_settings
from hermes.channels.webhook.routes import with_shared_secrets
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
from hermes.ipc.client import SOCKET_NAME
from hermes.kit.http_server import listen_error
from hermes.schema.errors import ConfigError

_FATAL = "fatal"


class ListenAddress(Struct, frozen=True):
    """An address that the gateway is configured to listen on."""

    platform: str
    host: str
    port: int


def check_gateway(home: Home) -> Iterator[Finding]:
    gateway = gateway_status(home)
    state = gateway.state
    if gateway.record is not None:
        phase = state.gateway_state if state else "state unknown"
        yield ok_finding("gateway", f"running as pid {gateway.record.pid}: {phase}")
        yield from _channel_findings(gateway)
        return
    if gateway.died:
        yield warning_finding(
            "gateway",
            "The gateway crashed or was killed.",
            "hermes gateway start   (for the cause: hermes logs errors)",
        )
    elif state is not None and state.exit_reason and state.gateway_state is not Phase.STOPPED:
        says = f"The gateway is not running: {state.exit_reason}"
        yield warning_finding("gateway", says, "hermes gateway start")
    else:
        yield ok_finding(
            "gateway", "not running; chat apps and the API need it: hermes gateway start"
        )
    yield from _stale_files(home)


def _channel_findings(gateway: GatewayStatus) -> Iterator[Finding]:
    for name, platform in sorted(gateway.platforms.items()):
        why = platform.error_message or platform.error_code or ""
        if platform.state == _FATAL:
            yield error_finding("channels", f"{name} failed: {why}", "hermes gateway restart")
        elif why:
            yield warning_finding(
                "channels", f"{name} is {platform.state}: {why}", "hermes gateway status"
            )
        else:
            yield ok_finding("channels", f"{name} is {platform.state}")


def _stale_files(home: Home) -> Iterator[Finding]:
    """Files of a gateway that no longer runs; harmless but misleading."""
    for path, is_stale in (
        (home.gateway_lock, _is_stale_lock),
        (home.gateway_pid, _is_stale_record),
        (home.path / SOCKET_NAME, _is_stale_socket),
    ):
        if is_stale(path):
            yield warning_finding(
                "gateway",
                f"{path} is left over from a gateway that no longer runs.",
                f"rm {path}",
                repair=_remove_stale(path, is_stale),
            )


def _remove_stale(path: Path, is_stale: Callable[[Path], bool]) -> Callable[[], None]:
    def remove() -> None:
        """Check again before removing: a gateway may have started meanwhile."""
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
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
    return False


def check_channels(context: CheckContext) -> Iterator[Finding]:
    """Check for channels that are not installed, shared secrets and ports in use."""
    wanted = enabled_platforms(context.config, context.env)
    for name in wanted:
        if name not in MANIFESTS:
            yield warning_finding(
                "channels",
                f"{name} is enabled but not available in this installation.",
                f"hermes config set platforms.{name}.enabled false",
            )
    try:
        if "webhook" in wanted:
            yield from _shared_secrets(context)
        if gateway_status(context.home).record is not None:
            return
        for address in _listen_addresses(context, wanted):
            yield _port_finding(address)
    except ConfigError as error:
        yield finding_of_error("channels", error, "hermes config edit")


def _shared_secrets(context: CheckContext) -> Iterator[Finding]:
    """Routes need different secrets, because a signature does not name its route."""
    platform = context.config.platforms.get("webhook") or Platform()
    settings = webhook_settings(platform.extra, context.env)
    table = Subscriptions(context.home.path / FILE).read()
    routes = {**subscribed_routes(table, settings.secret), **settings.routes}
    groups = {route.shares for route in with_shared_secrets(routes).values() if route.shares}
    for group in sorted(groups):
        yield warning_finding(
            "webhooks",
            f"The routes {', '.join(group)} share a secret: a call for one is valid for all.",
            "hermes webhook remove ROUTE, then subscribe again with a different secret",
        )


def _listen_addresses(context: CheckContext, wanted: list[str]) -> Iterator[ListenAddress]:
    config, env = context.config, context.env
    if is_enabled(config, env):
        api = api_settings(config, env)
        yield ListenAddress("api_server", api.host, api.port)
    if "webhook" in wanted:
        settings = config.platforms.get("webhook") or Platform()
        hook = webhook_settings(settings.extra, env)
        yield ListenAddress("webhook", hook.host, hook.port)


def _port_finding(address: ListenAddress) -> Finding:
    where = f"{address.host}:{address.port}"
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    with closing(socket.socket(family, socket.SOCK_STREAM)) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address.host, address.port))
        except OSError as error:
            return finding_of_error(
                "ports", listen_error(address.platform, address.host, address.port, error)
            )
    return ok_finding("ports", f"{address.platform} can listen on {where}")
