"""`hermes gateway status` and `list`: the state of gateways, as seen from outside."""

import time
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime

import anyio
import msgspec

from hermes.app.service.lock import ProcessRecord
from hermes.app.service.restart_guard import read_starts
from hermes.app.service.status import (
    GatewayState,
    GatewayStatus,
    all_gateway_statuses,
    gateway_status,
)
from hermes.app.service.systemd import unit_path
from hermes.app.unsupported_features import unsupported_features
from hermes.cli.context import CliContext
from hermes.cli.dates import local_time, relative_time
from hermes.cli.output import Printer
from hermes.cli.verbs.gateway.service import installed_service
from hermes.config.env import Env, profile_env
from hermes.config.home import Home, hermes_root
from hermes.config.loader import load_config
from hermes.gateway.messages import outbox_name
from hermes.kit.clock import SystemClock
from hermes.kit.terminal_text import single_line
from hermes.kit.text import one_line, plural
from hermes.schema.errors import ConfigError, StoreError

NOT_RUNNING = 3
CONNECTING = "connecting"
SETTLE_SECONDS = 3.0
"""Slightly longer than the gateway needs to report its state."""
POLL_INTERVAL = 0.1


def status(args: Namespace, context: CliContext) -> int:
    home = context.home()
    gateway = wait_until_settled(lambda: gateway_status(home), SystemClock().now, time.sleep)
    code = 0 if gateway.record is not None else NOT_RUNNING
    below = _deep_status(gateway, context.env) if args.deep else {}
    if args.json:
        _write_json(context, _json_status(gateway) | ({"deep": below} if args.deep else {}))
        return code
    printer, now = Printer(context), SystemClock().now()
    rows = [("gateway", _condition(gateway, now)), ("profile", gateway.home.profile)]
    if gateway.record is not None:
        rows.append(("process", _process(gateway.record, now)))
    if gateway.state is not None:
        rows += _state_rows(gateway, gateway.state, context.env)
    if missing := _unserved(home, context.env):
        rows.append(("not served", single_line(missing)))
    rows += [(name, single_line(text)) for name, text in below.items()]
    width = max(len(name) for name, _ in rows)
    for name, text in rows:
        printer.line(f"{name:<{width}}  {text}")
    if gateway.record is not None and gateway.state is not None:
        _platforms(printer, gateway, gateway.state, now)
    if gateway.record is None:
        flag = "" if context.profile is None else f" -p {gateway.home.profile}"
        context.note(f"Start it: hermes{flag} gateway start")
    return code


def _unserved(home: Home, env: Env) -> str:
    with suppress(ConfigError):
        own = profile_env(home.dotenv, env)
        return ", ".join(
            one.name for one in unsupported_features(home, load_config(home, own).config, own)
        )
    return ""


def wait_until_settled(
    look: Callable[[], GatewayStatus], now: Callable[[], datetime], sleep: Callable[[float], object]
) -> GatewayStatus:
    """Wait briefly for platforms that just started connecting: their state arrives late."""
    gateway = look()
    for _ in range(round(SETTLE_SECONDS / POLL_INTERVAL)):
        states = gateway.platforms.values() if gateway.record is not None else ()
        begun = [state.updated_at for state in states if state.state == CONNECTING]
        if not any(at and (now() - at).total_seconds() < SETTLE_SECONDS for at in begun):
            break
        sleep(POLL_INTERVAL)
        gateway = look()
    return gateway


def list_all(args: Namespace, context: CliContext) -> int:
    gateways = all_gateway_statuses(hermes_root(context.env))
    if args.json:
        _write_json(context, [_json_status(gateway) for gateway in gateways])
        return 0
    now = SystemClock().now()
    rows = [("PROFILE", "PID", "SINCE", "GATEWAY")]
    for gateway in gateways:
        pid = str(gateway.record.pid) if gateway.record else ""
        since = relative_time(gateway.since, now) if gateway.since else ""
        rows.append((gateway.home.profile, pid, since, _condition(gateway, now)))
    Printer(context).table(rows)
    return 0


def _condition(gateway: GatewayStatus, now: datetime) -> str:
    state = gateway.state
    if gateway.record is not None:
        phase = single_line(state.gateway_state) if state else "state unknown"
        host = gateway.served_by
        return phase if host is None else f"{phase}; served by the gateway of profile {host}"
    if state is None:
        return "not running"
    when = f" {relative_time(state.updated_at, now)}" if state.updated_at else ""
    if gateway.died:
        return (
            f"not running; it crashed or was killed (last state{when}: "
            f"{single_line(state.gateway_state)})"
        )
    reason = f": {single_line(state.exit_reason)}" if state.exit_reason else ""
    return f"not running since{when or ' an unknown time'}{reason}"


def _process(record: ProcessRecord, now: datetime) -> str:
    begun = record.started_at
    since = f", since {local_time(begun)} ({relative_time(begun, now)})" if begun else ""
    return f"pid {record.pid}{since}"


