"""The compacted view of a long conversation is always a valid history."""

from collections.abc import Sequence
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from hermes.agent.history import valid_history
from hermes.agent.provenance import SUMMARY_ID
from hermes.compaction.view import (
    MAX_UNPRUNED,
    CompactedView,
    Cut,
    CutLimits,
    apply_view,
    find_cut,
    is_from_person,
    make_view,
    newly_omitted,
    prune_results,
    view_start,
)
from hermes.schema.messages import Assistant, Media, Message, Result, Text, Trust, User, text_of
from support.examples import at_most
from support.history_validators import check_history, check_request
from support.turns import assistant_message, tool_call, tool_result, user_message


def long_talk(turns: int, *, steps: int = 2, size: int = 400) -> list[Message]:
    messages: list[Message] = []
    for turn in range(turns):
        messages.append(user_message(f"question {turn} " + "q" * size))
        for step in range(steps):
            calls = [tool_call("look", f"c{turn}_{step}_{n}", at=step) for n in range(2)]
            messages.append(assistant_message(*calls))
            messages += [tool_result(one.id, f"found {turn} " + "r" * size) for one in calls]
        messages.append(assistant_message(f"reply {turn} " + "a" * size))
    return messages


def made(
    messages: Sequence[Message], ends: CutLimits, stateful: Sequence[str] = ()
) -> CompactedView:
    places = find_cut(messages, ends, stateful)
    assert places is not None
    return make_view(messages, places, "in short")


def shown(view: CompactedView, messages: Sequence[Message]) -> list[Message]:
    seen = apply_view(view, messages)
    assert seen is not None
    return seen


def test_both_ends_are_kept_and_the_middle_is_summarized() -> None:
    messages = long_talk(10)
    view = made(messages, CutLimits(budget=600, head=3))
    seen = shown(view, messages)
    assert seen[:2] == messages[:2]
    summary = next(place for place, one in enumerate(seen) if one.id.startswith(SUMMARY_ID))
    assert seen[summary] == User(f"{SUMMARY_ID}{view.first}", (Text("in short"),), Trust.PROGRAM)
    tail = seen[summary + 1 :]
    assert tail == messages[-len(tail) :]
    assert len(tail) < len(messages) // 3


def test_head_is_not_separated_from_its_results() -> None:
    messages = long_talk(10)
    places = find_cut(messages, CutLimits(budget=600, head=2))
    assert places is not None
    assert places.head == 4
    assert [type(one) for one in messages[:4]] == [User, Assistant, Result, Result]


def test_very_long_turn_keeps_its_question_and_the_previous_reply() -> None:
    messages = [*long_talk(3), *long_talk(1, steps=60)[:-1]]
    seen = shown(made(messages, CutLimits(budget=600, head=0)), messages)
    words = [text_of(one)[:10] for one in seen]
    assert words[:3] == ["in short", "reply 2 aa", "question 0"]
    assert len(seen) < 20
    check_request(valid_history(seen))


def test_stateful_tool_result_is_kept() -> None:
    first, other = tool_call("todo", "t1", todos=[]), tool_call("look", "l1")
    messages = [
        user_message(),
        assistant_message(first, other),
        tool_result("t1", "the list"),
        tool_result("l1"),
        assistant_message("ok"),
    ]
    messages += long_talk(10)
    seen = shown(made(messages, CutLimits(budget=600), ["todo"]), messages)
    kept = seen[1]
    assert isinstance(kept, Assistant)
    assert [one.id for one in kept.calls] == ["t1"]
    assert text_of(seen[2]) == "the list"
    check_request(valid_history([*seen, user_message("next")]))


def test_hidden_message_invalidates_the_view() -> None:
    messages = long_talk(10)
    view = made(messages, CutLimits(budget=600))
    assert apply_view(view, messages[: view_start(view, messages)]) is None
    assert view_start(view, messages[:3]) == 0


def test_later_messages_follow_the_view() -> None:
    messages = long_talk(10)
    view = made(messages, CutLimits(budget=600, head=3))
    before = shown(view, messages)
    after = shown(view, [*messages, *long_talk(1)])
    assert after[: len(before)] == before


def test_second_compaction_starts_where_the_first_ended() -> None:
    messages = long_talk(10)
    first = made(messages, CutLimits(budget=600, head=3))
    longer = [*messages, *(replace(one, id=f"{one.id}_b") for one in long_talk(10))]
    since = view_start(first, longer)
    places = find_cut(longer, CutLimits(budget=600, summarized=since))
    assert places is not None
    gone = newly_omitted(first, longer, places)
    assert gone == [*longer[: len(first.head)], *longer[since : places.start]]
    assert places.head == 0
    assert find_cut(messages, CutLimits(budget=600, summarized=since)) is None


def test_last_turns_are_kept_on_request() -> None:
    messages = long_talk(10)
    places = find_cut(messages, CutLimits(budget=100, turns=2))
    assert places is not None
    assert [text_of(one)[:10] for one in messages[places.start :] if is_from_person(one)] == [
        "question 8",
        "question 9",
    ]
    assert find_cut(messages, CutLimits(budget=100, turns=11)) is None


def test_long_results_in_a_long_tail_become_lines() -> None:
    messages = long_talk(2, steps=1, size=40_000)
    view = made(messages, CutLimits(budget=12_000, min_messages=8))
    seen = shown(view, messages)
    old = [one for one in seen if isinstance(one, Result)]
    assert old
    assert all(len(text_of(one)) < 300 for one in old)
    assert text_of(seen[-1]).startswith("reply 1")


