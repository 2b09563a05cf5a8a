"""Requests for a small model, and their size."""

import json
from typing import Any

import pytest
from inline_snapshot import snapshot
from msgspec import Raw

from hermes.models.embedded.result_text import (
    MAX_HISTORY,
    plain_text,
    recent_messages,
    shorten_text,
)
from hermes.models.embedded.small_profile import answer_format, small_profile, small_prompt
from hermes.models.embedded.turn_state import turn_state_of
from hermes.models.embedded.wire import EmbeddedWire, repeats_calls
from hermes.models.providers import ServedModel
from hermes.ports.model import ModelRequest, OutputConstraints
from hermes.schema.messages import Assistant, Message, Result, Stop, Text, ToolCall, User
from hermes.schema.tools import ToolSpec
from hermes.tools.catalog import load_specs
from support.cases import cases

SERVED = ServedModel(model="tiny", provider="embedded", window=8192, profile=small_profile())


def offered() -> list[ToolSpec]:
    return [load_specs()[name] for name in small_profile().tools]


def sent(request: ModelRequest) -> dict[str, Any]:
    return json.loads(EmbeddedWire(SERVED, request=request).body(request))


def user(text: str, number: int = 0) -> User:
    return User(f"u{number}", (Text(text),))


def call(name: str, args: str, number: int = 0) -> Assistant:
    return Assistant(f"a{number}", (ToolCall(f"c{number}", name, Raw(args.encode())),), Stop.TOOLS)


def result(text: str, number: int = 0, *, failed: bool = False) -> Result:
    return Result(f"r{number}", f"c{number}", (Text(text),), failed=failed)


def test_conversation_with_a_tool_step() -> None:
    history: list[Message] = [
        user("What is in a.txt?"),
        call("read_file", '{"path": "a.txt"}'),
        result('{"content":"1|milk\\n2|bread","total_lines":2}'),
    ]
    body = sent(ModelRequest(small_prompt(), history, offered()))
    assert body["messages"][1:] == snapshot(
        [
            {"role": "user", "content": "What is in a.txt?"},
            {"role": "assistant", "content": '{"tool": "read_file", "args": {"path": "a.txt"}}'},
            {
                "role": "user",
                "content": """\
a.txt says:
milk
bread

Answer the question "What is in a.txt?" now, with reply. If something has to be done first, do it.\
""",
            },
        ]
    )
    assert (body["cache_prompt"], body["temperature"]) == (True, 0.0)
    assert "tools" not in body


def test_reading_a_folder_lists_its_files() -> None:
    history: list[Message] = [
        user("What is in here?"),
        call("read_file", '{"path": "."}'),
        result("read_file: /home/ann/notes is a folder with: a.txt, ideas/", failed=True),
    ]
    body = sent(ModelRequest(small_prompt(), history, offered()))
    assert body["messages"][-1]["content"] == snapshot(
        """\
. says:
The folder has: a.txt, ideas/

Answer the question "What is in here?" now, with reply. If something has to be done first, do it.\
"""
    )


def offers(request: ModelRequest, again: Assistant | None = None) -> list[str]:
    """Return the offered tools, and `reply` if a reply is allowed."""
    wire = EmbeddedWire(SERVED, request=request, repeated=again.calls if again else ())
    schema = json.loads(wire.body(request))["response_format"]["json_schema"]["schema"]
    properties = [one["properties"] for one in schema["oneOf"]]
    return [one["tool"]["const"] if "tool" in one else "reply" for one in properties]


ALL = ["terminal", "read_file", "write_file", "patch"]


def test_call_is_required_while_a_name_is_untouched() -> None:
    made = call("terminal", '{"command": "mkdir -p ideas"}')
    history: list[Message] = [
        user("Make a folder ideas with a file first.txt that says 'a kite'."),
        made,
        result('{"output":"","exit_code":0}'),
    ]
    request = ModelRequest(small_prompt(), history, offered())
    assert offers(request) == ALL
    output = sent(request)["messages"][-1]["content"]
    assert output.endswith("Not done yet: first.txt, a kite. Take the next step.")
    assert repeats_calls(request, made)
    assert offers(request, made) == ALL[1:]
    history += [
        call("write_file", '{"path": "ideas/first.txt", "content": "a kite"}', 1),
        result('{"bytes_written":6}', 1),
    ]
    assert offers(ModelRequest("", history, offered())) == [*ALL, "reply"]


def test_names_are_ignored_without_file_tools() -> None:
    spec = ToolSpec("weather", "Tell the weather.", {"type": "object", "properties": {}})
    history: list[Message] = [
        user("Is 'sunny' right? See a.txt."), call("weather", "{}"), result("It rains."),
    ]  # fmt: skip
    assert offers(ModelRequest("", history, [spec])) == ["weather", "reply"]


