"""A real API server with a real profile and a fake model, for tests over sockets."""

import os
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from msgspec import Struct
from openai import AsyncOpenAI

from hermes.api.context import ApiLimits
from hermes.api.server import ApiServer
from hermes.api.settings import ApiSettings
from hermes.app.build import App, AppOptions, open_app
from hermes.config.env import Env
from hermes.config.home import resolve_home
from hermes.kit.clock import Clock, SystemClock
from hermes.schema.messages import Message
from hermes.schema.scope import OWNER
from hermes.schema.sessions import SessionFilter, SessionSummary
from hermes.testing.fake_openai.script import Script
from hermes.testing.fake_openai.server import FakeOpenAiServer, serve
from support.preloaded_python import preloaded_program

KEY = "k-0123456789abcdef"
SERVER_SCRIPT = Path(__file__).parents[1] / "integration" / "api" / "runs_process.py"


class ApiResponse(Struct):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        return msgspec.json.decode(self.body, type=dict[str, Any])

    @property
    def session(self) -> dict[str, Any]:
        """The session in the answer to a request about one."""
        assert self.json["object"] == "hermes.session"
        return self.json["session"]

    @property
    def code(self) -> str | None:
        error: dict[str, str | None] = self.json["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert error["message"]
        return error["code"]


class ApiHarness:
    def __init__(
        self, server: ApiServer, app: App, mock: FakeOpenAiServer, http: aiohttp.ClientSession
    ) -> None:
        self.server = server
        self.app = app
        self.model_server = mock
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
    ) -> ApiResponse:
        """Send a request; header names use underscores for hyphens."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if key is not None:
            sent["Authorization"] = f"Bearer {key}"
        async with self.http.request(method, self.url + path, data=body, headers=sent) as response:
            received = {name.lower(): value for name, value in response.headers.items()}
            return ApiResponse(response.status, received, await response.read())

    async def chat(self, body: object, **headers: str) -> ApiResponse:
        return await self.ask("POST", "/v1/chat/completions", msgspec.json.encode(body), **headers)

    def model_request(self, number: int) -> dict[str, Any]:
        """Return what the model was sent in this request."""
        return msgspec.json.decode(self.model_server.requests[number].body, type=dict[str, Any])

    async def sessions(self) -> list[SessionSummary]:
        return list(await self.app.store.archive_for(OWNER).list(SessionFilter(), limit=200))

    async def messages(self, session: str) -> list[Message]:
        rows = await self.app.store.archive_for(OWNER).messages(session)
        return [row.message for row in rows]


def api_settings(**more: object) -> ApiSettings:
    return msgspec.structs.replace(ApiSettings(key=KEY, port=0), **more)


def api_env(home: Path, url: str) -> Env:
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
async def api_process(home: Path, url: str) -> AsyncGenerator[str]:
    """Run a server in its own process, which is killed at the end; yield its URL."""
    env = {"PATH": os.environ["PATH"], "HOME": str(home)}
    async with preloaded_program([str(SERVER_SCRIPT), str(home), url], env=env) as process:
        port = (await anext(process.stdout)).decode().strip()
        yield f"http://127.0.0.1:{port}"


@asynccontextmanager
async def api_harness(
    folder: Path,
    script: Script | None = None,
    *,
    settings: ApiSettings | None = None,
    limits: ApiLimits | None = None,
    clock: Clock | None = None,
    configure: Callable[[ApiServer], None] = lambda _: None,
    status: Callable[[], bytes] | None = None,
    stays: bool = False,
) -> AsyncGenerator[ApiHarness]:
    """With `stays`, the app does what follows a turn, as in a gateway."""
    async with serve(script) as mock:
        env = api_env(folder, mock.url)
        choices = AppOptions(workspace=str(folder), source="gateway", reviews_turns=stays)
        async with open_app(resolve_home(env), env, choices) as app:
            server = ApiServer(
                settings or api_settings(), clock or SystemClock(), limits=limits, status=status
            )
            server.attach("default", app)
            configure(server)
            async with server, aiohttp.ClientSession() as http:
                harness = ApiHarness(server, app, mock, http)
                try:
                    yield harness
                finally:
                    for client in harness.clients:
                        await client.close()
