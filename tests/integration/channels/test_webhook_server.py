"""The server of channels that are called by their platform."""

from collections.abc import AsyncGenerator

import aiohttp
import msgspec
import pytest

from hermes.channels.http_calls import CallResponse, HttpCall
from hermes.channels.http_listener import ListenerLimits
from hermes.channels.webhook_server import WebhookServer
from hermes.kit.clock import SystemClock
from hermes.schema.errors import ConfigError

BODY = b'{ "id" : "1" }'


class Receiver:
    """Keeps the calls; one without the right header is forged."""

    def __init__(self) -> None:
        self.calls: list[HttpCall] = []
        self.fails = False

    def verify(self, call: HttpCall) -> bool:
        return call.headers.get("x-secret") == "s"

    async def receive(self, call: HttpCall) -> CallResponse:
        if self.fails:
            raise OSError("the disk is full")
        if call.method == "GET":
            return CallResponse(200, call.query["challenge"])
        msgspec.json.decode(call.body, type=dict[str, str])
        self.calls.append(call)
        return CallResponse(200, {"ok": True})


def server(receiver: Receiver, port: int = 0) -> WebhookServer:
    return WebhookServer(
        "example",
        ["/hook"],
        SystemClock(),
        verify=receiver.verify,
        receive=receiver.receive,
        host="127.0.0.1",
        port=port,
        methods=("GET", "POST"),
        limits=ListenerLimits(body=100),
    )


@pytest.fixture
def receiver() -> Receiver:
    return Receiver()


@pytest.fixture
async def session(receiver: Receiver) -> AsyncGenerator[aiohttp.ClientSession]:
    async with server(receiver) as one:
        url = f"http://127.0.0.1:{one.port}"
        async with aiohttp.ClientSession(url, headers={"X-Secret": "s"}) as client:
            yield client


async def test_update_is_received_as_it_was_sent(
    session: aiohttp.ClientSession, receiver: Receiver
) -> None:
    async with session.post("/hook", data=BODY) as response:
        assert (response.status, await response.json()) == (200, {"ok": True})
    async with session.get("/hook", params={"challenge": "123"}) as response:
        assert await response.text() == "123"
    assert [one.body for one in receiver.calls] == [BODY]


async def test_forged_call_is_refused_before_it_is_read(
    session: aiohttp.ClientSession, receiver: Receiver
) -> None:
    async with session.post("/hook", data=b"{no JSON", headers={"X-Secret": "x"}) as response:
        assert response.status == 403
    assert receiver.calls == []


@pytest.mark.parametrize(
    ("body", "fails", "status"),
    [
        (b"{no JSON", False, 400),
        (b'{"a": "\xff"}', False, 400),
        (bytes(101), False, 413),
        (BODY, True, 503),
    ],
)
async def test_update_that_is_not_stored_is_not_acknowledged(
    session: aiohttp.ClientSession, receiver: Receiver, body: bytes, fails: bool, status: int
) -> None:
    receiver.fails = fails
    async with session.post("/hook", data=body) as response:
        assert response.status == status
    assert receiver.calls == []


async def test_used_port_is_named_with_its_setting(receiver: Receiver) -> None:
    async with server(receiver) as first:
        with pytest.raises(ConfigError) as refused:
            async with server(receiver, first.port):
                pass
    assert "platforms.example.extra.webhook_port" in refused.value.hint
