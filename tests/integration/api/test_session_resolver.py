"""How a chat completion finds its session: by header, by history, and after a restart."""

from pathlib import Path

import anyio
import msgspec
import pytest

from hermes.schema.messages import Assistant, Result, Text, User, text_of
from hermes.testing.fake_openai.script import Reply, Rule, Script
from support.api_server import ApiHarness, ApiResponse, api_harness, api_settings

SCRIPT = Script(
    rules=[Rule(contains=f"q{n}", steps=[Reply(text=f"answer {n}")]) for n in range(5)],
    default=Reply(text="well"),
)


def messages(*texts: str, system: str = "") -> dict[str, object]:
    """Alternate user and assistant messages."""
    history = [
        {"role": ("user", "assistant")[place % 2], "content": text}
        for place, text in enumerate(texts)
    ]
    return {"messages": [*([{"role": "system", "content": system}] if system else []), *history]}


def session_of(response: ApiResponse) -> str:
    assert response.status == 200, response
    hermes = response.json["hermes"]
    assert response.headers["x-hermes-session-id"] == hermes["session_id"]
    return str(hermes["session_id"])


async def texts_in(harness: ApiHarness, session: str) -> list[str]:
    return [text_of(message) for message in await harness.messages(session)]


async def test_matching_history_continues_the_session(tmp_path: Path) -> None:
    async with api_harness(tmp_path, SCRIPT) as harness:
        first = session_of(await harness.chat(messages("q1")))
        second = session_of(await harness.chat(messages("q1", "answer 1", "q2")))
        assert first == second
        assert await texts_in(harness, first) == ["q1", "answer 1", "q2", "answer 2"]
        # A client that goes back and asks differently is in another conversation.
        other = session_of(await harness.chat(messages("q1", "answer 1", "q3")))
        assert other != first
        assert await texts_in(harness, other) == ["q1", "answer 1", "q3", "answer 3"]
        assert await texts_in(harness, first) == ["q1", "answer 1", "q2", "answer 2"]


async def test_same_opening_starts_separate_sessions(tmp_path: Path) -> None:
    async with api_harness(tmp_path, SCRIPT) as harness:
        found = {session_of(await harness.chat(messages("q1"))) for _ in range(6)}
        assert len(found) == 6
        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                for _ in range(6):
                    group.start_soon(harness.chat, messages("q2"))
        assert len(await harness.sessions()) == 12


@pytest.mark.parametrize("stream", [True, False])
async def test_same_opening_after_a_restart_starts_a_new_session(
    tmp_path: Path, stream: bool
) -> None:
    """That the id is taken shows only when the session is stored."""
    async with api_harness(tmp_path, SCRIPT) as harness:
        first = session_of(await harness.chat(messages("q1")))
    async with api_harness(tmp_path, SCRIPT) as harness:
        response = await harness.chat({**messages("q1"), "stream": stream})
        assert response.status == 200
        assert response.headers["x-hermes-session-id"] != first
        assert len(harness.model_server.requests) == 1
        assert len(await harness.sessions()) == 2
        assert await texts_in(harness, first) == ["q1", "answer 1"]
        assert harness.server.turn_gate.active == 0


async def test_session_is_found_by_history_after_a_restart(tmp_path: Path) -> None:
    async with api_harness(tmp_path, SCRIPT) as harness:
        first = session_of(await harness.chat(messages("q1", system="be nice")))
    async with api_harness(tmp_path, SCRIPT) as harness:
        body = messages("q1", " answer  1\n", "q2", system="be nice")
        assert session_of(await harness.chat(body)) == first
        elsewhere = session_of(
            await harness.chat(messages("q1", "answer 1", "q2", system="be bad"))
        )
        assert elsewhere != first


