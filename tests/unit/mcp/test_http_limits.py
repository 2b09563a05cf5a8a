"""Answers and events over HTTP are limited in size."""

from collections.abc import AsyncIterator, Sequence

import httpx2
import pytest

from hermes.mcp.limits import MAX_MESSAGE_BYTES, UnsolicitedLimit
from hermes.mcp.transports import LimitedStream, StderrLog
from hermes.schema.errors import ToolError

pytestmark = pytest.mark.slow
HALF = b"x" * (MAX_MESSAGE_BYTES // 2)


class Chunks(httpx2.AsyncByteStream):
    def __init__(self, chunks: Sequence[bytes]) -> None:
        self._chunks = chunks

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self._chunks:
            yield chunk


async def keep(text: str) -> None:
    raise NotImplementedError


async def counted(*chunks: bytes, events: bool) -> int:
    flow = UnsolicitedLimit(4 * MAX_MESSAGE_BYTES) if events else None
    return sum(
        [len(one) async for one in LimitedStream(Chunks(chunks), StderrLog(str, keep), flow)]
    )


@pytest.mark.parametrize("blank", [b"\n\n", b"\r\r", b"\r\n\r\n"])
async def test_each_event_is_limited_separately(blank: bytes) -> None:
    first, last = blank[:1], blank[1:]
    whole = [HALF, HALF[:-9] + first, last + HALF, HALF[:-9] + blank, HALF]
    assert await counted(*whole, events=True) == sum(map(len, whole))
    with pytest.raises(ToolError, match="more than 16 MB"):
        await counted(*whole, events=False)


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n", b"\nx\n"])
async def test_endless_event_is_refused(end: bytes) -> None:
    with pytest.raises(ToolError, match="more than 16 MB"):
        await counted(b"data: a\n\n", HALF, end, HALF, HALF, events=True)
