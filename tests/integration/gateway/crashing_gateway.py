"""A gateway in a process of its own, on a platform made of files; it stops where it is told to.

usage: crashing_gateway.py <folder> <place> <pipe>

The platform gives out the updates of `updates.jsonl` until they are acknowledged in `acks`, and
writes what people see into `posts.jsonl`. At the named place one byte goes into the pipe, and
the process waits to be killed; without reaching it, it writes a byte once all is answered.
"""

import json
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import anyio

from gateways import open_door, surroundings
from hermes.commands.registry import standard_commands
from hermes.gateway.gateway import Gateway, GatewayRules, House
from hermes.kit.clock import SystemClock
from hermes.kit.ids import new_id
from hermes.ports.channel import Caps, Inbound, Outgoing, Receipt
from hermes.ports.model import Request
from hermes.ports.store import Done, Fence, Post, Write
from hermes.ports.tool import ToolContext
from hermes.schema.messages import Message, Result, Text, User, text_of
from hermes.schema.scope import Address
from hermes.schema.tools import Effect
from hermes.session.runner import Runner
from hermes.store.sqlite import SqliteStore, open_store
from hermes.testing.scripted import ScriptedModel, Step, says
from talks import ScriptedPlanner, half_a_cent
from workbench import FakeTool, answer, call


class Stop:
    def __init__(self, place: str, pipe: int) -> None:
        self._place = place
        self._pipe = pipe

    async def at(self, place: str) -> None:
        if place == self._place:
            self.tell()
            await anyio.sleep_forever()

    def tell(self) -> None:
        os.write(self._pipe, b"!")


class FilePlatform:
    """Durable as a platform is: what was acknowledged does not come again, the rest does."""

    def __init__(self, folder: Path, stop: Stop) -> None:
        self._folder = folder
        self._stop = stop
        self.caps = Caps(max_text=4000)

    async def run(self, deliver: Callable[[Inbound], Awaitable[None]]) -> None:
        acks = self._folder / "acks"
        acks.touch()
        for line in (self._folder / "updates.jsonl").read_text().splitlines():
            update = json.loads(line)
            if update["key"] in acks.read_text().split():
                continue
            where = Address("file", update["chat"])
            await deliver(Inbound(update["key"], where, "ann", (Text(update["text"]),)))
            await self._stop.at("before ack")
            with acks.open("a") as file:
                file.write(update["key"] + "\n")
            await self._stop.at("after ack")
        await anyio.sleep_forever()

    async def send(self, to: Address, post: Outgoing) -> Receipt:
        await self._stop.at("before send")
        text = "".join(part.text for part in post.parts if isinstance(part, Text))
        with (self._folder / "posts.jsonl").open("a") as file:
            file.write(json.dumps({"chat": to.chat, "text": text}) + "\n")
        await self._stop.at("after send")
        return Receipt(to, new_id("post"))


class StoppingStore(SqliteStore):
    """Stops before and after the commit in which a run ends."""

    stop: Stop
    changed: anyio.Event

    async def commit(self, *writes: Write, fence: Fence | None = None) -> None:
        ends = any(isinstance(one, Done) for one in writes) and any(
            isinstance(one, Post) for one in writes
        )
        if ends:
            await self.stop.at("before end")
        await super().commit(*writes, fence=fence)
        self.changed.set()
        self.changed = anyio.Event()
        if ends:
            await self.stop.at("after end")


class Asking(ScriptedModel):
    """Acts once for each question, then answers it."""

    def __init__(self, stop: Stop) -> None:
        super().__init__()
        self._stop = stop

    def stream(self, request: Request):
        self.scripts.append(self._script)
        return super().stream(request)

    def _script(self, request: Request) -> Sequence[Step]:
        question, acted = _question(request.messages)
        if acted and "reboot" not in question:
            return says(f"answer to {question}", id=new_id("msg"))
        return [answer(call("act", id=new_id("call"), what=question))]


def _question(messages: Sequence[Message]) -> tuple[str, bool]:
    """The last question, and whether something was done about it."""
    acted = False
    for message in reversed(messages):
        acted = acted or isinstance(message, Result)
        if isinstance(message, User) and text_of(message).startswith("question"):
            return text_of(message).split("\n")[0], acted
    raise ValueError("nothing was asked")


def acting(folder: Path, stop: Stop) -> FakeTool:
    async def act(args: dict[str, Any], context: ToolContext) -> str:
        await stop.at("before effect")
        with (folder / "effects").open("a") as effects:
            effects.write(f"{args['what']}\n")
        await stop.at("after effect")
        return "acted"

    return FakeTool("act", act, effect=Effect.OUTSIDE)


async def main(folder: Path, stop: Stop) -> None:
    clock = SystemClock()
    async with open_store(folder / "state.db", clock) as plain:
        store = StoppingStore(plain._engine, clock)
        store.stop, store.changed = stop, anyio.Event()
        planner = ScriptedPlanner(Asking(stop), {"act": acting(folder, stop)})
        house = House(
            store=store,
            clock=clock,
            runner=Runner(store, clock, planner, half_a_cent, "default"),
            channels={"file": FilePlatform(folder, stop)},
            door=open_door,
            registry=standard_commands(),
            context=surroundings,
        )
        gateway = Gateway(house, GatewayRules(progress=False))
        wanted = len((folder / "updates.jsonl").read_text().splitlines())
        async with anyio.create_task_group() as group:
            group.start_soon(gateway.run)
            changed = store.changed
            while not await is_over(folder, store, wanted):
                await changed.wait()
                changed = store.changed
            stop.tell()
            group.cancel_scope.cancel()


async def is_over(folder: Path, store: SqliteStore, wanted: int) -> bool:
    acks = folder / "acks"
    if not acks.exists() or len(acks.read_text().split()) < wanted:
        return False
    lanes = store.lanes
    return not await lanes.topics("inbox") and not await lanes.topics("outbox:file")


if __name__ == "__main__":
    anyio.run(main, Path(sys.argv[1]), Stop(sys.argv[2], int(sys.argv[3])))