async def test_ids_cannot_be_derived_from_the_messages(tmp_path: Path) -> None:
    one_home, other_home = tmp_path / "a", tmp_path / "b"
    one_home.mkdir()
    other_home.mkdir()
    async with api_harness(one_home, SCRIPT) as harness:
        first = session_of(await harness.chat(messages("q1")))
    key = "another-key-0123456789"
    async with api_harness(other_home, SCRIPT, settings=api_settings(key=key)) as two:
        response = await two.ask(
            "POST",
            "/v1/chat/completions",
            b'{"messages":[{"role":"user","content":"q1"}]}',
            key=key,
        )
        assert response.headers["x-hermes-session-id"] != first


async def test_named_session_wins_over_the_history(tmp_path: Path) -> None:
    async with api_harness(tmp_path, SCRIPT) as harness:
        named = {"X-Hermes-Session-Id": "mine", "X-Hermes-Session-Key": "user:7"}
        response = await harness.chat(messages("q1"), **named)
        assert session_of(response) == "mine"
        assert response.headers["x-hermes-session-key"] == "user:7"
        response = await harness.chat(messages("what I never said", "nor you", "q2"), **named)
        assert session_of(response) == "mine"
        assert await texts_in(harness, "mine") == ["q1", "answer 1", "q2", "answer 2"]
        (kept,) = await harness.sessions()
        assert kept.session.key == "api_server:user:7"
        response = await harness.chat(
            messages("earlier", "words", "q3"), X_Hermes_Session_Id="other"
        )
        assert await texts_in(harness, "other") == ["earlier", "words", "q3", "answer 3"]


async def test_system_message_applies_to_its_turn_only(tmp_path: Path) -> None:
    async with api_harness(tmp_path, SCRIPT) as harness:
        await harness.chat(messages("q1", system="Speak like a pirate."), X_Hermes_Session_Id="s")
        await harness.chat(messages("q2"), X_Hermes_Session_Id="s")
        prompts = [harness.model_request(number)["messages"][0]["content"] for number in (0, 1)]
        assert str(prompts[0]) == f"{prompts[1]}\n\nSpeak like a pirate."
        (kept,) = await harness.sessions()
        assert "pirate" not in kept.session.system


async def test_busy_session_is_reported(tmp_path: Path) -> None:
    async with api_harness(tmp_path, SCRIPT) as harness:
        async with harness.app.runner.holding("s"):
            for stream in (False, True):
                response = await harness.chat(
                    messages("q1") | {"stream": stream}, X_Hermes_Session_Id="s"
                )
                assert (response.status, response.code) == (409, "session_busy")
        assert await harness.sessions() == []


async def test_tool_results_come_with_the_history_of_a_new_session(tmp_path: Path) -> None:
    async with api_harness(tmp_path, SCRIPT) as harness:
        call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        body = {
            "messages": [
                {"role": "user", "content": "q1"},
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "c1", "content": "seven"},
            ]
        }
        messages = await harness.messages(session_of(await harness.chat(body)))
        kinds = [type(message) for message in messages]
        assert kinds == [User, Assistant, Result, Assistant]
        assert messages[2].parts == (Text("seven"),)


@pytest.mark.parametrize(
    ("path", "request_body"),
    [
        ("/v1/chat/completions", messages("q1")),
        ("/v1/responses", {"input": "q1"}),
        ("/v1/runs", {"input": "q1"}),
    ],
)
async def test_session_key_is_stored_and_returned(
    tmp_path: Path, path: str, request_body: dict[str, object]
) -> None:
    async with api_harness(tmp_path, SCRIPT) as harness:
        body = msgspec.json.encode(request_body)
        response = await harness.ask("POST", path, body, X_Hermes_Session_Key="ada")
        assert response.status in {200, 202}
        assert response.headers["x-hermes-session-key"] == "ada"
        (kept,) = await harness.sessions()
        assert kept.session.key == "api_server:ada"
        assert response.headers["x-hermes-session-id"] == kept.session.id
        bad = await harness.ask("POST", path, body, X_Hermes_Session_Key="../x")
        assert (bad.status, bad.code) == (400, "invalid_session_id")
        await harness.server.turn_gate.wait_idle()
