"""Sessions over real sockets: create, list, read, change, fork, delete, and run turns."""

import json
from pathlib import Path

import anyio
import msgspec
import pytest
from msgspec import Raw

from hermes.ports.store import AppendMessage, Intent, RecordIntent
from hermes.schema.messages import Assistant, Result, Stop, Text, ToolCall, User, text_of
from hermes.schema.tools import Effect
from hermes.testing.fake_openai import Call, Fault, Reply, Rule, Script
from support.api_server import ApiHarness, ApiResponse, api_harness, api_settings
from support.polling import pause

WORDS = "one two three"
SCRIPT = Script(
    rules=[
        Rule("hang", [Reply(WORDS, fault=Fault("hang", after=2), chunk=4)]),
        Rule("tool", [Reply("Look.", [Call("terminal", {"command": "echo hi"})]), Reply("Hi.")]),
        Rule("broken", [Reply("", [Call("read_file", {"path": "/nowhere"})]), Reply("No.")]),
        Rule("wrong", [Reply(fault=Fault("status", named="unauthorized"))]),
    ],
    default=Reply(WORDS, chunk=4),
)
SESSIONS_PATH = "/api/sessions"


async def ask(
    harness: ApiHarness, method: str, path: str, body: object = None, status: int = 200
) -> ApiResponse:
    data = None if body is None else msgspec.json.encode(body)
    response = await harness.ask(method, f"{SESSIONS_PATH}{path}", data)
    assert response.status == status, (method, path, body, response.body)
    return response


async def create_session(harness: ApiHarness, **body: object) -> str:
    return str((await ask(harness, "POST", "", body, 201)).session["id"])


def events(response: ApiResponse) -> list[tuple[str, dict[str, object]]]:
    found: list[tuple[str, dict[str, object]]] = []
    for block in response.body.decode().split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if lines:
            found.append((lines["event"], json.loads(lines["data"])))
    return found


async def test_session_is_created_read_and_used(tmp_path: Path):
    async with api_harness(tmp_path, SCRIPT) as harness:
        made = (await ask(harness, "POST", "", {"id": "trip:1", "title": "Trip"}, 201)).session
        assert (made["object"], made["id"], made["title"]) == ("hermes.session", "trip:1", "Trip")
        assert (await ask(harness, "GET", "/trip:1")).session == made
        turn = (await ask(harness, "POST", "/trip:1/chat", {"message": "hello"})).json
        assert turn["object"] == "hermes.session.chat.completion"
        assert turn["message"] == {"role": "assistant", "content": WORDS}
        assert (turn["completed"], turn["partial"]) == (True, False)
        listed = (await ask(harness, "GET", "/trip:1/messages")).json
        data = listed["data"]
        assert isinstance(data, list)
        assert [(one["role"], one["content"]) for one in data] == [
            ("user", "hello"),
            ("assistant", WORDS),
        ]
        rest = (await ask(harness, "GET", f"/trip:1/messages?after={data[0]['seq']}")).json
        assert rest["data"] == data[1:]
        page = (await ask(harness, "GET", "/trip:1/messages?limit=1")).json
        assert (page["data"], page["has_more"]) == (data[:1], True)


async def test_generated_ids_cannot_be_guessed(tmp_path: Path):
    async with api_harness(tmp_path, SCRIPT) as harness:
        names = {await create_session(harness) for _ in range(3)}
        assert len(names) == 3
        assert all(len(name) >= 32 for name in names)


async def test_session_prompt_and_turn_instructions(tmp_path: Path):
    async with api_harness(tmp_path, SCRIPT) as harness:
        name = await create_session(harness, system_prompt="Speak like a pirate.")
        await ask(harness, "POST", f"/{name}/chat", {"input": "a", "instructions": "Be brief."})
        await ask(harness, "POST", f"/{name}/chat", {"input": [{"type": "text", "text": "b"}]})
        first, second = (str(one.json["messages"]) for one in harness.model_server.requests)
        assert "Speak like a pirate." in first
        assert "Be brief." in first
        assert "Speak like a pirate." in second
        assert "Be brief." not in second


