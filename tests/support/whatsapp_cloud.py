"""A WhatsApp channel on the emulator."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import anyio.lowlevel
from msgspec import Struct

from emulators.whatsapp_cloud.server import (
    NUMBER_ID,
    SECRET,
    TOKEN,
    VERIFY,
    EmulatedWhatsApp,
    Json,
    WhatsAppServer,
    serve_whatsapp,
)
from hermes.channels.whatsapp_cloud.channel import WhatsAppChannel, open_channel
from hermes.kit.clock import Clock
from hermes.schema.scope import Address
from hermes.store.blobs import FileBlobs
from support.channel_deps import Admits, admit_all, new_deps

ANN = "15551230000"
HOME = Address("whatsapp_cloud", ANN)
VARIABLES = {
    "WHATSAPP_CLOUD_PHONE_NUMBER_ID": NUMBER_ID,
    "WHATSAPP_CLOUD_ACCESS_TOKEN": TOKEN,
    "WHATSAPP_CLOUD_APP_SECRET": SECRET,
    "WHATSAPP_CLOUD_VERIFY_TOKEN": VERIFY,
    "WHATSAPP_CLOUD_WEBHOOK_HOST": "127.0.0.1",
    "WHATSAPP_CLOUD_WEBHOOK_PORT": "0",
}


class WhatsAppBench(Struct, frozen=True):
    channel: WhatsAppChannel
    server: WhatsAppServer
    whatsapp: EmulatedWhatsApp
    blobs: FileBlobs
    env: dict[str, str]

    async def hook(self) -> str:
        """The address that Meta calls, once the channel listens."""
        while not self.channel.port:
            await anyio.lowlevel.checkpoint()
        return f"http://127.0.0.1:{self.channel.port}/whatsapp/webhook"

    async def post(self, *messages: Json) -> None:
        assert await self.server.post(await self.hook(), *messages) == 200

    async def say(self, text: str, **more: object) -> None:
        await self.post(self.whatsapp.message(ANN, type="text", text={"body": text}, **more))


@asynccontextmanager
async def whatsapp_bench(
    folder: Path,
    env: Mapping[str, str] | None = None,
    clock: Clock | None = None,
    *,
    admits: Admits = admit_all,
) -> AsyncGenerator[WhatsAppBench]:
    whatsapp, variables = EmulatedWhatsApp(), {**VARIABLES, **(env or {})}
    async with serve_whatsapp(whatsapp) as server:
        extra = {"base_url": server.url}
        deps = new_deps(
            "whatsapp_cloud", folder, extra=extra, env=variables, clock=clock, admits=admits
        )
        async with open_channel(deps) as channel:
            blobs = FileBlobs(folder / "cache" / "blobs")
            yield WhatsAppBench(channel, server, whatsapp, blobs, variables)
