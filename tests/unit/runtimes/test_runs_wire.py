"""What goes to a far gateway of ours and comes from it, without a network."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot
from msgspec import structs

from hermes.agent.plan import Entrusted
from hermes.agent.turn import run_turn
from hermes.api.attachments import Document, read_file
from hermes.kit.clock import SystemClock
from hermes.ports.runtime import Ending, Errand, Tell
from hermes.runtimes.proxy.afterwards import LETTER, late_words
from hermes.runtimes.proxy.capabilities import NEEDED, OURS, Abilities, abilities_of
from hermes.runtimes.proxy.far_runtime import FarRuntime
from hermes.runtimes.proxy.far_turn import FarTurn, Parts
from hermes.runtimes.proxy.luggage import LONGEST_TEXT, MOST_FILES, MOST_TEXT, ROOM, Packer
from hermes.runtimes.proxy.runs_wire import (
    LONGEST_PAST,
    MOST_PAST,
    MOST_QUESTIONS,
    Leave,
    RunHearing,
    State,
    Steered,
    begin_of,
    name_of,
)
from hermes.runtimes.proxy.runtime import Far
from hermes.schema.errors import BadRequest, UsageError
from hermes.schema.events import Notice, Outcome, Said, StreamReset, TextDelta, ToolStarted
from hermes.schema.messages import Message, Stop, Text, Trust, User
from hermes.schema.scope import Role
from hermes.store.blobs import FileBlobs
from workbench import SCOPE, Ear, answer, call, result, user

pytestmark = pytest.mark.anyio

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 8
NOTE = User("msg_note", (Text("go on where you were"),), Trust.HOUSE)


def event(name: str, **fields: object) -> bytes:
    return msgspec.json.encode({"event": name, "run_id": "r", "timestamp": 0.0, **fields})


async def body(folder: Path, *messages: Message, system: str = "") -> object:
    packer = Packer(FileBlobs(folder), files=True)
    begin, _ = await begin_of(Errand(SCOPE, system, messages), packer)
    return msgspec.to_builtins(begin)


async def test_the_body_of_a_run(tmp_path: Path) -> None:
    past = (user("find X"), answer(call("search", id="c1")), result("c1", "no"), answer("Found."))
    assert await body(tmp_path, *past, user("more"), user("soon"), NOTE, system="Be kind.") == (
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


async def test_a_note_is_the_question_where_there_is_no_other(tmp_path: Path) -> None:
    told = await body(tmp_path, user("begin"), answer("I beg"), NOTE)
    assert isinstance(told, dict)
    assert told["input"] == [{"content": "go on where you were"}]


async def test_nothing_to_answer(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        await body(tmp_path, answer("Found."))


async def test_only_the_newest_past_goes_along(tmp_path: Path) -> None:
    many = [user(f"{number}") if number % 2 else answer(f"{number}") for number in range(1_001)]
    told = await body(tmp_path, *many, user("now"))
    assert isinstance(told, dict)
    past = told["conversation_history"]
    assert (len(past), past[-1]["content"]) == (MOST_PAST, "1000")
    long = [user("x" * (LONGEST_PAST // 2)), answer("y" * (LONGEST_PAST // 2)), user("z")]
    told = await body(tmp_path, user("old"), answer("older"), *long[:2], user("now"))
    assert isinstance(told, dict)
    assert [one["content"][:1] for one in told["conversation_history"]] == ["x", "y"]


async def test_files_have_one_room_together(tmp_path: Path) -> None:
    blobs = FileBlobs(tmp_path)
    small = await blobs.put(PNG, "image/png", "a.png")
    large = await blobs.put(PNG + b"\0" * (ROOM - 20), "image/png", "b.png")
    pdf = await blobs.put(b"%PDF-1.7 ...", "application/pdf", "c.pdf")
    long = await blobs.put(b"x" * (MOST_TEXT + 1), "text/plain", "d.txt")
    packed = await Packer(blobs, files=True).pack(User("m", (small, large, pdf, long)))
    assert [part["type"] for part in packed.parts] == [
        "input_image",
        "input_text",
        "input_file",
        "input_text",
    ]
    assert packed.behind == ["b.png", "d.txt"]
    plain = await Packer(blobs, files=False).pack(User("m", (pdf,)))
    assert plain.behind == ["c.pdf"]
    many = await Packer(blobs, files=True).pack(User("m", (small,) * (MOST_FILES + 2)))
    assert len(many.behind) == 2


async def test_documents_that_the_far_side_reads_go_along(tmp_path: Path) -> None:
    blobs = FileBlobs(tmp_path)
    office = b"PK\x03\x04\0..."
    given = [
        *((office, name) for name in ("a.docx", "b.xlsx", "c.pptx")),
        (b'{"cells": []}', "d.ipynb"),
        (b"%PDF-1.7", ""),
        ("ü".encode() * LONGEST_TEXT, "long.txt"),
        (b"short", "e.txt"),
        (office, "f.zip"),
        (b"\0\1", "g.bin"),
    ]
    media = [await blobs.put(data, "application/x-any", name) for data, name in given]
    packed = await Packer(blobs, files=True).pack(User("m", tuple(media)))
    files = [part for part in packed.parts if part["type"] == "input_file"]
    assert [part["filename"] for part in files] == [
        "a.docx", "b.xlsx", "c.pptx", "d.ipynb", "document.pdf", "long.txt",
    ]  # fmt: skip
    for part, (data, _) in zip(files, given[:6], strict=True):
        read = read_file(part, "input")
        assert isinstance(read, Document)
        assert read.data == data if read.made else read.text == data.decode()
    assert packed.behind == ["f.zip", "g.bin"]
    plain = await Packer(blobs, files=False).pack(User("m", tuple(media)))
    assert [part for part in plain.parts if part["type"] != "input_text"] == []
    assert "e.txt" not in plain.behind


async def test_a_name_is_for_one_question() -> None:
    first, again = user("again?"), user("again?")
    names = [
        name_of(Errand(SCOPE, "", said), body)
        for said, body in [([first], b"1"), ([first, NOTE], b"1"), ([again], b"1"), ([first], b"2")]
    ]
    assert names[0] == names[1]
    assert len(set(names)) == 3


WORDS = st.lists(st.text(min_size=1), max_size=8)


@given(WORDS, st.lists(st.integers(0, 9), max_size=6))
def test_however_often_one_comes_back_each_event_counts_once(
    words: list[str], returns: list[int]
) -> None:
    events = [event("message.delta", delta=word) for word in words]
    events.append(event("run.completed", output="".join(words)))
    hearing = RunHearing()
    told: list[str] = []
    for start in [*returns, 0]:
        for number, data in list(enumerate(events, 1))[min(start, hearing.last) :]:
            told += [one.text for one in hearing.feed(number, data) if isinstance(one, TextDelta)]
            if number == start:
                break
    assert "".join(told) == hearing.text == "".join(words)
    assert hearing.said(Stop.END).text == "".join(words)


def test_what_it_came_to_is_the_truth() -> None:
    hearing = RunHearing()
    hearing.feed(1, event("message.delta", delta="On"))
    assert hearing.feed(2, event("run.completed", output="Once")) == [TextDelta("ce")]
    other = RunHearing()
    other.feed(1, event("message.delta", delta="On"))
    anew = other.feed(2, event("run.completed", output="Twice"))
    assert [type(one) for one in anew] == [StreamReset, TextDelta]
    assert other.text == "Twice"
    gone = RunHearing()
    gone.feed(1, event("message.delta", delta="On"))
    assert gone.close(State("completed", output="Once")) == [TextDelta("ce")]
    assert State("running").end == ""


def test_what_tools_do_is_shown_as_far_as_it_is_known() -> None:
    hearing = RunHearing()
    fields = {"tool": "terminal", "tool_call_id": "c"}
    (whole,) = hearing.feed(1, event("tool.started", **fields, preview='{"command":"ls"}'))
    (cut,) = hearing.feed(2, event("tool.started", **fields, preview='{"command":"l…'))
    (none,) = hearing.feed(3, event("tool.started", tool="terminal"))
    shown = [bytes(one.call.args) for one in (whole, cut, none) if isinstance(one, ToolStarted)]
    assert shown[0] == b'{"command":"ls"}'
    assert msgspec.json.decode(shown[1]) == {"preview": '{"command":"l…'}
    assert shown[2] == b"{}"


def test_what_leave_is_asked_for_is_told_and_kept() -> None:
    hearing = RunHearing()
    asked = event(
        "approval.request",
        question_id="q1",
        command="rm -r build",
        description="It deletes files.",
        choices=["once", "deny"],
        until=1.0,
    )
    assert hearing.feed(1, asked) == (
        Notice("The far gateway asks for leave: rm -r build - It deletes files."),
    )
    text = "The far gateway asks for leave: rm -r build - It deletes files."
    choices, reason = ("once", "deny"), "It deletes files."
    assert hearing.leave == [
        Leave("q1", text, choices, action="rm -r build", reason=reason),
    ]
    clarify = event("clarify.request", question_id="q2", description="Which one?")
    assert hearing.feed(2, clarify) == (Notice("The far gateway asks: Which one?"),)
    assert hearing.leave[1] == Leave("q2", "The far gateway asks: Which one?", open=True)
    assert hearing.feed(3, event("something.new", of="a younger one")) == ()


def test_a_question_is_heard_once_and_not_without_end() -> None:
    hearing = RunHearing()
    for number in range(1, 10):
        hearing.feed(number, event("approval.request", question_id="q", command=f"cmd {number}"))
    assert [one.action for one in hearing.leave] == ["cmd 1"]
    told = [
        hearing.feed(10 + number, event("approval.request", question_id=f"q{number}", command="x"))
        for number in range(MOST_QUESTIONS + 50)
    ]
    assert len(hearing.leave) == sum(map(len, told)) + 1 == MOST_QUESTIONS


@pytest.mark.parametrize(
    ("preview", "args"),
    [
        ('{\n\n"a": 1, "a": 2}', {"a": 2}),
        ('{"a": 1e999}', {"preview": '{"a": 1e999}'}),
        ("[" * 5_000, {"preview": "[" * 5_000}),
    ],
)
def test_a_glimpse_can_be_read_by_all(preview: str, args: dict[str, object]) -> None:
    (heard,) = RunHearing().feed(1, event("tool.started", tool="t", preview=preview))
    assert isinstance(heard, ToolStarted)
    assert b"\n\n" not in bytes(heard.call.args)
    assert msgspec.json.decode(heard.call.args) == args


def test_words_that_were_taken_in_are_told_from_those_that_were_not() -> None:
    one, two, three = user("a"), user("b"), user("c")
    steered = Steered()
    for message in (one, two, three):
        steered.gave(message)
    steered.applied(["b", "something that was put in other words"])
    assert (steered.heard, steered.unheard) == ([two, one], (three,))
    steered.applied(["c", "nobody said this"])
    assert steered.unheard == ()


class Deaf:
    """Hears what is said meanwhile, and says that it came too late."""

    name = "Deaf"

    def __init__(self) -> None:
        self.asked: list[Sequence[Message]] = []

    async def run(self, errand: Errand, tell: Tell) -> Ending:
        self.asked.append(list(errand.messages))
        await tell(Said(answer(f"answer {len(self.asked)}")))
        return Ending(Outcome.DONE, unheard=tuple(await errand.meanwhile()))

    async def close(self) -> None:
        """Nothing is open."""


async def test_what_came_too_late_is_asked_next() -> None:
    said = [[user("late")], [], []]

    async def steer() -> Sequence[User]:
        return said.pop(0) if said else []

    runtime, ear = Deaf(), Ear()
    plan = Entrusted(scope=SCOPE, runtime=runtime, system="", steer=steer)
    assert await run_turn(plan, [user("first")], ear) is Outcome.DONE
    assert ear.texts == ["first", "answer 1", "late", "answer 2"]
    assert len(runtime.asked) == 2


async def test_the_far_side_is_told_who_asks(tmp_path: Path) -> None:
    packer = Packer(FileBlobs(tmp_path), files=True)
    guest = structs.replace(SCOPE, role=Role.GUEST)
    hook = User("msg_1", (Text("it broke"),), Trust.DATA)
    begin, _ = await begin_of(Errand(guest, "", (hook,)), packer)
    assert (begin.role, begin.brought) == (Role.GUEST, True)
    begin, _ = await begin_of(Errand(SCOPE, "", (user("hi"),)), packer)
    assert (begin.role, begin.brought) == (Role.OWNER, False)


async def test_one_that_cannot_be_told_is_asked_for_its_owner_alone(tmp_path: Path) -> None:
    far, ear = Far(url="http://127.0.0.1:1"), Ear()
    parts = Parts(far=far, clock=SystemClock(), blobs=FileBlobs(tmp_path))
    guest = structs.replace(SCOPE, role=Role.GUEST)
    turn = FarTurn(parts, Abilities(runs=True), Errand(guest, "", (user("hi"),)), ear)
    with pytest.raises(BadRequest, match="cannot be told who asks"):
        await turn.run()


FEATURES = dict.fromkeys((*NEEDED, "run_steer", "file_input", "run_roles"), True)


ALL = Abilities(runs=True, steers=True, files=True, roles=True)


@pytest.mark.parametrize(
    ("told", "able"),
    [
        ({"object": OURS, "features": FEATURES}, ALL),
        ({"object": OURS, "features": dict.fromkeys(NEEDED, True)}, Abilities(runs=True)),
        ({"object": OURS, "features": FEATURES | {"run_stop": False}}, Abilities()),
        ({"object": OURS, "features": FEATURES | {"run_stop": "yes"}}, Abilities()),
        ({"object": "list", "features": FEATURES}, Abilities()),
        ({"features": []}, Abilities()),
        ([], Abilities()),
    ],
)
def test_one_of_ours_is_told_from_others(told: object, able: Abilities) -> None:
    assert abilities_of(msgspec.json.encode(told)) == able


@pytest.mark.parametrize("data", [b"", b"<html>", b"\xff", b"[" * 100_000])
def test_whatever_else_it_says_it_is_a_plain_server(data: bytes) -> None:
    assert abilities_of(data) == Abilities()


def test_what_the_far_side_said_by_itself_is_known_again() -> None:
    letter = User(f"{LETTER}msg_1", (Text("It is ready."),), Trust.DATA)
    other = User(f"{LETTER}msg_2", (Text("So is this."),), Trust.DATA)
    assert late_words([user("build"), answer("I began."), letter, other, NOTE]) == (
        "It is ready.\n\nSo is this."
    )
    assert late_words([letter, answer("It is ready."), user("thanks")]) == ""


async def test_it_is_the_answer_where_nobody_asks_for_more(tmp_path: Path) -> None:
    letter = User(f"{LETTER}msg_1", (Text("It is ready."),), Trust.DATA)
    far = Far(url="http://127.0.0.1:1")
    runtime = FarRuntime(Parts(far=far, clock=SystemClock(), blobs=FileBlobs(tmp_path)))
    past = (user("build"), answer("I began."))
    for history in (past, (*past, NOTE)):
        ear = Ear()
        plan = Entrusted(scope=SCOPE, runtime=runtime, system="", history=history)
        assert await run_turn(plan, [letter], ear) is Outcome.DONE
        assert ear.texts == ["It is ready.", "It is ready."]