async def test_list_is_paged_and_filtered(tmp_path: Path):
    async with api_harness(tmp_path, SCRIPT) as harness:
        names = [await create_session(harness, title=f"t{n}") for n in range(5)]
        await ask(harness, "POST", f"/{names[0]}/chat", {"message": "x"})
        copy = str((await ask(harness, "POST", f"/{names[0]}/fork", {}, 201)).session["id"])

        async def listed(query: str) -> tuple[set[str], object]:
            response = (await ask(harness, "GET", f"?{query}")).json
            data = response["data"]
            assert isinstance(data, list)
            return {one["id"] for one in data}, response["has_more"]

        assert await listed("") == ({*names, copy}, False)
        assert await listed("include_children=false") == (set(names), False)
        assert await listed("source=cli") == (set(), False)
        first, more = await listed("limit=4")
        second, no_more = await listed("limit=4&offset=4")
        assert (first | second, more, no_more) == ({*names, copy}, True, False)
        roots, more = await listed("limit=4&include_children=0")
        assert (len(roots), more) == (4, True)
        response = (await ask(harness, "GET", "?limit=100000")).json
        assert response["limit"] == 200


async def test_session_is_renamed_and_ended(tmp_path: Path):
    async with api_harness(tmp_path, SCRIPT) as harness:
        name, other = await create_session(harness), await create_session(harness, title="taken")
        response = (await ask(harness, "PATCH", f"/{name}", {"title": " New  name "})).session
        assert response["title"] == "New  name"
        response = (await ask(harness, "PATCH", f"/{name}", {"end_reason": "done"})).session
        assert (response["end_reason"], response["title"]) == ("done", "New  name")
        assert response["ended_at"]
        refused = await ask(harness, "PATCH", f"/{name}", {"title": "taken"}, 409)
        assert refused.code == "title_taken"
        assert (await ask(harness, "PATCH", f"/{other}", {"title": "taken"})).session[
            "title"
        ] == "taken"
        assert (await ask(harness, "PATCH", f"/{name}", {"title": None})).session["title"] is None


async def test_fork_is_independent(tmp_path: Path):
    async with api_harness(tmp_path, SCRIPT) as harness:
        name = await create_session(harness)
        await ask(harness, "POST", f"/{name}/chat", {"message": "first"})
        response = (await ask(harness, "POST", f"/{name}/fork", {"title": "copy"}, 201)).session
        copy = str(response["id"])
        assert (response["parent_session_id"], response["title"]) == (name, "copy")
        assert (await ask(harness, "GET", f"/{name}")).session["end_reason"] == "branched"
        await ask(harness, "POST", f"/{copy}/chat", {"message": "second"})
        assert len(await harness.messages(copy)) == 4
        assert [text_of(one) for one in await harness.messages(name)] == ["first", WORDS]


async def test_fork_keeps_an_interrupted_call_as_unknown(tmp_path: Path):
    """A call with an effect and no result may have happened: no copy may deny it."""
    async with api_harness(tmp_path, SCRIPT) as harness:
        name = await create_session(harness)
        store, now = harness.app.store, harness.app.clock.now()
        begun = Intent(
            call="call_1", session=name, run="run_1", tool="terminal", effect=Effect.OUTSIDE, at=now
        )
        call = ToolCall("call_1", "terminal", Raw(b'{"command": "send the letter"}'))
        question = User("msg_1", (Text("send it"),))
        await store.commit(
            AppendMessage(name, "run_1", question, now),
            AppendMessage(name, "run_1", Assistant("msg_2", (call,), Stop.TOOLS), now),
            RecordIntent(begun),
        )
        copy = str((await ask(harness, "POST", f"/{name}/fork", {}, 201)).session["id"])
        for session in (name, copy):
            *_, last = await harness.messages(session)
            assert isinstance(last, Result)
            assert "outcome is unknown" in text_of(last)


@pytest.mark.parametrize("where", ["session", "copy"])
async def test_fork_keeps_pending_client_calls(tmp_path: Path, where: str):
    tool = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
    replies = [Reply("", [Call("weather", {})]), Reply("Sunny.")]
    async with api_harness(tmp_path, Script(rules=[Rule("weather", replies)])) as harness:
        name = await create_session(harness)
        messages = [{"role": "user", "content": "the weather"}]
        first = await harness.chat(
            {"messages": messages, "tools": [tool]}, X_Hermes_Session_Id=name
        )
        message = first.json["choices"][0]["message"]
        copy = str((await ask(harness, "POST", f"/{name}/fork", {}, 201)).session["id"])
        result = {"role": "tool", "content": "22 C", "tool_call_id": message["tool_calls"][0]["id"]}
        going_on = name if where == "session" else copy
        body = {"messages": [*messages, message, result], "tools": [tool]}
        assert (await harness.chat(body, X_Hermes_Session_Id=going_on)).status == 200
        *_, response, _ = await harness.messages(going_on)
        assert isinstance(response, Result)
        assert text_of(response) == "22 C"


