"""`AIAgent`, the blocking agent interface of the public system, and `compat.install()`."""

import subprocess
import sys
import threading
from pathlib import Path

import anyio
import pytest

from hermes import AIAgent
from hermes.testing.fake_openai import Call, Fault, Reply, Rule, Script
from support.cli_process import FakeModelProcess

KEYS = """
    final_response last_reasoning messages api_calls completed partial interrupted failed error
    turn_exit_reason model provider base_url session_id input_tokens output_tokens prompt_tokens
    completion_tokens cache_read_tokens cache_write_tokens reasoning_tokens total_tokens
    estimated_cost_usd cost_status cost_source
"""
SCRIPT = Script(
    rules=[
        Rule("hang", [Reply("first words and then", fault=Fault("hang", after=3), chunk=6)]),
        Rule("tool", [Reply("", [Call("terminal", {"command": "echo hi"})]), Reply("Said hi.")]),
        Rule("think", [Reply("Done.", reasoning="Hm.")]),
        Rule("wrong key", [Reply(fault=Fault("status", named="unauthorized"))]),
    ],
    default=Reply("Plain answer."),
)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HERMES_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


@pytest.fixture
def agent(model: FakeModelProcess, home: Path) -> AIAgent:
    return AIAgent(base_url=model.url, api_key="sk-x", provider="custom", model="mock")


def test_result_has_all_fields(agent: AIAgent, model: FakeModelProcess) -> None:
    result = agent.run_conversation("use a tool")
    assert set(result) == set(KEYS.split())
    assert result["final_response"] == "Said hi."
    assert (result["completed"], result["failed"], result["interrupted"]) == (True, False, False)
    assert result["api_calls"] == 2
    assert (result["model"], result["provider"], result["base_url"]) == (
        "mock",
        "custom",
        model.url,
    )
    assert (result["input_tokens"], result["output_tokens"], result["total_tokens"]) == (20, 10, 30)
    roles = [message["role"] for message in result["messages"]]
    assert roles == ["user", "assistant", "tool", "assistant"]
    assert result["messages"][1]["tool_calls"][0]["function"]["name"] == "terminal"
    assert agent.session_id == result["session_id"]


def test_chat_continues_the_session(agent: AIAgent, model: FakeModelProcess) -> None:
    assert agent.chat("hello CHAT-1") == "Plain answer."
    assert agent.chat("and CHAT-2") == "Plain answer."
    contents = [one["content"] for one in model.requests("CHAT-2")[0]["messages"][1:]]
    assert contents == ["hello CHAT-1", "Plain answer.", "and CHAT-2"]


def test_text_is_streamed_to_the_callback(agent: AIAgent) -> None:
    pieces: list[str] = []
    result = agent.run_conversation("think", stream_callback=pieces.append)
    assert "".join(pieces) == result["final_response"] == "Done."
    assert result["last_reasoning"] == "Hm."


def test_given_history_comes_first(agent: AIAgent, model: FakeModelProcess) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "terminal", "arguments": "{}"}}
    history = [
        {"role": "system", "content": "not part of the conversation"},
        {"role": "user", "content": "earlier"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "result"},
        {"role": "assistant", "content": "done before"},
    ]
    result = agent.run_conversation("now HISTORY", conversation_history=history)
    sent = model.requests("now HISTORY")[0]["messages"][1:]
    roles = [one["role"] for one in sent]
    assert roles == ["user", "assistant", "tool", "assistant", "user"]
    assert sent[1]["tool_calls"][0]["id"] == "c1"
    again = agent.run_conversation("HISTORY again", conversation_history=result["messages"])
    assert len(again["messages"]) == len(result["messages"]) + 2


def test_invalid_history_is_a_failed_result(agent: AIAgent) -> None:
    result = agent.run_conversation("hello", conversation_history=[{"content": 5}])
    assert result["failed"]
    assert "conversation_history" in result["error"]


def test_model_error_is_a_failed_result(agent: AIAgent) -> None:
    result = agent.run_conversation("wrong key")
    assert (result["completed"], result["failed"], result["partial"]) == (False, True, True)
    assert result["turn_exit_reason"] == "auth"
    assert "key" in result["final_response"]


def test_start_error_is_a_failed_result(home: Path) -> None:
    result = AIAgent(provider="nobody", model=None).run_conversation("hello")
    assert result["failed"]
    assert "nobody" in result["error"]


def test_interrupt_from_another_thread(agent: AIAgent, model: FakeModelProcess) -> None:
    streaming = threading.Event()
    results: list[dict] = []

    def run() -> None:
        results.append(agent.run_conversation("hang", stream_callback=lambda _: streaming.set()))

    thread = threading.Thread(target=run)
    thread.start()
    assert streaming.wait(60)
    agent.interrupt()
    thread.join(60)
    (result,) = results
    assert (result["interrupted"], result["completed"], result["failed"]) == (True, False, False)
    assert result["final_response"].startswith("first words")
    agent.interrupt()
    agent.close()
    assert agent.chat("still there?") == "Plain answer."


def test_works_inside_a_running_loop(agent: AIAgent) -> None:
    async def main() -> str:
        return agent.chat("hello from a loop")

    assert anyio.run(main) == "Plain answer."


def test_prompts_and_toolsets_are_applied(model: FakeModelProcess, home: Path) -> None:
    agent = AIAgent(
        base_url=model.url,
        provider="custom",
        model="mock",
        enabled_toolsets=["todo"],
        ephemeral_system_prompt="Speak like a PIRATE.",
        quiet_mode=True,
        skip_memory=True,
    )
    with agent:
        agent.run_conversation("hello PROMPT", "You serve a SHIP.")
    (request,) = model.requests("hello PROMPT")
    assert "PIRATE" in request["messages"][0]["content"]
    assert "SHIP" in request["messages"][0]["content"]
    assert [tool["function"]["name"] for tool in request["tools"]] == ["todo"]


def test_public_names_are_our_modules() -> None:
    script = """
import sys
from importlib import import_module
import hermes.compat
from hermes.compat import NAMES
hermes.compat.install()
hermes.compat.install()
assert sum(type(one).__module__ == "hermes.compat" for one in sys.meta_path) == 1
for old, ours in NAMES.items():
    module = import_module(old)
    if ours is not None:
        assert module is import_module(ours) is sys.modules[old]
        assert module.__spec__.name == module.__name__ == ours
import run_agent, hermes_cli.config, hermes_cli.profiles
assert run_agent.AIAgent is hermes.AIAgent
assert "OPENAI_API_KEY" in hermes_cli.config.OPTIONAL_ENV_VARS
for name in ("run_agents", "hermes_cli.nothing", "gateways"):
    try:
        __import__(name)
    except ModuleNotFoundError as error:
        assert error.name == name, error.name
    else:
        raise AssertionError(name)
import json.decoder, textwrap
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_names_are_unknown_without_install() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import hermes, run_agent"],
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert b"No module named 'run_agent'" in done.stderr
