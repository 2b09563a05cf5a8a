"""A conversation in an encrypted room through a whole gateway process on a real Synapse."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from support.gateway_instances import GatewayInstance, gateway_instance
from support.gateway_process import GatewaySpec
from support.matrix import agent_devices, matrix_home, new_user, running_person, serve_model
from support.matrix_person import Person
from support.synapse import Homeserver

pytestmark = pytest.mark.slow


@asynccontextmanager
async def running(spec: GatewaySpec) -> AsyncGenerator[GatewayInstance]:
    async with gateway_instance(spec) as instance, anyio.create_task_group() as group:
        group.start_soon(instance.watch)
        await instance.wait_ready()
        yield instance
        instance.end()


async def sees(ann: Person, room: str, agent: str, words: str) -> None:
    await ann.until(lambda: [one for one in ann.texts(room, agent) if words in one])


async def test_conversation_with_kill_and_approval(homeserver: Homeserver, tmp_path: Path) -> None:
    note = tmp_path / "note"
    args = f'{{"command": "echo done >> {note}", "escalate": "outside", "reason": "It is mine."}}'
    agent = await asyncio.to_thread(new_user, homeserver, "agent")
    with running_person(homeserver, "ann") as ann:
        async with serve_model() as model:
            spec = matrix_home(tmp_path, homeserver.url, model, agent, [ann.user])
            async with running(spec) as instance:
                await agent_devices(ann, agent)
                room = await asyncio.to_thread(ann.create_room, agent)
                await ann.joined(room, agent)
                await ann.say(room, "q-1 hello")
                await sees(ann, room, agent, "re: q-1")
                await ann.say(room, f"q-2 use:terminal {args}")
                await sees(ann, room, agent, "It is mine.")
                instance.kill()
            await ann.say(room, "yes")
            async with running(spec):
                await sees(ann, room, agent, "re: q-2")
                await ann.say(room, "!help")
                await sees(ann, room, agent, "/stop")
        plain = await asyncio.to_thread(ann.server_kinds, room, agent)
    assert note.read_text() == "done\n"
    answers = [one for one in ann.texts(room, agent) if "re: q-" in one]
    assert len(answers) == 2, answers
    assert plain <= {"m.room.encrypted", "m.room.member", "m.reaction", "m.room.redaction"}