async def test_deleted_session_is_gone(tmp_path: Path):
    async with api_harness(tmp_path, SCRIPT) as harness:
        name = await create_session(harness)
        response = (await ask(harness, "DELETE", f"/{name}")).json
        assert response == {"id": name, "object": "hermes.session.deleted", "deleted": True}
        assert (await ask(harness, "DELETE", f"/{name}", status=404)).code == "session_not_found"


async def test_stream_has_all_events(tmp_path: Path):
    async with api_harness(tmp_path, SCRIPT) as harness:
        name = await create_session(harness)
        found = events(await ask(harness, "POST", f"/{name}/chat/stream", {"message": "a tool"}))
        assert [data["seq"] for _, data in found] == list(range(1, len(found) + 1))
        assert {data["session_id"] for _, data in found} == {name}
        assert len({data["run_id"] for _, data in found}) == 1
        assert all("ts" in data for _, data in found)
        names = [event for event, _ in found if event not in {"assistant.delta", "tool.progress"}]
        assert names == [
            "run.started",
            "message.started",
            "tool.started",
            "tool.completed",
            "assistant.completed",
            "run.completed",
            "done",
        ]
        text = "".join(str(data["delta"]) for event, data in found if event == "assistant.delta")
        (whole,) = [data["content"] for event, data in found if event == "assistant.completed"]
        assert text == whole == "Look.\n\nHi."


async def test_failed_turn_is_reported(tmp_path: Path):
    async with api_harness(tmp_path, SCRIPT) as harness:
        name = await create_session(harness)
        found = events(await ask(harness, "POST", f"/{name}/chat/stream", {"message": "broken"}))
        assert "tool.failed" in [event for event, _ in found]
        found = events(await ask(harness, "POST", f"/{name}/chat/stream", {"message": "wrong"}))
        assert [event for event, _ in found][-2:] == ["error", "done"]
        failed = found[-2][1]
        # Errors have the common format, plus the fields where some clients look for them.
        assert failed["error"] == {
            "message": failed["message"], "type": "server_error", "param": None,
            "code": failed["code"],
        }  # fmt: skip
        assert found[-2][1]["code"] == "provider_auth"
        refused = await ask(harness, "POST", f"/{name}/chat", {"message": "wrong"}, 502)
        assert refused.code == "provider_auth"


async def test_turns_are_limited_per_session_and_in_total(tmp_path: Path):
    async with api_harness(tmp_path, SCRIPT, settings=api_settings(max_turns=2)) as harness:
        name = await create_session(harness)
        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                group.start_soon(ask, harness, "POST", f"/{name}/chat", {"message": "hang"})
                while not harness.model_server.requests:
                    await pause()
                busy = await ask(harness, "POST", f"/{name}/chat", {"message": "x"}, 409)
                assert busy.code == "session_busy"
                for method, path in (("DELETE", ""), ("POST", "/fork")):
                    refused = await ask(harness, method, f"/{name}{path}", status=409)
                    assert refused.code == "session_busy"
                with harness.server.turn_gate.take():
                    for path in ("chat", "chat/stream"):
                        full = await ask(harness, "POST", f"/{name}/{path}", {"message": "x"}, 429)
                        assert full.code == "rate_limit_exceeded"
                group.cancel_scope.cancel()
            # A disconnect ends the requested turn.
            await harness.model_server.requests[0].ended.wait()
            while (await harness.ask("DELETE", f"{SESSIONS_PATH}/{name}")).status == 409:
                await pause()
        assert (await harness.ask("GET", f"{SESSIONS_PATH}/{name}")).status == 404


