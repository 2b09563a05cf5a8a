"""A model that restarts with a different answer: the streamed text is withdrawn."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import msgspec

from hermes.runtimes.proxy.run_protocol import RunEventMapper
from hermes.testing.fake_openai import Call, Fault, Reply, Script
from support.api_server import ApiHarness, ApiResponse, api_harness
from support.cli_process import TEST_TIMEOUT

FIRST, OTHER = "Let me look.", "Something else."


def script() -> Script:
    """The second answer of the turn starts one way and ends another way."""
    cut = Reply("The answer is long.", fault=Fault("cut", after=3), chunk=4)
    return Script(replies=[Reply(FIRST, [Call("todo", {})]), cut, Reply(OTHER, chunk=4)])


def events(response: ApiResponse) -> list[tuple[str, dict[str, Any]]]:
    found: list[tuple[str, dict[str, Any]]] = []
    for block in response.body.decode().split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if line[:1] != ":")
        if "data" in lines:
            data = json.loads(lines["data"])
            found.append((str(lines.get("event") or data.get("event")), data))
    return found


def read(response: Sequence[tuple[str, str]]) -> str:
    """Read the events as a client that understands restarts."""
    text = ""
    for name, words in response:
        text = words if name.endswith("restarted") else text + words
    return text


async def asked(harness: ApiHarness, path: str, body: object) -> ApiResponse:
    with anyio.fail_after(TEST_TIMEOUT):
        response = await harness.ask("POST", path, msgspec.json.encode(body))
    assert response.status in {200, 201, 202}, response.body
    return response


async def test_response_ends_the_item_and_starts_another(tmp_path: Path) -> None:
    async with api_harness(tmp_path, script()) as harness:
        found = events(await asked(harness, "/v1/responses", {"input": "hi", "stream": True}))
        response = found[-1][1]["response"]
        messages = [item for item in response["output"] if item["type"] == "message"]
        texts = [(item["content"][0]["text"], item["status"]) for item in messages]
        begun = texts[1][0]
        assert texts == [(FIRST, "completed"), (begun, "incomplete"), (OTHER, "completed")]
        assert "The answer is long.".startswith(begun)
        by_item: dict[str, str] = {}
        for name, event in found:
            if name == "response.output_text.delta":
                by_item[event["item_id"]] = by_item.get(event["item_id"], "") + event["delta"]
        assert by_item == {item["id"]: item["content"][0]["text"] for item in messages}
        done = {
            event["output_index"]: event["item"]
            for name, event in found
            if name == "response.output_item.done"
        }
        assert [done[number] for number in sorted(done)] == response["output"]
        kept = await harness.ask("GET", f"/v1/responses/{response['id']}")
        assert kept.json == response


async def test_complete_answer_has_only_the_final_text(tmp_path: Path) -> None:
    async with api_harness(tmp_path, script()) as harness:
        response = (await asked(harness, "/v1/responses", {"input": "hi"})).json
        texts = [
            one["content"][0]["text"] for one in response["output"] if one["type"] == "message"
        ]
        assert texts == [FIRST, OTHER]


async def test_session_stream_reports_the_restart(tmp_path: Path) -> None:
    async with api_harness(tmp_path, script()) as harness:
        await asked(harness, "/api/sessions", {"id": "s"})
        found = events(await asked(harness, "/api/sessions/s/chat/stream", {"message": "hi"}))
        response = [
            (name, event.get("delta", event.get("content", "")))
            for name, event in found
            if name in {"assistant.delta", "assistant.restarted"}
        ]
        assert [words for name, words in response if name == "assistant.restarted"] == [FIRST]
        (whole,) = [event["content"] for name, event in found if name == "assistant.completed"]
        assert read(response) == whole == f"{FIRST}\n\n{OTHER}"


async def test_run_reports_the_restart_to_followers(tmp_path: Path) -> None:
    async with api_harness(tmp_path, script()) as harness:
        run = (await asked(harness, "/v1/runs", {"input": "hi"})).json["run_id"]
        with anyio.fail_after(TEST_TIMEOUT):
            followed = await harness.ask("GET", f"/v1/runs/{run}/events")
        found = events(followed)
        response = [
            (name, event.get("delta", event.get("text", "")))
            for name, event in found
            if name in {"message.delta", "message.restarted"}
        ]
        assert [words for name, words in response if name == "message.restarted"] == [FIRST]
        assert read(response) == found[-1][1]["output"] == f"{FIRST}\n\n{OTHER}"
        mapper = RunEventMapper()
        for number, (name, event) in enumerate(found[:-1], 1):
            mapper.feed(number, msgspec.json.encode({**event, "event": name}))
        assert mapper.text == f"{FIRST}\n\n{OTHER}"
