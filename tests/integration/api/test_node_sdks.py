"""The Node clients, unchanged, against our server: each runs all its cases in one process.

The packages are those of `tests/sdk/package-lock.json`, cached next to the interpreter.
"""

import base64
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from msgspec import UNSET, Struct, UnsetType

from hermes.testing.fake_openai.script import Call, Fault, Reply, Rule, Script
from support.api_server import KEY, api_harness

SDK = Path(__file__).parents[2] / "sdk"
INSTALL_TIMEOUT = 180
RUN_TIMEOUT = 120
PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 32
IMAGE = "data:image/png;base64," + base64.b64encode(PNG).decode()
TIDY = "Let me look.\n\nIt is tidy."
SCRIPT = Script(
    rules=[
        Rule(
            "weather",
            [
                Reply(calls=[Call("weather", {"city": "Oslo"}, id="call_w")]),
                Reply(text="It rains in Oslo."),
            ],
        ),
        Rule("my list", [Reply("Let me look.", [Call("todo", {})]), Reply("It is tidy.")]),
        Rule("picture", [Reply(text="A heron.")]),
        Rule("document", [Reply(text="It says heron.")]),
        Rule("fail", [Reply(fault=Fault("status", named="unauthorized"))]),
        Rule("as json", [Reply(text='{"city": "Oslo"}')]),
        Rule("ponder", [Reply(text="So it is.", reasoning="Is it so?")]),
        Rule("much", [Reply(text="word " * 400, chunk=5, pace=0.05)]),
    ],
    default=Reply(text="Hello there, friend."),
)


class ClientError(Struct):
    name: str
    status: int | None
    code: str | int | None
    message: str


class CaseOutcome(Struct):
    """The outcome of one case."""

    given: Any = None
    error: ClientError | UnsetType = UNSET

    @property
    def trouble(self) -> tuple[str, int | None]:
        assert self.error is not UNSET, f"no error, but {self.given}"
        return self.error.name, self.error.status

    @property
    def value(self) -> Any:
        assert self.error is UNSET, self.error
        return self.given


class ClientReport(Struct):
    """All outcomes of a client, and the requests to the model."""

    cases: dict[str, CaseOutcome]
    asked: list[dict[str, Any]]

    def of(self, case: str) -> Any:
        return self.cases[case].value

    def about(self, words: str) -> list[dict[str, Any]]:
        return [one for one in self.asked if words in str(one["messages"][1:])]


def program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.fail(
            f"{name} is not installed: the clients for Node are tested with Node 20 or newer."
        )
    return found


def installed() -> Path:
    """Return the package folder, filled once for each lock file."""
    lock = (SDK / "package-lock.json").read_bytes()
    place = Path(sys.prefix) / "sdk" / hashlib.sha256(lock).hexdigest()[:12]
    if not place.exists():
        place.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent) as folder:
            fetch(Path(folder) / "new")
            try:
                (Path(folder) / "new").rename(place)
            except OSError:
                assert place.exists(), "neither ours nor that of another run"
    return place / "node_modules"


