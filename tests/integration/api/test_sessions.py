"""Sessions over real sockets: made, listed, read, changed, copied, deleted, and talked in."""

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

pytestmark = pytest.mark.anyio

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
ALL = "/api/sessions"


async def ask(
    home: ApiHarness, method: str, path: str, body: object = None, status: int = 200
) -> ApiResponse:
    data = None if body is None else msgspec.json.encode(body)
    told = await home.ask(method, f"{ALL}{path}", data)
    assert told.status == status, (method, path, body, told.body)
    return told


async def make(home: ApiHarness, **body: object) -> str:
    return str((await ask(home, "POST", "", body, 201)).json["id"])


def events(told: ApiResponse) -> list[tuple[str, dict[str, object]]]:
    found: list[tuple[str, dict[str, object]]] = []
    for block in told.body.decode().split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if lines:
            found.append((lines["event"], json.loads(lines["data"])))
    return found


async def test_a_session_is_made_read_and_talked_in(tmp_path: Path):
    async with api_harness(tmp_path, SCRIPT) as home:
        made = (await ask(home, "POST", "", {"id": "trip:1", "title": "Trip"}, 201)).json
        assert (made["object"], made["id"], made["title"]) == ("hermes.session", "trip:1", "Trip")
        assert (await ask(home, "GET", "/trip:1")).json == made
        turn = (await ask(home, "POST", "/trip:1/chat", {"message": "hello"})).json
        assert turn["object"] == "hermes.session.chat.completion"
        assert turn["message"] == {"role": "assistant", "content": WORDS}
        assert (turn["completed"], turn["partial"]) == (True, False)
        listed = (await ask(home, "GET", "/trip:1/messages")).json
        data = listed["data"]
        assert isinstance(data, list)
        assert [(one["role"], one["content"]) for one in data] == [
            ("user", "hello"),
            ("assistant", WORDS),
        ]
        rest = (await ask(home, "GET", f"/trip:1/messages?after={data[0]['seq']}")).json
        assert rest["data"] == data[1:]
        page = (await ask(home, "GET", "/trip:1/messages?limit=1")).json
        assert (page["data"], page["has_more"]) == (data[:1], True)


async def test_ids_that_are_not_given_cannot_be_guessed(tmp_path: Path):
    async with api_harness(tmp_path, SCRIPT) as home:
        names = {await make(home) for _ in range(3)}
        assert len(names) == 3
        assert all(len(name) >= 32 for name in names)


async def test_a_prompt_of_its_own_and_instructions_for_a_turn(tmp_path: Path):
    async with api_harness(tmp_path, SCRIPT) as home:
        name = await make(home, system_prompt="Speak like a pirate.")
        await ask(home, "POST", f"/{name}/chat", {"input": "a", "instructions": "Be brief."})
        await ask(home, "POST", f"/{name}/chat", {"input": [{"type": "text", "text": "b"}]})
        first, second = (str(one.json["messages"]) for one in home.mock.requests)
        assert "Speak like a pirate." in first
        assert "Be brief." in first
        assert "Speak like a pirate." in second
        assert "Be brief." not in second


async def test_the_list_is_paged_and_filtered(tmp_path: Path):
    async with api_harness(tmp_path, SCRIPT) as home:
        names = [await make(home, title=f"t{n}") for n in range(5)]
        await ask(home, "POST", f"/{names[0]}/chat", {"message": "x"})
        copy = str((await ask(home, "POST", f"/{names[0]}/fork", {}, 201)).json["id"])

        async def listed(query: str) -> tuple[set[str], object]:
            told = (await ask(home, "GET", f"?{query}")).json
            data = told["data"]
            assert isinstance(data, list)
            return {one["id"] for one in data}, told["has_more"]

        assert await listed("") == ({*names, copy}, False)
        assert await listed("include_children=false") == (set(names), False)
        assert await listed("source=cli") == (set(), False)
        first, more = await listed("limit=4")
        second, no_more = await listed("limit=4&offset=4")
        assert (first | second, more, no_more) == ({*names, copy}, True, False)
        roots, more = await listed("limit=4&include_children=0")
        assert (len(roots), more) == (4, True)
        told = (await ask(home, "GET", "?limit=100000")).json
        assert told["limit"] == 200


