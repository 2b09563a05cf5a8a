"""Download the weights from their publisher over HTTP, resuming partial files."""

from pathlib import Path

import aiohttp
from anyio.to_thread import run_sync

from hermes.models.embedded.catalog import Weights
from hermes.models.embedded.download import (
    HUB,
    DownloadDeps,
    DownloadProgress,
    ReportDownload,
    SourceFailed,
    open_no_link,
    size_of,
)

CONNECT_TIMEOUT = 5.0
"""Seconds: short, so that an unreachable hub is noticed soon."""
READ_TIMEOUT = 30.0
_BLOCK = 1 << 18
_WHOLE, _REST, _NOTHING_LEFT = 200, 206, 416


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
