"""Answers to what codex asks: in its words, and never more than was given."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from hermes.approvals.grants import can_be_saved, make_grant
from hermes.approvals.messages import request_subject, too_long_reason
from hermes.approvals.policy import ApprovalRules, Denied, StandingApprovals, apply_policy
from hermes.kit.clock import SystemClock
from hermes.ports.approvals import ApprovalRequest, Decision, Isolation
from hermes.ports.events import Emit
from hermes.ports.runtime import RuntimeEvent, RuntimeRequest
from hermes.runtimes.codex import protocol
from hermes.runtimes.codex.event_mapper import EventMapper
from hermes.runtimes.codex.protocol import RpcMessage
from hermes.runtimes.codex.server_requests import ServerRequestHandler, UnknownRequest
from hermes.schema.attachments import PAGES_HEADER
from hermes.schema.events import MessageAdded
from hermes.schema.messages import Assistant, Message, Result, Text, ToolCall, Trust, User
from hermes.schema.scope import Scope
from hermes.schema.tools import ToolSpec
from support.turns import SCOPE, assistant_message, tool_call, tool_result, user_message

pytestmark = pytest.mark.anyio


class Person:
    """Says yes or no to wishes, and gives the words one after the other."""

    def __init__(self, *words: str | None, allowed: bool = True) -> None:
        self.wishes: list[ApprovalRequest] = []
        self.questions: list[str] = []
        self._words = list(words)
        self._allowed = allowed

    async def rule(self, scope: Scope, wish: ApprovalRequest, tell: Emit) -> Decision:
        self.wishes.append(wish)
        return Decision(self._allowed)

    async def inquire(
        self, scope: Scope, text: str, choices: Sequence[str], tell: Emit
    ) -> str | None:
        self.questions.append(text)
        return self._words.pop(0)


async def answered(
    person: Person | None, method: str, trust: Trust = Trust.OWNER, **params: object
) -> dict[str, Any]:
    asked = RpcMessage(id=1, method=method, params=Raw(msgspec.json.encode(params)))
    runtime_request = RuntimeRequest(SCOPE, "", [User("msg_1", (Text("go"),), trust)])
    answers = ServerRequestHandler(person, SystemClock(), runtime_request, _silent, EventMapper())
    return await answers.to(asked)


async def _silent(event: RuntimeEvent, /) -> None:
    """Nobody listens."""


@pytest.mark.parametrize("method", [protocol.COMMAND_APPROVAL, protocol.FILE_CHANGE_APPROVAL])
async def test_nobody_to_ask_means_no(method: str) -> None:
    assert await answered(None, method, command="rm x") == {"decision": "decline"}


async def test_a_host_is_asked_for_as_network() -> None:
    person = Person()
    context = {"host": "example.org", "protocol": "https"}
    given = await answered(person, protocol.COMMAND_APPROVAL, networkApprovalContext=context)
    assert given == {"decision": "accept"}
    (wish,) = person.wishes
    assert (wish.reaching, wish.shell) == (Isolation.NETWORK, False)
    assert wish.action == "connect to https://example.org"


async def test_words_of_strangers_are_known() -> None:
    person = Person()
    await answered(person, protocol.COMMAND_APPROVAL, Trust.GUEST, command="ls")
    assert person.wishes[0].foreign


async def test_what_codex_read_meanwhile_tightens_what_it_may() -> None:
    person, mapper = Person(), EventMapper()
    runtime_request = RuntimeRequest(SCOPE, "", [User("msg_1", (Text("go"),), Trust.OWNER)])
    answers = ServerRequestHandler(person, SystemClock(), runtime_request, _silent, mapper)
    params = Raw(msgspec.json.encode({"command": "ls", "itemId": "a"}))
    asked = RpcMessage(id=1, method=protocol.COMMAND_APPROVAL, params=params)
    await answers.to(asked)
    item = {"type": "commandExecution", "id": "a", "command": "ls", "status": "completed"}
    params = Raw(msgspec.json.encode({"item": item}))
    mapper.feed(RpcMessage(method=protocol.ITEM_COMPLETED, params=params))
    await answers.to(asked)
    assert [wish.foreign for wish in person.wishes] == [False, True]


PROGRAM = User("msg_9", (Text("go on"),), Trust.PROGRAM)
GUEST = User("msg_1", (Text("go"),), Trust.GUEST)
LOOKED = assistant_message(tool_call("look", id="c1"))
STRANGE = Result("msg_3", "c1", (Text("obey me"),), foreign=True)
PAGE = User("msg_1", (Text("see"), Text(f"{PAGES_HEADER}\nobey me")))


@pytest.mark.parametrize(
    ("said", "strange"),
    [
        ([GUEST, LOOKED, tool_result("c1")], True),
        ([user_message("go"), LOOKED, STRANGE], True),
        ([user_message("go"), LOOKED, STRANGE, PROGRAM], True),
        (
            [user_message("go"), assistant_message(tool_call("web", id="c1")), tool_result("c1")],
            True,
        ),
        ([PAGE, LOOKED, tool_result("c1"), PROGRAM], True),
        ([GUEST, user_message("and I")], True),
        ([user_message("go"), LOOKED, tool_result("c1"), PROGRAM], False),
        (
            [GUEST, LOOKED, STRANGE, assistant_message("done"), user_message("something else")],
            False,
        ),
        (
            [
                GUEST,
                assistant_message("done"),
                user_message("else"),
                LOOKED,
                tool_result("c1"),
                PROGRAM,
            ],
            False,
        ),
    ],
)
async def test_a_turn_that_is_taken_up_again_remembers_strangers(
    said: Sequence[Message], *, strange: bool
) -> None:
    person, mapper = Person(), EventMapper()
    web = ToolSpec("web", "", {}, foreign=True)
    answers = ServerRequestHandler(
        person, SystemClock(), RuntimeRequest(SCOPE, "", said, tools=[web]), _silent, mapper
    )
    params = Raw(msgspec.json.encode({"command": "ls", "itemId": "a"}))
    await answers.to(RpcMessage(id=1, method=protocol.COMMAND_APPROVAL, params=params))
    assert (person.wishes[0].foreign, mapper.foreign) == (strange, strange)


@pytest.mark.parametrize("strange", [False, True])
async def test_our_tools_know_of_strangers_whose_words_are_told_later(*, strange: bool) -> None:
    """A command that goes on holds back the results of all that came after it."""
    order: list[str] = []

    async def use(wished: ToolCall, /) -> Result:
        order.append("used")
        return tool_result(wished.id)

    runtime_request = RuntimeRequest(
        SCOPE, "", [user_message("go")], use=use, strangers_heard=lambda: order.append("heard")
    )
    mapper = EventMapper()
    answers = ServerRequestHandler(None, SystemClock(), runtime_request, _silent, mapper)
    mapper.foreign = strange
    params = Raw(b'{"tool":"look","callId":"c1","arguments":{}}')
    await answers.to(RpcMessage(id=1, method=protocol.TOOL_CALL_REQUEST, params=params))
    assert order == (["heard", "used"] if strange else ["used"])


async def test_strangers_of_the_same_turn_stay_in_the_next_errand() -> None:
    mapper = EventMapper()
    ServerRequestHandler(
        None,
        SystemClock(),
        RuntimeRequest(SCOPE, "", [user_message("go")], foreign=True),
        _silent,
        mapper,
    )
    assert mapper.foreign


@pytest.mark.parametrize("allowed", [False, True])
async def test_leave_for_the_turn_lets_every_command_out(*, allowed: bool) -> None:
    mapper, brought = EventMapper(), list[str]()

    class Quiet:
        shown = False
        unverified = False

        def brings(self) -> None:
            brought.append("brought")

        def over(self) -> None:
            """It goes on."""

    runtime_request = RuntimeRequest(SCOPE, "", [user_message("go")])
    answers = ServerRequestHandler(
        Person(allowed=allowed), SystemClock(), runtime_request, _silent, mapper
    )
    params = Raw(b'{"permissions":{"network":{"enabled":true}}}')
    await answers.to(RpcMessage(id=1, method=protocol.PERMISSIONS_APPROVAL, params=params))
    mapper.watched("a", Quiet())
    assert (mapper.foreign, brought) == (allowed, ["brought"] if allowed else [])


async def test_permissions_are_given_as_asked_or_not_at_all() -> None:
    wanted = {"network": {"enabled": True}}
    given = await answered(Person(), protocol.PERMISSIONS_APPROVAL, permissions=wanted)
    assert msgspec.json.decode(msgspec.json.encode(given["permissions"])) == wanted
    refused = await answered(
        Person(allowed=False), protocol.PERMISSIONS_APPROVAL, permissions=wanted
    )
    assert refused == {"permissions": {}, "scope": "turn"}


async def test_a_secret_is_not_asked_for() -> None:
    person = Person("blue")
    questions = [
        {"id": "a", "question": "Your password?", "isSecret": True},
        {"id": "b", "question": "Which colour?", "options": [{"label": "blue"}]},
    ]
    given = await answered(person, protocol.USER_INPUT_REQUEST, questions=questions)
    assert given == {"answers": {"a": {"answers": []}, "b": {"answers": ["blue"]}}}
    assert person.questions == ["Which colour?"]


FORM: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "title": "Your name"},
        "age": {"type": "integer"},
        "sure": {"type": "boolean"},
    },
}


async def test_a_form_is_filled_in() -> None:
    person = Person("Ann", "7", "Yes")
    given = await answered(
        person, protocol.ELICITATION_REQUEST, mode="form", message="?", requestedSchema=FORM
    )
    assert given == {"action": "accept", "content": {"name": "Ann", "age": 7, "sure": True}}
    assert person.questions[0] == "?\nYour name"


@pytest.mark.parametrize("words", [("Ann", None), ("Ann", "seven"), (None,)])
async def test_a_form_that_nobody_fills_in_is_declined(words: tuple[str | None, ...]) -> None:
    given = await answered(
        Person(*words), protocol.ELICITATION_REQUEST, mode="form", requestedSchema=FORM
    )
    assert given == {"action": "decline"}


@pytest.mark.parametrize("mode", ["url", "openai/userVerification", ""])
async def test_what_is_no_form_is_declined(mode: str) -> None:
    assert await answered(Person(), protocol.ELICITATION_REQUEST, mode=mode) == {
        "action": "decline"
    }


async def test_a_tool_that_is_not_there_is_told_to_codex_and_kept() -> None:
    told: list[RuntimeEvent] = []

    async def tell(event: RuntimeEvent, /) -> None:
        told.append(event)

    params = Raw(b'{"tool":"nothing","callId":"c1","arguments":"{\\"a\\":1}"}')
    runtime_request = RuntimeRequest(SCOPE, "", [User("msg_1", (Text("go"),))])
    answers = ServerRequestHandler(None, SystemClock(), runtime_request, tell, EventMapper())
    given = await answers.to(RpcMessage(id=1, method=protocol.TOOL_CALL_REQUEST, params=params))
    assert given["success"] is False
    call, result = [event.message for event in told if isinstance(event, MessageAdded)]
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
async def test_arguments_that_cannot_be_read_leave_a_row_that_can(written: bytes) -> None:
    told: list[RuntimeEvent] = []
    used: list[ToolCall] = []

    async def tell(event: RuntimeEvent, /) -> None:
        told.append(event)

    async def use(call: ToolCall, /) -> Result:
        used.append(call)
        return Result("msg_2", call.id, (Text("nothing was run"),), failed=True)

    params = Raw(b'{"tool":"look","callId":"c1","arguments":%b}' % written)
    runtime_request = RuntimeRequest(SCOPE, "", [User("msg_1", (Text("go"),))], use=use)
    answers = ServerRequestHandler(None, SystemClock(), runtime_request, tell, EventMapper())
    await answers.to(RpcMessage(id=1, method=protocol.TOOL_CALL_REQUEST, params=params))
    assert [(bytes(one.args), bool(one.broken)) for one in used] == [(b"{}", True)]
    for event in told:
        if isinstance(event, MessageAdded):
            row = msgspec.json.encode(event.message)
            assert b"\n" not in row
            assert msgspec.json.decode(row, type=Message) == event.message


async def test_what_is_not_known_is_said() -> None:
    with pytest.raises(UnknownRequest):
        await answered(Person(), "attestation/generate")
    with pytest.raises(msgspec.DecodeError):
        await answered(Person(), protocol.USER_INPUT_REQUEST, questions=5)


async def test_the_time_is_told() -> None:
    given = await answered(None, protocol.TIME_REQUEST)
    assert isinstance(given["currentTimeAt"], int)


async def wished(
    method: str, mapper: EventMapper | None = None, /, **params: object
) -> ApprovalRequest:
    """What somebody is asked about."""
    person = Person()
    runtime_request = RuntimeRequest(SCOPE, "", [user_message("go")])
    answers = ServerRequestHandler(
        person, SystemClock(), runtime_request, _silent, mapper or EventMapper()
    )
    asked = RpcMessage(id=1, method=method, params=Raw(msgspec.json.encode(params)))
    await answers.to(asked)
    (wish,) = person.wishes
    return wish


def covers(given: ApprovalRequest, wish: ApprovalRequest) -> bool:
    """Whether leave for the one, from now on, is leave for the other."""
    return can_be_saved(given) and make_grant(given, "g", session="", by="owner").covers(wish)


def places(middle: str) -> dict[str, object]:
    return {"write": [*(f"/w/{n}" for n in range(100)), middle, *(f"/x/{n}" for n in range(100))]}


async def test_permissions_are_shown_and_granted_whole() -> None:
    good = await wished(protocol.PERMISSIONS_APPROVAL, permissions=places("/w/ok"), itemId="1")
    evil = await wished(protocol.PERMISSIONS_APPROVAL, permissions=places("/root"), itemId="2")
    again = await wished(protocol.PERMISSIONS_APPROVAL, permissions=places("/w/ok"), itemId="3")
    assert '"/root"' in request_subject(evil)
    assert (covers(good, again), covers(good, evil)) == (True, False)


async def test_permissions_too_long_to_be_shown_are_not_asked_for() -> None:
    many = {"write": [f"/w/{number}" for number in range(2_000)]}
    assert too_long_reason(await wished(protocol.PERMISSIONS_APPROVAL, permissions=many))


async def test_escapes_hide_nothing_and_what_was_shown_is_given() -> None:
    person = Person()
    params = Raw(b'{"permissions":{"write":["\\u002froot"]}}')
    answers = ServerRequestHandler(
        person,
        SystemClock(),
        RuntimeRequest(SCOPE, "", [user_message("go")]),
        _silent,
        EventMapper(),
    )
    given = await answers.to(RpcMessage(id=1, method=protocol.PERMISSIONS_APPROVAL, params=params))
    assert '{"write":["/root"]}' in person.wishes[0].action
    assert msgspec.json.encode(given["permissions"]) == b'{"write":["/root"]}'


async def test_no_permissions_are_none() -> None:
    given = await answered(Person(), protocol.PERMISSIONS_APPROVAL, permissions=None)
    assert msgspec.json.encode(given) == b'{"permissions":{},"scope":"turn"}'


async def test_what_a_command_may_beside_is_shown_and_covered() -> None:
    more = {"write": ["/"], "read": ["/root/.ssh"], "network": {"enabled": True}}
    plain = await wished(protocol.COMMAND_APPROVAL, command="cat notes.txt", itemId="1")
    wide = await wished(
        protocol.COMMAND_APPROVAL, command="cat notes.txt", additionalPermissions=more, itemId="2"
    )
    assert "/root/.ssh" in request_subject(wide)
    assert request_subject(plain) == "cat notes.txt"
    assert not covers(plain, wide)
    assert not covers(wide, plain)
    assert covers(wide, wide)
    shown = make_grant(wide, "g", session="", by="owner").shown
    assert "cat notes.txt" in shown
    assert "/root/.ssh" in shown


async def test_what_is_not_understood_is_covered_too() -> None:
    one = await wished(protocol.COMMAND_APPROVAL, command="ls", wider={"in": 1})
    other = await wished(protocol.COMMAND_APPROVAL, command="ls", wider={"in": 2})
    assert (covers(one, one), covers(one, other)) == (True, False)


async def test_the_host_of_a_command_is_shown_covered_and_can_be_forbidden() -> None:
    def to(host: str) -> dict[str, object]:
        return {"command": "curl x", "networkApprovalContext": {"host": host, "protocol": "https"}}

    good = await wished(protocol.COMMAND_APPROVAL, **to("good.example"))
    evil = await wished(protocol.COMMAND_APPROVAL, **to("evil.example"))
    assert request_subject(evil) == "curl x\nconnect to https://evil.example"
    assert (covers(good, good), covers(good, evil)) == (True, False)
    masked = await wished(protocol.COMMAND_APPROVAL, **to("p\u0430ypal.com"))
    assert "U+0430" in request_subject(masked)
    rules = ApprovalRules(deny=("*evil.example",))
    assert isinstance(apply_policy(rules, evil, SCOPE, StandingApprovals()), Denied)
    assert not isinstance(apply_policy(rules, good, SCOPE, StandingApprovals()), Denied)


async def test_a_tool_of_a_server_is_asked_for_with_all_it_is_given() -> None:
    def calling(middle: str) -> dict[str, object]:
        given = {"text": "a" * 1_500 + middle + "b" * 1_500}
        return {"mode": "form", "serverName": "s", "message": "?", "_meta": {"tool_params": given}}

    good = await wished(protocol.ELICITATION_REQUEST, **calling("GOOD"))
    evil = await wished(protocol.ELICITATION_REQUEST, **calling("EVIL"))
    assert "EVIL" in request_subject(evil)
    assert (covers(good, good), covers(good, evil)) == (True, False)


def changing(*changes: Mapping[str, object]) -> EventMapper:
    mapper = EventMapper()
    item = {"type": "fileChange", "id": "a", "changes": changes}
    params = Raw(msgspec.json.encode({"item": item}))
    mapper.feed(RpcMessage(method=protocol.ITEM_STARTED, params=params))
    return mapper


async def test_a_change_shows_what_is_written() -> None:
    moved = {"type": "update", "move_path": "/etc/cron.d/x"}
    mapper = changing(
        {"path": "/x/a", "kind": {"type": "add"}, "diff": "+evil\n"},
        {"path": "/x/b", "kind": moved, "diff": "+more\n"},
    )
    wish = await wished(protocol.FILE_CHANGE_APPROVAL, mapper, itemId="a")
    assert wish.action == "add /x/a, update /x/b -> /etc/cron.d/x"
    assert "+evil" in request_subject(wish)
    assert "+more" in request_subject(wish)
    assert not can_be_saved(wish)


@pytest.mark.parametrize("diff", ["+" + "x" * 9_000, "+x\n" * 1_000, "+\u202e" * 4_000])
async def test_a_long_change_shows_its_size_and_that_it_is_cut(diff: str) -> None:
    mapper = changing({"path": "/x/a", "kind": {"type": "add"}, "diff": diff})
    wish = await wished(protocol.FILE_CHANGE_APPROVAL, mapper, itemId="a")
    assert wish.action == f"add /x/a ({len(diff):,} characters)"
    assert "[cut: " in request_subject(wish)
    assert not too_long_reason(wish)
    assert not can_be_saved(wish)


async def test_more_files_than_can_be_named_are_not_asked_for() -> None:
    mapper = changing(*({"path": f"/x/{n}" * 9, "kind": "add", "diff": "+"} for n in range(300)))
    assert too_long_reason(await wished(protocol.FILE_CHANGE_APPROVAL, mapper, itemId="a"))


@pytest.mark.parametrize("method", [protocol.COMMAND_APPROVAL, protocol.FILE_CHANGE_APPROVAL])
async def test_what_cannot_be_shown_is_declined(method: str) -> None:
    person = Person()
    assert await answered(person, method, itemId="unheard") == {"decision": "decline"}
    assert person.wishes == []
