"""The Matrix channel passes the channel contract in an encrypted room on a real Synapse."""

import asyncio
import re
from collections.abc import AsyncGenerator, Generator, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from aiohttp import web

from hermes.schema.messages import Media
from hermes.schema.scope import Address
from hermes.testing.contracts.channel import (
    Admission,
    ChannelBench,
    ChannelContract,
    PlatformEvents,
    PlatformFaults,
    PlatformFiles,
    PlatformView,
)
from support.matrix import MatrixBench, matrix_bench, new_user, running_person
from support.matrix_person import Person
from support.synapse import Homeserver

LABELS = re.compile("\n\n1\ufe0f\u20e3 .*", re.DOTALL)


class People:
    """What Ann does; each returns once the agent has marked it as read."""

    def __init__(self, one: MatrixBench) -> None:
        self._bench = one
        self._ann = one.ann
        self._before = ""
        self._broken = False

    async def arrive(self, text: str) -> None:
        while not self._bench.proxy.tokens or not self._bench.proxy.tokens[-1]:
            # What is written before the first sync is not answered.
            await self._bench.proxy.next_sync()
        self._before = self._bench.proxy.tokens[-1]
        await self._send({"msgtype": "m.text", "body": text})

    async def send_file(self, name: str, data: bytes) -> None:
        while not self._bench.proxy.tokens or not self._bench.proxy.tokens[-1]:
            await self._bench.proxy.next_sync()
        event = await self._ann.send_file(self._bench.room, data, name, "image/png", "look")
        await self._bench.acknowledged(event)

    async def again(self) -> None:
        """Let the server repeat what it has sent since the token before the last message."""
        proxy = self._bench.proxy
        proxy.since = self._before
        proxy.cut()
        await proxy.next_sync()
        await proxy.next_sync()

    async def edit(self, message: str, text: str) -> None:
        new = {"msgtype": "m.text", "body": text}
        relation = {"rel_type": "m.replace", "event_id": message}
        edit = {**new, "body": f"* {text}", "m.new_content": new, "m.relates_to": relation}
        await self._send(edit)

    async def delete(self, message: str) -> None:
        answer = await self._ann.do(self._ann.client.room_redact(self._bench.room, message))
        await self._bench.acknowledged(answer.event_id)

    async def react(self, message: str, emoji: str) -> None:
        relation = {"rel_type": "m.annotation", "event_id": message, "key": emoji}
        await self._send({"m.relates_to": relation}, "m.reaction")

    async def press(self, post: str, value: str) -> None:
        """React as the post says."""
        while not self._bench.proxy.tokens or not self._bench.proxy.tokens[-1]:
            await self._bench.proxy.next_sync()
        content = (await self._ann.see(post))["content"]
        sign = next(one["sign"] for one in content["hermes.choices"] if one["value"] == value)
        await self.react(post, sign)

    async def reply(self, message: str, text: str) -> None:
        relation = {"m.in_reply_to": {"event_id": message}}
        await self._send({"msgtype": "m.text", "body": text, "m.relates_to": relation})

    async def unreadable(self) -> None:
        if self._broken:
            await self.again()
            return
        self._broken = True
        self._before = self._bench.proxy.tokens[-1]
        await self._send({"msgtype": "m.text", "body": ["no", "text"]})

    async def _send(self, content: dict[str, Any], kind: str = "m.room.message") -> None:
        event = await self._ann.send(self._bench.room, content, kind)
        await self._bench.acknowledged(event)


