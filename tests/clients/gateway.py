"""A real gateway process behind a proxy that records requests, with a scripted provider."""

import os
import re
import secrets
import socket
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import msgspec
from aiohttp import web

from hermes.testing.fake_openai.script import Call, Fault, Reply, Rule, Script
from hermes.testing.fake_openai.server import serve

KEY = "clients-" + secrets.token_hex(16)
START_TIMEOUT = 60
HELLO = "Hello there, friend."
SCRIPT = Script(
    rules=[
        Rule("the weather", [
            Reply(calls=[Call("weather", {"city": "Oslo"}, id="call_w")]),
            Reply("It rains in Oslo."),
        ]),
        Rule("run the command", [
            Reply(calls=[Call("exec_command", {"cmd": "echo from-codex"}, id="call_x")]),
            Reply("It said from-codex."),
        ]),
        Rule("extract in parts", [
            Reply(calls=[Call("PartialCity", {"name": "Oslo"}, id="call_p")]),
        ]),
        Rule("extract the city", [Reply(calls=[Call("City", {"name": "Oslo"}, id="call_c")])]),
        Rule("use a tool", [
            Reply("Let me look.", [Call("todo", {}, id="call_t")]), Reply("It is tidy."),
        ]),
        Rule("fail", [Reply(fault=Fault("status", named="out_of_credit"))]),
    ],
    default=Reply(HELLO),
)  # fmt: skip
"""What the provider answers, by the last words of the user."""
_LONG = 300
_DROPPED_HEADERS = {"host", "content-length", "transfer-encoding", "connection"}
_TEMPORARY = re.compile(r"/tmp/[^\s<>\"']+")  # noqa: S108 - only replaced


class Recorder:
    """Forwards requests to the gateway and keeps those that a test can send again."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._http: aiohttp.ClientSession | None = None
        self.requests: list[dict[str, Any]] = []

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator[str]:
        app = web.Application(client_max_size=10**8)
        app.router.add_route("*", "/{path:.*}", self._forward)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        timeout = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(timeout=timeout, auto_decompress=False) as self._http:
            await site.start()
            try:
                yield f"http://127.0.0.1:{runner.addresses[0][1]}"
            finally:
                await runner.cleanup()

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        assert self._http is not None
        body = await request.read()
        headers = {n: v for n, v in request.headers.items() if n.lower() not in _DROPPED_HEADERS}
        async with self._http.request(
            request.method, self._target + request.path_qs, data=body, headers=headers
        ) as answer:
            self._keep(request, body, answer.status)
            header_values = {
                n: v for n, v in answer.headers.items() if n.lower() not in _DROPPED_HEADERS
            }
            response = web.StreamResponse(status=answer.status, headers=header_values)
            await response.prepare(request)
            async for piece in answer.content.iter_any():
                await response.write(piece)
            await response.write_eof()
            return response

    def _keep(self, request: web.Request, body: bytes, status: int) -> None:
        # References to what this gateway has stored mean nothing to another one.
        if b"previous_response_id" in body or b"item_reference" in body:
            return
        decoded = msgspec.json.decode(body) if body else None
        if status >= 400 and _shortened(decoded) != decoded:
            # The words that the provider refused may be among those that are cut.
            return
        kept = {"method": request.method, "path": request.path_qs, "status": status}
        headers = {n: v for n, v in request.headers.items() if n.lower().startswith("x-hermes-")}
        kept |= {"headers": headers} if headers else {}
        kept |= {"body": _shortened(decoded)} if decoded is not None else {}
        if kept not in self.requests:
            self.requests.append(kept)


def _shortened(value: Any) -> Any:
    """Cut long texts, such as prompts, and replace names of temporary files."""
    match value:
        case str():
            text = _TEMPORARY.sub("/work", value)
            return text if len(text) < _LONG else f"{text[:100]}…"
        case list():
            return [_shortened(one) for one in value]
        case dict():
            return {name: _shortened(one) for name, one in value.items()}
        case _:
            return value


@asynccontextmanager
async def running_gateway(folder: Path) -> AsyncGenerator[str]:
    """Run `hermes gateway run` on a new home; yield the address of its API."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    async with serve(SCRIPT) as provider:
        env = _environment(folder, provider.url, port)
        command = [str(Path(sys.prefix) / "bin" / "hermes"), "gateway", "run"]
        log = (folder / "gateway.txt").open("wb")
        async with await anyio.open_process(command, env=env, stdout=log, stderr=log) as process:
            try:
                url = f"http://127.0.0.1:{port}"
                await _wait_for(url, folder / "gateway.txt")
                yield url
            finally:
                process.terminate()


def _environment(folder: Path, provider: str, port: int) -> Mapping[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    return kept | {
        "HOME": str(folder),
        "HERMES_HOME": str(folder),
        "OPENAI_BASE_URL": provider,
        "OPENAI_API_KEY": "sk-none",
        "HERMES_INFERENCE_MODEL": "mock-model",
        "HERMES_INFERENCE_PROVIDER": "openai",
        "API_SERVER_ENABLED": "true",
        "API_SERVER_KEY": KEY,
        "API_SERVER_PORT": str(port),
    }


async def _wait_for(url: str, log: Path) -> None:
    with anyio.move_on_after(START_TIMEOUT):
        async with aiohttp.ClientSession() as http:
            while True:
                try:
                    async with http.get(f"{url}/health") as response:
                        if response.status == 200:
                            return
                except aiohttp.ClientError:
                    pass
                await anyio.sleep(0.1)
    raise RuntimeError(f"the gateway did not start: {log.read_text(errors='replace')[-2000:]}")
