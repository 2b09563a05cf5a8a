"""A gateway on Matrix that is killed repeatedly loses no message and answers none twice."""

import asyncio
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from support.chat_platform.state import FaultRates, PlatformPost
from support.gateway_instances import GatewayInstance, fork_server, run_instance
from support.kill_run import THREE_KILLS, Kill, KillRun, Said, drawn_kills, run_with_kills
from support.matrix import Proxy, agent_devices, matrix_home, new_user, running_person, serve_model
from support.matrix_person import Person
from support.profile_gateway import session_key_of
from support.synapse import Homeserver

FAULTS = FaultRates(repeated=0.2, throttled=0.02, dropped=0.01, lost_reply=0.01, cut_poll=0.02)


class Posts:
    """What the agent has written, as the person's client shows it."""

    def __init__(self, ann: Person, agent: str) -> None:
        self._ann = ann
        self._agent = agent

    async def until(self, condition: Callable[[], bool]) -> None:
        await self._ann.do(self._ann.wait_for(condition))

    def __len__(self) -> int:
        return len(self._ann.events)

    def __getitem__(self, part: slice) -> list[tuple[str, dict[str, Any]]]:
        return self._ann.events[part]

    def read(self, one: tuple[str, dict[str, Any]]) -> PlatformPost:
        room, event = one
        content = event["content"]
        text = content.get("m.new_content", content).get("body", "")
        is_post = event["sender"] == self._agent and event["type"] == "m.room.message"
        relation = content.get("m.relates_to", {})
        replaced = relation["event_id"] if relation.get("rel_type") == "m.replace" else ""
        number = replaced or event["event_id"]
        return PlatformPost(number, "matrix", room, text if is_post else "")

    def all(self) -> Iterator[PlatformPost]:
        shown = {post.id: post for post in map(self.read, self._ann.events)}
        return (post for post in shown.values() if post.text)


async def killed_run(
    homeserver: Homeserver,
    folder: Path,
    *,
    updates: int,
    kills: Sequence[Kill],
    rooms: int,
    seed: int,
) -> str:
    chance = random.Random(seed)  # noqa: S311 - must be repeatable
    agent = await asyncio.to_thread(new_user, homeserver, "agent")
    proxy = Proxy(homeserver, seed)
    with running_person(homeserver, "ann") as ann:
        async with proxy.serving(), serve_model() as model, fork_server(folder) as start:
            spec = matrix_home(folder, proxy.url, model, agent, [ann.user])
            posts = Posts(ann, agent)
            run = KillRun(
                account="matrix",
                server=posts,
                changes=posts,  # pyright: ignore[reportArgumentType]
                read=posts.read,
                database=folder / "home" / "hermes.db",
            )
            chats: list[str] = []

            async def say(room: str) -> None:
                text = f"q-{len(run.said)}" + (" long" if chance.random() < 0.02 else "")
                run.add(Said(room, ann.user, text))
                with anyio.CancelScope(shield=True):
                    await ann.say(room, text)

            async def greet(instance: GatewayInstance) -> None:
                """Clients give keys only to devices that they know: the agent comes first."""
                await instance.wait_ready()
                await agent_devices(ann, agent)
                for _ in range(rooms):
                    chats.append(await asyncio.to_thread(ann.create_room, agent))
                    await ann.joined(chats[-1], agent)
                    await say(chats[-1])
                await run.end(instance)

            async def ask(count: int) -> None:
                for _ in range(count):
                    await say(chance.choice(chats))

            await run_instance(spec, greet, start)
            proxy.rates = FAULTS
            await run_with_kills(
                run,
                spec,
                start,
                ask,
                updates=updates,
                kills=kills,
                listening=anyio.lowlevel.checkpoint,
            )
        keys = {room: session_key_of("matrix", room, "") for room in chats}
        verdict = await run.judge(posts.all(), keys)
    assert " 0 marked" in verdict, "a repeated request is recognized by the server"
    return f"Matrix, {updates} updates, {len(kills)} kills: {verdict}; {dict(proxy.faults)}"


@pytest.mark.slow
@pytest.mark.timeout(280)
async def test_repeated_kills_lose_nothing_on_matrix(
    homeserver: Homeserver, tmp_path: Path
) -> None:
    sys.stdout.write(
        await killed_run(homeserver, tmp_path, updates=500, kills=THREE_KILLS, rooms=12, seed=1)
    )


@pytest.mark.soak
@pytest.mark.timeout(6000)
async def test_thirty_kills_lose_nothing_on_matrix(
    homeserver: Homeserver, tmp_path: Path, prove: Callable[[str], None]
) -> None:
    prove(
        await killed_run(
            homeserver, tmp_path, updates=5_000, kills=drawn_kills(30, 2), rooms=20, seed=2
        )
    )
