"""A server that stores responses gets only new messages, or all if it has lost them."""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from openai import AsyncOpenAI

from emulators.fake_provider.openai import ResponsesDialect
from emulators.fake_provider.server import serve_provider
from emulators.fake_provider.wire_rig import model_at
from hermes.app.build import AppOptions, open_app
from hermes.config.env import Env
from hermes.config.home import Home
from hermes.library import collect
from hermes.models.providers import ModelProfile, ServedModel
from hermes.models.wire.openai_responses import ResponsesWire
from hermes.ports.model import ModelRequest
from hermes.schema.errors import BadRequest
from hermes.schema.messages import Message, Result, Text, User
from hermes.testing.contracts.model import read_stream
from hermes.testing.fake_openai import Call, Fault, Reply, Rule, Script, serve
from hermes.testing.fake_openai.server import RecordedRequest
from support.api_server import KEY, api_harness

KEEPING = ServedModel(
    model="mock-model", provider="mock", window=128_000, profile=ModelProfile(stores_responses=True)
)
FIRST = User("u1", (Text("hello"),))


def error_reply(message: str, status: int = 400) -> Reply:
    body = json.dumps({"error": {"message": message, "code": "previous_response_not_found"}})
    return Reply(fault=Fault("status", status=status, body=body))


async def requests_of_turns(*replies: Reply, turns: int, past: bool = True) -> list[dict[str, Any]]:
    """Return the requests of several turns; without `past`, one turn was undone."""
    script = Script(replies=list(replies), default=Reply(text="yes"))
    async with (
        serve_provider(ResponsesDialect(), script) as server,
        model_at(server.url, ResponsesWire, KEEPING) as model,
    ):
        messages: list[Message] = []
        for number in range(turns):
            messages.append(User(f"u{number}", (Text(f"question {number}"),)))
            messages.append(
                (await read_stream(model, ModelRequest("Be brief.", list(messages)))).answer
            )
            if not past:
                del messages[:2]
    return [json.loads(one.body) for one in server.requests]


def questions_in(body: dict[str, Any]) -> list[str]:
    """Return the questions in a request."""
    return [one["content"] for one in body["input"] if one.get("role") == "user"]


async def test_only_new_messages_are_sent():
    bodies = await requests_of_turns(turns=3)
    assert [body["store"] for body in bodies] == [True, True, True]
    assert [body.get("previous_response_id") for body in bodies] == [
        None,
        "resp_mock1",
        "resp_mock2",
    ]
    assert [questions_in(body) for body in bodies] == [
        ["question 0"],
        ["question 1"],
        ["question 2"],
    ]
    assert all(body["instructions"] == "Be brief." for body in bodies)


@pytest.mark.parametrize(
    "message",
    [
        "Previous response with id 'resp_mock1' not found.",
        "Previous response with id 'resp_other' not found.",
    ],
)
@pytest.mark.parametrize("status", [400, 404])
async def test_forgotten_response_is_sent_again(message: str, status: int):
    bodies = await requests_of_turns(Reply(text="yes"), error_reply(message, status), turns=3)
    _, forgotten, whole, after = bodies
    assert forgotten["previous_response_id"] == "resp_mock1"
    assert "previous_response_id" not in whole
    assert questions_in(whole) == ["question 0", "question 1"]
    assert whole["store"] is True
    assert (after["previous_response_id"], questions_in(after)) == ("resp_mock3", ["question 2"])


async def test_storage_is_disabled_if_unsupported():
    never = error_reply(
        "Previous response cannot be used for this organization: Zero Data Retention."
    )
    bodies = await requests_of_turns(Reply(text="yes"), never, turns=3)
    assert [body["store"] for body in bodies] == [True, True, False, False]
    assert questions_in(bodies[-1]) == ["question 0", "question 1", "question 2"]


async def test_changed_history_is_sent_completely():
    bodies = await requests_of_turns(turns=3, past=False)
    assert all("previous_response_id" not in body for body in bodies)


