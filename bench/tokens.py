"""Measure the latency that an idle API server adds to a token."""

import json
import re
import statistics
import tempfile
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import anyio
from aiohttp import web

from bench.api import serving
from bench.api_process import KEY
from bench.report import Number

TOKENS = 300
PACE = 0.01
ROUNDS = 3
"""The p99 of one round depends on other load; the median of several rounds does not."""
_TOKEN = re.compile(rb"<(\d+)>")


class _Model:
    """A slow model server that records when each token was sent."""

    def __init__(self) -> None:
        self.sent: dict[int, float] = {}

    async def complete(self, request: web.Request) -> web.StreamResponse:
        await request.read()
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for number in range(TOKENS):
            await anyio.sleep(PACE)
            self.sent[number] = time.perf_counter()
            await response.write(_chunk({"content": f"<{number}>"}))
        await response.write(_chunk({}, "stop") + b"data: [DONE]\n\n")
        return response


def measure() -> Iterator[Number]:
    yield anyio.run(_measure)


async def _measure() -> Number:
    model = _Model()
    with tempfile.TemporaryDirectory() as folder:
        async with _listening(model) as url, aiohttp.ClientSession() as http:
            home = Path(folder) / "home"
            home.mkdir()
            with serving(home, url) as (_, port):
                api = f"http://127.0.0.1:{port}/v1"
                await _token_times(http, api, model)
                through = [await _token_times(http, api, model) for _ in range(ROUNDS)]
            directly = await _token_times(http, url, model)
    p99 = statistics.median(statistics.quantiles(one, n=100)[98] for one in through)
    added = (p99 - statistics.median(directly)) * 1000
    return Number(name="API, idle: added latency of a token, p99", value=added, unit="ms", bar=1)


@asynccontextmanager
async def _listening(model: _Model) -> AsyncGenerator[str]:
    app = web.Application()
    app.router.add_post("/v1/chat/completions", model.complete)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    finally:
        await runner.cleanup()


async def _token_times(http: aiohttp.ClientSession, url: str, model: _Model) -> list[float]:
    """Return for each token the seconds from sending to receiving it."""
    body = {
        "model": "hermes-agent",
        "stream": True,
        "messages": [{"role": "user", "content": f"count for {url}"}],
    }
    took: list[float] = []
    headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
    data = json.dumps(body).encode()
    async with http.post(f"{url}/chat/completions", data=data, headers=headers) as response:
        async for chunk in response.content.iter_any():
            now = time.perf_counter()
            took += [now - model.sent[int(number)] for number in _TOKEN.findall(chunk)]
    if len(took) != TOKENS:
        raise SystemExit(f"{url} sent {len(took)} of {TOKENS} tokens")
    return took


def _chunk(delta: dict[str, str], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    one = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 0, "model": "m"}
    return b"data: " + json.dumps({**one, "choices": [choice]}).encode() + b"\n\n"
