"""The weights from their publisher, over HTTP, from where the last attempt stopped."""

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
"""Seconds: where the hub cannot be reached, that must show at once."""
READ_TIMEOUT = 30.0
_BLOCK = 1 << 18
_WHOLE, _REST, _NOTHING_LEFT = 200, 206, 416


async def download_from_hub(
    weights: Weights, means: DownloadDeps, tell: ReportDownload, partial_file: Path
) -> None:
    """Raises `SourceFailed`; what came is kept."""
    have = await run_sync(size_of, partial_file)
    if have >= weights.size:
        return
    timeout = aiohttp.ClientTimeout(
        total=None, connect=CONNECT_TIMEOUT, sock_connect=CONNECT_TIMEOUT, sock_read=READ_TIMEOUT
    )
    headers = {"accept-encoding": "identity"} | ({"range": f"bytes={have}-"} if have else {})
    tell(DownloadProgress("fetching", have, weights.size, HUB))
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(weights.hub, headers=headers, proxy=means.proxy or None) as response,
        ):
            await _save_response(response, have, weights, tell, partial_file)
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise SourceFailed(str(error) or "no answer") from error


async def _save_response(
    response: aiohttp.ClientResponse,
    have: int,
    weights: Weights,
    tell: ReportDownload,
    partial_file: Path,
) -> None:
    if response.status not in {_WHOLE, _REST}:
        raise SourceFailed(f"it answered {response.status}")
    done = have if response.status == _REST else 0
    # Blocks of the page cache: the disk is not waited for.
    with open_no_link(partial_file, "ab" if done else "wb") as file:
        async for block in response.content.iter_chunked(_BLOCK):
            done += len(block)
            if done > weights.size:
                raise SourceFailed("more came than the file has")
            file.write(block)
            tell(DownloadProgress("fetching", done, weights.size, HUB))