def fetch(folder: Path) -> None:
    folder.mkdir()
    for name in ("package.json", "package-lock.json"):
        shutil.copy(SDK / name, folder)
    command = [program("npm"), "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    command += ["--prefer-offline", "--fetch-timeout=30000"]
    command += ["--fetch-retries=3", "--fetch-retry-mintimeout=1000"]
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=INSTALL_TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        pytest.fail(
            f"npm fetched no packages within {INSTALL_TIMEOUT} s: is its registry reachable?"
        )
    if done.returncode:
        pytest.fail(f"npm cannot fetch the packages of tests/sdk: {done.stderr[-1000:]}")


async def run(client: str, folder: Path) -> ClientReport:
    for script in SDK.glob("*.mjs"):
        shutil.copy(script, folder)
    (folder / "node_modules").symlink_to(installed())
    async with api_harness(folder / "home", SCRIPT) as harness:
        command = [program("node"), str(folder / f"{client}.mjs"), harness.url, KEY, IMAGE]
        with anyio.fail_after(RUN_TIMEOUT):
            done = await anyio.run_process(
                command, check=False, cwd=folder, env={"PATH": os.environ["PATH"]}
            )
        assert done.returncode == 0, done.stderr.decode()
        await harness.server.turn_gate.wait_idle()
        cases = msgspec.json.decode(done.stdout, type=dict[str, CaseOutcome])
        return ClientReport(
            cases,
            [harness.model_request(number) for number in range(len(harness.model_server.requests))],
        )


@pytest.fixture(scope="module")
def openai(tmp_path_factory: pytest.TempPathFactory) -> ClientReport:
    return anyio.run(run, "openai", tmp_path_factory.mktemp("openai"))


@pytest.fixture(scope="module")
def vercel(tmp_path_factory: pytest.TempPathFactory) -> ClientReport:
    return anyio.run(run, "vercel", tmp_path_factory.mktemp("vercel"))


@pytest.fixture(scope="module")
def vercel_openai(tmp_path_factory: pytest.TempPathFactory) -> ClientReport:
    return anyio.run(run, "vercel_openai", tmp_path_factory.mktemp("vercel_openai"))


def test_openai_asks_and_streams(openai: ClientReport) -> None:
    assert openai.of("models") == ["hermes-agent"]
    assert openai.of("model") == "hermes-agent"
    plain = openai.of("plain")
    assert plain["choices"][0]["message"]["content"] == "Hello there, friend."
    assert plain["usage"]["total_tokens"] == 15
    stream = openai.of("stream")
    assert (stream["text"], stream["reasons"]) == (TIDY, ["stop"])
    assert stream["usage"]["total_tokens"] == 30
    assert openai.of("stream_helper")["text"] == "Hello there, friend."
    assert openai.of("left_early") is True


def test_openai_runs_its_own_tools(openai: ClientReport) -> None:
    tools = openai.of("tools")
    assert tools["reason"] == "tool_calls"
    assert tools["message"]["tool_calls"][0]["function"]["arguments"] == '{"city":"Oslo"}'
    assert tools["answer"]["content"] == "It rains in Oslo."
    assert openai.of("tool_runner") == {"answer": "It rains in Oslo.", "asked": ["Oslo"]}


def test_openai_sends_images_and_documents(openai: ClientReport) -> None:
    assert openai.of("picture") == openai.of("response_picture") == "A heron."
    for request in openai.about("on this picture"):
        assert request["messages"][-1]["content"][1]["image_url"]["url"] == IMAGE
    assert openai.of("document") == "It says heron."
    (request,) = openai.about("this document")
    assert "The code word is heron." in str(request["messages"][-1])


def test_openai_maps_the_errors(openai: ClientReport) -> None:
    troubles = {name: openai.cases[name].trouble for name in ERRORS}
    assert troubles == ERRORS
    assert openai.of("unknown_model")["model"] == "hermes-agent"
    assert "key" in openai.cases["failing_stream"].error.message  # pyright: ignore[reportAttributeAccessIssue]


ERRORS = {
    "wrong_key": ("AuthenticationError", 401),
    "response_wrong_key": ("AuthenticationError", 401),
    "no_messages": ("BadRequestError", 400),
    "failing": ("InternalServerError", 502),
    "failing_stream": ("InternalServerError", 502),
}


def test_openai_has_responses(openai: ClientReport) -> None:
    response = openai.of("response")
    assert response["status"] == "completed"
    assert {response["text"], response["next"], response["kept"]} == {"Hello there, friend."}
    stream = openai.of("response_stream")
    assert (stream["text"], stream["last"]) == ("Let me look.It is tidy.", "completed")
    assert stream["types"][0] == "response.created"
    assert stream["types"][-1] == "response.completed"
    assert openai.of("response_helper") == "Hello there, friend."
    assert openai.of("response_tools") == {
        "name": "weather",
        "arguments": '{"city":"Oslo"}',
        "answer": "It rains in Oslo.",
    }


def test_vercel_asks_and_streams(vercel: ClientReport) -> None:
    plain = vercel.of("plain")
    assert (plain["text"], plain["reason"]) == ("Hello there, friend.", "stop")
    assert plain["usage"]["totalTokens"] == 15
    stream = vercel.of("stream")
    assert (stream["text"], stream["reason"]) == (TIDY, "stop")
    assert stream["usage"]["totalTokens"] == 30
    assert stream["pieces"] > 1
    assert vercel.of("with_system") == vercel.of("talk") == "Hello there, friend."
    assert sum("Speak as a pirate." in one["messages"][0]["content"] for one in vercel.asked) == 1


@pytest.mark.parametrize("case", ["tools", "stream_tools"])
def test_vercel_runs_its_own_tools(vercel: ClientReport, case: str) -> None:
    assert vercel.of(case) == {"text": "It rains in Oslo.", "asked": ["Oslo"], "steps": 2}


def test_vercel_sends_images(vercel: ClientReport) -> None:
    assert vercel.of("picture") == "A heron."
    (request,) = vercel.about("on this picture")
    assert request["messages"][-1]["content"][1]["image_url"]["url"] == IMAGE


def test_vercel_maps_the_errors(vercel: ClientReport) -> None:
    assert vercel.cases["wrong_key"].trouble == ("AI_APICallError", 401)
    assert vercel.of("unknown_model") == "Hello there, friend."
    assert vercel.cases["failing"].trouble == ("AI_APICallError", 502)
    (response,) = vercel.of("failing_stream")
    assert "key" in response


def test_openai_does_not_retry_permanent_errors(openai: ClientReport) -> None:
    assert openai.cases["failing_with_retries"].trouble == ("InternalServerError", 502)
    assert len(openai.about("fail, however")) == 1


def test_vercel_has_objects(vercel: ClientReport) -> None:
    assert vercel.of("object") == {"city": "Oslo"}


def test_vercel_openai_provider_asks(vercel_openai: ClientReport) -> None:
    assert vercel_openai.of("plain") == {
        "text": "Hello there, friend.",
        "reason": "stop",
        "usage": 15,
    }
    assert vercel_openai.cases["failing"].trouble == ("AI_APICallError", 502)


@pytest.mark.parametrize("case", ["own", "own_stream"])
def test_vercel_openai_provider_accepts_server_tools(
    vercel_openai: ClientReport, case: str
) -> None:
    assert vercel_openai.of(case) == {
        "text": TIDY.replace("\n\n", ""),
        "reason": "stop",
        "calls": [["mcp.todo", True]],
        "results": 1,
    }
    assert vercel_openai.of("own_chat") == {"text": TIDY, "reason": "stop"}


@pytest.mark.parametrize("case", ["tools", "stream_tools"])
def test_vercel_openai_provider_runs_its_own_tools(vercel_openai: ClientReport, case: str) -> None:
    assert vercel_openai.of(case) == {"text": "It rains in Oslo.", "asked": ["Oslo"], "steps": 2}


def test_vercel_openai_provider_continues_with_item_references(vercel_openai: ClientReport) -> None:
    assert vercel_openai.of("talk") == "Hello there, friend."
    (request,) = vercel_openai.about("now greet me")
    roles = [one["role"] for one in request["messages"][1:]]
    assert roles == ["user", "assistant", "tool", "assistant", "user"]


def test_vercel_openai_provider_has_reasoning_and_objects(vercel_openai: ClientReport) -> None:
    thought = {"text": "So it is.", "thought": "Is it so?"}
    assert vercel_openai.of("thinks") == vercel_openai.of("thinks_whole") == thought
    assert vercel_openai.of("object") == vercel_openai.of("object_chat") == {"city": "Oslo"}
    forms = [one["response_format"]["type"] for one in vercel_openai.about("as json")]
    assert forms == ["json_schema", "json_schema"]
