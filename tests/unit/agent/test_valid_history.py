"""Any history becomes one that every provider accepts."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from hermes.agent.history import (
    INTERRUPTED,
    NO_OUTPUT,
    unanswered_calls,
    valid_history,
    with_unique_call_ids,
)
from hermes.schema.messages import (
    Assistant,
    Media,
    Message,
    Reasoning,
    Result,
    Stop,
    Text,
    ToolCall,
    Trust,
    Usage,
    User,
    text_of,
)
from support.cases import cases
from support.examples import at_most
from support.history_validators import (
    VALIDATORS,
    InvalidHistory,
    check_history,
    check_request,
)
from support.turns import assistant_message, tool_call, tool_result, user_message

PICTURE = Media("0" * 64, "image/png")

texts = st.sampled_from(["", " ", "\n\n", "word", "many words", "é 字", "x" * 50]).map(Text)
ids = st.sampled_from(["", "c1", "c2", "c3", "c1_2", "functions.look:0"])
names = st.sampled_from(["look", "act", "", "no such tool", "näme", "a.b", "n" * 80])
arguments = st.sampled_from([b"{}", b'{"a": 1}', b" {}", b"[]", b"null", b'"x"', b"", b"7"])
calls = st.builds(ToolCall, ids, names, arguments.map(Raw), st.sampled_from(["", '{"a']))
reasoning = st.builds(Reasoning, st.sampled_from(["", "hm"]), st.sampled_from([None, "seal"]))
message_ids = st.sampled_from(["m1", "m2", "m3"])
media = st.just(PICTURE)
users = st.builds(
    User,
    message_ids,
    st.lists(st.one_of(texts, media), max_size=3).map(tuple),
    st.sampled_from(Trust),
)
answers = st.builds(
    Assistant,
    message_ids,
    st.lists(st.one_of(texts, reasoning, calls), max_size=4).map(tuple),
    st.sampled_from(Stop),
)
results = st.builds(
    Result, message_ids, ids, st.lists(st.one_of(texts, media), max_size=2).map(tuple)
)
rubble = st.lists(st.one_of(users, answers, results), max_size=12)


@st.composite
def orderly(draw: st.DrawFn) -> list[Message]:
    """A history as the loop writes it: valid to the last message."""
    history: list[Message] = []
    for turn in range(draw(st.integers(0, 3))):
        parts = draw(st.sampled_from([(Text("q"),), (PICTURE,), (Text("q"), PICTURE, Text("r"))]))
        history.append(User(f"u{turn}", parts))
        for step in range(draw(st.integers(0, 3))):
            made = [
                tool_call("look", f"c{turn}_{step}_{number}x", at=number)
                for number in range(draw(st.integers(1, 3)))
            ]
            words = draw(st.sampled_from([(), ("Let me see.",), (Reasoning("hm", "seal"),)]))
            history.append(assistant_message(*words, *made))
            history += [tool_result(c.id) for c in made]
        history.append(assistant_message("So it is."))
    return history


@st.composite
def damaged(draw: st.DrawFn) -> list[Message]:
    """A valid history that was cut, shuffled, thinned out or doubled."""
    history = draw(orderly())
    if history and draw(st.booleans()):
        history = history[draw(st.integers(0, len(history))) :]
    if history and draw(st.booleans()):
        history = history[: draw(st.integers(0, len(history)))]
    if history and draw(st.booleans()):
        gone = draw(st.sets(st.integers(0, len(history) - 1)))
        history = [message for place, message in enumerate(history) if place not in gone]
    if draw(st.booleans()):
        history = [message for message in history for _ in range(draw(st.integers(1, 2)))]
    if draw(st.booleans()):
        history = draw(st.permutations(history))
    return history


def check_repair(history: Sequence[Message]) -> None:
    repaired = valid_history(history)
    check_history(repaired)
    again = valid_history(repaired)
    assert len(again) == len(repaired)
    assert all(new is old for new, old in zip(again, repaired, strict=True))


@pytest.mark.slow
@given(rubble)
@at_most(150)
def test_random_history_becomes_valid_and_stays_valid(history: list[Message]) -> None:
    check_repair(history)


@given(damaged())
@at_most(150)
def test_damaged_history_becomes_valid_and_stays_valid(history: list[Message]) -> None:
    check_repair(history)


@pytest.mark.soak
@pytest.mark.timeout(3_600)
@given(st.one_of(rubble, damaged()))
@settings(max_examples=100_000, deadline=None)
def test_a_night_of_damage(history: list[Message]) -> None:
    check_repair(history)


@given(orderly())
@at_most(60)
def test_valid_history_is_unchanged(history: list[Message]) -> None:
    repaired = valid_history(history)
    assert len(repaired) == len(history)
    assert all(new is old for new, old in zip(repaired, history, strict=True))
    assert unanswered_calls(history) == []


@given(damaged())
@at_most(60)
def test_user_text_is_never_lost(history: list[Message]) -> None:
    before = [text_of(m) for m in history if isinstance(m, User)]
    after = "\n".join(text_of(m) for m in valid_history(history) if isinstance(m, User))
    assert after.count("q") >= sum(text.count("q") for text in before)


@given(orderly(), st.data())
@at_most(60)
def test_longer_history_starts_like_the_shorter_one(
    history: list[Message], data: st.DataObject
) -> None:
    """What was sent before is sent again, so that the provider's cache holds."""
    upto = data.draw(st.integers(0, len(history)))
    shorter, longer = valid_history(history[:upto]), valid_history(history)
    settled = [m for m in shorter if not (isinstance(m, Result) and m.id.endswith("_lost"))]
    assert all(any(new is old for new in longer) for old in settled)


