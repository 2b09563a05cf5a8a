"""Runs over real sockets: started once, followed from any event by several readers, ended."""

from itertools import cycle
from pathlib import Path

import anyio
import anyio.lowlevel

from hermes.api.context import ApiLimits
from hermes.kit.ids import process_id
from hermes.ports.journal import RunRecord, RunStatus
from hermes.schema.messages import text_of
from hermes.schema.scope import OWNER
from support.api_runs import (
    SCRIPT,
    SLOW_ANSWER,
    WORDS,
    RunFrame,
    delta_text,
    open_events,
    post_json,
    read_events,
    run_state,
    start_run,
)
from support.api_server import api_harness, api_settings


async def test_run_is_followed_to_its_end(tmp_path: Path):
    async with api_harness(tmp_path, SCRIPT) as harness:
        run = await start_run(harness)
        async with open_events(harness, run) as reader:
            frames = await reader.rest()
            assert reader.comments == [": stream closed"]
        assert [frame.id for frame in frames] == list(range(1, len(frames) + 1))
        assert delta_text(frames) == WORDS
        last = frames[-1].data
        assert (last["event"], last["run_id"], last["output"]) == ("run.completed", run, WORDS)
        assert "partial" not in last
        now = await run_state(harness, run)
        assert now["object"] == "hermes.run"
        assert (now["status"], now["output"], now["usage"]) == ("completed", WORDS, last["usage"])
        assert (now["last_event"], now["last_event_id"]) == ("run.completed", len(frames))
        assert [text_of(one) for one in await harness.messages(str(now["session_id"]))] == [
            "hello",
            WORDS,
        ]


async def test_readers_get_the_same_from_any_event(tmp_path: Path):
    async with api_harness(tmp_path, SCRIPT) as harness:
        run = await start_run(harness, "use a tool")
        whole = await read_events(harness, run)
        names = [
            frame.name for frame in whole if frame.name not in {"message.delta", "tool.progress"}
        ]
        assert names == [
            "message.completed",
            "tool.started",
            "tool.completed",
            "message.completed",
            "run.completed",
        ]
        assert delta_text(whole) == whole[-1].data["output"] == "Look.\n\nHi."
        for after in range(len(whole) + 2):
            assert await read_events(harness, run, after) == whole[after:]
        async with open_events(harness, run, after="3") as reader:
            assert await reader.rest() == whole[3:]


async def test_two_live_readers_and_a_reconnect(tmp_path: Path):
    async with api_harness(tmp_path, SCRIPT) as home:
        run = await start_run(home, "hang")
        with anyio.fail_after(60):
            async with open_events(home, run) as harness, open_events(home, run) as other:
                first = await harness.next()
                assert await other.next() == first
            assert first is not None
            # Both have disconnected, and the run continues unaffected.
            assert (await run_state(home, run))["status"] == "running"
            async with open_events(home, run, first.id) as again:
                await post_json(home, f"/v1/runs/{run}/stop", {}, 200)
                rest = await again.rest()
        assert rest[0].id == first.id + 1
        assert rest[-1].name == "run.cancelled"


async def test_repeatedly_disconnected_reader_misses_nothing(tmp_path: Path):
    async with api_harness(tmp_path, SCRIPT) as harness:
        run = await start_run(harness, "slowly")
        got: list[RunFrame] = []
        sizes = cycle((1, 7, 2, 12, 3))
        with anyio.fail_after(60):
            while not got or got[-1].name != "run.completed":
                async with open_events(harness, run, got[-1].id if got else 0) as reader:
                    some = [await reader.next() for _ in range(next(sizes))]
                    got += [frame for frame in some if frame is not None]
        assert [frame.id for frame in got] == list(range(1, len(got) + 1))
        assert delta_text(got) == got[-1].data["output"] == SLOW_ANSWER
        assert await read_events(harness, run) == got


async def test_silent_stream_gets_keepalives(tmp_path: Path):
    async with api_harness(
        tmp_path, SCRIPT, limits=ApiLimits(keepalive=0.01, drain=0.0)
    ) as harness:
        run = await start_run(harness, "hang")
        with anyio.fail_after(60):
            async with open_events(harness, run) as reader:
                await reader.until("message.delta")
                lines = [await reader.response.content.readline() for _ in range(3)]
        assert b": keepalive\n" in lines