class View:
    def __init__(self, one: MatrixBench) -> None:
        self._bench = one
        self._ann = one.ann
        self._catch_up()
        self._before = len(self._ann.events)
        """All tests use the same room: what earlier ones posted does not count."""

    async def shown(self, address: Address) -> list[str]:
        """The texts; the lines that say what a reaction means are its labels."""
        await asyncio.to_thread(self._catch_up)
        texts = self._ann.texts(address.chat, self._bench.user, self._before)
        return [LABELS.sub("", text) for text in texts]

    def typing(self, address: Address) -> bool:
        self._catch_up()
        return self._bench.user in self._ann.typing.get(address.chat, [])

    def reactions(self) -> list[tuple[str, str]]:
        self._catch_up()
        found = [
            one["content"]["m.relates_to"]
            for one in self._ann.of(self._bench.room, self._bench.user, self._before)
            if one["type"] == "m.reaction"
        ]
        return [(one["event_id"], one["key"]) for one in found]

    def buttons(self, post: str) -> Mapping[str, str]:
        """What the agent offers by a reaction, with the label in the text."""
        self._catch_up()
        content = self._ann.event(post)["content"]
        labels = dict(line.split(" ", 1) for line in content["body"].splitlines() if " " in line)
        offered = {sign for event, sign in self.reactions() if event == post}
        choices = content["hermes.choices"]
        return {one["value"]: labels[one["sign"]] for one in choices if one["sign"] in offered}

    def files(self, post: str) -> Mapping[str, bytes]:
        self._catch_up()
        name, data = self._ann.file_of(post)
        return {name: data}

    def quoted(self, post: str) -> str | None:
        self._catch_up()
        relation = self._ann.event(post)["content"].get("m.relates_to", {})
        return relation.get("m.in_reply_to", {}).get("event_id")

    def _catch_up(self) -> None:
        """Wait until the client has seen all that has happened: an event of her own comes last."""
        ann = self._ann
        # The server drops an event that repeats the current state.
        kind, content = "test.marker", {"id": uuid4().hex}
        answer = ann.wait(ann.client.room_put_state(self._bench.room, kind, content, "x"))
        ann.wait(ann._until(lambda: answer.event_id in ann.raw))


def contract_bench(one: MatrixBench, admission: Admission, folder: Path) -> ChannelBench:
    people, view = People(one), View(one)

    def throttled() -> None:
        def fail(request: web.Request) -> web.Response | None:
            if "/send/" not in request.path:
                return None
            body = {"errcode": "M_LIMIT_EXCEEDED", "error": "slow", "retry_after_ms": 2500}
            return web.json_response(body, status=429)

        one.proxy.fail = fail

    async def store(data: bytes, name: str) -> Media:
        return await one.blobs.put(data, "application/octet-stream", name)

    return ChannelBench(
        one.channel,
        one.home,
        people.arrive,
        view.shown,
        people.again,
        PlatformEvents(
            edit=people.edit,
            delete=people.delete,
            react=people.react,
            press=people.press,
            reply=people.reply,
            unreadable=people.unreadable,
        ),
        PlatformView(
            typing=view.typing,
            reactions=view.reactions,
            buttons=view.buttons,
            files=view.files,
            quoted=view.quoted,
        ),
        PlatformFaults(unreachable=one.proxy.stop_listening, throttled=throttled),
        store,
        PlatformFiles(send=people.send_file, admission=admission, folder=folder),
    )


@pytest.fixture(scope="module")
def ann(homeserver: Homeserver) -> Generator[Person]:
    with running_person(homeserver, "ann") as one:
        yield one


@pytest.fixture(scope="module")
def agent(homeserver: Homeserver) -> str:
    return new_user(homeserver, "agent")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of the agent: its device is kept from test to test."""
    return tmp_path_factory.mktemp("agent")


@pytest.fixture(scope="module")
def rooms() -> list[str]:
    """The room of the first test, for the others."""
    return []


class TestMatrixChannel(ChannelContract):
    @pytest.fixture
    async def bench(
        self, homeserver: Homeserver, ann: Person, agent: str, folder: Path, rooms: list[str]
    ) -> AsyncGenerator[ChannelBench]:
        room, admission = rooms[0] if rooms else "", Admission()
        opened = matrix_bench(homeserver, ann, agent, folder, room=room, admits=admission)
        async with opened as one:
            rooms.append(one.room)
            blobs = folder / "cache" / "blobs"
            yield await asyncio.to_thread(contract_bench, one, admission, blobs)
