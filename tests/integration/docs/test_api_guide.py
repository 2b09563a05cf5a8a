"""The guide to the API server, followed from the first command to the last, in one home."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from hermes.testing.fake_openai.script import Call, Reply, Rule, Script
from support.cli_process import TEST_TIMEOUT, FakeModelProcess, fake_model_process, reserved_port

ROOT = Path(__file__).parents[3]
GUIDE = (ROOT / "docs" / "api.md").read_text()
BIN = Path(sys.executable).parent
PORT = "8642"
ALLOWED = "hermes config set platforms.api_server.extra.callback_allow_private true\n"
SCRIPT = Script(
    rules=[
        Rule(
            "weather",
            [
                Reply(calls=[Call("weather", {"city": "Oslo"}, id="call_1")]),
                Reply(text="It rains in Oslo."),
            ],
        ),
        Rule("my list", [Reply("I look.", [Call("todo", {})]), Reply("It is tidy.")]),
    ]
)
REFUSED = """
curl -sS $api/v1/runs/run_1 -H "Authorization: Bearer $key"
"""


def blocks() -> list[tuple[str, str]]:
    """What the guide shows, each with its language."""
    return re.findall(r"```(\w+)\n(.*?)```", GUIDE, re.DOTALL)


def settings() -> list[str]:
    return [text for language, text in blocks() if language == "yaml"]


def whole_script() -> str:
    """One script in one shell, as a reader has it; the key is known to the program there."""
    lines: list[str] = []
    for language, text in blocks():
        match language:
            case "sh":
                lines.append(text)
            case "python":
                lines.append(f"API_SERVER_KEY=$key python - <<'END'\n{text}END\necho")
            case "json":
                lines.append(REFUSED)
            case _:
                assert language in {"yaml", "toml"}
    return "\n".join(lines)


@pytest.fixture
def model(tmp_path: Path) -> Iterator[FakeModelProcess]:
    with fake_model_process(tmp_path / "model", SCRIPT) as one:
        yield one


@pytest.fixture
def env(tmp_path: Path, model: FakeModelProcess) -> Iterator[dict[str, str]]:
    """An empty home and a model that answers; whatever gateway is left at the end is killed."""
    variables = {
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "HERMES_HOME": str(tmp_path / "home"),
        "OPENAI_BASE_URL": model.url,
        "OPENAI_API_KEY": "not-a-real-key",
        "HERMES_INFERENCE_PROVIDER": "openai",
        "HERMES_INFERENCE_MODEL": "mock",
    }
    with reserved_port() as port:
        variables["API_SERVER_PORT"] = str(port)
        yield variables
        follow("hermes gateway stop --force", variables)


def follow(script: str, env: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["sh", "-e", "-x", "-c", script],
        env=env,
        cwd=env["HOME"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=TEST_TIMEOUT * 2,
    )


@pytest.fixture
def followed(env: dict[str, str]) -> str:
    """What the guide's commands print, one after the other."""
    script = whole_script().replace(PORT, env["API_SERVER_PORT"])
    # Nobody outside is called: the guide's receiver is on this machine, where ours may call it.
    script = ALLOWED + script.replace("https://example.com", env["OPENAI_BASE_URL"])
    done = follow(script, env)
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    assert "Traceback" not in done.stderr
    return done.stdout


def test_the_guide_can_be_followed(followed: str, model: FakeModelProcess) -> None:
    """All of it in one shell, because each part goes on from the last."""
    assert re.search(r"^api_server +connected", followed, re.MULTILINE)
    assert followed.count("Hello from the mock model.\n") == 2, "the official client"
    assert_sessions(followed, model)
    assert_tools(followed, model)
    assert_runs(followed)
    assert_responses(followed, model)
    assert_callbacks(followed)
    assert len(asked_of(model, "What does the note say?", "The code word is heron.")) == 1
    assert '"model":"work"' in followed
    (example,) = [text for language, text in blocks() if language == "json"]
    assert json.dumps(json.loads(example), separators=(",", ":")) in followed


def asked_of(model: FakeModelProcess, *about: str) -> list[list[dict[str, Any]]]:
    """The messages of each model call whose text has all of these words in it."""
    requests = model.requests(about[0])  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    found = [cast("dict[str, Any]", one)["messages"] for one in requests]  # pyright: ignore[reportUnknownVariableType]
    return [one for one in found if all(word in str(one) for word in about)]


def assert_sessions(followed: str, model: FakeModelProcess) -> None:
    questions = asked_of(model, "What is my name?", "Ada")[0]
    assert [one["role"] for one in questions] == ["system", "user", "assistant", "user"]
    assert '"title":"Another plan"' in followed
    assert "event: assistant.delta" in followed
    assert followed.count('"object":"hermes.session.deleted"') == 1


def assert_tools(followed: str, model: FakeModelProcess) -> None:
    assert '"finish_reason":"tool_calls"' in followed
    assert "It rains in Oslo." in followed
    assert followed.count("event: hermes.tool.progress") == 2
    assert len(asked_of(model, "Order the paper.")) == 1
    assert followed.count("X-Hermes-Replayed: true") == 1


def assert_runs(followed: str) -> None:
    for number, times in ((1, 1), (3, 1), (4, 2)):
        assert followed.count(f"id: {number}\ndata: ") == times
    assert followed.count('data: {"event":"run.completed"') == 2
    assert '"object":"hermes.run"' in followed


def assert_responses(followed: str, model: FakeModelProcess) -> None:
    assert len(asked_of(model, "What is my name?", "Ada")) == 2
    assert '"conversation":{"id":"diary"}' in followed
    assert re.search(r'"id":"resp_[0-9a-f]+","object":"response', followed)


def assert_callbacks(followed: str) -> None:
    assert followed.count('/hook","object":"hermes.session"') == 1
    assert re.search(r'"id":"called"[^\n]*"callback_url":null,"object":"hermes.session"', followed)
    assert "id: 1\nevent: message\ndata: " in followed


@pytest.mark.parametrize("number", range(len(settings())))
def test_the_settings_in_it_are_right(number: int, env: dict[str, str]) -> None:
    home = Path(env["HERMES_HOME"])
    home.mkdir()
    (home / "config.yaml").write_text(settings()[number])
    checked = follow("hermes config check", env)
    assert checked.returncode == 0, checked.stdout
    assert "hermes config check" in checked.stderr
    assert len(checked.stderr.splitlines()) == 1, checked.stderr


def test_weak_key_error_matches_the_guide(env: dict[str, str]) -> None:
    script = """
hermes config set API_SERVER_KEY short
hermes config set platforms.api_server.enabled true
hermes gateway start
hermes gateway status
"""
    done = follow(script, env)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^api_server +fatal .*16 characters", done.stdout, re.MULTILINE)