async def test_incomplete_answer_is_not_continued_from():
    bodies = await requests_of_turns(Reply(text="half an ans", finish="length"), turns=2)
    assert "previous_response_id" not in bodies[1]
    assert questions_in(bodies[1]) == ["question 0", "question 1"]


async def test_other_refusals_are_not_retried():
    script = Script(replies=[error_reply("The input is not to my taste.")])
    async with (
        serve_provider(ResponsesDialect(), script) as server,
        model_at(server.url, ResponsesWire, KEEPING) as model,
    ):
        with pytest.raises(BadRequest):
            await read_stream(model)
    assert len(server.requests) == 1


async def test_request_matches_the_openai_sdk():
    call = Reply(calls=[Call("look", '{"at":"x"}', "call_1")])
    async with serve_provider(ResponsesDialect(), Script(replies=[call])) as server:
        async with model_at(server.url, ResponsesWire, KEEPING) as model:
            answer = (await read_stream(model, ModelRequest("Be brief.", [FIRST]))).answer
            messages = [FIRST, answer, Result("r1", "call_1", (Text("a boat"),))]
            await read_stream(model, ModelRequest("Be brief.", messages))
        async with (
            AsyncOpenAI(base_url=server.url, api_key="k", max_retries=0) as client,
            client.responses.stream(
                model="mock-model",
                store=True,
                instructions="Be brief.",
                prompt_cache_key="u1",
                previous_response_id="resp_mock1",
                input=[{"type": "function_call_output", "call_id": "call_1", "output": "a boat"}],
            ) as stream,
        ):
            await stream.get_final_response()
    _, ours, theirs = server.requests
    assert json.loads(ours.body) == json.loads(theirs.body)


async def test_hermes_server_stores_responses(tmp_path: Path):
    script = Script(default=Reply(text="I will remember."))
    async with api_harness(tmp_path, script) as far:
        served = structs.replace(KEEPING, model="hermes-agent")
        async with model_at(f"{far.url}/v1", ResponsesWire, served, key=KEY) as model:
            messages: list[Message] = [User("u1", (Text("the word is swordfish"),))]
            messages.append((await read_stream(model, ModelRequest("", list(messages)))).answer)
            messages.append(User("u2", (Text("which word?"),)))
            assert (await read_stream(model, ModelRequest("", list(messages)))).answer.text
        body = far.model_server.requests[-1].body.decode()
    assert body.count("the word is swordfish") == 1
    assert body.count("which word?") == 1


SETTINGS = """
model:
  default: mock-model
  provider: own
custom_providers:
  - name: own
    base_url: {url}
    api_key: sk-test
    api_mode: codex_responses
    keeps_responses: true
"""


def previous(requests: list[RecordedRequest]) -> list[object]:
    return [one.json.get("previous_response_id") for one in requests]


async def test_setting_enables_stored_responses(tmp_path: Path):
    look = Reply(calls=[Call("todo", {})])
    rules = [Rule(contains="go", steps=[look, Reply(text="done")])]
    async with serve(Script(rules=rules, default=Reply(text="yes"))) as server:
        home = Home(root=tmp_path, path=tmp_path)
        home.config.write_text(SETTINGS.format(url=server.url))
        choices = AppOptions(workspace=str(tmp_path), reviews_turns=False)
        async with open_app(home, Env({"HOME": str(tmp_path)}), choices) as app:
            # The first turn fixes the session's model.
            for text in ("hello", "go", "and again"):
                assert (await collect(app, [Text(text)])).text
    requests = [one for one in server.requests if one.path.endswith("/responses")]
    assert all(one.json["store"] is True for one in requests)
    assert previous(requests) == [None, None, "resp_mock2", "resp_mock3"]
    assert "and again" in requests[-1].body.decode()
    assert '"go"' not in requests[-1].body.decode()