def test_result_is_moved_after_its_call() -> None:
    call, question, late = tool_call("look"), user_message("and?"), user_message("now")
    found = tool_result(call.id)
    reply = assistant_message(call)
    assert valid_history([question, reply, late, found]) == [question, reply, found, late]


def test_missing_result_is_marked_interrupted() -> None:
    call = tool_call("look")
    history = valid_history([user_message(), assistant_message(call), user_message("go on")])
    lost = history[2]
    assert isinstance(lost, Result)
    assert (lost.call, lost.failed, text_of(lost)) == (call.id, True, INTERRUPTED)
    check_request(history)


def test_result_without_a_call_is_dropped() -> None:
    question = user_message()
    assert valid_history([question, tool_result("c9")]) == [question]


def test_first_of_two_results_is_used() -> None:
    call = tool_call("look")
    first, second = tool_result(call.id, "one"), tool_result(call.id, "two")
    assert valid_history([user_message(), assistant_message(call), first, second])[2:] == [first]


def test_repeated_ids_keep_their_own_results() -> None:
    history = [
        user_message(),
        assistant_message(tool_call("look", "call_0", at=1)),
        tool_result("call_0", "one"),
        assistant_message(tool_call("look", "call_0", at=2), tool_call("look", "call_0", at=3)),
        tool_result("call_0", "two"),
        tool_result("call_0", "three"),
        assistant_message(tool_call("look", "call_0", at=4)),
        user_message("stop"),
        assistant_message(tool_call("look", "call_0", at=5)),
        tool_result("call_0", "five"),
    ]
    repaired = valid_history(history)
    check_request(repaired)
    results = [text_of(m) for m in repaired if isinstance(m, Result)]
    assert results == ["one", "two", "three", INTERRUPTED, "five"]
    made = [c.id for m in repaired if isinstance(m, Assistant) for c in m.calls]
    assert made == ["call_0", "call_0_2", "call_0_3", "call_0_4", "call_0_5"]


def test_adjacent_user_messages_are_joined_without_blank_parts() -> None:
    picture = User("m2", (PICTURE,))
    (joined,) = valid_history(
        [
            user_message("one"),
            user_message(" "),
            user_message("two"),
            picture,
            user_message("three"),
        ]
    )
    assert joined.parts == (Text("one\n\ntwo"), PICTURE, Text("three"))


def test_adjacent_answers_are_joined() -> None:
    first = assistant_message("One, ", usage=Usage(1, 2))
    second = assistant_message("two.", usage=Usage(3, 4))
    joined = valid_history([user_message(), first, second])[1]
    assert isinstance(joined, Assistant)
    assert (joined.text, joined.usage, joined.id) == ("One, two.", Usage(4, 6), second.id)


def test_answer_with_only_reasoning_is_dropped() -> None:
    question = user_message()
    assert valid_history(
        [question, assistant_message(Reasoning("hm", "seal")), assistant_message(" ")]
    ) == [question]


def test_history_starts_with_a_user_message() -> None:
    history = valid_history([assistant_message("Good morning.")])
    assert isinstance(history[0], User)
    assert history[0].trust is Trust.PROGRAM


def test_empty_result_gets_a_placeholder() -> None:
    call = tool_call("act")
    history = valid_history(
        [user_message(), assistant_message(call), Result("m", call.id, (Text(""),))]
    )
    assert text_of(history[2]) == NO_OUTPUT


def test_empty_history_stays_empty() -> None:
    assert valid_history([]) == []
    assert valid_history([user_message(" "), assistant_message()]) == []


