"""The extra rows of `gateway status --deep`: service, recent starts and outbox."""

from collections.abc import Mapping, Sequence

import anyio

from hermes.app.service.restart_guard import read_starts
from hermes.app.service.status import GatewayStatus
from hermes.app.service.systemd import unit_path
from hermes.cli.dates import local_time
from hermes.cli.verbs.gateway.service import installed_service
from hermes.config.home import Home
from hermes.gateway.messages import outbox_name
from hermes.kit.clock import SystemClock
from hermes.kit.text import one_line, plural
from hermes.schema.errors import StoreError


def deep_status(gateway: GatewayStatus, env: Mapping[str, str]) -> dict[str, str]:
    home = gateway.home
    rows = {"service": _service(home, env), "starts": _starts(home)}
    for name, text in _outbox(home, sorted(gateway.platforms)).items():
        rows[f"outbox {name}"] = text
    return rows


def _service(home: Home, env: Mapping[str, str]) -> str:
    service = installed_service(home, env)
    if service is not None:
        return f"{service.name}: {service.condition}"
    path = unit_path(home, env)
    return f"{path} exists but is not active" if path.exists() else "not installed"


def _starts(home: Home) -> str:
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
    if not home.state_db.exists() or not channels:
        return {}
    try:
        return anyio.run(_outbox_counts, home, channels)
    except StoreError as error:
        return {"": f"cannot be read: {error}"}


def background_goals(home: Home, pid: int) -> Sequence[str]:
    """Goals of the background subagents that run in this process."""
    if not home.state_db.exists():
        return ()
    try:
        return anyio.run(_delegated_goals, home, f"/{pid}/")
    except StoreError:
        # Only shown as information: stopping must work without it.
        return ()


async def _delegated_goals(home: Home, holder: str) -> Sequence[str]:
    from hermes.app.archive import open_archive
    from hermes.subagents.delegations import KIND, read_delegation

    async with open_archive(home, SystemClock()) as store:
        found = await store.records.find(KIND, only_open=True)
    delegations = [read_delegation(record) for record in found if holder in record.holder]
    return [
        one_line(task.goal, 60)
        for delegation in delegations
        if delegation
        for task in delegation.tasks
    ]


async def _outbox_counts(home: Home, channels: Sequence[str]) -> dict[str, str]:
    from hermes.app.archive import open_archive

    counts: dict[str, str] = {}
    async with open_archive(home, SystemClock()) as store:
        for name in channels:
            waiting = len(await store.queues.topics(outbox_name(name)))
            parked = len(await store.queues.parked(outbox_name(name), 1000))
            counts[name] = f"{plural(waiting, 'chat')} waiting, {parked} failed"
    return counts
