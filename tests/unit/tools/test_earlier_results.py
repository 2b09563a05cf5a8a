from msgspec import Raw

from hermes.schema.messages import Assistant, Message, Result, Stop, Text, ToolCall, User
from hermes.tools.tool_io import earlier_results


def assistant_call(*calls: tuple[str, str]) -> Assistant:
    return Assistant(
        "a", tuple(ToolCall(call, name, Raw(b"{}")) for call, name in calls), Stop.TOOLS
    )


def tool_result(call: str, text: str) -> Result:
    return Result("r", call, (Text(text),))


def test_newest_result_of_the_tool_comes_first():
    messages: list[Message] = [
        User("u", (Text("go"),)),
        assistant_call(("c1", "todo"), ("c2", "terminal")),
        tool_result("c2", "other"),
        tool_result("c1", "first"),
        assistant_call(("c3", "todo")),
        tool_result("c3", "second"),
        tool_result("c9", "of no call"),
    ]
    assert list(earlier_results("todo", messages)) == [
        tool_result("c3", "second"),
        tool_result("c1", "first"),
    ]
    assert list(earlier_results("patch", messages)) == []


def test_call_ids_may_repeat():
    messages = [
        assistant_call(("call_0", "todo")),
        tool_result("call_0", "a list"),
        assistant_call(("call_0", "terminal")),
        tool_result("call_0", "a folder"),
    ]
    assert list(earlier_results("todo", messages)) == [tool_result("call_0", "a list")]
    assert list(earlier_results("terminal", messages)) == [tool_result("call_0", "a folder")]