async def test_run_belongs_to_its_profile(tmp_path: Path):
    async with api_harness(tmp_path, SCRIPT) as harness:
        run = await start_run(harness)
        assert (await harness.ask("GET", f"/p/default/v1/runs/{run}")).status == 200
        other = await harness.ask("GET", f"/p/other/v1/runs/{run}")
        assert (other.status, other.code) == (404, "profile_not_found")


async def test_failed_run_reports_its_reason(tmp_path: Path):
    async with api_harness(tmp_path, SCRIPT) as harness:
        run = await start_run(harness, "wrong key")
        last = (await read_events(harness, run))[-1].data
        assert (last["event"], last["error_code"]) == ("run.failed", "auth")
        assert last["error"]
        now = await run_state(harness, run)
        assert (now["status"], now["error"]) == ("failed", last["error"])


async def test_reasoning_is_reported(tmp_path: Path):
    async with api_harness(tmp_path, SCRIPT) as harness:
        frames = await read_events(harness, await start_run(harness, "a thought"))
        (response,) = [frame for frame in frames if frame.name == "reasoning.available"]
        assert response.data["text"] == "Hm."


async def test_key_starts_one_run_across_a_restart(tmp_path: Path):
    body = {"input": "hello"}
    async with api_harness(tmp_path, SCRIPT) as harness:
        once = await post_json(harness, "/v1/runs", body, 202, Idempotency_Key="k 1")
        again = await post_json(harness, "/v1/runs", body, 202, Idempotency_Key="k 1")
        assert again.json == once.json
        other = await post_json(harness, "/v1/runs", {"input": "x"}, 422, Idempotency_Key="k 1")
        assert other.code == "idempotency_key_reused"
        run = str(once.json["run_id"])
        whole = await read_events(harness, run)
    async with api_harness(tmp_path, SCRIPT) as harness:
        later = await post_json(harness, "/v1/runs", body, 202, Idempotency_Key="k 1")
        assert later.json == once.json
        assert await read_events(harness, run, 2) == whole[2:]
        assert len(harness.model_server.requests) == 0
        assert len(await harness.sessions()) == 1


async def test_shutdown_is_reported_as_an_interruption(tmp_path: Path):
    async with api_harness(tmp_path, SCRIPT, limits=ApiLimits(drain=0.0)) as harness:
        run = await start_run(harness, "hang")
        async with open_events(harness, run) as reader:
            seen = await reader.until("message.delta")
    async with api_harness(tmp_path, SCRIPT) as harness:
        last = (await read_events(harness, run, seen.id))[-1].data
        assert (last["event"], last["error_code"]) == ("run.failed", "interrupted")


async def test_run_of_a_dead_process_has_an_end(tmp_path: Path):
    gone = f"{process_id().rsplit('/', 1)[0]}/0/0"
    async with api_harness(tmp_path, SCRIPT) as harness:
        now = harness.app.clock.now()
        run = "run_" + "0" * 32
        lost = RunRecord(
            run=run, session="s", principal=OWNER, created=now, updated=now, holder=gone
        )
        await harness.app.store.journal.open(lost)
        frames = await read_events(harness, run, 7)
        assert [frame.name for frame in frames] == ["run.failed"]
        assert frames[0].data["error_code"] == "interrupted"
        assert (await run_state(harness, run))["status"] == RunStatus.FAILED


async def test_run_continues_a_session_or_a_history(tmp_path: Path):
    async with api_harness(tmp_path, SCRIPT) as harness:
        past = [
            {"role": "user", "content": "My name is Ann."},
            {"role": "assistant", "content": "Hi."},
        ]
        run = await start_run(
            harness, "Who am I?", conversation_history=past, instructions="Be brief."
        )
        await read_events(harness, run)
        session = str((await run_state(harness, run))["session_id"])
        assert [text_of(one) for one in await harness.messages(session)][:3] == [
            "My name is Ann.", "Hi.", "Who am I?",
        ]  # fmt: skip
        second = await start_run(
            harness, [{"role": "user", "content": "And now?"}], session_id=session
        )
        await read_events(harness, second)
        sent = harness.model_server.requests[-1].json["messages"]
        assert isinstance(sent, list)
        assert "Be brief." in str(harness.model_server.requests[0].json["messages"])
        assert "Be brief." not in str(sent)
        assert len(await harness.messages(session)) == 6