def test_images_in_old_results_are_removed() -> None:
    seen = Result("m", "c", (Text("here"), Media("0" * 64, "image/png")))
    (line,) = prune_results([seen])
    assert text_of(line) == ("[a tool answered: 4 characters, 1 picture(s) no longer shown] here")
    short = tool_result("c", "x" * MAX_UNPRUNED)
    assert prune_results([short])[0] is short


@st.composite
def histories(draw: st.DrawFn) -> list[Message]:
    """As the loop writes it, up to the last whole step; sometimes with a crash in between."""
    messages: list[Message] = []
    for turn in range(draw(st.integers(0, 6))):
        trust = draw(st.sampled_from([Trust.OWNER, Trust.GUEST, Trust.DATA, Trust.PROGRAM]))
        size = draw(st.sampled_from([1, 50, 3_000]))
        messages.append(User(f"u{turn}", (Text("q" * size),), trust))
        for step in range(draw(st.integers(0, 4))):
            names = draw(st.lists(st.sampled_from(["look", "todo", "terminal"]), max_size=3))
            calls = [tool_call(name, f"c{turn}_{step}_{n}") for n, name in enumerate(names)]
            words = draw(st.sampled_from([(), ("Let me see.",)]))
            if not calls and not words:
                continue
            messages.append(replace(assistant_message(*words, *calls), id=f"a{turn}_{step}"))
            kept = draw(st.permutations(calls))[: draw(st.integers(len(calls) // 2, len(calls)))]
            size = draw(st.sampled_from([1, 300, 9_000]))
            messages += [replace(tool_result(one.id, "r" * size), id=f"r{one.id}") for one in kept]
        if draw(st.booleans()):
            messages.append(replace(assistant_message("So it is."), id=f"e{turn}"))
    return messages


def pairs_torn(messages: Sequence[Message], places: Cut) -> bool:
    owner: dict[str, int] = {}
    for place, message in enumerate(messages):
        if isinstance(message, Assistant):
            owner.update((one.id, place) for one in message.calls)
        elif isinstance(message, Result):
            called = owner[message.call]
            for edge in (places.head, places.start):
                if called < edge <= place:
                    return True
    return False


def check_compressed(history: list[Message], budget: int, head: int, more: list[Message]) -> None:
    """Through two passes: every request is valid, nothing is torn, nothing needed is lost."""
    view: CompactedView | None = None
    for messages in (history, [*history, *more]):
        since = view_start(view, messages)
        ends = CutLimits(budget=budget, head=0 if since else head, summarized=since)
        places = find_cut(messages, ends, ["todo", "terminal"])
        if places is None:
            continue
        assert not pairs_torn(messages, places)
        newly_omitted(view, messages, places)
        view = make_view(messages, places, "in short")
        seen = shown(view, messages)
        questions = [one for one in messages if is_from_person(one)]
        assert not questions or questions[-1] in seen
        check_history(valid_history(seen))
        check_request(valid_history([*seen, user_message("and now?")]))


def _with_new_ids(messages: list[Message]) -> list[Message]:
    renamed: list[Message] = []
    for one in messages:
        match one:
            case Assistant():
                parts = tuple(
                    replace(part, id=f"{part.id}_l") if part in one.calls else part
                    for part in one.parts
                )
                renamed.append(replace(one, id=f"{one.id}_l", parts=parts))
            case Result():
                renamed.append(replace(one, id=f"{one.id}_l", call=f"{one.call}_l"))
            case User():
                renamed.append(replace(one, id=f"{one.id}_l"))
    return renamed


BUDGETS = (1, 20, 200, 2_000, 20_000)


@pytest.mark.slow
@given(histories(), st.sampled_from(BUDGETS), st.integers(0, 4), histories())
@at_most(150)
def test_random_histories_give_valid_requests(
    messages: list[Message], budget: int, head: int, more: list[Message]
) -> None:
    check_compressed(messages, budget, head, _with_new_ids(more))


def random_talk(chance: Random) -> list[Message]:
    """As `talks`, and faster."""
    messages: list[Message] = []
    for turn in range(chance.randrange(7)):
        trust = chance.choice([Trust.OWNER, Trust.OWNER, Trust.DATA, Trust.PROGRAM])
        messages.append(User(f"u{turn}", (Text("q" * chance.choice([1, 50, 3_000])),), trust))
        for step in range(chance.randrange(5)):
            names = chance.choices(["look", "todo", "terminal"], k=chance.randrange(4))
            calls = [tool_call(name, f"c{turn}_{step}_{n}") for n, name in enumerate(names)]
            messages.append(replace(assistant_message("Let me see.", *calls), id=f"a{turn}_{step}"))
            kept = chance.sample(calls, chance.randint(len(calls) // 2, len(calls)))
            text = "r" * chance.choice([1, 300, 9_000])
            messages += [replace(tool_result(one.id, text), id=f"r{one.id}") for one in kept]
        if chance.random() < 0.7:
            messages.append(replace(assistant_message("So it is."), id=f"e{turn}"))
    return messages


def check_many(count: int) -> None:
    chance = Random(count)  # noqa: S311 - the same histories every time
    for _ in range(count):
        messages, more = random_talk(chance), _with_new_ids(random_talk(chance))
        check_compressed(messages, chance.choice(BUDGETS), chance.randrange(5), more)


@pytest.mark.slow
def test_thousands_of_random_histories() -> None:
    check_many(3_000)


@pytest.mark.soak
@pytest.mark.timeout(1_800)
def test_a_hundred_thousand_histories() -> None:
    check_many(100_000)


def test_wrong_cut_is_detected_by_the_validator() -> None:
    messages = long_talk(3)
    torn = Cut(head=0, start=2, unpruned=2)
    assert pairs_torn(messages, torn)
    assert all(one.id != other.id for one, other in pairwise(messages))
