"""Start runs through the API over real sockets, and follow them from any event."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import aiohttp
import anyio
import msgspec
from msgspec import Struct

from hermes.testing.fake_openai import Call, Fault, Reply, Rule, Script
from support.api_server import KEY, ApiHarness

WORDS = "one two three four five six"
SLOW_ANSWER = " ".join(str(number) for number in range(150))
WAIT_COMMAND = "until [ -e workspace/go ]; do sleep 0.05; done"
USER_COMMAND = "echo hi $HERMES_SESSION_USER_ID"
SCRIPT = Script(
    rules=[
        Rule("slowly", [Reply(SLOW_ANSWER, chunk=4, pace=0.001)]),
        Rule("hang", [Reply(WORDS, fault=Fault("hang", after=3), chunk=4)]),
        Rule("tool", [Reply("Look.", [Call("terminal", {"command": USER_COMMAND})]), Reply("Hi.")]),
        Rule("steps", [Reply("", [Call("terminal", {"command": WAIT_COMMAND})]), Reply("Heard.")]),
        Rule("thought", [Reply("Yes.", reasoning="Hm.")]),
        Rule("wrong", [Reply(fault=Fault("status", named="unauthorized"))]),
    ],
    default=Reply(WORDS, chunk=4),
)


class RunFrame(Struct):
    id: int
    data: dict[str, object]

    @property
    def name(self) -> object:
        return self.data["event"]


class EventReader:
    """Reads one event stream."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response
        self.comments: list[str] = []

    async def next(self) -> RunFrame | None:
        """Return the next event, or None at the end."""
        event_id = 0
        while line := await self.response.content.readline():
            text = line.decode().rstrip("\n")
            if text.startswith(":"):
                self.comments.append(text)
            elif text.startswith("id: "):
                event_id = int(text[4:])
            elif text.startswith("data: "):
                return RunFrame(event_id, msgspec.json.decode(text[6:], type=dict[str, object]))
        return None

    async def rest(self) -> list[RunFrame]:
        frames: list[RunFrame] = []
        while (frame := await self.next()) is not None:
            frames.append(frame)
        return frames

    async def until(self, name: str) -> RunFrame:
        while (frame := await self.next()) is not None:
            if frame.name == name:
                return frame
        raise AssertionError(f"the stream ended before {name}")


@asynccontextmanager
async def open_events(
    home: ApiHarness, run: str, after: int = 0, **more: str
) -> AsyncGenerator[EventReader]:
    headers = {"Authorization": f"Bearer {KEY}", **({"Last-Event-ID": str(after)} if after else {})}
    url = f"{home.url}/v1/runs/{run}/events"
    async with home.http.get(url, headers=headers, params=more) as response:
        assert response.status == 200, await response.text()
        assert response.content_type == "text/event-stream"
        yield EventReader(response)


async def post_json(home: ApiHarness, path: str, body: object, status: int, **headers: str):
    response = await home.ask("POST", path, msgspec.json.encode(body), **headers)
    assert response.status == status, response.body
    return response


async def start_run(home: ApiHarness, text: object = "hello", **more: object) -> str:
    response = await post_json(home, "/v1/runs", {"input": text, **more}, 202)
    assert response.json["status"] == "started"
    run = response.json["run_id"]
    assert isinstance(run, str)
    assert len(run) == len("run_") + 32
    return run


async def read_events(home: ApiHarness, run: str, after: int = 0) -> list[RunFrame]:
    with anyio.fail_after(60):
        async with open_events(home, run, after) as reader:
            return await reader.rest()


def delta_text(frames: list[RunFrame]) -> str:
    return "".join(str(f.data["delta"]) for f in frames if f.name == "message.delta")


async def run_state(home: ApiHarness, run: str) -> dict[str, object]:
    return (await home.ask("GET", f"/v1/runs/{run}")).json
