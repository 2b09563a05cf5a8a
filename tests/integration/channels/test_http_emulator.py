"""The emulators are controlled over HTTP, so that they can run in a process of their own."""

import aiohttp
import msgspec

from emulators.telegram.server import serve_telegram
from support.chat_platform.state import FaultRates
from support.telegram import ANN, TOKEN, emulator


async def test_faults_are_set_and_calls_are_listed_over_http() -> None:
    async with serve_telegram(emulator()) as server, aiohttp.ClientSession(server.url) as session:
        send = f"/bot{TOKEN}/sendMessage"
        faults = msgspec.json.encode(FaultRates(throttled=1.0))
        async with session.put("/emulator/faults", data=faults) as response:
            assert response.status == 200
        async with session.post(send, json={"chat_id": ANN, "text": "hello"}) as response:
            assert response.status == 429
        async with session.get("/emulator/calls") as response:
            assert await response.json() == ["sendMessage"]
