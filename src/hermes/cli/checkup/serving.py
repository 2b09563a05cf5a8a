"""Whether the gateway can do its work: what runs, what it left behind, channels and ports."""

import fcntl
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

from msgspec import Struct

from hermes.api.settings import is_wanted
from hermes.api.settings import read_settings as api_settings
from hermes.app.channels import wanted_platforms
from hermes.channels.catalog import MANIFESTS
from hermes.channels.webhook.book import subscribed_routes
from hermes.channels.webhook.routes import with_shared_secrets
from hermes.channels.webhook.settings import read_settings as webhook_settings
from hermes.channels.webhook.subscriptions import FILE, Subscriptions
from hermes.cli.checkup.finding import Finding, Patient, odd, told, well, wrong
from hermes.config.home import Home
from hermes.config.sections.chats import Platform
from hermes.daemon.record import read_record
from hermes.daemon.standing import Standing, look
from hermes.daemon.state import Phase
from hermes.kit.listening import cannot_listen
from hermes.local.partner import SOCKET
from hermes.schema.errors import ConfigError

_FATAL = "fatal"


class Listening(Struct, frozen=True):
    """An address that the gateway would listen at."""

    platform: str
    host: str
    port: int


def check_gateway(home: Home) -> Iterator[Finding]:
    standing = look(home)
    state = standing.state
    if standing.record is not None:
        phase = state.gateway_state if state else "it has not said how it is"
        yield well("gateway", f"runs as pid {standing.record.pid}: {phase}")
        yield from _channels_of(standing)
        return
    if standing.died:
        yield odd(
            "gateway",
            "The gateway was killed, or it crashed.",
            "hermes gateway start   (and why: hermes logs errors)",
        )
    elif state is not None and state.exit_reason and state.gateway_state is not Phase.STOPPED:
        says = f"The gateway does not run: {state.exit_reason}"
        yield odd("gateway", says, "hermes gateway start")
    else:
        yield well("gateway", "does not run; chats and the API need it: hermes gateway start")
    yield from _left_behind(home)


def _channels_of(standing: Standing) -> Iterator[Finding]:
    for name, one in sorted(standing.platforms.items()):
        why = one.error_message or one.error_code or ""
        if one.state == _FATAL:
            yield wrong("channels", f"{name} has given up: {why}", "hermes gateway restart")
        elif why:
            yield odd("channels", f"{name} is {one.state}: {why}", "hermes gateway status")
        else:
            yield well("channels", f"{name} is {one.state}")


def _left_behind(home: Home) -> Iterator[Finding]:
    """Files of a gateway that is gone; they stop nobody, but they mislead."""
    for path, is_stale in (
        (home.gateway_lock, _is_stale_lock),
        (home.gateway_pid, _is_stale_record),
        (home.path / SOCKET, _is_stale_socket),
    ):
        if is_stale(path):
            yield odd(
                "gateway",
                f"{path} is left from a gateway that is gone.",
                f"rm {path}",
                mend=_removing(path, is_stale),
            )


def _removing(path: Path, is_stale: Callable[[Path], bool]) -> Callable[[], None]:
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


def check_channels(patient: Patient) -> Iterator[Finding]:
    """What the settings ask for and this installation does not have; ports that are taken."""
    wanted = wanted_platforms(patient.config, patient.env)
    for name in wanted:
        if name not in MANIFESTS:
            yield odd(
                "channels",
                f"{name} is switched on, but this installation does not have it.",
                f"hermes config set platforms.{name}.enabled false",
            )
    try:
        if "webhook" in wanted:
            yield from _shared_secrets(patient)
        if look(patient.home).record is not None:
            return
        for place in _listening(patient, wanted):
            yield _port(place)
    except ConfigError as error:
        yield told("channels", error, "hermes config edit")


def _shared_secrets(patient: Patient) -> Iterator[Finding]:
    """No signature of a webhook says which route it is for: a secret must."""
    platform = patient.config.platforms.get("webhook") or Platform()
    settings = webhook_settings(platform.extra, patient.env)
    table = Subscriptions(patient.home.path / FILE).read()
    routes = {**subscribed_routes(table, settings.secret), **settings.routes}
    groups = {route.shares for route in with_shared_secrets(routes).values() if route.shares}
    for group in sorted(groups):
        yield odd(
            "webhooks",
            f"The routes {', '.join(group)} have the same secret: a call signed for one fits all.",
            "hermes webhook remove ROUTE, then subscribe it again with a secret of its own",
        )


def _listening(patient: Patient, wanted: list[str]) -> Iterator[Listening]:
    config, env = patient.config, patient.env
    if is_wanted(config, env):
        api = api_settings(config, env)
        yield Listening("api_server", api.host, api.port)
    if "webhook" in wanted:
        settings = config.platforms.get("webhook") or Platform()
        hook = webhook_settings(settings.extra, env)
        yield Listening("webhook", hook.host, hook.port)


def _port(place: Listening) -> Finding:
    where = f"{place.host}:{place.port}"
    family = socket.AF_INET6 if ":" in place.host else socket.AF_INET
    with closing(socket.socket(family, socket.SOCK_STREAM)) as ours:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            ours.bind((place.host, place.port))
        except OSError as error:
            return told("ports", cannot_listen(place.platform, place.host, place.port, error))
    return well("ports", f"{place.platform} can listen at {where}")
