"""Where a talk goes on: by header, by its past, after a restart, after a change of mind."""

from pathlib import Path

import anyio
import msgspec
import pytest

from hermes.schema.messages import Assistant, Result, Text, User, text_of
from hermes.testing.fake_openai.script import Reply, Rule, Script
from support.api_server import ApiHarness, ApiResponse, api_harness, api_settings

pytestmark = pytest.mark.anyio

SCRIPT = Script(
    rules=[Rule(contains=f"q{n}", steps=[Reply(text=f"answer {n}")]) for n in range(5)],
    default=Reply(text="well"),
)


def messages(*words: str, system: str = "") -> dict[str, object]:
    """User and assistant in turn."""
    said = [
        {"role": ("user", "assistant")[place % 2], "content": text}
        for place, text in enumerate(words)
    ]
    return {"messages": [*([{"role": "system", "content": system}] if system else []), *said]}


def session_of(told: ApiResponse) -> str:
    assert told.status == 200, told
    hermes = told.json["hermes"]
    assert told.headers["x-hermes-session-id"] == hermes["session_id"]
    return str(hermes["session_id"])


async def words(one: ApiHarness, session: str) -> list[str]:
    return [text_of(message) for message in await one.said(session)]


async def test_a_past_that_agrees_is_gone_on_with(tmp_path: Path) -> None:
    async with api_harness(tmp_path, SCRIPT) as one:
        first = session_of(await one.chat(messages("q1")))
        second = session_of(await one.chat(messages("q1", "answer 1", "q2")))
        assert first == second
        assert await words(one, first) == ["q1", "answer 1", "q2", "answer 2"]
        # Whoever goes back and asks otherwise is in another talk.
        other = session_of(await one.chat(messages("q1", "answer 1", "q3")))
        assert other != first
        assert await words(one, other) == ["q1", "answer 1", "q3", "answer 3"]
        assert await words(one, first) == ["q1", "answer 1", "q2", "answer 2"]


async def test_the_same_first_words_are_different_talks(tmp_path: Path) -> None:
    async with api_harness(tmp_path, SCRIPT) as one:
        found = {session_of(await one.chat(messages("q1"))) for _ in range(6)}
        assert len(found) == 6
        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                for _ in range(6):
                    group.start_soon(one.chat, messages("q2"))
        assert len(await one.sessions()) == 12


@pytest.mark.parametrize("stream", [True, False])
async def test_a_talk_that_begins_like_one_before_a_restart_is_another(
    tmp_path: Path, stream: bool
) -> None:
    """Nobody remembers that the place is taken: that shows when the session is written."""
    async with api_harness(tmp_path, SCRIPT) as one:
        first = session_of(await one.chat(messages("q1")))
    async with api_harness(tmp_path, SCRIPT) as one:
        told = await one.chat({**messages("q1"), "stream": stream})
        assert told.status == 200
        assert told.headers["x-hermes-session-id"] != first
        assert len(one.mock.requests) == 1
        assert len(await one.sessions()) == 2
        assert await words(one, first) == ["q1", "answer 1"]
        assert one.server.entry.active == 0


async def test_a_talk_is_found_again_after_a_restart(tmp_path: Path) -> None:
    async with api_harness(tmp_path, SCRIPT) as one:
        first = session_of(await one.chat(messages("q1", system="be nice")))
    async with api_harness(tmp_path, SCRIPT) as one:
        body = messages("q1", " answer  1\n", "q2", system="be nice")
        assert session_of(await one.chat(body)) == first
        elsewhere = session_of(await one.chat(messages("q1", "answer 1", "q2", system="be bad")))
        assert elsewhere != first


async def test_ids_cannot_be_worked_out_from_what_was_said(tmp_path: Path) -> None:
    one_home, other_home = tmp_path / "a", tmp_path / "b"
    one_home.mkdir()
    other_home.mkdir()
    async with api_harness(one_home, SCRIPT) as one:
        first = session_of(await one.chat(messages("q1")))
    key = "another-key-0123456789"
    async with api_harness(other_home, SCRIPT, given=api_settings(key=key)) as two:
        told = await two.ask(
            "POST",
            "/v1/chat/completions",
            b'{"messages":[{"role":"user","content":"q1"}]}',
            key=key,
        )
        assert told.headers["x-hermes-session-id"] != first


async def test_a_named_session_wins_over_the_body(tmp_path: Path) -> None:
    async with api_harness(tmp_path, SCRIPT) as one:
        named = {"X-Hermes-Session-Id": "mine", "X-Hermes-Session-Key": "user:7"}
        told = await one.chat(messages("q1"), **named)
        assert session_of(told) == "mine"
        assert told.headers["x-hermes-session-key"] == "user:7"
        told = await one.chat(messages("what I never said", "nor you", "q2"), **named)
        assert session_of(told) == "mine"
        assert await words(one, "mine") == ["q1", "answer 1", "q2", "answer 2"]
        (kept,) = await one.sessions()
        assert kept.session.key == "api_server:user:7"
        told = await one.chat(messages("earlier", "words", "q3"), X_Hermes_Session_Id="other")
        assert await words(one, "other") == ["earlier", "words", "q3", "answer 3"]


async def test_a_system_message_is_for_its_turn_only(tmp_path: Path) -> None:
    async with api_harness(tmp_path, SCRIPT) as one:
        await one.chat(messages("q1", system="Speak like a pirate."), X_Hermes_Session_Id="s")
        await one.chat(messages("q2"), X_Hermes_Session_Id="s")
        prompts = [one.asked(number)["messages"][0]["content"] for number in (0, 1)]
        assert str(prompts[0]) == f"{prompts[1]}\n\nSpeak like a pirate."
        (kept,) = await one.sessions()
        assert "pirate" not in kept.session.system


async def test_a_session_that_is_busy_says_so(tmp_path: Path) -> None:
    async with api_harness(tmp_path, SCRIPT) as one:
        async with one.app.runner.holding("s"):
            for stream in (False, True):
                told = await one.chat(messages("q1") | {"stream": stream}, X_Hermes_Session_Id="s")
                assert (told.status, told.code) == (409, "session_busy")
        assert await one.sessions() == []


async def test_results_of_calls_come_with_the_past_of_a_new_session(tmp_path: Path) -> None:
    async with api_harness(tmp_path, SCRIPT) as one:
        call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        body = {
            "messages": [
                {"role": "user", "content": "q1"},
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "c1", "content": "seven"},
            ]
        }
        said = await one.said(session_of(await one.chat(body)))
        kinds = [type(message) for message in said]
        assert kinds == [User, Assistant, Result, Assistant]
        assert said[2].parts == (Text("seven"),)


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("/v1/chat/completions", messages("q1")),
        ("/v1/responses", {"input": "q1"}),
        ("/v1/runs", {"input": "q1"}),
    ],
)
async def test_a_session_key_is_written_down_and_told_back(
    tmp_path: Path, path: str, asked: dict[str, object]
) -> None:
    async with api_harness(tmp_path, SCRIPT) as one:
        body = msgspec.json.encode(asked)
        told = await one.ask("POST", path, body, X_Hermes_Session_Key="ada")
        assert told.status in {200, 202}
        assert told.headers["x-hermes-session-key"] == "ada"
        (kept,) = await one.sessions()
        assert kept.session.key == "api_server:ada"
        assert told.headers["x-hermes-session-id"] == kept.session.id
        bad = await one.ask("POST", path, body, X_Hermes_Session_Key="../x")
        assert (bad.status, bad.code) == (400, "invalid_session_id")
        await one.server.entry.idle()