BAD: list[tuple[str, str, object, int]] = [
    ("POST", "", {"id": "../x"}, 400),
    ("POST", "", {"id": "x" * 300}, 400),
    ("POST", "", {"id": 7}, 400),
    ("POST", "", {"id": "a", "session_id": "b"}, 400),
    ("POST", "", {"id": "known"}, 409),
    ("POST", "", {"title": "t" * 300}, 400),
    ("POST", "", {"title": "a\nb"}, 400),
    ("POST", "", {"title": "known title"}, 409),
    ("POST", "", {"model": "m", "provider": "nobody"}, 400),
    ("POST", "", {"system_prompt": 3}, 400),
    ("POST", "", {"system_prompt": "x" * 300_000}, 400),
    ("POST", "", [], 400),
    ("PATCH", "/known", {}, 400),
    ("PATCH", "/known", {"model": "x"}, 400),
    ("PATCH", "/known", {"title": 7}, 400),
    ("PATCH", "/known", {"title": "t" * 300}, 400),
    ("PATCH", "/known", {"end_reason": None}, 400),
    ("PATCH", "/known", {"end_reason": ""}, 400),
    ("PATCH", "/nobody", {"title": "x"}, 404),
    ("POST", "/known/fork", {"title": "known title"}, 409),
    ("POST", "/known/fork", {"title": 7}, 400),
    ("POST", "/nobody/fork", {}, 404),
    ("POST", "/known/chat", {}, 400),
    ("POST", "/known/chat", {"message": ""}, 400),
    ("POST", "/known/chat", {"message": 7}, 400),
    ("POST", "/known/chat", {"message": [{"type": "audio"}]}, 400),
    ("POST", "/nobody/chat", {"message": "x"}, 404),
    ("POST", "/nobody/chat/stream", {"message": "x"}, 404),
    ("GET", "/nobody", None, 404),
    ("GET", "/nobody/messages", None, 404),
    ("GET", "/known/messages?after=-1", None, 400),
    ("GET", "?limit=0", None, 400),
    ("GET", "?limit=x", None, 400),
    ("GET", "?offset=-1", None, 400),
    ("GET", "?offset=99999999999999999999", None, 400),
    ("GET", "?include_children=perhaps", None, 400),
]


async def test_invalid_session_request_stores_nothing(tmp_path: Path):
    async with api_harness(tmp_path, SCRIPT) as harness:
        await create_session(harness, id="known", title="known title")
        before = (await ask(harness, "GET", "")).json
        for method, path, body, status in BAD:
            assert (await ask(harness, method, path, body, status)).code, (path, body)
        assert (await ask(harness, "GET", "")).json == before
        assert harness.model_server.requests == []
        assert (await harness.ask("GET", SESSIONS_PATH, key=None)).status == 401


async def test_answers_have_the_public_shape(tmp_path: Path):
    """Clients of the public system read these fields."""
    async with api_harness(tmp_path, SCRIPT) as harness:
        made = (await ask(harness, "POST", "", {"id": "s"}, 201)).json
        assert set(made) == {"object", "session"}
        found = events(await ask(harness, "POST", "/s/chat/stream", {"message": "a tool"}))
        by_name = dict(found)
        assert by_name["run.started"]["user_message"] == {"role": "user", "content": "a tool"}
        head = by_name["message.started"]["message"]
        assert isinstance(head, dict)
        assert head["role"] == "assistant"
        assert {fields["message_id"] for _, fields in found} == {head["id"]}
        started, completed = by_name["tool.started"], by_name["tool.completed"]
        assert started["args"] == {"command": "echo hi"}
        assert started["tool_name"] == completed["tool_name"] == "terminal"
        assert by_name["assistant.completed"]["interrupted"] is False
        rows = (await ask(harness, "GET", "/s/messages")).json["data"]
        assert [row.get("tool_name") for row in rows] == [None, None, "terminal", None]
        assert [row.get("finish_reason") for row in rows] == [None, "tool_calls", None, "stop"]
        assert {row["session_id"] for row in rows} == {"s"}
        rest = (await ask(harness, "GET", f"/s/messages?after={rows[1]['seq']}")).json["data"]
        assert rest == rows[2:]
        fork = (await ask(harness, "POST", "/s/fork", {"id": "t"}, 201)).session
        assert (fork["id"], fork["parent_session_id"]) == ("t", "s")
        assert (await ask(harness, "POST", "/s/fork", {"id": "t"}, 409)).code == "session_exists"


async def test_capabilities_list_the_features_clients_check(tmp_path: Path):
    async with api_harness(tmp_path, SCRIPT) as harness:
        found = (await harness.ask("GET", "/v1/capabilities")).json
        for name in ("approval_events", "run_approval_response", "session_chat_streaming"):
            assert found["features"][name] is True
        assert found["features"]["session_key_header"] == "X-Hermes-Session-Key"
        assert found["endpoints"]["session_fork"] == {
            "method": "POST",
            "path": "/api/sessions/{session_id}/fork",
        }
