"""What remains of runs after `kill -9`, at the next start, and after a day."""

from datetime import timedelta
from pathlib import Path

import aiohttp
import anyio
import msgspec
import pytest
from msgspec import Raw

from hermes.api.run_service import end_abandoned_runs
from hermes.app.maintenance import ProfileMaintenance
from hermes.kit.ids import process_id
from hermes.ports.journal import (
    AppendRunEvents,
    RunEvent,
    RunRecord,
    RunStatus,
    SaveResponse,
    StoredResponse,
)
from hermes.schema.errors import NotFound
from hermes.schema.messages import text_of
from hermes.schema.scope import OWNER
from hermes.testing.fake_openai import Fault, Reply, Rule, Script, serve
from support.api_server import KEY, ApiHarness, api_harness, api_process

SCRIPT = Script(
    rules=[Rule("hang", [Reply("one two three", fault=Fault("hang", after=3), chunk=4)])]
)
GONE = f"{process_id().rsplit('/', 1)[0]}/0/0"
HEADERS = {"Authorization": f"Bearer {KEY}"}


async def ids_and_events(
    http: aiohttp.ClientSession, url: str, after: int
) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    headers = HEADERS | {"Last-Event-ID": str(after)}
    async with http.get(url, headers=headers) as response:
        for block in (await response.text()).split("\n\n"):
            lines = dict(x.split(": ", 1) for x in block.splitlines() if not x.startswith(":"))
            if lines:
                event = msgspec.json.decode(lines["data"], type=dict[str, object])
                found.append((int(lines["id"]), str(event["event"])))
    return found


async def first_id(http: aiohttp.ClientSession, url: str) -> int:
    async with http.get(url, headers=HEADERS) as response:
        async for line in response.content:
            if line.startswith(b"id: "):
                return int(line[4:])
    raise AssertionError("no event arrived")


async def test_killed_run_gets_an_end_and_the_session_continues(tmp_path: Path):
    async with serve(SCRIPT) as mock, aiohttp.ClientSession() as http:
        with anyio.fail_after(60):
            async with api_process(tmp_path, mock.url) as url:
                body = {"input": "hang"}
                async with http.post(f"{url}/v1/runs", json=body, headers=HEADERS) as response:
                    begun = await response.json()
                run = begun["run_id"]
                seen = await first_id(http, f"{url}/v1/runs/{run}/events")
    async with api_harness(tmp_path, Script(default=Reply("Back again."))) as harness:
        url = f"{harness.url}/v1/runs/{run}/events"
        rest = await ids_and_events(harness.http, url, seen)
        assert [name for _, name in rest][-1] == "run.failed"
        assert rest[0][0] > seen
        state = (await harness.ask("GET", f"/v1/runs/{run}")).json
        assert (state["status"], state["error_code"]) == ("failed", "interrupted")
        body = msgspec.json.encode({"message": "Are you there?"})
        path = f"/api/sessions/{begun['session_id']}/chat"
        assert (await harness.ask("POST", path, body)).status == 200


async def opened(harness: ApiHarness, run: str, age: timedelta, **more: str) -> RunRecord:
    at = harness.app.clock.now() - age
    plain = RunRecord(run=run, session="s", principal=OWNER, created=at, updated=at)
    record = msgspec.structs.replace(plain, **more)
    return await harness.app.store.journal.open(record)


async def test_abandoned_runs_get_an_end_at_startup(tmp_path: Path):
    async with api_harness(tmp_path, SCRIPT) as harness:
        store, clock = harness.app.store, harness.app.clock
        await opened(harness, "run_lost", timedelta(0), holder=GONE)
        await opened(harness, "run_here", timedelta(0), holder=process_id())
        assert await end_abandoned_runs(store, clock) == 1
        assert (await store.journal.get("run_lost", OWNER)).status is RunStatus.FAILED
        assert (await store.journal.get("run_here", OWNER)).status is RunStatus.QUEUED
        assert await end_abandoned_runs(store, clock) == 0


async def test_old_runs_are_deleted(tmp_path: Path):
    async with api_harness(tmp_path, SCRIPT) as harness:
        store, now = harness.app.store, harness.app.clock.now()
        for run, hours in (("run_old", 25), ("run_young", 23)):
            await opened(harness, run, timedelta(hours=hours))
            at = now - timedelta(hours=hours)
            events = (RunEvent(1, Raw(b"{}")),)
            end = AppendRunEvents(run=run, at=at, events=events, status=RunStatus.COMPLETED)
            kept = StoredResponse(
                id=f"resp_{hours}",
                principal=OWNER,
                session="s",
                created=now - timedelta(days=6 + hours),
                body=Raw(b"{}"),
            )
            await store.commit(end, SaveResponse(kept))
        await ProfileMaintenance(harness.app).run_once()
        assert (await store.journal.get("run_young", OWNER)).last_seq == 1
        assert (await store.responses.get("resp_23", OWNER)).id == "resp_23"
        with pytest.raises(NotFound):
            await store.journal.get("run_old", OWNER)
        with pytest.raises(NotFound):
            await store.responses.get("resp_25", OWNER)


async def test_steering_message_of_a_killed_run_is_read_by_the_next(tmp_path: Path):
    async with serve(SCRIPT) as mock, aiohttp.ClientSession() as http:
        with anyio.fail_after(60):
            async with api_process(tmp_path, mock.url) as url:
                body = {"input": "hang"}
                async with http.post(f"{url}/v1/runs", json=body, headers=HEADERS) as response:
                    begun = await response.json()
                steer = f"{url}/v1/runs/{begun['run_id']}/steer"
                word = {"input": "Be quick."}
                for _ in range(2):
                    sent = HEADERS | {"Idempotency-Key": "s"}
                    async with http.post(steer, json=word, headers=sent) as response:
                        assert response.status == 202
    async with api_harness(tmp_path, Script(default=Reply("Back again."))) as harness:
        body = msgspec.json.encode({"message": "Are you there?"})
        path = f"/api/sessions/{begun['session_id']}/chat"
        assert (await harness.ask("POST", path, body)).status == 200
        texts = [text_of(message) for message in await harness.messages(begun["session_id"])]
        assert texts.count("Be quick.") == 1
        assert texts.index("Be quick.") < texts.index("Are you there?")
        assert await harness.app.store.queues.topics("inbox") == []