async def test_a_session_is_renamed_and_ended(tmp_path: Path):
    async with api_harness(tmp_path, SCRIPT) as home:
        name, other = await make(home), await make(home, title="taken")
        told = (await ask(home, "PATCH", f"/{name}", {"title": " New  name "})).json
        assert told["title"] == "New  name"
        told = (await ask(home, "PATCH", f"/{name}", {"end_reason": "done"})).json
        assert (told["end_reason"], told["title"]) == ("done", "New  name")
        assert told["ended_at"]
        refused = await ask(home, "PATCH", f"/{name}", {"title": "taken"}, 409)
        assert refused.code == "title_taken"
        assert (await ask(home, "PATCH", f"/{other}", {"title": "taken"})).json["title"] == "taken"
        assert (await ask(home, "PATCH", f"/{name}", {"title": None})).json["title"] is None


async def test_a_fork_goes_its_own_way(tmp_path: Path):
    async with api_harness(tmp_path, SCRIPT) as home:
        name = await make(home)
        await ask(home, "POST", f"/{name}/chat", {"message": "first"})
        told = (await ask(home, "POST", f"/{name}/fork", {"title": "copy"}, 201)).json
        copy = str(told["id"])
        assert (told["parent_session_id"], told["title"]) == (name, "copy")
        assert (await ask(home, "GET", f"/{name}")).json["end_reason"] == "branched"
        await ask(home, "POST", f"/{copy}/chat", {"message": "second"})
        assert len(await home.said(copy)) == 4
        assert [text_of(one) for one in await home.said(name)] == ["first", WORDS]


async def test_a_fork_knows_of_a_call_that_was_cut_off_as_much_as_its_session(tmp_path: Path):
    """What began with an effect and has no end may have happened: no copy may say it did not."""
    async with api_harness(tmp_path, SCRIPT) as home:
        name = await make(home)
        store, now = home.app.store, home.app.clock.now()
        begun = Intent(
            call="call_1", session=name, run="run_1", tool="terminal", effect=Effect.OUTSIDE, at=now
        )
        call = ToolCall("call_1", "terminal", Raw(b'{"command": "send the letter"}'))
        asked = User("msg_1", (Text("send it"),))
        await store.commit(
            AppendMessage(name, "run_1", asked, now),
            AppendMessage(name, "run_1", Assistant("msg_2", (call,), Stop.TOOLS), now),
            RecordIntent(begun),
        )
        copy = str((await ask(home, "POST", f"/{name}/fork", {}, 201)).json["id"])
        for session in (name, copy):
            *_, last = await home.said(session)
            assert isinstance(last, Result)
            assert "outcome is unknown" in text_of(last)


@pytest.mark.parametrize("where", ["session", "copy"])
async def test_a_fork_ends_no_call_that_its_asker_still_works_on(tmp_path: Path, where: str):
    tool = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
    replies = [Reply("", [Call("weather", {})]), Reply("Sunny.")]
    async with api_harness(tmp_path, Script(rules=[Rule("weather", replies)])) as home:
        name = await make(home)
        asked = [{"role": "user", "content": "the weather"}]
        first = await home.chat({"messages": asked, "tools": [tool]}, X_Hermes_Session_Id=name)
        said = first.json["choices"][0]["message"]
        copy = str((await ask(home, "POST", f"/{name}/fork", {}, 201)).json["id"])
        result = {"role": "tool", "content": "22 C", "tool_call_id": said["tool_calls"][0]["id"]}
        going_on = name if where == "session" else copy
        body = {"messages": [*asked, said, result], "tools": [tool]}
        assert (await home.chat(body, X_Hermes_Session_Id=going_on)).status == 200
        *_, told, _ = await home.said(going_on)
        assert isinstance(told, Result)
        assert text_of(told) == "22 C"


