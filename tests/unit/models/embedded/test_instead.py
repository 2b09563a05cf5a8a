"""What is done in a small model's place: asking for leave, and telling of a refusal."""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import msgspec
import pytest
from msgspec import Raw

from hermes.models.embedded.catalog import PROVIDER, Weights, find_weights
from hermes.models.embedded.engine import EngineProcess
from hermes.models.embedded.folder import ModelFolder
from hermes.models.embedded.model import NOT_REMEMBERED, answer_without_model, append_missing
from hermes.models.embedded.turn_state import asks_to_remember
from hermes.ports.model import ModelRequest, OutputConstraints
from hermes.schema.events import TextDelta
from hermes.schema.messages import Assistant, Message, Result, Stop, Text, ToolCall, User
from hermes.testing.contracts.model import read_stream
from hermes.tools.tool_wrappers import load_specs
from support.embedded_engine import embedded_model

TOOLS = [load_specs()[name] for name in ("terminal", "write_file")]
TOUCH = {"command": "touch /opt/x", "timeout": 5}
READ_ONLY = "touch: cannot touch '/opt/x': Read-only file system"
OUTSIDE = 'If more is needed, call again with escalate="outside" and a reason.'
NETWORK = 'If the command needs it, call again with escalate="network" and a reason.'


def failed(output: str, note: str) -> str:
    return msgspec.json.encode({"output": output, "exit_code": 1, "note": note}).decode()


def after(
    told: str, args: Mapping[str, object] = TOUCH, name: str = "terminal", *, fails: bool = True
) -> ModelRequest:
    call = ToolCall("c", name, Raw(msgspec.json.encode(args)))
    messages: list[Message] = [
        User("u", (Text("Make the file /opt/x"),)),
        Assistant("a", (call,), Stop.TOOLS),
        Result("r", "c", (Text(told),), failed=fails),
    ]
    return ModelRequest("", messages, TOOLS)


@pytest.mark.parametrize(
    ("output", "note", "how", "why"),
    [
        (f"one moment\n{READ_ONLY}\nbye", OUTSIDE, "outside", READ_ONLY),
        ("curl: (6) Could not resolve host: a.b", NETWORK, "network", "Could not resolve"),
    ],
)
def test_what_the_wall_held_back_is_asked_for(output: str, note: str, how: str, why: str) -> None:
    answer = answer_without_model(after(failed(output, note)), "small")
    assert answer is not None
    assert (answer.stop, answer.model, answer.provider) == (Stop.TOOLS, "small", PROVIDER)
    (call,) = answer.calls
    args = msgspec.json.decode(call.args, type=dict[str, object])
    reason = str(args.pop("reason"))
    assert args == {**TOUCH, "escalate": how}
    assert why in reason
    assert call.name == "terminal"


@pytest.mark.parametrize(
    "request_",
    [
        after(failed("./a.sh: Permission denied", OUTSIDE)),
        after(failed(READ_ONLY, "")),
        after(failed(READ_ONLY, OUTSIDE), name="gone"),
        after("It crashed."),
        after(failed(READ_ONLY, OUTSIDE), fails=False),
        ModelRequest("", after(failed(READ_ONLY, OUTSIDE)).messages),
        ModelRequest("", [], TOOLS),
        ModelRequest("", [User("u", (Text("Not done: x."),))], TOOLS),
    ],
)
def test_everything_else_is_the_models_to_answer(request_: ModelRequest) -> None:
    assert answer_without_model(request_, "small") is None


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (
            after("terminal: Not done: a person refused. They said: 'no!'. Do not do it."),
            "`touch /opt/x` was not done: a person refused. They said: 'no!'.",
        ),
        (
            after("write_file: Not done: nobody is here.", {"path": "/opt/x"}, "write_file"),
            "write_file `/opt/x` was not done: nobody is here.",
        ),
        (after("Not done: no. Say so.", {}, "patch"), "patch was not done: no."),
    ],
)
def test_what_was_refused_is_said_to_be_not_done(request_: ModelRequest, said: str) -> None:
    answer = answer_without_model(request_, "small")
    assert answer is not None
    assert (answer.text, answer.stop) == (said, Stop.END)


class NoEngine:
    """Nobody may ask it."""

    def is_loaded(self, weights: Weights, place: ModelFolder) -> bool:
        raise AssertionError(weights)

    def turn(
        self, weights: Weights, place: ModelFolder
    ) -> AbstractAsyncContextManager[EngineProcess]:
        raise AssertionError(weights)


@pytest.mark.anyio
async def test_no_engine_is_needed_for_it(tmp_path: Path) -> None:
    weights = find_weights("qwen2.5-coder-0.5b")
    model = embedded_model(NoEngine(), weights, ModelFolder(tmp_path))
    refused = after("terminal: Not done: a person refused.")
    heard = await read_stream(model, refused)
    assert heard.chunks[:-1] == [TextDelta("`touch /opt/x` was not done: a person refused.")]
    assert heard.answer.stop is Stop.END
    assert (await read_stream(model, after(failed(READ_ONLY, OUTSIDE)))).answer.stop is Stop.TOOLS
    bound = ModelRequest("", refused.messages, TOOLS, calling=OutputConstraints(must=True))
    with pytest.raises(AssertionError):
        await read_stream(model, bound)


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        ("Remember that I like tea", True),
        ("I like tea, please remember it.", True),
        ("Could you remember my birthday?", True),
        ("Don't forget: tea!", True),
        ("Do you remember what I said?", False),
        ("Which file mentions tea?", False),
    ],
)
def test_what_is_to_be_remembered(words: str, kept: bool) -> None:
    assert asks_to_remember(words) is kept
    answer = Assistant("a", (Text("I will remember."),), Stop.END)
    said = append_missing(ModelRequest("", [User("u", (Text(words),))], TOOLS), answer)[-1]
    assert isinstance(said, Assistant)
    assert said.text == "I will remember." + (f"\n\n{NOT_REMEMBERED}" if kept else "")


def test_what_is_kept_where_it_was_wanted_needs_no_note() -> None:
    asked = User("u", (Text("Remember in me.txt that I like tea"),))
    answer = Assistant("a", (Text("I will remember."),), Stop.END)
    tools = [*TOOLS, load_specs()["memory"]]
    assert append_missing(ModelRequest("", [asked], tools), answer) == [answer]
    call = ToolCall("c", "write_file", Raw(b'{"path": "me.txt", "content": "tea"}'))
    written = [
        Assistant("b", (call,), Stop.TOOLS),
        Result("r", "c", (Text('{"bytes_written":3}'),)),
    ]
    assert append_missing(ModelRequest("", [asked, *written], TOOLS), answer) == [answer]
    anywhere = User("u", (Text("Remember that I like tea"),))
    assert len(append_missing(ModelRequest("", [anywhere, *written], TOOLS), answer)) == 2
