"""Check the gateway: its process, stale files, channels and ports."""

import fcntl
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

from hermes.api.settings import is_enabled
from hermes.api.settings import read_settings as read_api_settings
from hermes.app.channels import enabled_platforms
from hermes.app.service.lock import read_record
from hermes.app.service.status import GatewayStatus, Phase, gateway_status
from hermes.app.unsupported_features import unsupported_features
from hermes.channels.webhook.routes import WebhookSettings, with_shared_secrets
from hermes.channels.webhook.routes import read_settings as read_webhook_settings
from hermes.channels.webhook.subscriptions import FILE, Subscriptions, subscribed_routes
from hermes.cli.verbs.doctor.finding import CheckContext, Finding
from hermes.config.home import Home
from hermes.config.sections.messaging import Platform
from hermes.ipc.client import SOCKET_NAME
from hermes.kit.http_server import listen_error
from hermes.schema.errors import ConfigError


def check_gateway(home: Home) -> Iterator[Finding]:
    gateway = gateway_status(home)
    state = gateway.state
    if gateway.record is not None:
        phase = state.gateway_state if state else "state unknown"
        yield Finding.ok("gateway", f"running as pid {gateway.record.pid}: {phase}")
        yield from _channel_findings(gateway)
        return
    if gateway.died:
        yield Finding.warning(
            "gateway",
            "The gateway crashed or was killed.",
            "hermes gateway start   (for the cause: hermes logs errors)",
        )
    elif state is not None and state.exit_reason and state.gateway_state is not Phase.STOPPED:
        says = f"The gateway is not running: {state.exit_reason}"
        yield Finding.warning("gateway", says, "hermes gateway start")
    else:
        says = "not running; chat apps and the API need it: hermes gateway start"
        yield Finding.ok("gateway", says)
    yield from _stale_files(home)


def _channel_findings(gateway: GatewayStatus) -> Iterator[Finding]:
    for name, platform in sorted(gateway.platforms.items()):
        why = platform.error_message or platform.error_code or ""
        if platform.state == "fatal":
            yield Finding.error("channels", f"{name} failed: {why}", "hermes gateway restart")
        elif why:
            says = f"{name} is {platform.state}: {why}"
            yield Finding.warning("channels", says, "hermes gateway status")
        else:
            yield Finding.ok("channels", f"{name} is {platform.state}")


def _stale_files(home: Home) -> Iterator[Finding]:
    """Files of a gateway that no longer runs; harmless but misleading."""
    for path, is_stale in (
        (home.gateway_lock, _is_stale_lock),
        (home.gateway_pid, _is_stale_record),
        (home.path / SOCKET_NAME, _is_stale_socket),
    ):
        if is_stale(path):
            says = f"{path} is left over from a gateway that no longer runs."
            repair = partial(_remove_if_stale, path, is_stale)
            yield Finding.warning("gateway", says, f"rm {path}", repair)


def _remove_if_stale(path: Path, is_stale: Callable[[Path], bool]) -> None:
    """Check again before removing: a gateway may have started meanwhile."""
    if is_stale(path):
        path.unlink(missing_ok=True)


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


def check_unsupported(context: CheckContext) -> Iterator[Finding]:
    """Name what the home contains and this version does not serve."""
    for one in unsupported_features(context.home, context.config, context.env):
        yield Finding.warning("not served", one.sentence, one.fix)


def check_channels(context: CheckContext) -> Iterator[Finding]:
    """Check for shared secrets and ports in use."""
    wanted = enabled_platforms(context.config, context.env)
    try:
        if "webhook" in wanted:
            yield from _shared_secrets(context)
        if gateway_status(context.home).record is not None:
            return
        yield from _port_findings(context, wanted)
    except ConfigError as error:
        yield Finding.from_error("channels", error, "hermes config edit")


def _shared_secrets(context: CheckContext) -> Iterator[Finding]:
    """Routes need different secrets, because a signature does not name its route."""
    settings = _webhook_settings(context)
    table = Subscriptions(context.home.path / FILE).read()
    routes = {**subscribed_routes(table, settings.secret), **settings.routes}
    groups = {route.shares for route in with_shared_secrets(routes).values() if route.shares}
    for group in sorted(groups):
        yield Finding.warning(
            "webhooks",
            f"The routes {', '.join(group)} share a secret, so a call signed for one can be "
            "sent to another.",
            "hermes webhook remove ROUTE, then subscribe again with a different secret",
        )


def _webhook_settings(context: CheckContext) -> WebhookSettings:
    platform = context.config.platforms.get("webhook") or Platform()
    return read_webhook_settings(platform.extra, context.env)


def _port_findings(context: CheckContext, wanted: list[str]) -> Iterator[Finding]:
    if is_enabled(context.config, context.env):
        api = read_api_settings(context.config, context.env)
        yield _port_finding("api_server", api.host, api.port)
    if "webhook" in wanted:
        webhook = _webhook_settings(context)
        yield _port_finding("webhook", webhook.host, webhook.port)


def _port_finding(platform: str, host: str, port: int) -> Finding:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with closing(socket.socket(family, socket.SOCK_STREAM)) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return Finding.from_error("ports", listen_error(platform, host, port, error))
    return Finding.ok("ports", f"{platform} can listen on {host}:{port}")
