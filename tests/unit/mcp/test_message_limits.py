"""Messages are measured before they are parsed, however they are split."""

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import anyio
import httpx2
import mcp_types as types
import pytest
from anyio.streams.memory import MemoryObjectReceiveStream
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared.message import SessionMessage

from hermes.mcp.limits import (
    MAX_ENTRIES,
    MAX_UNSOLICITED,
    MAX_UNSOLICITED_BYTES,
    MAX_VALUES,
    TOO_MUCH_UNSOLICITED,
    WINDOW_SECONDS,
    LimitExceeded,
    MessageSize,
    UnsolicitedLimit,
    without_costly_parts,
)
from hermes.mcp.transports import Incoming, LimitedStream, StderrLog, filtered_streams

pytestmark = pytest.mark.slow
values = st.recursive(
    st.none() | st.integers() | st.text('{[,:"\\aä\n'),
    lambda inner: st.lists(inner) | st.dictionaries(st.text('{,"\\'), inner),
)


def delimiters(value: object) -> int:
    """Count the JSON delimiters of a value."""
    match value:
        case dict():
            return 1 + max(2 * len(value) - 1, 0) + sum(map(delimiters, value.values()))
        case list():
            return 1 + max(len(value) - 1, 0) + sum(map(delimiters, value))
        case _:
            return 0


@given(values, st.lists(st.integers(1, 9), min_size=1), st.booleans())
def test_text_in_strings_does_not_count(value: object, steps: list[int], plain: bool) -> None:
    data, weight, at = json.dumps(value, ensure_ascii=plain).encode(), MessageSize(), 0
    size = len(data)
    for turn in range(size):
        step = steps[turn % len(steps)]
        weight.add(data[at : at + step])
        at += step
    assert (weight.size, weight.values) == (size, delimiters(value))


def test_unsolicited_messages_are_limited() -> None:
    talk = UnsolicitedLimit()
    for _ in range(MAX_UNSOLICITED):
        talk.count(1, WINDOW_SECONDS * 2)
    with pytest.raises(LimitExceeded):
        talk.count(1, WINDOW_SECONDS * 3)
    talk.count(MAX_UNSOLICITED_BYTES, WINDOW_SECONDS * 4)
    with pytest.raises(LimitExceeded):
        talk.count(1, WINDOW_SECONDS * 4)


def answer(**result: object) -> types.JSONRPCResponse:
    return types.JSONRPCResponse(jsonrpc="2.0", id=7, result=result)


def test_output_schemas_are_dropped() -> None:
    tools = [{"name": "a", "outputSchema": {}}, 3]
    assert without_costly_parts(answer(tools=tools)) == answer(tools=[{"name": "a"}, 3])


@pytest.mark.parametrize(
    "long",
    [
        {"content": [{}] * MAX_ENTRIES},
        {"content": [{"annotations": {"audience": [1] * (MAX_ENTRIES + 1)}}]},
        {"inputRequests": {str(n): {} for n in range(MAX_ENTRIES + 1)}},
    ],
)
def test_message_with_too_many_parts_is_not_processed(long: dict[str, object]) -> None:
    refused = without_costly_parts(answer(**long))
    assert isinstance(refused, types.JSONRPCError)
    assert refused.id == 7
    error = types.ErrorData(code=1, message="No.", data=long)
    assert without_costly_parts(
        types.JSONRPCError(jsonrpc="2.0", id=7, error=error)
    ) == types.JSONRPCError(
        jsonrpc="2.0", id=7, error=types.ErrorData(code=1, message="No.", data=None)
    )
    with pytest.raises(LimitExceeded):
        without_costly_parts(types.JSONRPCRequest(jsonrpc="2.0", id=7, method="m", params=long))
    with pytest.raises(LimitExceeded):
        without_costly_parts(types.JSONRPCNotification(jsonrpc="2.0", method="m", params=long))
    free = answer(structuredContent=long, content=[{}])
    assert without_costly_parts(free) is free


async def keep(text: str) -> None:
    raise NotImplementedError


async def counted(most: int, *chunks: bytes, complaints: StderrLog | None = None) -> list[bytes]:
    complaints = complaints or StderrLog(str, keep)
    return [one async for one in LimitedStream(Body(*chunks), complaints, UnsolicitedLimit(most))]


class Body(httpx2.AsyncByteStream):
    def __init__(self, *chunks: bytes) -> None:
        self._chunks = chunks

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self._chunks:
            yield chunk


@pytest.mark.parametrize("before", [b"", b': "\n', b': "\r', b"data: \\\n"])
async def test_lone_quote_hides_nothing_over_http(before: bytes) -> None:
    half = b"data: [" + b"{}," * (MAX_VALUES // 4)
    events = [before + half + b"\n\n", before + half, b"{}]\n\n"]
    assert await counted(10**9, *events) == events
    complaints = StderrLog(str, keep)
    with pytest.raises(LimitExceeded, match="values"):
        await counted(10**9, before + half, half, half, complaints=complaints)
    assert "values" in complaints.disconnect_reason


async def test_endless_stream_is_limited_over_http() -> None:
    with pytest.raises(LimitExceeded, match="unsolicited"):
        await counted(50, *[b"data: 1\n\n"] * 9)


async def test_flooding_server_is_disconnected_over_http() -> None:
    complaints = StderrLog(str, keep)
    news = SessionMessage(types.JSONRPCNotification(jsonrpc="2.0", method="notifications/message"))
    inward, source = anyio.create_memory_object_stream[Incoming](MAX_UNSOLICITED + 1)
    for _ in range(MAX_UNSOLICITED + 1):
        inward.send_nowait(news)

    @asynccontextmanager
    async def streams() -> AsyncGenerator[tuple[MemoryObjectReceiveStream[Incoming], None]]:
        with inward, source:
            yield source, None

    with anyio.fail_after(60):
        async with filtered_streams(streams(), complaints) as (received, _):
            count = len([one async for one in received])
    assert complaints.disconnect_reason == TOO_MUCH_UNSOLICITED
    assert count == MAX_UNSOLICITED
