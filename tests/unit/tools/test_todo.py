import msgspec
import pytest
from inline_snapshot import snapshot
from msgspec import Raw

from hermes.ports.tool import ToolContext
from hermes.schema.errors import ToolError
from hermes.schema.messages import Assistant, Message, Result, Stop, Text, ToolCall
from hermes.schema.scope import Scope
from hermes.tools.todo import Todo

STEPS = [
    {"id": "1", "content": "look", "status": "completed"},
    {"id": "2", "content": "leap", "status": "in_progress"},
]


async def test_list_and_summary(call):
    answer = await call("todo", todos=STEPS)
    assert answer.json == snapshot(
        {
            "todos": [
                {"id": "1", "content": "look", "status": "completed"},
                {"id": "2", "content": "leap", "status": "in_progress"},
            ],
            "summary": {
                "total": 2,
                "pending": 0,
                "in_progress": 1,
                "completed": 1,
                "cancelled": 0,
            },
        }
    )
    assert answer.output.shown == "[x] look\n[>] leap"
    assert (await call("todo")).json == answer.json


async def test_merge_changes_only_given_fields(call):
    await call("todo", todos=STEPS)
    new = [{"id": 2, "status": "cancelled"}, {"id": "3", "content": "rest"}]
    answer = await call("todo", todos=new, merge=True)
    assert [(item["id"], item["content"], item["status"]) for item in answer["todos"]] == [
        ("1", "look", "completed"),
        ("2", "leap", "cancelled"),
        ("3", "rest", "pending"),
    ]
    assert (await call("todo", todos=[]))["summary"]["total"] == 0


async def test_each_session_has_its_own_list(call, scope: Scope):
    await call("todo", todos=STEPS)
    other = Scope("default", "session-2", "run", scope.workspace)
    assert (await call("todo", scope_=other))["todos"] == []


@pytest.mark.parametrize(
    ("todos", "message"),
    [
        ([{"id": "1"}], "needs an `id` and a `content`"),
        ([{"id": "", "content": "x"}], "needs an `id`"),
        ([{"id": "1", "content": "x", "status": "done"}], "todos"),
        ([{"id": "1", "content": "x" * 1_001}], "longer than"),
        ([{"id": str(n), "content": "x"} for n in range(201)], "at most 200"),
    ],
)
async def test_invalid_list_changes_nothing(call, todos, message: str):
    await call("todo", todos=STEPS)
    with pytest.raises(ToolError, match=message):
        await call("todo", todos=todos)
    assert (await call("todo"))["todos"] == STEPS


def result_messages(call: str, name: str, text: str, *, failed: bool = False) -> list[Message]:
    answer = Assistant(f"a{call}", (ToolCall(call, name, Raw(b"{}")),), Stop.TOOLS)
    return [answer, Result(f"r{call}", call, (Text(text),), failed)]


async def test_list_is_restored_from_the_transcript(scope: Scope):
    old = {
        "todos": [{"id": "1", "content": "old"}],
        "summary": dict.fromkeys(("total", "pending", "in_progress", "completed", "cancelled"), 0),
    }
    new = {**old, "todos": [{"id": "1", "content": "new", "status": "in_progress"}]}
    transcript = [
        *result_messages("c1", "todo", msgspec.json.encode(old).decode()),
        *result_messages("c2", "todo", msgspec.json.encode(new).decode()),
        *result_messages("c3", "todo", "no JSON at all"),
        *result_messages("c4", "todo", msgspec.json.encode(old).decode(), failed=True),
        *result_messages("c5", "terminal", msgspec.json.encode(old).decode()),
    ]
    tool = Todo()
    tool.restore(scope.session, transcript)

    async def progress(_: str) -> None:
        raise AssertionError

    async def todos() -> list[dict[str, str]]:
        output = await tool.run(Raw(b"{}"), ToolContext(scope, "c", progress))
        part = output.parts[0]
        assert isinstance(part, Text)
        return msgspec.json.decode(part.text)["todos"]

    assert await todos() == new["todos"]
    tool.restore(scope.session, transcript[:2])
    assert [item["content"] for item in await todos()] == ["old"]
    tool.restore("another session", [])
    assert [item["content"] for item in await todos()] == ["old"]
    tool.restore(scope.session, [])
    assert await todos() == []


async def test_list_is_returned_whole_or_refused(call):
    long = [{"id": str(n), "content": "\x01" * 1_000} for n in range(100)]
    with pytest.raises(ToolError, match="longer than 150,000"):
        await call("todo", todos=long)
    with pytest.raises(ToolError, match="at most 64"):
        await call("todo", todos=[{"id": "x" * 65, "content": "y"}])
    assert (await call("todo")).json["todos"] == []
