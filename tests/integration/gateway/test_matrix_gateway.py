"""A conversation in an encrypted room through a whole gateway process on a real Synapse."""

import asyncio
import json
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


async def react(person: Person, room: str, question: str, sign: str) -> None:
    relation = {"rel_type": "m.annotation", "event_id": question, "key": sign}
    await person.send(room, {"m.relates_to": relation}, "m.reaction")


async def question_of(ann: Person, room: str, agent: str, words: str) -> str:
    """The id of a question, once the agent has offered the last of its choices."""

    def found() -> list[str]:
        return [
            one["content"]["m.relates_to"]["event_id"]
            for one in ann.of(room, agent)
            if one["type"] == "m.reaction"
            and one["content"]["m.relates_to"]["key"] == "❌"
            and words in ann.event(one["content"]["m.relates_to"]["event_id"])["content"]["body"]
        ]

    return (await ann.until(found))[0]


async def test_reactions_of_the_owner_answer_approvals(
    homeserver: Homeserver, tmp_path: Path
) -> None:
    """A reaction of someone else to the question decides nothing, and a restart forgets none."""
    note = tmp_path / "note"
    agent = await asyncio.to_thread(new_user, homeserver, "agent")
    with running_person(homeserver, "ann") as ann, running_person(homeserver, "eve") as eve:
        async with serve_model() as model:
            spec = matrix_home(tmp_path, homeserver.url, model, agent, [ann.user])
            async with running(spec) as instance:
                await agent_devices(ann, agent)
                room = await asyncio.to_thread(ann.create_room, agent, eve.user, direct=False)
                await ann.joined(room, agent)
                await eve.do(eve.client.join(room))
                await ann.joined(room, eve.user)
                for number in ("1", "2"):
                    command = f"echo {number} >> {note}"
                    args = {"command": command, "escalate": "outside", "reason": "It is mine."}
                    text, named = f"q-{number} use:terminal {json.dumps(args)}", [agent]
                    await ann.say(room, text, **{"m.mentions": {"user_ids": named}})
                    asked = await question_of(ann, room, agent, f"echo {number}")
                    if number == "1":
                        await react(eve, room, asked, "✅")
                        await react(ann, room, asked, "❌")
                        await sees(ann, room, agent, "re: q-1")
                instance.kill()
            await react(ann, room, asked, "✅")
            async with running(spec):
                await sees(ann, room, agent, "re: q-2")
    assert note.read_text() == "2\n"
