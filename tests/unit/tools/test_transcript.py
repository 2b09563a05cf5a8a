from msgspec import Raw

from hermes.schema.messages import Assistant, Message, Result, Stop, Text, ToolCall, User
from hermes.tools.tool_io import earlier_results


def asked(*calls: tuple[str, str]) -> Assistant:
    return Assistant(
        "a", tuple(ToolCall(call, name, Raw(b"{}")) for call, name in calls), Stop.TOOLS
    )


def said(call: str, text: str) -> Result:
    return Result("r", call, (Text(text),))


def test_the_newest_comes_first_and_other_tools_do_not():
    messages: list[Message] = [
        User("u", (Text("go"),)),
        asked(("c1", "todo"), ("c2", "terminal")),
        said("c2", "other"),
        said("c1", "first"),
        asked(("c3", "todo")),
        said("c3", "second"),
        said("c9", "of no call"),
    ]
    assert list(earlier_results("todo", messages)) == [said("c3", "second"), said("c1", "first")]
    assert list(earlier_results("patch", messages)) == []


def test_a_call_id_may_come_again():
    messages = [
        asked(("call_0", "todo")),
        said("call_0", "a list"),
        asked(("call_0", "terminal")),
        said("call_0", "a folder"),
    ]
    assert list(earlier_results("todo", messages)) == [said("call_0", "a list")]
    assert list(earlier_results("terminal", messages)) == [said("call_0", "a folder")]