async def test_a_deleted_session_is_gone(tmp_path: Path):
    async with api_harness(tmp_path, SCRIPT) as home:
        name = await make(home)
        told = (await ask(home, "DELETE", f"/{name}")).json
        assert told == {"id": name, "object": "hermes.session.deleted", "deleted": True}
        assert (await ask(home, "DELETE", f"/{name}", status=404)).code == "session_not_found"


async def test_a_stream_tells_all_of_it(tmp_path: Path):
    async with api_harness(tmp_path, SCRIPT) as home:
        name = await make(home)
        found = events(await ask(home, "POST", f"/{name}/chat/stream", {"message": "a tool"}))
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


async def test_failures_are_told(tmp_path: Path):
    async with api_harness(tmp_path, SCRIPT) as home:
        name = await make(home)
        found = events(await ask(home, "POST", f"/{name}/chat/stream", {"message": "broken"}))
        assert "tool.failed" in [event for event, _ in found]
        found = events(await ask(home, "POST", f"/{name}/chat/stream", {"message": "wrong"}))
        assert [event for event, _ in found][-2:] == ["error", "done"]
        failed = found[-2][1]
        # The one shape of all refusals, and for those that look for them there, its words as well.
        assert failed["error"] == {
            "message": failed["message"], "type": "server_error", "param": None,
            "code": failed["code"],
        }  # fmt: skip
        assert found[-2][1]["code"] == "auth"
        refused = await ask(home, "POST", f"/{name}/chat", {"message": "wrong"}, 502)
        assert refused.code == "agent_incomplete"


async def test_one_turn_at_a_time_and_so_many_in_all(tmp_path: Path):
    async with api_harness(tmp_path, SCRIPT, given=api_settings(most=2)) as home:
        name = await make(home)
        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                group.start_soon(ask, home, "POST", f"/{name}/chat", {"message": "hang"})
                while not home.mock.requests:
                    await anyio.lowlevel.checkpoint()
                busy = await ask(home, "POST", f"/{name}/chat", {"message": "x"}, 409)
                assert busy.code == "session_busy"
                for method, path in (("DELETE", ""), ("POST", "/fork")):
                    refused = await ask(home, method, f"/{name}{path}", status=409)
                    assert refused.code == "session_busy"
                with home.server.entry.take():
                    for path in ("chat", "chat/stream"):
                        full = await ask(home, "POST", f"/{name}/{path}", {"message": "x"}, 429)
                        assert full.code == "rate_limit_exceeded"
                group.cancel_scope.cancel()
            # Who leaves ends the turn that was asked for.
            await home.mock.requests[0].ended.wait()
            while (await home.ask("DELETE", f"{ALL}/{name}")).status == 409:
                await anyio.lowlevel.checkpoint()
        assert (await home.ask("GET", f"{ALL}/{name}")).status == 404


BAD: list[tuple[str, str, object, int]] = [
    ("POST", "", {"id": "../x"}, 400),
    ("POST", "", {"id": "x" * 300}, 400),
    ("POST", "", {"id": 7}, 400),
    ("POST", "", {"id": "a", "session_id": "b"}, 400),
    ("POST", "", {"id": "known"}, 409),
    ("POST", "", {"title": "t" * 300}, 400),
    ("POST", "", {"title": "a\nb"}, 400),
    ("POST", "", {"title": "known title"}, 409),
    ("POST", "", {"model": "nobody"}, 404),
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


async def test_bad_requests_are_refused_before_any_write(tmp_path: Path):
    async with api_harness(tmp_path, SCRIPT) as home:
        await make(home, id="known", title="known title")
        before = (await ask(home, "GET", "")).json
        for method, path, body, status in BAD:
            assert (await ask(home, method, path, body, status)).code, (path, body)
        assert (await ask(home, "GET", "")).json == before
        assert home.mock.requests == []
        assert (await home.ask("GET", ALL, key=None)).status == 401
