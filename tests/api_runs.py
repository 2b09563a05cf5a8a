"""Runs of the API over real sockets: begun, and followed by readers from any point."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import aiohttp
import anyio
import msgspec
from msgspec import Struct

from api_house import KEY, House
from hermes.testing.mock_openai import Call, Fault, Reply, Rule, Script

WORDS = "one two three four five six"
SLOW = " ".join(str(number) for number in range(150))
WAIT = "until [ -e workspace/go ]; do sleep 0.05; done"
WHO = "echo hi $HERMES_SESSION_USER_ID"
SCRIPT = Script(
    rules=[
        Rule("slowly", [Reply(SLOW, chunk=4, pace=0.001)]),
        Rule("hang", [Reply(WORDS, fault=Fault("hang", after=3), chunk=4)]),
        Rule("tool", [Reply("Look.", [Call("terminal", {"command": WHO})]), Reply("Hi.")]),
        Rule("steps", [Reply("", [Call("terminal", {"command": WAIT})]), Reply("Heard.")]),
        Rule("thought", [Reply("Yes.", reasoning="Hm.")]),
        Rule("wrong", [Reply(fault=Fault("status", named="unauthorized"))]),
    ],
    default=Reply(WORDS, chunk=4),
)


class Frame(Struct):
    id: int
    data: dict[str, object]

    @property
    def name(self) -> object:
        return self.data["event"]


class Following:
    """One reader of a stream of events."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response
        self.comments: list[str] = []

    async def next(self) -> Frame | None:
        """None at the end."""
        identity = 0
        while line := await self.response.content.readline():
            text = line.decode().rstrip("\n")
            if text.startswith(":"):
                self.comments.append(text)
            elif text.startswith("id: "):
                identity = int(text[4:])
            elif text.startswith("data: "):
                return Frame(identity, msgspec.json.decode(text[6:], type=dict[str, object]))
        return None

    async def rest(self) -> list[Frame]:
        frames: list[Frame] = []
        while (frame := await self.next()) is not None:
            frames.append(frame)
        return frames

    async def until(self, name: str) -> Frame:
        while (frame := await self.next()) is not None:
            if frame.name == name:
                return frame
        raise AssertionError(f"the stream ended before {name}")


@asynccontextmanager
async def following(
    home: House, run: str, after: int = 0, **more: str
) -> AsyncGenerator[Following]:
    headers = {"Authorization": f"Bearer {KEY}", **({"Last-Event-ID": str(after)} if after else {})}
    url = f"{home.url}/v1/runs/{run}/events"
    async with home.http.get(url, headers=headers, params=more) as response:
        assert response.status == 200, await response.text()
        assert response.content_type == "text/event-stream"
        yield Following(response)


async def post(home: House, path: str, body: object, status: int, **headers: str):
    told = await home.ask("POST", path, msgspec.json.encode(body), **headers)
    assert told.status == status, told.body
    return told


async def begin(home: House, words: object = "hello", **more: object) -> str:
    told = await post(home, "/v1/runs", {"input": words, **more}, 202)
    assert told.json["status"] == "started"
    run = told.json["run_id"]
    assert isinstance(run, str)
    assert len(run) == len("run_") + 32
    return run


async def followed(home: House, run: str, after: int = 0) -> list[Frame]:
    with anyio.fail_after(60):
        async with following(home, run, after) as reader:
            return await reader.rest()


def deltas(frames: list[Frame]) -> str:
    return "".join(str(f.data["delta"]) for f in frames if f.name == "message.delta")


async def state(home: House, run: str) -> dict[str, object]:
    return (await home.ask("GET", f"/v1/runs/{run}")).json
