"""The weights from their publisher, over HTTP, from where the last attempt stopped."""

from pathlib import Path

import aiohttp
from anyio.to_thread import run_sync

from hermes.models.embedded.catalogue import Weights
from hermes.models.embedded.fetching import (
    HUB,
    Means,
    Progress,
    SourceFailed,
    Tell,
    opened,
    size_of,
)

CONNECT = 5.0
"""Seconds: where the hub cannot be reached, that must show at once."""
SILENCE = 30.0
_BLOCK = 1 << 18
_WHOLE, _REST, _NOTHING_LEFT = 200, 206, 416


async def from_hub(weights: Weights, means: Means, tell: Tell, unfinished: Path) -> None:
    """Raises `SourceFailed`; what came is kept."""
    have = await run_sync(size_of, unfinished)
    if have >= weights.size:
        return
    timeout = aiohttp.ClientTimeout(
        total=None, connect=CONNECT, sock_connect=CONNECT, sock_read=SILENCE
    )
    headers = {"accept-encoding": "identity"} | ({"range": f"bytes={have}-"} if have else {})
    tell(Progress("fetching", have, weights.size, HUB))
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(weights.hub, headers=headers, proxy=means.proxy or None) as response,
        ):
            await _take(response, have, weights, tell, unfinished)
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise SourceFailed(str(error) or "no answer") from error


async def _take(
    response: aiohttp.ClientResponse, have: int, weights: Weights, tell: Tell, unfinished: Path
) -> None:
    if response.status not in {_WHOLE, _REST}:
        raise SourceFailed(f"it answered {response.status}")
    done = have if response.status == _REST else 0
    # Blocks of the page cache: the disk is not waited for.
    with opened(unfinished, "ab" if done else "wb") as file:
        async for block in response.content.iter_chunked(_BLOCK):
            done += len(block)
            if done > weights.size:
                raise SourceFailed("more came than the file has")
            file.write(block)
            tell(Progress("fetching", done, weights.size, HUB))
