"""An SMS channel on the emulator."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import anyio.lowlevel
from msgspec import Struct

from emulators.sms.server import (
    ACCOUNT,
    NUMBER,
    TOKEN,
    EmulatedMessage,
    EmulatedTwilio,
    TwilioServer,
    serve_twilio,
)
from hermes.channels.sms.channel import SmsChannel, open_channel
from hermes.kit.clock import Clock
from hermes.schema.scope import Address
from support.channel_deps import Admits, admit_all, new_deps

ANN = "+15551230000"
HOME = Address("sms", ANN)
PUBLIC_URL = "https://sms.example.com/hook"
VARIABLES = {
    "TWILIO_ACCOUNT_SID": ACCOUNT,
    "TWILIO_AUTH_TOKEN": TOKEN,
    "TWILIO_PHONE_NUMBER": NUMBER,
    "SMS_WEBHOOK_URL": PUBLIC_URL,
    "SMS_WEBHOOK_PORT": "0",
}


class SmsBench(Struct, frozen=True):
    channel: SmsChannel
    server: TwilioServer
    twilio: EmulatedTwilio
    env: dict[str, str]
    """The environment as the channel sees it now."""

    async def post(self, message: EmulatedMessage, **more: str) -> int:
        """Call the channel for a message, once it listens."""
        while not self.channel.port:
            await anyio.lowlevel.checkpoint()
        return await self.server.post(message, f"http://127.0.0.1:{self.channel.port}/hook", **more)


@asynccontextmanager
async def sms_bench(
    folder: Path,
    twilio: EmulatedTwilio | None = None,
    env: Mapping[str, str] | None = None,
    clock: Clock | None = None,
    *,
    admits: Admits = admit_all,
) -> AsyncGenerator[SmsBench]:
    twilio = twilio or EmulatedTwilio()
    twilio.sms_url = PUBLIC_URL
    async with serve_twilio(twilio) as server:
        variables = {**VARIABLES, **(env or {})}
        deps = new_deps(
            "sms", folder, extra={"base_url": server.url}, env=variables, clock=clock, admits=admits
        )
        async with open_channel(deps) as channel:
            yield SmsBench(channel, server, twilio, variables)
