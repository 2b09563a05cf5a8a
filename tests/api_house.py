"""A real API server over a real profile and a mock model, for tests over sockets."""

import subprocess
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import msgspec
from anyio.streams.text import TextReceiveStream
from msgspec import Struct
from openai import AsyncOpenAI

from hermes.api.desk import Limits
from hermes.api.server import ApiServer
from hermes.api.settings import ApiSettings
from hermes.app.build import App, Choices, open_app
from hermes.config.env import Env
from hermes.config.home import resolve_home
from hermes.kit.clock import Clock, SystemClock
from hermes.schema.messages import Message
from hermes.schema.scope import OWNER
from hermes.schema.sessions import Digest, SessionFilter
from hermes.testing.mock_openai.script import Script
from hermes.testing.mock_openai.server import MockServer, serve

KEY = "k-0123456789abcdef"
PROGRAM = Path(__file__).parent / "integration" / "api" / "runs_process.py"


class Told(Struct):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        return msgspec.json.decode(self.body, type=dict[str, Any])

    @property
    def code(self) -> str | None:
        error: dict[str, str | None] = self.json["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert error["message"]
        return error["code"]


class House:
    def __init__(
        self, server: ApiServer, app: App, mock: MockServer, http: aiohttp.ClientSession
    ) -> None:
        self.server = server
        self.app = app
        self.mock = mock
        self.http = http
        self.clients: list[AsyncOpenAI] = []
        self.url = f"http://127.0.0.1:{server.port}"

    def client(self, key: str = KEY, **more: str) -> AsyncOpenAI:
        client = AsyncOpenAI(
            base_url=f"{self.url}/v1", api_key=key, max_retries=0, default_headers=more
        )
        self.clients.append(client)
        return client

    async def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        key: str | None = KEY,
        **headers: str,
    ) -> Told:
        """Header names are written with a line for each hyphen."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if key is not None:
            sent["Authorization"] = f"Bearer {key}"
        async with self.http.request(method, self.url + path, data=body, headers=sent) as response:
            given = {name.lower(): value for name, value in response.headers.items()}
            return Told(response.status, given, await response.read())

    async def chat(self, body: object, **headers: str) -> Told:
        return await self.ask("POST", "/v1/chat/completions", msgspec.json.encode(body), **headers)

    def asked(self, number: int) -> dict[str, Any]:
        """What the model was sent."""
        return msgspec.json.decode(self.mock.requests[number].body, type=dict[str, Any])

    async def sessions(self) -> list[Digest]:
        return list(await self.app.store.seen_by(OWNER).list(SessionFilter(), limit=200))

    async def said(self, session: str) -> list[Message]:
        rows = await self.app.store.seen_by(OWNER).messages(session)
        return [row.message for row in rows]


def settings(**more: object) -> ApiSettings:
    return msgspec.structs.replace(ApiSettings(key=KEY, port=0), **more)


def env_of(home: Path, url: str) -> Env:
    return Env(
        {
            "HERMES_HOME": str(home),
            "HOME": str(home),
            "OPENAI_BASE_URL": url,
            "OPENAI_API_KEY": "sk-none",
            "HERMES_INFERENCE_MODEL": "mock-model",
            "HERMES_INFERENCE_PROVIDER": "openai",
        }
    )


@asynccontextmanager
async def served(home: Path, url: str) -> AsyncGenerator[str]:
    """The address of a server in its own process, which is killed when the block ends."""
    command = [sys.executable, str(PROGRAM), str(home), url]
    async with await anyio.open_process(command, stderr=None, stdin=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        try:
            port = (await TextReceiveStream(process.stdout).receive()).strip()
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()


@asynccontextmanager
async def house(
    folder: Path,
    script: Script | None = None,
    *,
    given: ApiSettings | None = None,
    limits: Limits | None = None,
    clock: Clock | None = None,
    also: Callable[[ApiServer], None] = lambda _: None,
    status: Callable[[], bytes] | None = None,
) -> AsyncGenerator[House]:
    async with serve(script) as mock:
        env = env_of(folder, mock.url)
        choices = Choices(workspace=str(folder), source="gateway")
        async with open_app(resolve_home(env), env, choices) as app:
            server = ApiServer(given or settings(), clock or SystemClock(), limits=limits)
            server.desk.status = status
            server.attach("default", app)
            also(server)
            async with server, aiohttp.ClientSession() as http:
                one = House(server, app, mock, http)
                try:
                    yield one
                finally:
                    for client in one.clients:
                        await client.close()
