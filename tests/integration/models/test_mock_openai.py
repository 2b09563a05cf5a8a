"""Check the mock server with the official SDK and real processes."""

import json
import sys
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from subprocess import PIPE, Popen
from urllib.parse import urlsplit

import anyio
import openai
import pytest
from openai import AsyncOpenAI

from hermes.testing.fake_openai import Call, Fault, Reply, Rule, Script, TokenCounts, serve
from hermes.testing.fake_openai.script import named_answers

ASK = [{"role": "user", "content": "hello"}]


def sdk(url: str, key: str = "k") -> AsyncOpenAI:
    return AsyncOpenAI(base_url=url, api_key=key, max_retries=0)


async def test_sdk_reads_a_stream():
    reply = Reply(
        text="Hello there",
        reasoning="hm",
        calls=[Call("look", {"at": "x"}), Call("go", "{}", "call_7")],
        usage=TokenCounts(100, 20, 80, 5),
        chunk=3,
    )
    async with serve(Script(replies=[reply])) as server, sdk(server.url) as client:
        stream = await client.chat.completions.create(
            model="m", messages=ASK, stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    assert "".join(delta.content or "" for delta in deltas) == "Hello there"
    assert "".join(delta.model_extra.get("reasoning_content") or "" for delta in deltas) == "hm"
    args: dict[int, str] = {}
    for call in (call for delta in deltas for call in delta.tool_calls or ()):
        args[call.index] = args.get(call.index, "") + call.function.arguments
    assert args == {0: '{"at":"x"}', 1: "{}"}
    assert chunks[-2].choices[0].finish_reason == "tool_calls"
    usage = chunks[-1].usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (100, 20, 120)
    assert usage.prompt_tokens_details.cached_tokens == 80
    assert usage.completion_tokens_details.reasoning_tokens == 5


async def test_sdk_reads_a_whole_answer_and_the_models():
    script = Script(default=Reply(text="hi", calls=[Call("look")]), models=("a", "b"))
    async with serve(script) as server, sdk(server.url) as client:
        answer = await client.chat.completions.create(model="m", messages=ASK)
        models = await client.models.list()
    (choice,) = answer.choices
    assert (choice.message.content, choice.finish_reason) == ("hi", "tool_calls")
    assert choice.message.tool_calls[0].function.name == "look"
    assert [model.id for model in models.data] == ["a", "b"]
    assert server.requests[0].json["messages"] == ASK
    assert server.requests[0].headers["authorization"] == "Bearer k"
    assert server.requests[0].completed


SDK_ERRORS = {
    401: openai.AuthenticationError,
    403: openai.PermissionDeniedError,
    404: openai.NotFoundError,
    429: openai.RateLimitError,
    400: openai.BadRequestError,
}


@pytest.mark.parametrize("name", sorted(named_answers()))
async def test_sdk_sees_each_named_fault(name: str):
    answer = named_answers()[name]
    wanted = SDK_ERRORS.get(answer.status, openai.APIStatusError)
    script = Script(default=Reply(fault=Fault("status", named=name)))
    async with serve(script) as server, sdk(server.url) as client:
        with pytest.raises(wanted) as caught:
            await client.chat.completions.create(model="m", messages=ASK)
    assert caught.value.status_code == answer.status
    for header, value in answer.headers.items():
        assert caught.value.response.headers[header] == value


async def test_wrong_key_is_refused():
    async with serve(Script(api_key="right")) as server:
        async with sdk(server.url, "wrong") as client:
            with pytest.raises(openai.AuthenticationError):
                await client.models.list()
        async with sdk(server.url, "right") as client:
            assert await client.models.list()


async def test_rules_script_a_turn_with_tools():
    rule = Rule("weather", [Reply(calls=[Call("look")]), Reply(text="It rains.")])
    async with serve(Script(rules=[rule])) as server, sdk(server.url) as client:

        async def say(*messages):
            answer = await client.chat.completions.create(model="m", messages=messages)
            return answer.choices[0].message

        question = {"role": "user", "content": [{"type": "text", "text": "the weather?"}]}
        call = await say(question)
        result = {"role": "tool", "tool_call_id": call.tool_calls[0].id, "content": "rain"}
        last = await say(question, call.model_dump(exclude_none=True), result)
        other = await say({"role": "user", "content": "hello"})
    assert last.content == "It rains."
    assert other.content == "Hello from the mock model."


async def test_client_disconnect_is_noticed():
    script = Script(default=Reply(text="Hello", fault=Fault("hang", after=1)))
    async with serve(script) as server:
        async with sdk(server.url) as client:
            stream = await client.chat.completions.create(model="m", messages=ASK, stream=True)
            await anext(aiter(stream))
            await stream.close()
        with anyio.fail_after(60):
            await server.requests[0].ended.wait()
    assert not server.requests[0].completed


async def test_unknown_routes_and_broken_bodies_are_refused():
    async with serve() as server, sdk(server.url) as client:
        with pytest.raises(openai.NotFoundError):
            await client.files.list()
        with pytest.raises(openai.BadRequestError):
            await client.post("/chat/completions", cast_to=object, body={"messages": 5})


def fetch(url: str, method: str, path: str, body: str | None = None):
    connection = HTTPConnection(urlsplit(url).netloc, timeout=60)
    with closing(connection):
        connection.request(method, path, body)
        return json.load(connection.getresponse())


@pytest.mark.parametrize("source", ["--reply", "--script"])
def test_server_runs_as_a_separate_process(source: str, tmp_path: Path):
    script = tmp_path / "script.json"
    script.write_text('{"default": {"text": "from a file"}, "rules": []}')
    given = "from a flag" if source == "--reply" else str(script)
    log = tmp_path / "log.jsonl"
    argv = [sys.executable, "-m", "hermes.testing.fake_openai", source, given, "--log", str(log)]
    with Popen(argv, stdout=PIPE, text=True) as process:
        try:
            url = process.stdout.readline().strip()
            body = json.dumps({"model": "m", "messages": ASK})
            text = fetch(url, "POST", "/v1/chat/completions", body)["choices"][0]["message"][
                "content"
            ]
            logged = fetch(url, "GET", "/_mock/requests")
        finally:
            process.terminate()
    assert text == ("from a flag" if source == "--reply" else "from a file")
    assert [one["body"]["messages"] for one in logged] == [ASK]
    assert process.returncode == 0
    first = json.loads(log.read_text().splitlines()[0])
    assert (first["path"], json.loads(first["body"])["messages"]) == ("/v1/chat/completions", ASK)


@pytest.mark.parametrize("text", [None, "{", '{"defualt": {}}'])
def test_invalid_script_is_reported(text: str | None, tmp_path: Path):
    script = tmp_path / "script.json"
    if text is not None:
        script.write_text(text)
    argv = [sys.executable, "-m", "hermes.testing.fake_openai", "--script", str(script)]
    with Popen(argv, stderr=PIPE, text=True) as process:
        _, stderr = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "script.json" in stderr
    assert "Traceback" not in stderr
