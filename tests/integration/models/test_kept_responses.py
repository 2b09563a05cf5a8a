"""A server that keeps its responses is told only what is new, and everything when it forgot."""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from openai import AsyncOpenAI

from hermes.app.build import AppOptions, open_app
from hermes.config.env import Env
from hermes.config.home import Home
from hermes.library import collect
from hermes.models.model_profile import ModelProfile
from hermes.models.wire.openai_responses import ResponsesWire
from hermes.models.wire_model import ServedModel
from hermes.ports.model import ModelRequest
from hermes.schema.errors import BadRequest
from hermes.schema.messages import Message, Result, Text, User
from hermes.testing.contracts.model import read_stream
from hermes.testing.fake_openai import Call, Fault, Reply, Rule, Script, serve
from hermes.testing.fake_openai.server import RecordedRequest
from hermes.testing.fake_provider.openai import ResponsesDialect
from hermes.testing.fake_provider.server import serve_provider
from hermes.testing.fake_provider.wire_rig import model_at
from support.api_server import KEY, api_harness

pytestmark = pytest.mark.anyio

KEEPING = ServedModel(
    model="mock-model", provider="mock", window=128_000, profile=ModelProfile(keeps=True)
)
FIRST = User("u1", (Text("hello"),))


def refused(message: str, status: int = 400) -> Reply:
    body = json.dumps({"error": {"message": message, "code": "previous_response_not_found"}})
    return Reply(fault=Fault("status", status=status, body=body))


async def talked(*replies: Reply, turns: int, past: bool = True) -> list[dict[str, Any]]:
    """What was sent in that many turns of one conversation; without `past` one was taken back."""
    script = Script(replies=list(replies), default=Reply(text="yes"))
    async with (
        serve_provider(ResponsesDialect(), script) as server,
        model_at(server.url, ResponsesWire, KEEPING) as model,
    ):
        said: list[Message] = []
        for number in range(turns):
            said.append(User(f"u{number}", (Text(f"question {number}"),)))
            said.append((await read_stream(model, ModelRequest("Be brief.", list(said)))).answer)
            if not past:
                del said[:2]
    return [json.loads(one.body) for one in server.requests]


def told(body: dict[str, Any]) -> list[str]:
    """The questions that went along."""
    return [one["content"] for one in body["input"] if one.get("role") == "user"]


async def test_only_what_is_new_is_told():
    bodies = await talked(turns=3)
    assert [body["store"] for body in bodies] == [True, True, True]
    assert [body.get("previous_response_id") for body in bodies] == [
        None,
        "resp_mock1",
        "resp_mock2",
    ]
    assert [told(body) for body in bodies] == [["question 0"], ["question 1"], ["question 2"]]
    assert all(body["instructions"] == "Be brief." for body in bodies)


@pytest.mark.parametrize(
    "message",
    [
        "Previous response with id 'resp_mock1' not found.",
        "Previous response with id 'resp_other' not found.",
    ],
)
@pytest.mark.parametrize("status", [400, 404])
async def test_what_the_server_forgot_is_told_again(message: str, status: int):
    bodies = await talked(Reply(text="yes"), refused(message, status), turns=3)
    _, forgotten, whole, after = bodies
    assert forgotten["previous_response_id"] == "resp_mock1"
    assert "previous_response_id" not in whole
    assert told(whole) == ["question 0", "question 1"]
    assert whole["store"] is True
    assert (after["previous_response_id"], told(after)) == ("resp_mock3", ["question 2"])


async def test_a_server_that_keeps_nothing_is_not_asked_to_again():
    never = refused("Previous response cannot be used for this organization: Zero Data Retention.")
    bodies = await talked(Reply(text="yes"), never, turns=3)
    assert [body["store"] for body in bodies] == [True, True, False, False]
    assert told(bodies[-1]) == ["question 0", "question 1", "question 2"]


async def test_another_past_is_told_as_a_whole():
    bodies = await talked(turns=3, past=False)
    assert all("previous_response_id" not in body for body in bodies)


async def test_half_an_answer_is_nothing_to_go_on_from():
    bodies = await talked(Reply(text="half an ans", finish="length"), turns=2)
    assert "previous_response_id" not in bodies[1]
    assert told(bodies[1]) == ["question 0", "question 1"]


async def test_any_other_refusal_stays_one():
    script = Script(replies=[refused("The input is not to my taste.")])
    async with (
        serve_provider(ResponsesDialect(), script) as server,
        model_at(server.url, ResponsesWire, KEEPING) as model,
    ):
        with pytest.raises(BadRequest):
            await read_stream(model)
    assert len(server.requests) == 1


async def test_the_same_request_comes_out_of_their_library():
    call = Reply(calls=[Call("look", '{"at":"x"}', "call_1")])
    async with serve_provider(ResponsesDialect(), Script(replies=[call])) as server:
        async with model_at(server.url, ResponsesWire, KEEPING) as model:
            answer = (await read_stream(model, ModelRequest("Be brief.", [FIRST]))).answer
            said = [FIRST, answer, Result("r1", "call_1", (Text("a boat"),))]
            await read_stream(model, ModelRequest("Be brief.", said))
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


async def test_our_own_server_keeps_them(tmp_path: Path):
    script = Script(default=Reply(text="I will remember."))
    async with api_harness(tmp_path, script) as far:
        served = structs.replace(KEEPING, model="hermes-agent")
        async with model_at(f"{far.url}/v1", ResponsesWire, served, key=KEY) as model:
            said: list[Message] = [User("u1", (Text("the word is swordfish"),))]
            said.append((await read_stream(model, ModelRequest("", list(said)))).answer)
            said.append(User("u2", (Text("which word?"),)))
            assert (await read_stream(model, ModelRequest("", list(said)))).answer.text
        asked = far.mock.requests[-1].body.decode()
    assert asked.count("the word is swordfish") == 1
    assert asked.count("which word?") == 1


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


async def test_a_setting_says_so(tmp_path: Path):
    look = Reply(calls=[Call("todo", {})])
    rules = [Rule(contains="go", steps=[look, Reply(text="done")])]
    async with serve(Script(rules=rules, default=Reply(text="yes"))) as server:
        home = Home(root=tmp_path, path=tmp_path)
        home.config.write_text(SETTINGS.format(url=server.url))
        choices = AppOptions(workspace=str(tmp_path), looks_back=False)
        async with open_app(home, Env({"HOME": str(tmp_path)}), choices) as app:
            # The first turn settles which model the session has.
            for text in ("hello", "go", "and again"):
                assert (await collect(app, [Text(text)])).text
    asked = [one for one in server.requests if one.path.endswith("/responses")]
    assert all(one.json["store"] is True for one in asked)
    assert previous(asked) == [None, None, "resp_mock2", "resp_mock3"]
    assert "and again" in asked[-1].body.decode()
    assert '"go"' not in asked[-1].body.decode()
