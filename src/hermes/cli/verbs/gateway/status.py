"""`hermes gateway status` and `list`: what can be seen from outside, and what cannot be known."""

import time
from argparse import Namespace
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import msgspec

from hermes.app.service.lock import ProcessRecord
from hermes.app.service.status import (
    GatewayState,
    GatewayStatus,
    all_gateway_statuses,
    gateway_status,
)
from hermes.cli.context import CliContext
from hermes.cli.dates import local_time, relative_time
from hermes.cli.output import Printer
from hermes.config.home import hermes_root
from hermes.kit.clock import SystemClock
from hermes.kit.terminal_text import single_line

NOT_RUNNING = 3
CONNECTING = "connecting"
SETTLE_SECONDS = 3.0
"""Seconds, a little longer than it takes until a gateway tells how it is."""
POLL_INTERVAL = 0.1


def status(args: Namespace, context: CliContext) -> int:
    home = context.home()
    standing = wait_until_settled(lambda: gateway_status(home), SystemClock().now, time.sleep)
    code = 0 if standing.record is not None else NOT_RUNNING
    below = _deep_rows(standing, context) if args.deep else {}
    if args.json:
        _write_json(context, _json_status(standing) | ({"deep": below} if args.deep else {}))
        return code
    printer, now = Printer(context), SystemClock().now()
    rows = [("gateway", _condition(standing, now)), ("profile", standing.home.profile)]
    if standing.record is not None:
        rows.append(("process", _process(standing.record, now)))
    if standing.state is not None:
        rows += _state_rows(standing, standing.state)
    rows += [(name, single_line(text)) for name, text in below.items()]
    width = max(len(name) for name, _ in rows)
    for name, text in rows:
        printer.line(f"{name:<{width}}  {text}")
    if standing.record is not None and standing.state is not None:
        _platforms(printer, standing, standing.state, now)
    if standing.record is None:
        flag = "" if context.profile is None else f" -p {standing.home.profile}"
        context.stderr.write(f"Start it with: hermes{flag} gateway start\n")
    return code


def wait_until_settled(
    look: Callable[[], GatewayStatus], now: Callable[[], datetime], sleep: Callable[[float], object]
) -> GatewayStatus:
    """A platform that has just begun to connect is given a moment; its state is told with delay."""
    standing = look()
    for _ in range(round(SETTLE_SECONDS / POLL_INTERVAL)):
        states = standing.platforms.values() if standing.record is not None else ()
        begun = [one.updated_at for one in states if one.state == CONNECTING]
        if not any(at and (now() - at).total_seconds() < SETTLE_SECONDS for at in begun):
            break
        sleep(POLL_INTERVAL)
        standing = look()
    return standing


def _deep_rows(standing: GatewayStatus, context: CliContext) -> dict[str, str]:
    from hermes.cli.verbs.gateway.deep_status import deep_status

    return deep_status(standing, context.env)


def list_all(args: Namespace, context: CliContext) -> int:
    standings = all_gateway_statuses(hermes_root(context.env))
    if args.json:
        _write_json(context, [_json_status(one) for one in standings])
        return 0
    now = SystemClock().now()
    rows = [("PROFILE", "PID", "SINCE", "GATEWAY")]
    for one in standings:
        pid = str(one.record.pid) if one.record else ""
        since = relative_time(one.since, now) if one.since else ""
        rows.append((one.home.profile, pid, since, _condition(one, now)))
    Printer(context).table(rows)
    return 0


def _condition(standing: GatewayStatus, now: datetime) -> str:
    state = standing.state
    if standing.record is not None:
        phase = single_line(state.gateway_state) if state else "it has not said how it is"
        guest = standing.served_by
        return phase if guest is None else f"{phase}; served by the gateway of profile {guest}"
    if state is None:
        return "not running"
    when = f" {relative_time(state.updated_at, now)}" if state.updated_at else ""
    if standing.died:
        return (
            f"not running; its last word{when} was {single_line(state.gateway_state)!r}, so it was "
            "killed or it crashed"
        )
    reason = f": {single_line(state.exit_reason)}" if state.exit_reason else ""
    return f"not running since{when or ' an unknown time'}{reason}"


def _process(record: ProcessRecord, now: datetime) -> str:
    begun = record.started_at
    since = f", since {local_time(begun)} ({relative_time(begun, now)})" if begun else ""
    return f"pid {record.pid}{since}"


def _state_rows(standing: GatewayStatus, state: GatewayState) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    if standing.record is not None:
        if len(state.served_profiles) > 1:
            rows.append(("serves", single_line(", ".join(state.served_profiles))))
        rows.append(("turns", f"{state.active_agents} running"))
        rows += [
            ("sandbox", single_line(line.removeprefix("sandbox "))) for line in standing.sandboxes
        ]
        if changed := _changed_since(standing, standing.record):
            rows.append(("settings", changed))
    if state.restart_requested:
        rows.append(("restart", "was asked for"))
    return rows


def _changed_since(standing: GatewayStatus, record: ProcessRecord) -> str:
    """What the gateway has not read yet: settings are taken up when it starts."""
    begun, home = record.started_at, standing.home
    if begun is None:
        return ""
    changed = [
        path.name for path in (home.config, home.dotenv) if _modified_at(path) > begun.timestamp()
    ]
    if not changed:
        return ""
    return f"{' and '.join(changed)} changed since it started; a restart reads it anew"


def _modified_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _platforms(
    printer: Printer, standing: GatewayStatus, state: GatewayState, now: datetime
) -> None:
    shown = state.platforms if standing.served_by is None else standing.platforms
    if not shown:
        printer.line("It listens on no platform, only for `hermes` on this machine.")
        return
    rows = [("PLATFORM", "STATE", "SINCE", "REASON")]
    for name, one in sorted(shown.items()):
        since = relative_time(one.updated_at, now) if one.updated_at else ""
        reason = ": ".join(filter(None, [one.error_code, one.error_message]))
        if one.state == CONNECTING:
            reason = "nothing was heard from it yet"
        rows.append((single_line(name), single_line(one.state), since, single_line(reason)))
    printer.line()
    printer.table(rows)


def _json_status(standing: GatewayStatus) -> dict[str, object]:
    record, state = standing.record, standing.state
    return {
        "profile": standing.home.profile,
        "home": str(standing.home.path),
        "running": record is not None,
        "pid": record.pid if record else None,
        "started_at": record.started_at if record else None,
        "served_by": standing.served_by,
        "died": standing.died,
        "state": state,
    }


def _write_json(context: CliContext, data: object) -> None:
    context.stdout.write(msgspec.json.format(msgspec.json.encode(data), indent=2).decode() + "\n")
