"""What `gateway status --deep` looks at besides: the service, past starts, what waits to go out."""

from collections.abc import Mapping, Sequence

import anyio

from hermes.cli.verbs.gateway.service import installed_service
from hermes.cli.verbs.sessions.when import local
from hermes.config.home import Home
from hermes.daemon.standing import Standing
from hermes.daemon.starts import read_starts
from hermes.daemon.systemd import unit_path
from hermes.gateway.letters import outbox
from hermes.kit.clock import SystemClock
from hermes.kit.text import one_line, plural
from hermes.schema.errors import StoreError


def depth(standing: Standing, env: Mapping[str, str]) -> dict[str, str]:
    home = standing.home
    rows = {"service": _service(home, env), "starts": _starts(home)}
    for name, text in _outbox(home, sorted(standing.platforms)).items():
        rows[f"outbox {name}"] = text
    return rows


def _service(home: Home, env: Mapping[str, str]) -> str:
    service = installed_service(home, env)
    if service is not None:
        return f"{service.name}: {service.condition}"
    path = unit_path(home, env)
    return f"{path} is there, but not in use here" if path.exists() else "not installed"


def _starts(home: Home) -> str:
    starts = read_starts(home)
    if not starts:
        return "none yet"
    before = starts[-1].after
    after = f", after one that {_ENDED[before]}" if before else ""
    return f"last {local(starts[-1].at)}{after}; {plural(len(starts), 'start')} on record"


_ENDED = {
    "stopped": "was stopped",
    "restart": "asked for a restart",
    "signal": "was ended by a signal",
    "failed": "failed",
    "crashed": "crashed or was killed",
}


def _outbox(home: Home, channels: Sequence[str]) -> dict[str, str]:
    if not home.state_db.exists() or not channels:
        return {}
    try:
        return anyio.run(_counted, home, channels)
    except StoreError as error:
        return {"": f"cannot be read: {error}"}


def in_background(home: Home, pid: int) -> Sequence[str]:
    """What subagents of that process work at, for a conversation that has gone on without them."""
    if not home.state_db.exists():
        return ()
    try:
        return anyio.run(_delegated, home, f"/{pid}/")
    except StoreError:
        # Whoever ends it does so with or without knowing.
        return ()


async def _delegated(home: Home, holder: str) -> Sequence[str]:
    from hermes.app.archive import open_archive
    from hermes.subagents.desk import KIND, read_delegation

    async with open_archive(home, SystemClock()) as store:
        found = await store.matters.find(KIND, only_open=True)
    works = [read_delegation(one) for one in found if holder in one.holder]
    return [one_line(task.goal, 60) for work in works if work for task in work.tasks]


async def _counted(home: Home, channels: Sequence[str]) -> dict[str, str]:
    from hermes.app.archive import open_archive

    counts: dict[str, str] = {}
    async with open_archive(home, SystemClock()) as store:
        for name in channels:
            waiting = len(await store.lanes.topics(outbox(name)))
            parked = len(await store.lanes.parked(outbox(name), 1000))
            counts[name] = f"{plural(waiting, 'chat')} waiting, {parked} given up"
    return counts