@cases(
    ("text", "may"),
    [
        ("When is the launch? It is in plan.txt.", ["reply"]),
        ("Summarise plan.txt.", ["reply"]),
        ("Correct the mistake in plan.txt.", [*ALL, "reply"]),
        ("Can you see what is wrong in plan.txt and fix it?", [*ALL, "reply"]),
        ("Stimmt in plan.txt etwas nicht?", [*ALL, "reply"]),
    ],
)
def test_reply_is_required_after_reading(text: str, may: list[str]) -> None:
    history: list[Message] = [
        user(text), call("read_file", '{"path": "plan.txt"}'), result('{"content":"1|On Friday"}'),
    ]  # fmt: skip
    assert offers(ModelRequest("", history, offered())) == may


def test_other_file_does_not_end_the_search() -> None:
    history: list[Message] = [
        user("Who pays the rent?"), call("read_file", '{"path": "a.txt"}'), result("nothing"),
    ]  # fmt: skip
    assert offers(ModelRequest("", history, offered())) == [*ALL, "reply"]


def test_failed_call_is_followed_by_another_tool() -> None:
    made = call("terminal", '{"command": "grep Garage x.csv"}')
    history: list[Message] = [
        user("What is the number of the garage? See x.csv."),
        made,
        result('{"output":"","exit_code":1,"error":null}'),
    ]
    request = ModelRequest(small_prompt(), history, offered())
    assert sent(request)["messages"][-1]["content"] == snapshot(
        """\
Error:
exit code 1

Try another way: What is the number of the garage? See x.csv.\
"""
    )
    assert offers(request) == [*ALL, "reply"]
    assert repeats_calls(request, made)
    assert offers(request, made) == ALL[1:]


def test_required_call_stays_required() -> None:
    history: list[Message] = [
        user("What is in a.txt?"), call("read_file", '{"path": "a.txt"}'), result("x"),
    ]  # fmt: skip
    assert (
        offers(ModelRequest("", history, offered(), constraints=OutputConstraints(required=True)))
        == ALL
    )


def test_earlier_results_are_repeated() -> None:
    history: list[Message] = [user("Who is older? See ann.txt and ben.txt.")]
    for number, (name, age) in enumerate((("ann", 31), ("ben", 47))):
        history += [
            call("read_file", f'{{"path": "{name}.txt"}}', number),
            result(f'{{"content":"1|{name} is {age}"}}', number),
        ]
    words = sent(ModelRequest(small_prompt(), history, offered()))["messages"][-1]["content"]
    assert words.startswith("ben.txt says:\nben is 47\n\nFound before:\nann.txt says: ann is 31")
    first = call("read_file", '{"path": "ann.txt"}', 9)
    assert repeats_calls(ModelRequest("", history, offered()), first)


def called_with(question: str, path: str) -> str:
    """Return the path of the call built from the model's output."""
    request = ModelRequest(small_prompt(), [user(question)], offered())
    wire = EmbeddedWire(SERVED, request=request)
    stream = wire.stream()
    written = json.dumps({"tool": "read_file", "args": {"path": path}})
    stream.feed([json.dumps({"choices": [{"delta": {"content": written}}]}).encode()])
    (made,) = stream.finish("tiny", "embedded")[1].calls
    return json.loads(bytes(made.args))["path"]


def test_example_path_is_replaced_in_a_call() -> None:
    assert called_with("What is in this folder?", "/path/to/folder") == "."
    assert called_with("Is there /path/to/folder?", "/path/to/folder") == "/path/to/folder"


def test_answer_schema_allows_a_tool_or_a_reply() -> None:
    schema = sent(ModelRequest("", [user("hi")], offered()))["response_format"]["json_schema"][
        "schema"
    ]
    first, *_, last = schema["oneOf"]
    assert first == snapshot(
        {
            "type": "object",
            "properties": {
                "tool": {"const": "terminal"},
                "args": {
                    "type": "object",
                    "properties": {"command": {"type": "string"}},
                    "required": ["command"],
                    "additionalProperties": False,
                },
            },
            "required": ["tool", "args"],
            "additionalProperties": False,
        }
    )
    assert list(last["properties"]) == ["reply"]
    assert len(schema["oneOf"]) <= 6