def _state_rows(gateway: GatewayStatus, state: GatewayState, env: Env) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    if gateway.record is not None:
        if len(state.served_profiles) > 1:
            rows.append(("serves", single_line(", ".join(state.served_profiles))))
        rows.append(("turns", f"{state.active_agents} running"))
        rows += [
            ("sandbox", single_line(line.removeprefix("sandbox "))) for line in gateway.sandboxes
        ]
        if changed := changed_settings(gateway.home, gateway.record, env, logins=False):
            rows.append(("settings", single_line(changed)))
    if state.restart_requested:
        rows.append(("restart", "requested"))
    return rows


def changed_settings(home: Home, record: ProcessRecord, env: Env, *, logins: bool) -> str:
    """Which settings changed since the gateway started, and what to do; empty if none did.

    `logins` includes the stored logins, which the gateway may have renewed itself.
    """
    names = [name for name in record.changed_settings(home) if logins or name != home.auth.name]
    if not names:
        return ""
    if home.config.name in names:
        try:
            load_config(home, profile_env(home.dotenv, env))
        except ConfigError as error:
            return f"{home.config.name} changed and is not valid: {error.sentence}"
    *others, last = names
    changed = f"{', '.join(others)} and {last}" if others else last
    return f"{changed} changed since it started. To apply the changes: hermes gateway restart"


def _platforms(
    printer: Printer, gateway: GatewayStatus, state: GatewayState, now: datetime
) -> None:
    shown = state.platforms if gateway.served_by is None else gateway.platforms
    if not shown:
        printer.line("No platforms enabled; only `hermes` on this machine can connect.")
        return
    rows = [("PLATFORM", "STATE", "SINCE", "DETAILS")]
    for name, platform in sorted(shown.items()):
        since = relative_time(platform.updated_at, now) if platform.updated_at else ""
        reason = ": ".join(filter(None, [platform.error_code, platform.error_message]))
        if platform.state == CONNECTING:
            reason = "no answer yet"
        details = single_line(reason or platform.address or "")
        rows.append((single_line(name), single_line(platform.state), since, details))
    printer.line()
    printer.table(rows)


def _json_status(gateway: GatewayStatus) -> dict[str, object]:
    record, state = gateway.record, gateway.state
    return {
        "profile": gateway.home.profile,
        "home": str(gateway.home.path),
        "running": record is not None,
        "pid": record.pid if record else None,
        "started_at": record.started_at if record else None,
        "served_by": gateway.served_by,
        "died": gateway.died,
        "state": state,
    }


def _write_json(context: CliContext, data: object) -> None:
    context.print(msgspec.json.format(msgspec.json.encode(data), indent=2).decode())


def _deep_status(gateway: GatewayStatus, env: Mapping[str, str]) -> dict[str, str]:
    home = gateway.home
    rows = {"service": _service(home, env), "starts": _recent_starts(home)}
    for name, text in _outbox(home, sorted(gateway.platforms)).items():
        rows[f"outbox {name}"] = text
    return rows


def _service(home: Home, env: Mapping[str, str]) -> str:
    service = installed_service(home, env)
    if service is not None:
        return f"{service.name}: {service.condition}"
    path = unit_path(home, env)
    return f"{path} exists but is not active" if path.exists() else "not installed"


def _recent_starts(home: Home) -> str:
    starts = read_starts(home)
    if not starts:
        return "none yet"
    before = starts[-1].after
    after = f", after the previous one {_ENDINGS[before]}" if before else ""
    return f"last {local_time(starts[-1].at)}{after}; {plural(len(starts), 'start')} on record"


_ENDINGS = {
    "stopped": "was stopped",
    "restart": "requested a restart",
    "signal": "was stopped by a signal",
    "failed": "failed",
    "crashed": "crashed or was killed",
}


def _outbox(home: Home, channels: Sequence[str]) -> dict[str, str]:
    if not home.has_sessions or not channels:
        return {}
    try:
        return anyio.run(_outbox_counts, home, channels)
    except StoreError as error:
        return {"": f"cannot be read: {error}"}


def background_goals(home: Home, pid: int) -> Sequence[str]:
    """Goals of the background subagents that run in this process."""
    if not home.has_sessions:
        return ()
    try:
        return anyio.run(_delegated_goals, home, f"/{pid}/")
    except StoreError:
        # Only shown as information: stopping must work without it.
        return ()


async def _delegated_goals(home: Home, holder: str) -> Sequence[str]:
    from hermes.app.storage import open_archive

    async with open_archive(home, SystemClock()) as store:
        found = await store.delegations.running()
    tasks = [
        task for delegation in found if holder in delegation.holder for task in delegation.tasks
    ]
    return [one_line(task.goal, 60) for task in tasks]


async def _outbox_counts(home: Home, channels: Sequence[str]) -> dict[str, str]:
    from hermes.app.storage import open_archive

    counts: dict[str, str] = {}
    async with open_archive(home, SystemClock()) as store:
        for name in channels:
            waiting = len(await store.queues.topics(outbox_name(name)))
            parked = len(await store.queues.parked(outbox_name(name), 1000))
            failed = f"{parked} failed (hermes send --failed)" if parked else "0 failed"
            counts[name] = f"{plural(waiting, 'chat')} waiting, {failed}"
    return counts
