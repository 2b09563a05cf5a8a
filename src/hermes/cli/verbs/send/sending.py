"""Put a text into the outbox, wake the gateway, and see what becomes of it."""

from argparse import Namespace
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

import anyio
from msgspec import Struct

from hermes.app.places import Places, by_name, places_of
from hermes.cli.context import CliContext
from hermes.cli.verbs.send.listing import written
from hermes.cli.verbs.send.reporting import Line, Outcome, report
from hermes.cli.verbs.send.text import text_to_send
from hermes.config.home import Home, ensure_home
from hermes.daemon.standing import Standing, look
from hermes.gateway.letters import Reply, post_reply
from hermes.gateway.targets import (
    Destinations,
    HomeOf,
    Missing,
    Place,
    Unreached,
    parse_targets,
    resolve,
)
from hermes.kit.clock import Clock, SystemClock
from hermes.kit.files import write_atomic
from hermes.kit.ids import new_id
from hermes.ports.store import Fate, Post, Store
from hermes.schema.errors import ConfigError, UsageError
from hermes.schema.scope import Address

Wake = Callable[[Path], bool]
"""Tell the gateway of a home that there is something to do; False when none listens."""

_LOOKS = (0.02, 0.5)
"""Seconds between two looks at the outbox, at first and at most."""


class _Waiting(Struct, frozen=True):
    key: str
    address: Address


def send(args: Namespace, context: CliContext, wake: Wake | None = None) -> int:
    text = text_to_send(args, context)
    home, clock = context.home(), SystemClock()
    standing = look(home)
    online = _online(standing)
    places = places_of(home, context.env, online or ())
    goal = _goal(args.to, places)
    ensure_home(home)
    lines = [Line(_target(one), Outcome.FAILED, _why(one)) for one in goal.unreached]
    if goal.local:
        path = _keep(home, text, clock)
        lines.append(Line("local", Outcome.WRITTEN, str(path)))
    if goal.addresses:
        sender = _Sender(home, standing, clock, wake or _wake)
        patience = 0.0 if args.no_wait else args.timeout
        lines += anyio.run(sender.send, goal.addresses, text, patience)
    return report(lines, args, context)


class _Sender:
    def __init__(self, home: Home, standing: Standing, clock: Clock, wake: Wake) -> None:
        self._home = home
        self._standing = standing
        self._clock = clock
        self._wake = wake

    async def send(self, addresses: Sequence[Address], text: str, patience: float) -> list[Line]:
        from hermes.store.sqlite import open_store

        rows = [_Waiting(new_id("send"), address) for address in addresses]
        now = self._clock.now()
        async with open_store(self._home.state_db, self._clock) as store:
            await store.commit(*(_post(row, text, now) for row in rows))
            woken = await anyio.to_thread.run_sync(self._wake_gateway)
            if self._standing.record is not None and patience > 0:
                await self._settled(store, [row for row in rows if self._serves(row)], patience)
            return [await self._line(store, row, woken=woken) for row in rows]

    def _wake_gateway(self) -> bool:
        record = self._standing.record
        if record is None:
            return False
        folders = dict.fromkeys([self._home.path, Path(record.home or self._home.path)])
        return any(self._wake(folder) for folder in folders)

    def _serves(self, row: _Waiting) -> bool:
        online = _online(self._standing)
        return online is None or row.address.channel in online

    async def _settled(self, store: Store, rows: Sequence[_Waiting], patience: float) -> None:
        until = self._clock.monotonic() + patience
        pause, longest = _LOOKS
        open_keys = {row.key for row in rows}
        while open_keys:
            for key in list(open_keys):
                fate, _ = await store.lanes.fate(key)
                if fate is not Fate.WAITING:
                    open_keys.discard(key)
            left = until - self._clock.monotonic()
            if left <= 0 or not open_keys:
                return
            await self._clock.sleep(min(pause, left))
            pause = min(pause * 1.5, longest)

    async def _line(self, store: Store, row: _Waiting, *, woken: bool) -> Line:
        fate, reason = await store.lanes.fate(row.key)
        target = written(row.address)
        match fate:
            case Fate.DONE:
                return Line(target, Outcome.DELIVERED, "", row.key)
            case Fate.PARKED:
                return Line(target, Outcome.FAILED, reason, row.key)
            case Fate.WAITING:
                return Line(target, Outcome.ACCEPTED, self._delay(row, reason, woken), row.key)

    def _delay(self, row: _Waiting, reason: str, woken: bool) -> str:
        flag = "" if self._home.profile == "default" else f" -p {self._home.profile}"
        if self._standing.record is None:
            return f"no gateway runs; it goes out after: hermes{flag} gateway start"
        if not self._serves(row):
            return f"the gateway that runs has no {row.address.channel}; it goes out once it has"
        if reason:
            return f"not yet delivered: {reason}"
        return "" if woken else "the gateway was not reached; it goes out with its next message"


def _online(standing: Standing) -> list[str] | None:
    """The platforms that the running gateway has for this profile; None when it does not say."""
    if standing.record is None or standing.state is None:
        return None
    return [name for name, one in standing.platforms.items() if one.state != "fatal"]


def _goal(words: str, places: Places) -> Destinations:
    targets = by_name(parse_targets(words), places.chats)
    goal = resolve(targets, places.homes, origin=places.origin, platforms=places.platforms)
    if goal.unreached and len(goal.unreached) == len(targets):
        raise UsageError(
            "; ".join(_why(one) for one in goal.unreached),
            hint="`hermes send --list` shows where can be sent to.",
        )
    return goal


def _post(row: _Waiting, text: str, at: datetime) -> Post:
    return post_reply(row.key, Reply(address=row.address, text=text, at=at, brought=True))


def _target(unreached: Unreached) -> str:
    target = unreached.target
    match target:
        case HomeOf(platform):
            return platform
        case Place(platform, chat, thread):
            return written(Address(platform, chat, thread))
        case _:
            return type(target).__name__.lower()


def _why(unreached: Unreached) -> str:
    name = _target(unreached)
    match unreached.why:
        case Missing.NO_ORIGIN:
            return "There is no chat that this runs for, and no home channel"
        case Missing.NO_HOME:
            return f"{name} has no home channel"
        case Missing.NO_HOME_ANYWHERE:
            return "No platform has a home channel"
        case Missing.UNKNOWN_PLATFORM:
            return f"The platform {name.partition(':')[0]} is not set up"


def _keep(home: Home, text: str, clock: Clock) -> Path:
    folder = home.cron / "output" / "send"
    path = folder / f"{clock.now():%Y-%m-%d_%H-%M-%S}_{new_id('text')[-6:].lower()}.md"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomic(path, text.encode(errors="surrogateescape") + b"\n", mode=0o600)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from error
    return path


def _wake(folder: Path) -> bool:
    from hermes.local.remote import wake

    return wake(folder)
