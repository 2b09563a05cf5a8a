"""A listener on a real socket with a webhook channel and a client."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import aiohttp
import anyio
import msgspec

from hermes.channels.http_listener import ListenerLimits
from hermes.channels.webhook.channel import WebhookChannel, webhook_channel
from hermes.channels.webhook.listener import Listener
from hermes.channels.webhook.routes import read_settings
from hermes.channels.webhook.signatures import Scheme, sign
from hermes.kit.clock import Clock
from hermes.ports.channel import Inbound
from hermes.schema.messages import Text
from hermes.testing.clock import FakeClock

SECRET = "a-secret-of-some-length"
JSON_HEADERS = {"Content-Type": "application/json"}


class WebhookResponse(NamedTuple):
    status: int
    body: dict
    headers: Mapping[str, str]

    @property
    def code(self) -> str:
        """The result of the call in one word."""
        return self.body["error"]["code"] if "error" in self.body else self.body["status"]


def signed_headers(
    body: bytes, now: datetime, delivery: str = "d-1", scheme: Scheme = Scheme.STANDARD
):
    return JSON_HEADERS | sign(SECRET, delivery, now, body, scheme)


def inbound_text(inbound: Inbound) -> str:
    return "".join(part.text for part in inbound.parts if isinstance(part, Text))


class WebhookHarness:
    """Records delivered messages and sends calls."""

    def __init__(self, listener: Listener, clock: Clock, session: aiohttp.ClientSession) -> None:
        self.listener = listener
        self.clock = clock
        self.session = session
        self.inbound: list[Inbound] = []
        self.channels: dict[str, WebhookChannel] = {}
        self.failure: Exception | None = None
        self.gate = anyio.Event()
        self.gate.set()
        self.asked = anyio.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.listener.port}"

    async def deliver(self, update: Inbound) -> None:
        self.asked.set()
        await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        self.inbound.append(update)

    async def post(
        self, path: str, body: bytes, headers: Mapping[str, str] | list[tuple[str, str]]
    ) -> WebhookResponse:
        data = BytesIO(body) if len(body) > 100_000 else body
        async with self.session.post(f"{self.url}{path}", data=data, headers=headers) as response:
            answer = msgspec.json.decode(await response.read())
            return WebhookResponse(response.status, answer, response.headers)

    async def call(
        self,
        route: str,
        body: bytes = b"{}",
        delivery: str = "d-1",
        scheme: Scheme = Scheme.STANDARD,
        **more: str,
    ) -> WebhookResponse:
        """Send a call that is signed now."""
        extra = {name.replace("_", "-"): value for name, value in more.items()}
        headers = signed_headers(body, self.clock.now(), delivery, scheme) | extra
        return await self.post(f"/webhooks/{route}", body, headers)


@asynccontextmanager
async def webhook_harness(
    folder: Path,
    routes: Mapping[str, Mapping[str, object]],
    *,
    clock: Clock | None = None,
    limits: ListenerLimits | None = None,
    **profiles: Mapping[str, Mapping[str, object]],
) -> AsyncGenerator[WebhookHarness]:
    """Routes get the default secret unless they have one; `profiles` are additional profiles."""
    clock = clock or FakeClock()
    async with (
        aiohttp.ClientSession() as session,
        Listener(clock, port=0, limits=limits) as listener,
        anyio.create_task_group() as group,
    ):
        one = WebhookHarness(listener, clock, session)
        for profile, profile_routes in {"default": routes, **profiles}.items():
            settings = read_settings({"routes": profile_routes, "secret": SECRET}, {})
            channel = webhook_channel(settings, folder / f"{profile}.json", clock)
            listener.attach(profile, channel)
            one.channels[profile] = channel
            group.start_soon(channel.run, one.deliver)
        yield one
        group.cancel_scope.cancel()