async def test_run_in_a_busy_session_is_rejected_without_trace(tmp_path: Path):
    async with api_harness(tmp_path, SCRIPT) as harness:
        run = await start_run(harness, "hang")
        session = (await run_state(harness, run))["session_id"]
        body = {"input": "me too", "session_id": session}
        response = await post_json(harness, "/v1/runs", body, 409, Idempotency_Key="k")
        assert response.code == "session_busy"
        await post_json(harness, f"/v1/runs/{run}/stop", {}, 200)
        await read_events(harness, run)
        again = await post_json(harness, "/v1/runs", body, 202, Idempotency_Key="k")
        assert (await read_events(harness, str(again.json["run_id"])))[-1].name == "run.completed"


async def test_run_limit(tmp_path: Path):
    async with api_harness(tmp_path, SCRIPT, settings=api_settings(max_turns=1)) as harness:
        run = await start_run(harness, "hang")
        response = await post_json(harness, "/v1/runs", {"input": "x"}, 429)
        assert response.headers["retry-after"] == "1"
        assert len(await harness.sessions()) == 1
        await post_json(harness, f"/v1/runs/{run}/stop", {}, 200)
        await read_events(harness, run)
        await read_events(harness, await start_run(harness))


BAD: list[tuple[object, int]] = [
    ({}, 400),
    ({"input": ""}, 400),
    ({"input": []}, 400),
    ({"input": 7}, 400),
    ({"input": None}, 400),
    ({"input": [{"role": "queen", "content": "x"}]}, 400),
    ({"input": [{"type": "item_reference", "id": "x"}]}, 400),
    ({"input": [{"role": "assistant", "content": "x"}]}, 400),
    ({"input": [{"type": "function_call_output", "call_id": "c", "output": "x"}]}, 400),
    ({"input": "x", "instructions": 3}, 400),
    ({"input": "x", "conversation_history": "x"}, 400),
    ({"input": "x", "session_id": "no one"}, 400),
    ({"input": "x", "session_id": "s" * 300}, 400),
    ({"input": "x", "previous_response_id": "nobody"}, 404),
    ({"input": "x", "previous_response_id": "a", "session_id": "b"}, 400),
    ({"input": "x", "model": "m", "provider": "nobody"}, 400),
    ([], 400),
]


async def test_invalid_run_request_stores_nothing(tmp_path: Path):
    async with api_harness(tmp_path, SCRIPT) as harness:
        for body, status in BAD:
            assert (await post_json(harness, "/v1/runs", body, status)).code, body
        for key in ("", "x" * 300, "a\tb"):
            response = await post_json(
                harness, "/v1/runs", {"input": "x"}, 400, Idempotency_Key=key
            )
            assert response.code == "invalid_idempotency_key"
        run = await start_run(harness, "hang")
        for action, bad in (("steer", {}), ("steer", {"input": []}), ("approval", {"choice": "x"})):
            assert (await post_json(harness, f"/v1/runs/{run}/{action}", bad, 400)).code
        allowed = await post_json(harness, f"/v1/runs/{run}/approval", {"choice": "once"}, 409)
        assert allowed.code == "approval_not_pending"
        for path in ("", "/events"):
            response = await harness.ask("GET", f"/v1/runs/nobody{path}")
            assert (response.status, response.code) == (404, "run_not_found")
        for path, body in (
            ("stop", {}),
            ("steer", {"input": "x"}),
            ("approval", {"choice": "deny"}),
        ):
            assert (
                await post_json(harness, f"/v1/runs/nobody/{path}", body, 404)
            ).code == "run_not_found"
        for after in ("-1", "x", "9" * 30, "²"):
            response = await harness.ask("GET", f"/v1/runs/{run}/events?after={after}")
            assert response.status == 400
        response = await harness.ask("GET", f"/v1/runs/{run}", key="wrong-key-of-some-length")
        assert response.status == 401
        assert len(await harness.sessions()) == 1
        await post_json(harness, f"/v1/runs/{run}/stop", {}, 200)
