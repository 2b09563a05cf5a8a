"""The compatibility names over the real codex: the session alone, and the agent with it."""

import os
from pathlib import Path

import anyio
import pytest
from anyio.to_thread import run_sync

from hermes.compat.agent_transports_codex_app_server_session import (
    CodexAppServerSession,
    TurnResult,
)
from hermes.compat.chat_messages import Json
from hermes.compat.run_agent import AIAgent
from hermes.testing.fake_openai import Call, Fault, Reply, Rule, Script, serve
from support.codex_runtime import codex_config


@pytest.fixture
def codex_home(tmp_path: Path, program: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("home", "codex", "work"):
        (tmp_path / name).mkdir()
    # Codex runs commands in a login shell, which must not read the `.bashrc` of this account.
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HERMES_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / "codex"))
    monkeypatch.setenv("CODEX_PATH", program)
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path


def script() -> Script:
    run = Reply(calls=[Call("exec_command", {"cmd": "echo hi"})])
    return Script(
        rules=[Rule(contains="go", steps=[run, Reply(text="It says hi.")])],
        default=Reply(text="Hello."),
    )


async def test_compat_session_runs_turns(codex_home: Path) -> None:
    async with serve(script()) as model:
        write_config(codex_home, model.url)
        result, again, thread = await run_sync(_two_turns)
    assert (result.final_text, result.error) == ("It says hi.", None)
    assert result.tool_iterations == 1
    assert [one["role"] for one in result.projected_messages] == ["assistant", "tool", "assistant"]
    assert not result.should_retire
    assert result.turn_id
    assert again.final_text == "Hello."
    assert result.thread_id == again.thread_id == thread


def _two_turns() -> tuple[TurnResult, TurnResult, str]:
    session = CodexAppServerSession()
    try:
        thread = session.ensure_started()
        return session.run_turn("go"), session.run_turn("hello"), thread
    finally:
        session.close()


async def test_each_turn_has_its_own_timeout(codex_home: Path) -> None:
    rules = [Rule(contains="wait", steps=[Reply(fault=Fault(kind="hang"))])]

    def turns() -> tuple[TurnResult, TurnResult]:
        session = CodexAppServerSession()
        try:
            return session.run_turn("hello"), session.run_turn("wait", turn_timeout=0.2)
        finally:
            session.close()

    async with serve(Script(rules=rules, default=Reply(text="Hello."))) as model:
        write_config(codex_home, model.url)
        with anyio.fail_after(60):
            first, second = await run_sync(turns, abandon_on_cancel=True)
    assert (first.final_text, first.error) == ("Hello.", None)
    assert "timed out after 0.2 s" in (second.error or "")


async def test_session_that_cannot_be_opened_reports_it_and_can_be_tried_again(
    codex_home: Path,
) -> None:
    config = codex_home / "home" / "config.yaml"
    config.write_text("agent: [")

    def turns() -> tuple[TurnResult, TurnResult]:
        session = CodexAppServerSession()
        try:
            failed = session.run_turn("hello")
            config.unlink()
            return failed, session.run_turn("hello")
        finally:
            session.close()

    async with serve(script()) as model:
        write_config(codex_home, model.url)
        failed, then = await run_sync(turns)
    assert "config.yaml" in (failed.error or "")
    assert failed.should_retire
    assert (then.final_text, then.error) == ("Hello.", None)


async def test_turn_that_cannot_begin_is_not_taken_for_the_one_before(codex_home: Path) -> None:
    program = codex_home / "codex-program"
    program.symlink_to(os.environ["CODEX_PATH"])

    def turns() -> tuple[TurnResult, TurnResult]:
        session = CodexAppServerSession(codex_bin=str(program))
        try:
            first = session.run_turn("hello", turn_timeout=60)
            program.unlink()
            # The process ends after this one.
            session.run_turn("wait", turn_timeout=0.2)
            return first, session.run_turn("hello")
        finally:
            session.close()

    rules = [Rule(contains="wait", steps=[Reply(fault=Fault(kind="hang"))])]
    async with serve(Script(rules=rules, default=Reply(text="Hello."))) as model:
        write_config(codex_home, model.url)
        first, second = await run_sync(turns)
    assert (first.error, bool(first.turn_id)) == (None, True)
    assert second.error
    assert (second.turn_id, second.should_retire) == (None, True)


async def test_compat_agent_runs_a_conversation(codex_home: Path) -> None:
    async with serve(script()) as model:
        write_config(codex_home, model.url)
        first, second = await run_sync(_two_conversations)
    assert first["final_response"] == "It says hi."
    assert first["completed"]
    assert [one["role"] for one in first["messages"]] == ["user", "assistant", "tool", "assistant"]
    assert second["final_response"] == "Hello."
    assert second["codex_thread_id"] == first["codex_thread_id"]
    assert len(second["messages"]) == 6


def _two_conversations() -> tuple[Json, Json]:
    agent = AIAgent(api_mode="codex_app_server", provider="openai")
    try:
        return agent.run_conversation("go"), agent.run_conversation("hello")
    finally:
        agent.close()


def write_config(path: Path, url: str) -> None:
    (path / "codex" / "config.toml").write_text(codex_config(url))
