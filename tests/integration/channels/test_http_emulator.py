"""The emulators are controlled over HTTP, so that they can run in a process of their own."""

import re
from pathlib import Path

import aiohttp
import anyio
import msgspec

from emulators.telegram.server import serve_telegram
from support.chat_platform.state import FaultRates
from support.telegram import ANN, TOKEN, emulator

GUIDE = Path(__file__).parents[3] / "docs" / "channels/README.md"
PORT = "8798"


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


async def test_commands_of_the_guide_control_an_emulator() -> None:
    (block,) = re.findall(r"```sh\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    state = emulator()
    async with serve_telegram(state) as server:
        script = block.replace(PORT, server.url.rpartition(":")[2])
        assert script != block
        done = await anyio.run_process(["sh", "-e", "-c", script])
    assert state.faults == FaultRates(throttled=0.1, lost_reply=0.05, repeated=0.3, delay=0.5)
    assert done.stdout.endswith(b"[]")
