"""Answers without the model: escalation after a sandbox failure, and reports of a refusal."""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import msgspec
import pytest
from msgspec import Raw

from hermes.models.embedded.engine import EngineProcess
from hermes.models.embedded.model import NOT_REMEMBERED, answer_without_model, append_missing
from hermes.models.embedded.turn_state import asks_to_remember
from hermes.models.embedded.weights import ModelFolder, Weights, find_weights
from hermes.models.providers import EMBEDDED
from hermes.ports.model import ModelRequest, OutputConstraints
from hermes.schema.events import TextDelta
from hermes.schema.messages import Assistant, Message, Result, Stop, Text, ToolCall, User
from hermes.testing.contracts.model import read_stream
from hermes.tools.catalog import load_specs
from support.cases import cases
from support.embedded_engine import embedded_model

TOOLS = [load_specs()[name] for name in ("terminal", "write_file")]
TOUCH = {"command": "touch /opt/x", "timeout": 5}
READ_ONLY = "touch: cannot touch '/opt/x': Read-only file system"
OUTSIDE = 'If more is needed, call again with escalate="outside" and a reason.'
NETWORK = 'If the command needs it, call again with escalate="network" and a reason.'


def failed(output: str, note: str) -> str:
    return msgspec.json.encode({"output": output, "exit_code": 1, "note": note}).decode()


def request_after(
    text: str, args: Mapping[str, object] = TOUCH, name: str = "terminal", *, fails: bool = True
) -> ModelRequest:
    call = ToolCall("c", name, Raw(msgspec.json.encode(args)))
    messages: list[Message] = [
        User("u", (Text("Make the file /opt/x"),)),
        Assistant("a", (call,), Stop.TOOLS),
        Result("r", "c", (Text(text),), failed=fails),
    ]
    return ModelRequest("", messages, TOOLS)


@pytest.mark.parametrize(
    ("output", "note", "how", "why"),
    [
        (f"one moment\n{READ_ONLY}\nbye", OUTSIDE, "outside", READ_ONLY),
        ("curl: (6) Could not resolve host: a.b", NETWORK, "network", "Could not resolve"),
    ],
)
def test_sandbox_failure_is_escalated(output: str, note: str, how: str, why: str) -> None:
    answer = answer_without_model(request_after(failed(output, note)), "small")
    assert answer is not None
    assert (answer.stop, answer.model, answer.provider) == (Stop.TOOLS, "small", EMBEDDED)
    (call,) = answer.calls
    args = msgspec.json.decode(call.args, type=dict[str, object])
    reason = str(args.pop("reason"))
    assert args == {**TOUCH, "escalate": how}
    assert why in reason
    assert call.name == "terminal"


@cases(
    "request_",
    [
        request_after(failed("./a.sh: Permission denied", OUTSIDE)),
        request_after(failed(READ_ONLY, "")),
        request_after(failed(READ_ONLY, OUTSIDE), name="gone"),
        request_after("It crashed."),
        request_after(failed(READ_ONLY, OUTSIDE), fails=False),
        ModelRequest("", request_after(failed(READ_ONLY, OUTSIDE)).messages),
        ModelRequest("", [], TOOLS),
        ModelRequest("", [User("u", (Text("Not done: x."),))], TOOLS),
    ],
)
def test_other_results_are_left_to_the_model(request_: ModelRequest) -> None:
    assert answer_without_model(request_, "small") is None


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (
            request_after("terminal: Not done: a person refused. They said: 'no!'. Do not do it."),
            "`touch /opt/x` was not done: a person refused. They said: 'no!'.",
        ),
        (
            request_after(
                "write_file: Not done: nobody is here.", {"path": "/opt/x"}, "write_file"
            ),
            "write_file `/opt/x` was not done: nobody is here.",
        ),
        (request_after("Not done: no. Say so.", {}, "patch"), "patch was not done: no."),
    ],
)
def test_refusal_is_reported(request_: ModelRequest, text: str) -> None:
    answer = answer_without_model(request_, "small")
    assert answer is not None
    assert (answer.text, answer.stop) == (text, Stop.END)


class NoEngine:
    """Fails if it is used."""

    def is_loaded(self, weights: Weights, folder: ModelFolder) -> bool:
        raise AssertionError(weights)

    def acquire(
        self, weights: Weights, folder: ModelFolder
    ) -> AbstractAsyncContextManager[EngineProcess]:
        raise AssertionError(weights)


async def test_answer_without_model_needs_no_engine(tmp_path: Path) -> None:
    weights = find_weights("qwen2.5-coder-0.5b")
    model = embedded_model(NoEngine(), weights, ModelFolder(tmp_path))
    refused = request_after("terminal: Not done: a person refused.")
    received = await read_stream(model, refused)
    assert received.chunks[:-1] == [TextDelta("`touch /opt/x` was not done: a person refused.")]
    assert received.answer.stop is Stop.END
    assert (
        await read_stream(model, request_after(failed(READ_ONLY, OUTSIDE)))
    ).answer.stop is Stop.TOOLS
    bound = ModelRequest("", refused.messages, TOOLS, constraints=OutputConstraints(required=True))
    with pytest.raises(AssertionError):
        await read_stream(model, bound)


@cases(
    ("question", "kept"),
    [
        ("Remember that I like tea", True),
        ("I like tea, please remember it.", True),
        ("Could you remember my birthday?", True),
        ("Don't forget: tea!", True),
        ("Do you remember what I said?", False),
        ("Which file mentions tea?", False),
    ],
)
def test_request_to_remember_is_noted(question: str, kept: bool) -> None:
    assert asks_to_remember(question) is kept
    answer = Assistant("a", (Text("I will remember."),), Stop.END)
    text = append_missing(ModelRequest("", [User("u", (Text(question),))], TOOLS), answer)[-1]
    assert isinstance(text, Assistant)
    assert text.text == "I will remember." + (f"\n\n{NOT_REMEMBERED}" if kept else "")


def test_no_note_if_it_was_saved_in_the_named_file() -> None:
    question = User("u", (Text("Remember in me.txt that I like tea"),))
    answer = Assistant("a", (Text("I will remember."),), Stop.END)
    tools = [*TOOLS, load_specs()["memory"]]
    assert append_missing(ModelRequest("", [question], tools), answer) == [answer]
    call = ToolCall("c", "write_file", Raw(b'{"path": "me.txt", "content": "tea"}'))
    written = [
        Assistant("b", (call,), Stop.TOOLS),
        Result("r", "c", (Text('{"bytes_written":3}'),)),
    ]
    assert append_missing(ModelRequest("", [question, *written], TOOLS), answer) == [answer]
    anywhere = User("u", (Text("Remember that I like tea"),))
    assert len(append_missing(ModelRequest("", [anywhere, *written], TOOLS), answer)) == 2
