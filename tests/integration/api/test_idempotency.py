"""A request with a key is done once: whole or streamed, at once or after a restart."""

from datetime import timedelta
from pathlib import Path

import anyio
import pytest

from api_house import Told, house
from hermes.api.replies import KEPT, LANE
from hermes.testing.clock import FakeClock
from hermes.testing.mock_openai.script import Fault, Reply, Script

pytestmark = pytest.mark.anyio

HI: dict[str, object] = {"messages": [{"role": "user", "content": "hi"}]}
SCRIPT = Script(replies=[Reply(text=f"answer {n}") for n in range(9)])


def text(told: Told) -> str:
    assert told.status == 200
    return told.json["choices"][0]["message"]["content"]


async def test_asked_again_it_is_told_again(tmp_path: Path) -> None:
    async with house(tmp_path, SCRIPT) as one:
        first = await one.chat(HI, Idempotency_Key="a")
        again = await one.chat(HI, Idempotency_Key="a")
        assert (text(first), again.body) == ("answer 0", first.body)
        assert again.headers["x-hermes-replayed"] == "true"
        assert text(await one.chat(HI, Idempotency_Key="b")) == "answer 1"
        other = await one.chat({**HI, "n": 1}, Idempotency_Key="a")
        assert (other.status, other.code) == (422, "idempotency_key_reused")
    async with house(tmp_path, Script(default=Reply(text="not me"))) as one:
        assert (await one.chat(HI, Idempotency_Key="a")).body == first.body
        assert one.mock.requests == []


async def test_streams_too(tmp_path: Path) -> None:
    asked = {**HI, "stream": True}
    async with house(tmp_path, SCRIPT) as one:
        first = await one.chat(asked, Idempotency_Key="a")
        assert b"answer" in first.body
    async with house(tmp_path, SCRIPT) as one:
        again = await one.chat(asked, Idempotency_Key="a")
        assert b'"content":"answer 0"' in again.body
        assert again.body.endswith(b"data: [DONE]\n\n")
        assert one.mock.requests == []


async def test_a_twin_waits_for_the_first(tmp_path: Path) -> None:
    script = Script(replies=[Reply(text="once", first_byte=0.1), Reply(text="twice")])
    heard: list[str] = []
    async with house(tmp_path, script) as one:

        async def ask() -> None:
            heard.append(text(await one.chat(HI, Idempotency_Key="a")))

        with anyio.fail_after(20):
            async with anyio.create_task_group() as group:
                for _ in range(5):
                    group.start_soon(ask)
        assert heard == ["once"] * 5
        assert len(one.mock.requests) == 1


async def test_what_failed_may_be_tried_again(tmp_path: Path) -> None:
    script = Script(replies=[Reply(fault=Fault("status", named="unauthorized")), Reply(text="ok")])
    async with house(tmp_path, script) as one:
        assert (await one.chat(HI, Idempotency_Key="a")).status == 502
        assert text(await one.chat(HI, Idempotency_Key="a")) == "ok"


async def test_a_day_later_it_is_forgotten(tmp_path: Path) -> None:
    clock = FakeClock()
    async with house(tmp_path, SCRIPT, clock=clock) as one:
        assert text(await one.chat(HI, Idempotency_Key="a")) == "answer 0"
        assert list(await one.app.store.lanes.topics(LANE)) != []
        await clock.advance((KEPT + timedelta(minutes=1)).total_seconds())
        assert text(await one.chat(HI, Idempotency_Key="b")) == "answer 1"
        assert len(await one.app.store.lanes.topics(LANE)) == 1
        assert text(await one.chat(HI, Idempotency_Key="a")) == "answer 2"
