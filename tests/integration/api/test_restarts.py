"""A model that breaks off and answers differently: what was streamed is told to be void."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from hermes.runtimes.proxy.run_protocol import RunEventMapper
from hermes.testing.fake_openai import Call, Fault, Reply, Script
from support.api_server import ApiHarness, ApiResponse, api_harness
from support.cli_process import TEST_TIMEOUT

pytestmark = pytest.mark.anyio

FIRST, OTHER = "Let me look.", "Something else."


def script() -> Script:
    """The second answer of the turn is begun in one way, and given in another."""
    cut = Reply("The answer is long.", fault=Fault("cut", after=3), chunk=4)
    return Script(replies=[Reply(FIRST, [Call("todo", {})]), cut, Reply(OTHER, chunk=4)])


def events(told: ApiResponse) -> list[tuple[str, dict[str, Any]]]:
    found: list[tuple[str, dict[str, Any]]] = []
    for block in told.body.decode().split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if line[:1] != ":")
        if "data" in lines:
            data = json.loads(lines["data"])
            found.append((str(lines.get("event") or data.get("event")), data))
    return found


def read(told: Sequence[tuple[str, str]]) -> str:
    """As a client does that knows what starting over means."""
    text = ""
    for name, words in told:
        text = words if name.endswith("restarted") else text + words
    return text


async def asked(one: ApiHarness, path: str, body: object) -> ApiResponse:
    with anyio.fail_after(TEST_TIMEOUT):
        told = await one.ask("POST", path, msgspec.json.encode(body))
    assert told.status in {200, 201, 202}, told.body
    return told


async def test_a_response_ends_the_item_and_begins_another(tmp_path: Path) -> None:
    async with api_harness(tmp_path, script()) as one:
        found = events(await asked(one, "/v1/responses", {"input": "hi", "stream": True}))
        response = found[-1][1]["response"]
        said = [item for item in response["output"] if item["type"] == "message"]
        texts = [(item["content"][0]["text"], item["status"]) for item in said]
        begun = texts[1][0]
        assert texts == [(FIRST, "completed"), (begun, "incomplete"), (OTHER, "completed")]
        assert "The answer is long.".startswith(begun)
        by_item: dict[str, str] = {}
        for name, event in found:
            if name == "response.output_text.delta":
                by_item[event["item_id"]] = by_item.get(event["item_id"], "") + event["delta"]
        assert by_item == {item["id"]: item["content"][0]["text"] for item in said}
        done = {
            event["output_index"]: event["item"]
            for name, event in found
            if name == "response.output_item.done"
        }
        assert [done[number] for number in sorted(done)] == response["output"]
        kept = await one.ask("GET", f"/v1/responses/{response['id']}")
        assert kept.json == response


async def test_whole_it_has_only_what_counts(tmp_path: Path) -> None:
    async with api_harness(tmp_path, script()) as one:
        told = (await asked(one, "/v1/responses", {"input": "hi"})).json
        texts = [one["content"][0]["text"] for one in told["output"] if one["type"] == "message"]
        assert texts == [FIRST, OTHER]


async def test_a_session_says_that_the_words_start_over(tmp_path: Path) -> None:
    async with api_harness(tmp_path, script()) as one:
        await asked(one, "/api/sessions", {"id": "s"})
        found = events(await asked(one, "/api/sessions/s/chat/stream", {"message": "hi"}))
        told = [
            (name, event.get("delta", event.get("content", "")))
            for name, event in found
            if name in {"assistant.delta", "assistant.restarted"}
        ]
        assert [words for name, words in told if name == "assistant.restarted"] == [FIRST]
        (whole,) = [event["content"] for name, event in found if name == "assistant.completed"]
        assert read(told) == whole == f"{FIRST}\n\n{OTHER}"


async def test_a_run_says_it_and_who_follows_understands(tmp_path: Path) -> None:
    async with api_harness(tmp_path, script()) as one:
        run = (await asked(one, "/v1/runs", {"input": "hi"})).json["run_id"]
        with anyio.fail_after(TEST_TIMEOUT):
            followed = await one.ask("GET", f"/v1/runs/{run}/events")
        found = events(followed)
        told = [
            (name, event.get("delta", event.get("text", "")))
            for name, event in found
            if name in {"message.delta", "message.restarted"}
        ]
        assert [words for name, words in told if name == "message.restarted"] == [FIRST]
        assert read(told) == found[-1][1]["output"] == f"{FIRST}\n\n{OTHER}"
        mapper = RunEventMapper()
        for number, (name, event) in enumerate(found[:-1], 1):
            mapper.feed(number, msgspec.json.encode({**event, "event": name}))
        assert mapper.text == f"{FIRST}\n\n{OTHER}"
