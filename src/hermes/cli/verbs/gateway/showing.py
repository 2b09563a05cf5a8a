"""`hermes gateway status` and `list`: what can be seen from outside, and what cannot be known."""

import time
from argparse import Namespace
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import msgspec

from hermes.cli.context import CliContext
from hermes.cli.export.plain import flat
from hermes.cli.verbs.sessions.paper import Paper
from hermes.cli.verbs.sessions.when import ago, local
from hermes.config.home import root_of
from hermes.daemon.record import Record
from hermes.daemon.standing import Standing, look, look_at_all
from hermes.daemon.state import GatewayState
from hermes.kit.clock import SystemClock

NOT_RUNNING = 3
CONNECTING = "connecting"
MOMENT = 3.0
"""Seconds, a little longer than it takes until a gateway tells how it is."""
GLANCE = 0.1


def status(args: Namespace, context: CliContext) -> int:
    home = context.home()
    standing = settled(lambda: look(home), SystemClock().now, time.sleep)
    code = 0 if standing.record is not None else NOT_RUNNING
    below = _below(standing, context) if args.deep else {}
    if args.json:
        _write_json(context, _as_data(standing) | ({"deep": below} if args.deep else {}))
        return code
    paper, now = Paper(context), SystemClock().now()
    rows = [("gateway", _condition(standing, now)), ("profile", standing.home.profile)]
    if standing.record is not None:
        rows.append(("process", _process(standing.record, now)))
    if standing.state is not None:
        rows += _told(standing, standing.state)
    rows += [(name, flat(text)) for name, text in below.items()]
    width = max(len(name) for name, _ in rows)
    for name, text in rows:
        paper.line(f"{name:<{width}}  {text}")
    if standing.record is not None and standing.state is not None:
        _platforms(paper, standing, standing.state, now)
    if standing.record is None:
        flag = "" if context.profile is None else f" -p {standing.home.profile}"
        context.stderr.write(f"Start it with: hermes{flag} gateway start\n")
    return code


def settled(
    look: Callable[[], Standing], now: Callable[[], datetime], sleep: Callable[[float], object]
) -> Standing:
    """A platform that has just begun to connect is given a moment; its state is told with delay."""
    standing = look()
    for _ in range(round(MOMENT / GLANCE)):
        states = standing.platforms.values() if standing.record is not None else ()
        begun = [one.updated_at for one in states if one.state == CONNECTING]
        if not any(at and (now() - at).total_seconds() < MOMENT for at in begun):
            break
        sleep(GLANCE)
        standing = look()
    return standing


def _below(standing: Standing, context: CliContext) -> dict[str, str]:
    from hermes.cli.verbs.gateway.depth import depth

    return depth(standing, context.env)


def list_all(args: Namespace, context: CliContext) -> int:
    standings = look_at_all(root_of(context.env))
    if args.json:
        _write_json(context, [_as_data(one) for one in standings])
        return 0
    now = SystemClock().now()
    rows = [("PROFILE", "PID", "SINCE", "GATEWAY")]
    for one in standings:
        pid = str(one.record.pid) if one.record else ""
        since = ago(one.since, now) if one.since else ""
        rows.append((one.home.profile, pid, since, _condition(one, now)))
    Paper(context).table(rows)
    return 0


def _condition(standing: Standing, now: datetime) -> str:
    state = standing.state
    if standing.record is not None:
        phase = flat(state.gateway_state) if state else "it has not said how it is"
        guest = standing.served_by
        return phase if guest is None else f"{phase}; served by the gateway of profile {guest}"
    if state is None:
        return "not running"
    when = f" {ago(state.updated_at, now)}" if state.updated_at else ""
    if standing.died:
        return (
            f"not running; its last word{when} was {flat(state.gateway_state)!r}, so it was killed "
            "or it crashed"
        )
    reason = f": {flat(state.exit_reason)}" if state.exit_reason else ""
    return f"not running since{when or ' an unknown time'}{reason}"


def _process(record: Record, now: datetime) -> str:
    begun = record.started_at
    since = f", since {local(begun)} ({ago(begun, now)})" if begun else ""
    return f"pid {record.pid}{since}"


def _told(standing: Standing, state: GatewayState) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    if standing.record is not None:
        if len(state.served_profiles) > 1:
            rows.append(("serves", flat(", ".join(state.served_profiles))))
        rows.append(("turns", f"{state.active_agents} running"))
        rows += [("sandbox", flat(line.removeprefix("sandbox "))) for line in standing.sandboxes]
        if changed := _changed_since(standing, standing.record):
            rows.append(("settings", changed))
    if state.restart_requested:
        rows.append(("restart", "was asked for"))
    return rows


def _changed_since(standing: Standing, record: Record) -> str:
    """What the gateway has not read yet: settings are taken up when it starts."""
    begun, home = record.started_at, standing.home
    if begun is None:
        return ""
    changed = [
        path.name for path in (home.config, home.dotenv) if _written(path) > begun.timestamp()
    ]
    if not changed:
        return ""
    return f"{' and '.join(changed)} changed since it started; a restart reads it anew"


def _written(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _platforms(paper: Paper, standing: Standing, state: GatewayState, now: datetime) -> None:
    shown = state.platforms if standing.served_by is None else standing.platforms
    if not shown:
        paper.line("It listens on no platform, only for `hermes` on this machine.")
        return
    rows = [("PLATFORM", "STATE", "SINCE", "REASON")]
    for name, one in sorted(shown.items()):
        since = ago(one.updated_at, now) if one.updated_at else ""
        reason = ": ".join(filter(None, [one.error_code, one.error_message]))
        if one.state == CONNECTING:
            reason = "nothing was heard from it yet"
        rows.append((flat(name), flat(one.state), since, flat(reason)))
    paper.line()
    paper.table(rows)


def _as_data(standing: Standing) -> dict[str, object]:
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