@pytest.mark.parametrize(
    ("calling", "names"),
    [
        (OutputConstraints(required=True), ["terminal", "read_file", "write_file", "patch"]),
        (OutputConstraints(name="read_file"), ["read_file"]),
    ],
)
def test_constraints_limit_the_answer_schema(calling: OutputConstraints, names: list[str]) -> None:
    body = sent(ModelRequest("", [user("hi")], offered(), constraints=calling))
    schema = body["response_format"]["json_schema"]["schema"]
    assert [one["properties"]["tool"]["const"] for one in schema["oneOf"]] == names


def test_no_schema_without_tools() -> None:
    body = sent(ModelRequest("You name conversations.", [user("hi")]))
    assert "response_format" not in body
    assert body["messages"][0] == {"role": "system", "content": "You name conversations."}


def test_long_prompt_is_replaced() -> None:
    system = sent(ModelRequest("x" * 5000, [user("hi")], offered()))["messages"][0]["content"]
    assert system.startswith(small_prompt())
    assert "xxx" not in system


def test_sessions_share_a_prompt_prefix() -> None:
    one, other = (
        sent(ModelRequest(f"{small_prompt()}\n\nToday is {day}.", [user("hi")], offered()))
        for day in ("Monday", "Tuesday")
    )
    words = [body["messages"][0]["content"] for body in (one, other)]
    assert answer_format() in words[0].partition("Today is")[0]
    assert words[0].partition("Today is")[0] == words[1].partition("Today is")[0]


def test_prompt_is_short() -> None:
    """At four characters per token it is far below 400."""
    system = sent(ModelRequest(small_prompt(), [user("hi")], offered()))["messages"][0]["content"]
    assert len(system) < 1_200


def test_looping_model_must_reply() -> None:
    history: list[Message] = [user("list"), call("terminal", '{"command": "ls"}'), result("a")]
    assert not turn_state_of(history).is_looping
    history += [call("terminal", '{"command": "ls"}', 1), result("a", 1)]
    assert turn_state_of(history).is_looping
    schema = sent(ModelRequest("", history, offered()))["response_format"]["json_schema"]["schema"]
    assert [list(one["properties"]) for one in schema["oneOf"]] == [["reply"]]
    assert not turn_state_of([*history, user("again", 2)]).is_looping


def test_unknown_tool_keeps_its_own_schema() -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    spec = ToolSpec("weather", "Tell the weather. Much more could be said.", schema)
    body = sent(ModelRequest("", [user("hi")], [spec]))
    assert "- weather(city): Tell the weather" in body["messages"][0]["content"]
    branch = body["response_format"]["json_schema"]["schema"]["oneOf"][0]
    assert branch["properties"]["args"] == schema


@cases(
    ("output", "words"),
    [
        ('{"output":"a\\nb\\n","exit_code":0,"error":null}', "a\nb"),
        ('{"output":"","exit_code":0,"error":null}', "It worked. No output."),
        ('{"output":"no","exit_code":2,"error":null}', "exit code 2\nno"),
        ('{"content":"1|x\\n2|y"}', "x\ny"),
        ('{"success":true,"diff":"--- a/n\\n+++ b/n\\n@@ -1 +1 @@\\n-a\\n+b"}',
         "The file is changed.\n-a\n+b"),
        ('{"bytes_written":5}', "The file is written."),
        ('{"total_count":0,"matches":[]}', "Nothing was found."),
        ('{"else":1}', '{"else":1}'),
        ("{ no json", "{ no json"),
    ],
)  # fmt: skip
def test_results_become_plain_text(output: str, words: str) -> None:
    assert plain_text(output) == words


def test_long_texts_keep_both_ends() -> None:
    text = "a" * 3000 + "b" * 3000
    short = shorten_text(text)
    assert len(short) < 3100
    assert short.startswith("aaa")
    assert short.endswith("bbb")
    assert "3000 characters left out" in short


def test_old_questions_are_dropped_in_large_steps() -> None:
    talk: list[Message] = []
    starts: list[str] = []
    for number in range(60):
        talk.append(user(f"{number} " + "x" * 400, number))
        talk.append(Assistant(f"a{number}", (Text("y" * 200),), Stop.END))
        shown = recent_messages(talk)
        assert shown[-1] is talk[-1]
        assert isinstance(shown[0], User)
        size = sum(len(part.text) for one in shown for part in one.parts if isinstance(part, Text))
        assert size <= MAX_HISTORY + 700
        starts.append(shown[0].id)
    assert len(set(starts)) <= 9


def test_last_question_is_always_kept() -> None:
    talk: list[Message] = [user("old"), Assistant("a", (Text("ok"),), Stop.END), user("new", 1)]
    for number in range(9):
        talk += [call("read_file", '{"path": "x"}', number), result("z" * 2900, number)]
    shown = recent_messages(talk)
    assert shown[0] is talk[2]
    assert shown[-1] is talk[-1]