def test_unanswered_calls_are_listed_in_order() -> None:
    one, two, three = tool_call("look"), tool_call("act"), tool_call("look")
    history = [user_message(), assistant_message(one, two, three), tool_result(two.id)]
    assert unanswered_calls(history) == [(one.id, "look"), (three.id, "look")]
    results = [tool_result(call) for call, _ in unanswered_calls(history)]
    assert unanswered_calls([*history, *results]) == []


def test_call_with_a_repeated_id_is_unanswered_until_its_own_result() -> None:
    history = [
        user_message(),
        assistant_message(tool_call("look", "c")),
        tool_result("c"),
        assistant_message(tool_call("act", "c")),
    ]
    assert unanswered_calls(history) == [("c", "act")]


def test_answer_with_unique_ids_is_unchanged() -> None:
    good = assistant_message("ok", tool_call("look", "c1"), tool_call("look", "c2"))
    taken = {"c0"}
    assert with_unique_call_ids(good, taken) is good
    assert taken == {"c0", "c1", "c2"}


BAD: dict[str, tuple[set[str], list[Message]]] = {
    "assistant first": ({"chat_completions", "anthropic", "gemini"}, [assistant_message("hi")]),
    "two users": ({"chat_completions"}, [user_message(), user_message()]),
    "two answers": (
        {"chat_completions", "anthropic", "gemini"},
        [user_message(), assistant_message("a"), assistant_message("b")],
    ),
    "no result": (
        set(VALIDATORS),
        [user_message(), assistant_message(tool_call("look", "c")), user_message()],
    ),
    "no result at the end": (
        set(VALIDATORS),
        [user_message(), assistant_message(tool_call("look", "c"))],
    ),
    "result without a call": (
        set(VALIDATORS),
        [user_message(), assistant_message("a"), tool_result("c")],
    ),
    "two results": (
        set(VALIDATORS),
        [
            user_message(),
            assistant_message(tool_call("look", "c")),
            tool_result("c"),
            tool_result("c"),
        ],
    ),
    "results out of order": (
        {"gemini"},
        [
            user_message(),
            assistant_message(tool_call("look", "c"), tool_call("look", "d")),
            tool_result("d"),
            tool_result("c"),
        ],
    ),
    "result after text": (
        {"chat_completions", "anthropic"},
        [
            user_message(),
            assistant_message(tool_call("look", "c")),
            user_message("x"),
            tool_result("c"),
        ],
    ),
    "an id twice": (
        set(VALIDATORS),
        [
            user_message(),
            assistant_message(tool_call("look", "c")),
            tool_result("c"),
            assistant_message(tool_call("look", "c")),
            tool_result("c"),
        ],
    ),
    "an empty id": (
        set(VALIDATORS),
        [user_message(), assistant_message(ToolCall("", "x", Raw(b"{}"))), tool_result("")],
    ),
    "a bad name": (
        set(VALIDATORS),
        [user_message(), assistant_message(tool_call("a b", "c")), tool_result("c")],
    ),
    "no object": (
        set(VALIDATORS),
        [user_message(), assistant_message(ToolCall("c", "x", Raw(b"[]"))), tool_result("c")],
    ),
    "an empty user": ({"chat_completions", "responses", "gemini"}, [User("m", ())]),
    "a blank user": (set(VALIDATORS), [user_message(" ")]),
    "a blank part": ({"anthropic"}, [User("m", (Text("a"), Text("\n")))]),
    "thoughts only": (
        {"chat_completions", "responses", "gemini"},
        [user_message(), assistant_message(Reasoning("hm"))],
    ),
}


@cases("name", BAD)
def test_validators_reject_invalid_histories(name: str) -> None:
    refusing, history = BAD[name]
    refused: set[str] = set()
    for shape, check in VALIDATORS.items():
        try:
            check(history)
        except InvalidHistory:
            refused.add(shape)
    assert refused == refusing
    check_history(valid_history(history))


def test_request_needs_a_message_to_answer() -> None:
    with pytest.raises(InvalidHistory):
        check_request([])
    with pytest.raises(InvalidHistory):
        check_request([user_message(), assistant_message("done")])


@pytest.mark.parametrize(
    ("first", "second", "joined"),
    [
        (Trust.OWNER, Trust.PROGRAM, Trust.OWNER),
        (Trust.PROGRAM, Trust.OWNER, Trust.OWNER),
        (Trust.DATA, Trust.OWNER, Trust.DATA),
        (Trust.OWNER, Trust.GUEST, Trust.GUEST),
    ],
)
def test_joined_messages_get_the_lowest_trust(first: Trust, second: Trust, joined: Trust) -> None:
    (message,) = valid_history([User("a", (Text("1"),), first), User("b", (Text("2"),), second)])
    assert isinstance(message, User)
    assert message.trust is joined
