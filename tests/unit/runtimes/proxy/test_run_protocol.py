"""The run protocol with a remote gateway, without a network."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot
from msgspec import structs

from hermes.agent.plan import RuntimePlan
from hermes.agent.turn import run_turn
from hermes.api.attachments import AttachedDocument, read_file
from hermes.kit.clock import SystemClock
from hermes.ports.runtime import EmitRuntimeEvent, RuntimeRequest, TurnEnd
from hermes.runtimes.proxy.attachments import (
    MAX_DOCUMENT_TEXT,
    MAX_FILE_BYTES,
    MAX_FILES,
    MAX_INLINE_TEXT,
    MessageEncoder,
)
from hermes.runtimes.proxy.chat_runtime import RemoteGateway
from hermes.runtimes.proxy.followups import FOLLOWUP_PREFIX, followup_text
from hermes.runtimes.proxy.gateway_client import (
    HERMES_OBJECT,
    REQUIRED_FEATURES,
    RemoteCapabilities,
    read_capabilities,
)
from hermes.runtimes.proxy.plugin import RemoteRuntime
from hermes.runtimes.proxy.remote_turn import RemoteTurn, RemoteTurnDeps
from hermes.runtimes.proxy.run_protocol import (
    MAX_HISTORY,
    MAX_HISTORY_CHARACTERS,
    MAX_QUESTIONS,
    RemoteQuestion,
    RemoteRunState,
    RunEventMapper,
    SteeringTracker,
    run_body,
    run_key,
)
from hermes.schema.errors import BadRequest, UsageError
from hermes.schema.events import MessageAdded, Notice, Outcome, StreamReset, TextDelta, ToolStarted
from hermes.schema.messages import Message, Stop, Text, Trust, User
from hermes.schema.scope import Role
from hermes.store.blobs import FileBlobs
from support.cases import cases
from support.turns import (
    SCOPE,
    EventRecorder,
    assistant_message,
    tool_call,
    tool_result,
    user_message,
)

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 8
NOTE = User("msg_note", (Text("go on where you were"),), Trust.PROGRAM)


def event(name: str, **fields: object) -> bytes:
    return msgspec.json.encode({"event": name, "run_id": "r", "timestamp": 0.0, **fields})


async def body(folder: Path, *messages: Message, system: str = "") -> object:
    packer = MessageEncoder(FileBlobs(folder), files=True)
    begin, _ = await run_body(RuntimeRequest(SCOPE, system, messages), packer)
    return msgspec.to_builtins(begin)


async def test_run_body(tmp_path: Path) -> None:
    past = (
        user_message("find X"),
        assistant_message(tool_call("search", id="c1")),
        tool_result("c1", "no"),
        assistant_message("Found."),
    )
    assert await body(
        tmp_path, *past, user_message("more"), user_message("soon"), NOTE, system="Be kind."
    ) == (
        snapshot(
            {
                "input": [{"content": "more"}, {"content": "soon"}],
                "instructions": "Be kind.",
                "conversation_history": [
                    {"content": "find X"},
                    {"content": "Found.", "role": "assistant"},
                ],
                "later": False,
            }
        )
    )


async def test_note_is_the_question_without_a_message(tmp_path: Path) -> None:
    decoded = await body(tmp_path, user_message("begin"), assistant_message("I beg"), NOTE)
    assert isinstance(decoded, dict)
    assert decoded["input"] == [{"content": "go on where you were"}]


async def test_missing_question_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        await body(tmp_path, assistant_message("Found."))


async def test_history_is_limited_to_the_newest_messages(tmp_path: Path) -> None:
    many = [
        user_message(f"{number}") if number % 2 else assistant_message(f"{number}")
        for number in range(1_001)
    ]
    decoded = await body(tmp_path, *many, user_message("now"))
    assert isinstance(decoded, dict)
    past = decoded["conversation_history"]
    assert (len(past), past[-1]["content"]) == (MAX_HISTORY, "1000")
    long = [
        user_message("x" * (MAX_HISTORY_CHARACTERS // 2)),
        assistant_message("y" * (MAX_HISTORY_CHARACTERS // 2)),
        user_message("z"),
    ]
    decoded = await body(
        tmp_path, user_message("old"), assistant_message("older"), *long[:2], user_message("now")
    )
    assert isinstance(decoded, dict)
    assert [one["content"][:1] for one in decoded["conversation_history"]] == ["x", "y"]


async def test_files_share_a_size_limit(tmp_path: Path) -> None:
    blobs = FileBlobs(tmp_path)
    small = await blobs.put(PNG, "image/png", "a.png")
    large = await blobs.put(PNG + b"\0" * (MAX_FILE_BYTES - 20), "image/png", "b.png")
    pdf = await blobs.put(b"%PDF-1.7 ...", "application/pdf", "c.pdf")
    long = await blobs.put(b"x" * (MAX_DOCUMENT_TEXT + 1), "text/plain", "d.txt")
    packed = await MessageEncoder(blobs, files=True).encode(User("m", (small, large, pdf, long)))
    assert [part["type"] for part in packed.parts] == [
        "input_image",
        "input_text",
        "input_file",
        "input_text",
    ]
    assert packed.omitted == ["b.png", "d.txt"]
    plain = await MessageEncoder(blobs, files=False).encode(User("m", (pdf,)))
    assert plain.omitted == ["c.pdf"]
    many = await MessageEncoder(blobs, files=True).encode(User("m", (small,) * (MAX_FILES + 2)))
    assert len(many.omitted) == 2


async def test_supported_documents_are_sent(tmp_path: Path) -> None:
    blobs = FileBlobs(tmp_path)
    office = b"PK\x03\x04\0..."
    documents = [
        *((office, name) for name in ("a.docx", "b.xlsx", "c.pptx")),
        (b'{"cells": []}', "d.ipynb"),
        (b"%PDF-1.7", ""),
        ("ü".encode() * MAX_INLINE_TEXT, "long.txt"),
        (b"short", "e.txt"),
        (office, "f.zip"),
        (b"\0\1", "g.bin"),
    ]
    media = [await blobs.put(data, "application/x-any", name) for data, name in documents]
    packed = await MessageEncoder(blobs, files=True).encode(User("m", tuple(media)))
    files = [part for part in packed.parts if part["type"] == "input_file"]
    assert [part["filename"] for part in files] == [
        "a.docx", "b.xlsx", "c.pptx", "d.ipynb", "document.pdf", "long.txt",
    ]  # fmt: skip
    for part, (data, _) in zip(files, documents[:6], strict=True):
        read = read_file(part, "input")
        assert isinstance(read, AttachedDocument)
        assert read.data == data if read.format else read.text == data.decode()
    assert packed.omitted == ["f.zip", "g.bin"]
    plain = await MessageEncoder(blobs, files=False).encode(User("m", tuple(media)))
    assert [part for part in plain.parts if part["type"] != "input_text"] == []
    assert "e.txt" not in plain.omitted


async def test_run_key_is_unique_per_question() -> None:
    first, again = user_message("again?"), user_message("again?")
    names = [
        run_key(RuntimeRequest(SCOPE, "", messages), body)
        for messages, body in [
            ([first], b"1"),
            ([first, NOTE], b"1"),
            ([again], b"1"),
            ([first], b"2"),
        ]
    ]
    assert names[0] == names[1]
    assert len(set(names)) == 3


WORDS = st.lists(st.text(min_size=1), max_size=8)


@given(WORDS, st.lists(st.integers(0, 9), max_size=6))
def test_repeated_events_are_ignored(words: list[str], returns: list[int]) -> None:
    events = [event("message.delta", delta=word) for word in words]
    events.append(event("run.completed", output="".join(words)))
    mapper = RunEventMapper()
    decoded: list[str] = []
    for start in [*returns, 0]:
        for number, data in list(enumerate(events, 1))[min(start, mapper.last_number) :]:
            decoded += [one.text for one in mapper.feed(number, data) if isinstance(one, TextDelta)]
            if number == start:
                break
    assert "".join(decoded) == mapper.text == "".join(words)
    assert mapper.message(Stop.END).text == "".join(words)


def test_final_output_is_authoritative() -> None:
    mapper = RunEventMapper()
    mapper.feed(1, event("message.delta", delta="On"))
    assert mapper.feed(2, event("run.completed", output="Once")) == [TextDelta("ce")]
    other = RunEventMapper()
    other.feed(1, event("message.delta", delta="On"))
    anew = other.feed(2, event("run.completed", output="Twice"))
    assert [type(one) for one in anew] == [StreamReset, TextDelta]
    assert other.text == "Twice"
    gone = RunEventMapper()
    gone.feed(1, event("message.delta", delta="On"))
    assert gone.close(RemoteRunState("completed", output="Once")) == [TextDelta("ce")]
    assert RemoteRunState("running").end == ""


def test_tool_events_are_shown() -> None:
    mapper = RunEventMapper()
    fields = {"tool": "terminal", "tool_call_id": "c"}
    (whole,) = mapper.feed(1, event("tool.started", **fields, preview='{"command":"ls"}'))
    (cut,) = mapper.feed(2, event("tool.started", **fields, preview='{"command":"l…'))
    (none,) = mapper.feed(3, event("tool.started", tool="terminal"))
    shown = [bytes(one.call.args) for one in (whole, cut, none) if isinstance(one, ToolStarted)]
    assert shown[0] == b'{"command":"ls"}'
    assert msgspec.json.decode(shown[1]) == {"preview": '{"command":"l…'}
    assert shown[2] == b"{}"


def test_approval_request_is_shown_and_kept() -> None:
    mapper = RunEventMapper()
    request = event(
        "approval.request",
        question_id="q1",
        command="rm -r build",
        description="It deletes files.",
        choices=["once", "deny"],
        until=1.0,
    )
    assert mapper.feed(1, request) == (
        Notice("The remote gateway asks for approval: rm -r build - It deletes files."),
    )
    text = "The remote gateway asks for approval: rm -r build - It deletes files."
    choices, reason = ("once", "deny"), "It deletes files."
    assert mapper.questions == [
        RemoteQuestion("q1", text, choices, action="rm -r build", reason=reason),
    ]
    clarify = event("clarify.request", question_id="q2", description="Which one?")
    assert mapper.feed(2, clarify) == (Notice("The remote gateway asks: Which one?"),)
    assert mapper.questions[1] == RemoteQuestion(
        "q2", "The remote gateway asks: Which one?", open=True
    )
    assert mapper.feed(3, event("something.new", of="a younger one")) == ()


def test_questions_are_unique_and_limited() -> None:
    mapper = RunEventMapper()
    for number in range(1, 10):
        mapper.feed(number, event("approval.request", question_id="q", command=f"cmd {number}"))
    assert [one.action for one in mapper.questions] == ["cmd 1"]
    decoded = [
        mapper.feed(10 + number, event("approval.request", question_id=f"q{number}", command="x"))
        for number in range(MAX_QUESTIONS + 50)
    ]
    assert len(mapper.questions) == sum(map(len, decoded)) + 1 == MAX_QUESTIONS


@pytest.mark.parametrize(
    ("preview", "args"),
    [
        ('{\n\n"a": 1, "a": 2}', {"a": 2}),
        ('{"a": 1e999}', {"preview": '{"a": 1e999}'}),
        ("[" * 5_000, {"preview": "[" * 5_000}),
    ],
)
def test_preview_becomes_valid_arguments(preview: str, args: dict[str, object]) -> None:
    (emitted,) = RunEventMapper().feed(1, event("tool.started", tool="t", preview=preview))
    assert isinstance(emitted, ToolStarted)
    assert b"\n\n" not in bytes(emitted.call.args)
    assert msgspec.json.decode(emitted.call.args) == args


def test_read_and_unread_steering_messages_are_separated() -> None:
    one, two, three = user_message("a"), user_message("b"), user_message("c")
    steered = SteeringTracker()
    for message in (one, two, three):
        steered.add(message)
    steered.applied(["b", "something that was put in other words"])
    assert (steered.read, steered.unread) == ([two, one], (three,))
    steered.applied(["c", "nobody said this"])
    assert steered.unread == ()


class LateRuntime:
    """Reads steering messages, and reports that they came too late."""

    name = "LateRuntime"

    def __init__(self) -> None:
        self.asked: list[Sequence[Message]] = []

    async def run(self, runtime_request: RuntimeRequest, emit: EmitRuntimeEvent) -> TurnEnd:
        self.asked.append(list(runtime_request.messages))
        await emit(MessageAdded(assistant_message(f"answer {len(self.asked)}")))
        return TurnEnd(Outcome.DONE, late_messages=tuple(await runtime_request.read_steering()))

    async def close(self) -> None:
        """Do nothing."""


async def test_late_steering_message_is_answered_next() -> None:
    steering = [[user_message("late")], [], []]

    async def steer() -> Sequence[User]:
        return steering.pop(0) if steering else []

    runtime, recorder = LateRuntime(), EventRecorder()
    plan = RuntimePlan(scope=SCOPE, runtime=runtime, system="", steer=steer)
    assert await run_turn(plan, [user_message("first")], recorder) is Outcome.DONE
    assert recorder.texts == ["first", "answer 1", "late", "answer 2"]
    assert len(runtime.asked) == 2


async def test_role_is_sent_to_the_remote_gateway(tmp_path: Path) -> None:
    packer = MessageEncoder(FileBlobs(tmp_path), files=True)
    guest = structs.replace(SCOPE, role=Role.GUEST)
    hook = User("msg_1", (Text("it broke"),), Trust.DATA)
    begin, _ = await run_body(RuntimeRequest(guest, "", (hook,)), packer)
    assert (begin.role, begin.brought) == (Role.GUEST, True)
    begin, _ = await run_body(RuntimeRequest(SCOPE, "", (user_message("hi"),)), packer)
    assert (begin.role, begin.brought) == (Role.OWNER, False)


async def test_gateway_without_roles_is_used_by_the_owner_only(tmp_path: Path) -> None:
    far, recorder = RemoteGateway(url="http://127.0.0.1:1"), EventRecorder()
    parts = RemoteTurnDeps(remote=far, clock=SystemClock(), blobs=FileBlobs(tmp_path))
    guest = structs.replace(SCOPE, role=Role.GUEST)
    turn = RemoteTurn(
        parts,
        RemoteCapabilities(runs=True),
        RuntimeRequest(guest, "", (user_message("hi"),)),
        recorder,
    )
    with pytest.raises(BadRequest, match="does not support roles"):
        await turn.run()


FEATURES = dict.fromkeys((*REQUIRED_FEATURES, "run_steer", "file_input", "run_roles"), True)


ALL = RemoteCapabilities(runs=True, steering=True, files=True, roles=True)


@cases(
    ("decoded", "able"),
    [
        ({"object": HERMES_OBJECT, "features": FEATURES}, ALL),
        (
            {"object": HERMES_OBJECT, "features": dict.fromkeys(REQUIRED_FEATURES, True)},
            RemoteCapabilities(runs=True),
        ),
        (
            {"object": HERMES_OBJECT, "features": FEATURES | {"run_stop": False}},
            RemoteCapabilities(),
        ),
        (
            {"object": HERMES_OBJECT, "features": FEATURES | {"run_stop": "yes"}},
            RemoteCapabilities(),
        ),
        ({"object": "list", "features": FEATURES}, RemoteCapabilities()),
        ({"features": []}, RemoteCapabilities()),
        ([], RemoteCapabilities()),
    ],
)
def test_hermes_gateway_is_recognised(decoded: object, able: RemoteCapabilities) -> None:
    assert read_capabilities(msgspec.json.encode(decoded)) == able


@pytest.mark.parametrize("data", [b"", b"<html>", b"\xff", b"[" * 100_000])
def test_other_responses_mean_a_plain_server(data: bytes) -> None:
    assert read_capabilities(data) == RemoteCapabilities()


def test_followups_are_recognised() -> None:
    letter = User(f"{FOLLOWUP_PREFIX}msg_1", (Text("It is ready."),), Trust.DATA)
    other = User(f"{FOLLOWUP_PREFIX}msg_2", (Text("So is this."),), Trust.DATA)
    assert followup_text(
        [user_message("build"), assistant_message("I began."), letter, other, NOTE]
    ) == ("It is ready.\n\nSo is this.")
    assert followup_text([letter, assistant_message("It is ready."), user_message("thanks")]) == ""


async def test_followup_is_the_answer_without_a_question(tmp_path: Path) -> None:
    letter = User(f"{FOLLOWUP_PREFIX}msg_1", (Text("It is ready."),), Trust.DATA)
    far = RemoteGateway(url="http://127.0.0.1:1")
    runtime = RemoteRuntime(
        RemoteTurnDeps(remote=far, clock=SystemClock(), blobs=FileBlobs(tmp_path))
    )
    past = (user_message("build"), assistant_message("I began."))
    for history in (past, (*past, NOTE)):
        recorder = EventRecorder()
        plan = RuntimePlan(scope=SCOPE, runtime=runtime, system="", history=history)
        assert await run_turn(plan, [letter], recorder) is Outcome.DONE
        assert recorder.texts == ["It is ready.", "It is ready."]
