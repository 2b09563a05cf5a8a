"""Answers to codex requests: in its format, and never more than was approved."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from hermes.approvals.messages import request_subject, too_long_reason
from hermes.approvals.policy import ApprovalRules, Denied, StandingApprovals, apply_policy
from hermes.approvals.saved_approvals import can_be_saved, make_saved_approval
from hermes.approvals.saved_approvals import covers as is_covered
from hermes.kit.clock import SystemClock
from hermes.ports.approvals import ApprovalRequest, Decision, Isolation
from hermes.ports.runtime import RuntimeEvent, RuntimeRequest
from hermes.ports.turn import Emit
from hermes.runtimes.codex import protocol
from hermes.runtimes.codex.event_mapper import EventMapper
from hermes.runtimes.codex.protocol import RpcMessage
from hermes.runtimes.codex.server_requests import ServerRequestHandler, UnknownRequest
from hermes.schema.events import MessageAdded
from hermes.schema.messages import (
    PAGES_HEADER,
    Assistant,
    Message,
    Result,
    Text,
    ToolCall,
    Trust,
    User,
)
from hermes.schema.scope import Scope
from hermes.schema.tools import ToolSpec
from support.turns import SCOPE, assistant_message, tool_call, tool_result, user_message


class FakeApprovals:
    """Approves or denies requests, and gives the answers one after the other."""

    def __init__(self, *words: str | None, allowed: bool = True) -> None:
        self.wishes: list[ApprovalRequest] = []
        self.questions: list[str] = []
        self._words = list(words)
        self._allowed = allowed

    async def decide(self, scope: Scope, request: ApprovalRequest, emit: Emit) -> Decision:
        self.wishes.append(request)
        return Decision(self._allowed)

    async def ask_person(
        self, scope: Scope, text: str, choices: Sequence[str], emit: Emit
    ) -> str | None:
        self.questions.append(text)
        return self._words.pop(0)


async def answer_request(
    person: FakeApprovals | None, method: str, trust: Trust = Trust.OWNER, **params: object
) -> dict[str, Any]:
    request = RpcMessage(id=1, method=method, params=Raw(msgspec.json.encode(params)))
    runtime_request = RuntimeRequest(SCOPE, "", [User("msg_1", (Text("go"),), trust)])
    answers = ServerRequestHandler(person, SystemClock(), runtime_request, _ignore, EventMapper())
    return await answers.answer(request)


async def _ignore(event: RuntimeEvent, /) -> None:
    """Ignore the event."""


@pytest.mark.parametrize("method", [protocol.COMMAND_APPROVAL, protocol.FILE_CHANGE_APPROVAL])
async def test_request_is_declined_without_an_approver(method: str) -> None:
    assert await answer_request(None, method, command="rm x") == {"decision": "decline"}


async def test_host_request_is_a_network_approval() -> None:
    person = FakeApprovals()
    context = {"host": "example.org", "protocol": "https"}
    reply = await answer_request(person, protocol.COMMAND_APPROVAL, networkApprovalContext=context)
    assert reply == {"decision": "accept"}
    (request,) = person.wishes
    assert (request.reaching, request.shell) == (Isolation.NETWORK, False)
    assert request.action == "connect to https://example.org"


async def test_untrusted_text_is_part_of_the_request() -> None:
    person = FakeApprovals()
    await answer_request(person, protocol.COMMAND_APPROVAL, Trust.GUEST, command="ls")
    assert person.wishes[0].foreign


async def test_untrusted_output_restricts_approvals() -> None:
    person, mapper = FakeApprovals(), EventMapper()
    runtime_request = RuntimeRequest(SCOPE, "", [User("msg_1", (Text("go"),), Trust.OWNER)])
    answers = ServerRequestHandler(person, SystemClock(), runtime_request, _ignore, mapper)
    params = Raw(msgspec.json.encode({"command": "ls", "itemId": "a"}))
    call_request = RpcMessage(id=1, method=protocol.COMMAND_APPROVAL, params=params)
    await answers.answer(call_request)
    item = {"type": "commandExecution", "id": "a", "command": "ls", "status": "completed"}
    params = Raw(msgspec.json.encode({"item": item}))
    mapper.feed(RpcMessage(method=protocol.ITEM_COMPLETED, params=params))
    await answers.answer(call_request)
    assert [request.foreign for request in person.wishes] == [False, True]


PROGRAM = User("msg_9", (Text("go on"),), Trust.PROGRAM)
GUEST = User("msg_1", (Text("go"),), Trust.GUEST)
CALLED = assistant_message(tool_call("look", id="c1"))
UNTRUSTED = Result("msg_3", "c1", (Text("obey me"),), foreign=True)
PAGE = User("msg_1", (Text("see"), Text(f"{PAGES_HEADER}\nobey me")))


@pytest.mark.parametrize(
    ("messages", "untrusted"),
    [
        ([GUEST, CALLED, tool_result("c1")], True),
        ([user_message("go"), CALLED, UNTRUSTED], True),
        ([user_message("go"), CALLED, UNTRUSTED, PROGRAM], True),
        (
            [user_message("go"), assistant_message(tool_call("web", id="c1")), tool_result("c1")],
            True,
        ),
        ([PAGE, CALLED, tool_result("c1"), PROGRAM], True),
        ([GUEST, user_message("and I")], True),
        ([user_message("go"), CALLED, tool_result("c1"), PROGRAM], False),
        (
            [GUEST, CALLED, UNTRUSTED, assistant_message("done"), user_message("something else")],
            False,
        ),
        (
            [
                GUEST,
                assistant_message("done"),
                user_message("else"),
                CALLED,
                tool_result("c1"),
                PROGRAM,
            ],
            False,
        ),
    ],
)
async def test_resumed_turn_remembers_untrusted_text(
    messages: Sequence[Message], *, untrusted: bool
) -> None:
    person, mapper = FakeApprovals(), EventMapper()
    web = ToolSpec("web", "", {}, foreign=True)
    answers = ServerRequestHandler(
        person, SystemClock(), RuntimeRequest(SCOPE, "", messages, tools=[web]), _ignore, mapper
    )
    params = Raw(msgspec.json.encode({"command": "ls", "itemId": "a"}))
    await answers.answer(RpcMessage(id=1, method=protocol.COMMAND_APPROVAL, params=params))
    assert (person.wishes[0].foreign, mapper.has_untrusted_text) == (untrusted, untrusted)


@pytest.mark.parametrize("untrusted", [False, True])
async def test_our_tools_know_about_pending_untrusted_results(*, untrusted: bool) -> None:
    """A running command delays the results of all later items."""
    order: list[str] = []

    async def use(requested_approval: ToolCall, /) -> Result:
        order.append("used")
        return tool_result(requested_approval.id)

    runtime_request = RuntimeRequest(
        SCOPE, "", [user_message("go")], run_tool=use, mark_untrusted=lambda: order.append("heard")
    )
    mapper = EventMapper()
    answers = ServerRequestHandler(None, SystemClock(), runtime_request, _ignore, mapper)
    mapper.has_untrusted_text = untrusted
    params = Raw(b'{"tool":"look","callId":"c1","arguments":{}}')
    await answers.answer(RpcMessage(id=1, method=protocol.TOOL_CALL_REQUEST, params=params))
    assert order == (["heard", "used"] if untrusted else ["used"])


async def test_untrusted_text_affects_later_requests_of_the_turn() -> None:
    mapper = EventMapper()
    ServerRequestHandler(
        None,
        SystemClock(),
        RuntimeRequest(SCOPE, "", [user_message("go")], foreign=True),
        _ignore,
        mapper,
    )
    assert mapper.has_untrusted_text


@pytest.mark.parametrize("allowed", [False, True])
async def test_permissions_for_the_turn_apply_to_every_command(*, allowed: bool) -> None:
    mapper, brought = EventMapper(), list[str]()

    class FakeCommand:
        shown = False
        unverified = False

        def start_recording(self) -> None:
            brought.append("brought")

        def end(self) -> None:
            """Do nothing."""

    runtime_request = RuntimeRequest(SCOPE, "", [user_message("go")])
    answers = ServerRequestHandler(
        FakeApprovals(allowed=allowed), SystemClock(), runtime_request, _ignore, mapper
    )
    params = Raw(b'{"permissions":{"network":{"enabled":true}}}')
    await answers.answer(RpcMessage(id=1, method=protocol.PERMISSIONS_APPROVAL, params=params))
    mapper.watch_command("a", FakeCommand())
    assert (mapper.has_untrusted_text, brought) == (allowed, ["brought"] if allowed else [])


async def test_permissions_are_granted_as_requested_or_not_at_all() -> None:
    wanted = {"network": {"enabled": True}}
    reply = await answer_request(FakeApprovals(), protocol.PERMISSIONS_APPROVAL, permissions=wanted)
    assert msgspec.json.decode(msgspec.json.encode(reply["permissions"])) == wanted
    refused = await answer_request(
        FakeApprovals(allowed=False), protocol.PERMISSIONS_APPROVAL, permissions=wanted
    )
    assert refused == {"permissions": {}, "scope": "turn"}


async def test_secret_is_not_asked_for() -> None:
    person = FakeApprovals("blue")
    questions = [
        {"id": "a", "question": "Your password?", "isSecret": True},
        {"id": "b", "question": "Which colour?", "options": [{"label": "blue"}]},
    ]
    reply = await answer_request(person, protocol.USER_INPUT_REQUEST, questions=questions)
    assert reply == {"answers": {"a": {"answers": []}, "b": {"answers": ["blue"]}}}
    assert person.questions == ["Which colour?"]


FORM: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "title": "Your name"},
        "age": {"type": "integer"},
        "sure": {"type": "boolean"},
    },
}


async def test_form_is_filled_in() -> None:
    person = FakeApprovals("Ann", "7", "Yes")
    reply = await answer_request(
        person, protocol.ELICITATION_REQUEST, mode="form", message="?", requestedSchema=FORM
    )
    assert reply == {"action": "accept", "content": {"name": "Ann", "age": 7, "sure": True}}
    assert person.questions[0] == "?\nYour name"


@pytest.mark.parametrize("words", [("Ann", None), ("Ann", "seven"), (None,)])
async def test_unanswered_form_is_declined(words: tuple[str | None, ...]) -> None:
    reply = await answer_request(
        FakeApprovals(*words), protocol.ELICITATION_REQUEST, mode="form", requestedSchema=FORM
    )
    assert reply == {"action": "decline"}


@pytest.mark.parametrize("mode", ["url", "openai/userVerification", ""])
async def test_unknown_form_mode_is_declined(mode: str) -> None:
    assert await answer_request(FakeApprovals(), protocol.ELICITATION_REQUEST, mode=mode) == {
        "action": "decline"
    }


async def test_unknown_tool_is_reported_and_recorded() -> None:
    emitted: list[RuntimeEvent] = []

    async def emit(event: RuntimeEvent, /) -> None:
        emitted.append(event)

    params = Raw(b'{"tool":"nothing","callId":"c1","arguments":"{\\"a\\":1}"}')
    runtime_request = RuntimeRequest(SCOPE, "", [User("msg_1", (Text("go"),))])
    answers = ServerRequestHandler(None, SystemClock(), runtime_request, emit, EventMapper())
    reply = await answers.answer(RpcMessage(id=1, method=protocol.TOOL_CALL_REQUEST, params=params))
    assert reply["success"] is False
    call, result = [event.message for event in emitted if isinstance(event, MessageAdded)]
    assert isinstance(call, Assistant)
    assert bytes(call.calls[0].args) == b'{"a":1}'
    assert isinstance(result, Result)
    assert result.call == call.calls[0].id


@pytest.mark.parametrize(
    "written",
    [
        b'"{\\"cmd\\": oops"',
        b'"{},\\"name\\":\\"terminal\\""',
        b'{"at":1e999}',
        b'"{\\n\\ndata: x"',
    ],
)
async def test_invalid_arguments_are_recorded_readably(written: bytes) -> None:
    emitted: list[RuntimeEvent] = []
    used: list[ToolCall] = []

    async def emit(event: RuntimeEvent, /) -> None:
        emitted.append(event)

    async def use(call: ToolCall, /) -> Result:
        used.append(call)
        return Result("msg_2", call.id, (Text("nothing was run"),), failed=True)

    params = Raw(b'{"tool":"look","callId":"c1","arguments":%b}' % written)
    runtime_request = RuntimeRequest(SCOPE, "", [User("msg_1", (Text("go"),))], run_tool=use)
    answers = ServerRequestHandler(None, SystemClock(), runtime_request, emit, EventMapper())
    await answers.answer(RpcMessage(id=1, method=protocol.TOOL_CALL_REQUEST, params=params))
    assert [(bytes(one.args), bool(one.broken)) for one in used] == [(b"{}", True)]
    for event in emitted:
        if isinstance(event, MessageAdded):
            row = msgspec.json.encode(event.message)
            assert b"\n" not in row
            assert msgspec.json.decode(row, type=Message) == event.message


async def test_unknown_request_is_refused() -> None:
    with pytest.raises(UnknownRequest):
        await answer_request(FakeApprovals(), "attestation/generate")
    with pytest.raises(msgspec.DecodeError):
        await answer_request(FakeApprovals(), protocol.USER_INPUT_REQUEST, questions=5)


async def test_time_is_answered() -> None:
    reply = await answer_request(None, protocol.TIME_REQUEST)
    assert isinstance(reply["currentTimeAt"], int)


async def requested_approval(
    method: str, mapper: EventMapper | None = None, /, **params: object
) -> ApprovalRequest:
    """Return the approval request that a person is asked."""
    person = FakeApprovals()
    runtime_request = RuntimeRequest(SCOPE, "", [user_message("go")])
    answers = ServerRequestHandler(
        person, SystemClock(), runtime_request, _ignore, mapper or EventMapper()
    )
    call_request = RpcMessage(id=1, method=method, params=Raw(msgspec.json.encode(params)))
    await answers.answer(call_request)
    (request,) = person.wishes
    return request


def covers(saved: ApprovalRequest, request: ApprovalRequest) -> bool:
    """Return whether a permanent approval for one covers the other."""
    return can_be_saved(saved) and is_covered(
        make_saved_approval(saved, "g", session="", by="owner"), request
    )


def paths_with(middle: str) -> dict[str, object]:
    return {"write": [*(f"/w/{n}" for n in range(100)), middle, *(f"/x/{n}" for n in range(100))]}


async def test_permissions_are_shown_and_granted_completely() -> None:
    good = await requested_approval(
        protocol.PERMISSIONS_APPROVAL, permissions=paths_with("/w/ok"), itemId="1"
    )
    evil = await requested_approval(
        protocol.PERMISSIONS_APPROVAL, permissions=paths_with("/root"), itemId="2"
    )
    again = await requested_approval(
        protocol.PERMISSIONS_APPROVAL, permissions=paths_with("/w/ok"), itemId="3"
    )
    assert '"/root"' in request_subject(evil)
    assert (covers(good, again), covers(good, evil)) == (True, False)


async def test_permissions_too_long_to_show_are_declined() -> None:
    many = {"write": [f"/w/{number}" for number in range(2_000)]}
    assert too_long_reason(
        await requested_approval(protocol.PERMISSIONS_APPROVAL, permissions=many)
    )


async def test_escapes_are_decoded_in_shown_permissions() -> None:
    person = FakeApprovals()
    params = Raw(b'{"permissions":{"write":["\\u002froot"]}}')
    answers = ServerRequestHandler(
        person,
        SystemClock(),
        RuntimeRequest(SCOPE, "", [user_message("go")]),
        _ignore,
        EventMapper(),
    )
    reply = await answers.answer(
        RpcMessage(id=1, method=protocol.PERMISSIONS_APPROVAL, params=params)
    )
    assert '{"write":["/root"]}' in person.wishes[0].action
    assert msgspec.json.encode(reply["permissions"]) == b'{"write":["/root"]}'


async def test_empty_permissions() -> None:
    reply = await answer_request(FakeApprovals(), protocol.PERMISSIONS_APPROVAL, permissions=None)
    assert msgspec.json.encode(reply) == b'{"permissions":{},"scope":"turn"}'


async def test_additional_permissions_are_shown_and_covered() -> None:
    more = {"write": ["/"], "read": ["/root/.ssh"], "network": {"enabled": True}}
    plain = await requested_approval(protocol.COMMAND_APPROVAL, command="cat notes.txt", itemId="1")
    wide = await requested_approval(
        protocol.COMMAND_APPROVAL, command="cat notes.txt", additionalPermissions=more, itemId="2"
    )
    assert "/root/.ssh" in request_subject(wide)
    assert request_subject(plain) == "cat notes.txt"
    assert not covers(plain, wide)
    assert not covers(wide, plain)
    assert covers(wide, wide)
    shown = make_saved_approval(wide, "g", session="", by="owner").text
    assert "cat notes.txt" in shown
    assert "/root/.ssh" in shown


async def test_unknown_fields_are_covered() -> None:
    one = await requested_approval(protocol.COMMAND_APPROVAL, command="ls", wider={"in": 1})
    other = await requested_approval(protocol.COMMAND_APPROVAL, command="ls", wider={"in": 2})
    assert (covers(one, one), covers(one, other)) == (True, False)


async def test_host_of_a_command_is_shown_covered_and_deniable() -> None:
    def to(host: str) -> dict[str, object]:
        return {"command": "curl x", "networkApprovalContext": {"host": host, "protocol": "https"}}

    good = await requested_approval(protocol.COMMAND_APPROVAL, **to("good.example"))
    evil = await requested_approval(protocol.COMMAND_APPROVAL, **to("evil.example"))
    assert request_subject(evil) == "curl x\nconnect to https://evil.example"
    assert (covers(good, good), covers(good, evil)) == (True, False)
    masked = await requested_approval(protocol.COMMAND_APPROVAL, **to("p\u0430ypal.com"))
    assert "U+0430" in request_subject(masked)
    rules = ApprovalRules(deny=("*evil.example",))
    assert isinstance(apply_policy(rules, evil, SCOPE, StandingApprovals()), Denied)
    assert not isinstance(apply_policy(rules, good, SCOPE, StandingApprovals()), Denied)


async def test_mcp_tool_request_shows_all_arguments() -> None:
    def calling(middle: str) -> dict[str, object]:
        arguments = {"text": "a" * 1_500 + middle + "b" * 1_500}
        return {
            "mode": "form",
            "serverName": "s",
            "message": "?",
            "_meta": {"tool_params": arguments},
        }

    good = await requested_approval(protocol.ELICITATION_REQUEST, **calling("GOOD"))
    evil = await requested_approval(protocol.ELICITATION_REQUEST, **calling("EVIL"))
    assert "EVIL" in request_subject(evil)
    assert (covers(good, good), covers(good, evil)) == (True, False)


def mapper_with_changes(*changes: Mapping[str, object]) -> EventMapper:
    mapper = EventMapper()
    item = {"type": "fileChange", "id": "a", "changes": changes}
    params = Raw(msgspec.json.encode({"item": item}))
    mapper.feed(RpcMessage(method=protocol.ITEM_STARTED, params=params))
    return mapper


async def test_file_change_shows_its_content() -> None:
    moved = {"type": "update", "move_path": "/etc/cron.d/x"}
    mapper = mapper_with_changes(
        {"path": "/x/a", "kind": {"type": "add"}, "diff": "+evil\n"},
        {"path": "/x/b", "kind": moved, "diff": "+more\n"},
    )
    request = await requested_approval(protocol.FILE_CHANGE_APPROVAL, mapper, itemId="a")
    assert request.action == "add /x/a, update /x/b -> /etc/cron.d/x"
    assert "+evil" in request_subject(request)
    assert "+more" in request_subject(request)
    assert not can_be_saved(request)


@pytest.mark.parametrize("diff", ["+" + "x" * 9_000, "+x\n" * 1_000, "+\u202e" * 4_000])
async def test_long_change_shows_its_size_and_the_cut(diff: str) -> None:
    mapper = mapper_with_changes({"path": "/x/a", "kind": {"type": "add"}, "diff": diff})
    request = await requested_approval(protocol.FILE_CHANGE_APPROVAL, mapper, itemId="a")
    assert request.action == f"add /x/a ({len(diff):,} characters)"
    assert "[cut: " in request_subject(request)
    assert not too_long_reason(request)
    assert not can_be_saved(request)


async def test_too_many_files_are_declined() -> None:
    mapper = mapper_with_changes(
        *({"path": f"/x/{n}" * 9, "kind": "add", "diff": "+"} for n in range(300))
    )
    assert too_long_reason(
        await requested_approval(protocol.FILE_CHANGE_APPROVAL, mapper, itemId="a")
    )


@pytest.mark.parametrize("method", [protocol.COMMAND_APPROVAL, protocol.FILE_CHANGE_APPROVAL])
async def test_request_that_cannot_be_shown_is_declined(method: str) -> None:
    person = FakeApprovals()
    assert await answer_request(person, method, itemId="unheard") == {"decision": "decline"}
    assert person.wishes == []
