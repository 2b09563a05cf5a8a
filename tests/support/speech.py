"""A server for transcriptions, with the interfaces of OpenAI and ElevenLabs."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
from aiohttp import web
from aiohttp.web import FileField
from msgspec import Struct

ADDRESS = "127.0.0.1"


class SpeechCall(Struct, frozen=True):
    path: str
    headers: dict[str, str]
    fields: dict[str, str]
    name: str
    media_type: str
    data: bytes

    @property
    def authorization(self) -> str:
        return self.headers.get("authorization", "")


class SpeechServer:
    """Answers `text`; with `status`, an error; with `hangs`, nothing."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.status = 200
        self.body: bytes | None = None
        self.hangs = False
        self.calls: list[SpeechCall] = []
        self.url = ""

    async def handle(self, request: web.Request) -> web.Response:
        form = await request.post()
        file = form["file"]
        assert isinstance(file, FileField)
        texts = {name: value for name, value in form.items() if isinstance(value, str)}
        headers = {name.lower(): value for name, value in request.headers.items()}
        with file.file:
            data = file.file.read()
        self.calls.append(
            SpeechCall(request.path, headers, texts, file.filename, file.content_type, data)
        )
        if self.hangs:
            await anyio.sleep_forever()
        if self.body is not None:
            return web.Response(body=self.body)
        if self.status != 200:
            return web.json_response({"error": {"message": "no"}}, status=self.status)
        return web.json_response({"text": self.text})


@asynccontextmanager
async def serve_speech(text: str) -> AsyncGenerator[SpeechServer]:
    server = SpeechServer(text)
    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.router.add_post("/v1/audio/transcriptions", server.handle)
    app.router.add_post("/v1/speech-to-text", server.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, ADDRESS, 0)
    await site.start()
    server.url = f"http://{ADDRESS}:{runner.addresses[0][1]}/v1"
    try:
        yield server
    finally:
        await runner.cleanup()
