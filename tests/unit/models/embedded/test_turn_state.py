"""The state of a small model's turn, and what its answer must contain."""

import pytest
from msgspec import Raw

from hermes.models.embedded.model import PAGE_NOT_OPENED, append_missing
from hermes.models.embedded.turn_state import (
    MAX_CHECKED_STEPS,
    asks_for_action,
    asks_for_information,
    names_in,
    turn_state_of,
    urls_in,
)
from hermes.ports.model import ModelRequest
from hermes.schema.events import TextDelta
from hermes.schema.messages import Assistant, Message, Result, Stop, Text, ToolCall, User
from support.cases import cases


def step(number: int, name: str, args: str, output: str, *, failed: bool = False) -> list[Message]:
    made = ToolCall(f"c{number}", name, Raw(args.encode()))
    return [
        Assistant(f"a{number}", (made,), Stop.TOOLS),
        Result(f"r{number}", f"c{number}", (Text(output),), failed=failed),
    ]


def conversation(words: str, *steps: list[Message]) -> list[Message]:
    return [User("u", (Text(words),)), *(message for one in steps for message in one)]


LS = step(0, "terminal", '{"command": "ls"}', '{"output":"plan.txt\\nnotes.md","exit_code":0}')
COUNT = step(0, "terminal", '{"command": "wc -l"}', '{"output":"7 diary.txt","exit_code":0}')
DONE = step(1, "write_file", '{"path": "b.txt", "content": "x"}', '{"bytes_written":1}')


@cases(
    ("words", "names"),
    [
        ("Rename draft.txt to final.txt, please.", ["draft.txt", "final.txt"]),
        ("Write 'a kite' and \"a ball\" into x.md", ["a kite", "a ball", "x.md"]),
        ("I don't know, and it isn't Ann's.", []),
        ("What is Node.js? See example.com.", []),
        ("a.txt and a.txt", ["a.txt"]),
    ],
)
def test_names_are_found_in_a_question(words: str, names: list[str]) -> None:
    assert names_in(words) == names


@cases(
    ("words", "know", "do"),
    [
        ("Which file mentions Maria?", True, False),
        ("Summarise report.txt", True, False),
        ("Could you rename it?", False, True),
        ("Tell me the total and write it into sum.txt", True, True),
        ("Wer ist das?", False, False),
    ],
)
def test_kind_of_question_is_recognised(words: str, know: bool, do: bool) -> None:
    assert (asks_for_information(words), asks_for_action(words)) == (know, do)


def test_names_are_not_checked_after_some_steps() -> None:
    question = "Is a.txt better than b.txt?"
    assert turn_state_of(conversation(question)).untouched_names == []
    looks = [
        step(number, "terminal", f'{{"command": "ls {number}"}}', "nothing")
        for number in range(MAX_CHECKED_STEPS)
    ]
    assert turn_state_of(conversation(question, *looks[:-1])).untouched_names == ["a.txt", "b.txt"]
    assert turn_state_of(conversation(question, *looks)).untouched_names == []
    wrong = step(1, "read_file", '{"path": "c.txt"}', "there is no c.txt", failed=True)
    assert turn_state_of(conversation(question, wrong)).untouched_names == []


def test_file_name_alone_is_not_its_content() -> None:
    found = step(0, "terminal", '{"command": "grep -l x a.csv"}', '{"output":"./a.csv\\n"}')
    read = step(1, "read_file", '{"path": "a.csv"}', '{"content":"1|x,555"}')
    assert turn_state_of(
        conversation("What is the number of x? See a.csv.", found)
    ).untouched_names == ["a.csv"]
    assert (
        turn_state_of(
            conversation("What is the number of x? See a.csv.", found, read)
        ).untouched_names
        == []
    )
    assert turn_state_of(conversation("Which file mentions x?", found)).untouched_names == []


@cases(
    ("history", "reply", "rest"),
    [
        (
            conversation("What is here?", LS),
            "I listed the folder.",
            "\n\n```\nplan.txt\nnotes.md\n```",
        ),
        (conversation("What is here?", LS), "", "```\nplan.txt\nnotes.md\n```"),
        (conversation("What is here?", LS), "A plan and notes: plan.txt, notes.md.", ""),
        (conversation("How long is diary.txt?", COUNT), "Seven lines.", ""),
        (conversation("How long is diary.txt?", COUNT), "I counted diary.txt.", "\n\n7 diary.txt"),
        (conversation("Copy it", LS, DONE), "I did it.", ""),
        (conversation("Hello"), "Hello!", ""),
    ],
)
def test_missing_results_are_appended_to_the_answer(
    history: list[Message], reply: str, rest: str
) -> None:
    answer = Assistant("a", (Text(reply),), Stop.END)
    chunks = append_missing(ModelRequest("", history), answer)
    last = chunks[-1]
    assert isinstance(last, Assistant)
    assert last.text == reply + rest
    assert list(chunks[:-1]) == ([TextDelta(rest)] if rest else [])


PAGE = "https://example.org/a/b.html?x=1"
FETCHED = f'{{"command": "curl -s {PAGE}"}}'
KEPT = f'{{"command": "curl -s {PAGE} > page.html"}}'
NOTED = f'{{"path": "links.md", "content": "See {PAGE}."}}'


@pytest.mark.parametrize(
    ("words", "pages"),
    [
        (f"Read {PAGE}, please.", [PAGE]),
        ("(see HTTP://a.b/c) and <http://a.b/d>!", ["HTTP://a.b/c", "http://a.b/d"]),
        ("'http://a.b/c' or `http://a.b/c`?", ["http://a.b/c"]),
        ("example.org and ftp://a.b and http:// are none", []),
    ],
)
def test_urls_are_found_in_a_question(words: str, pages: list[str]) -> None:
    assert urls_in(words) == pages


@cases(
    "steps",
    [
        [],
        [LS],
        [step(0, "terminal", FETCHED, '{"output":"no such host","exit_code":6}')],
        [step(0, "terminal", FETCHED, "the network is not allowed", failed=True)],
        [step(0, "terminal", FETCHED, '{"output":"","exit_code":0}')],
    ],
)
def test_unopened_page_is_noted(steps: list[list[Message]]) -> None:
    reply = "The page says that plan.txt matters."
    chunks = append_missing(
        ModelRequest("", conversation(f"What does {PAGE} say?", *steps)),
        Assistant("a", (Text(reply),), Stop.END),
    )
    last = chunks[-1]
    assert isinstance(last, Assistant)
    rest = last.text.removeprefix(reply)
    assert rest == "\n\n" + PAGE_NOT_OPENED.format(page=PAGE)
    assert list(chunks[:-1]) == [TextDelta(rest)]


@pytest.mark.parametrize(
    "made",
    [
        step(0, "terminal", FETCHED, '{"output":"<title>Good day</title>","exit_code":0}'),
        step(0, "terminal", KEPT, '{"output":"","exit_code":0}'),
        step(0, "write_file", NOTED, '{"bytes_written":20}'),
    ],
)
def test_used_page_needs_no_note(made: list[Message]) -> None:
    answer = Assistant("a", (Text("Good day, it says."),), Stop.END)
    assert append_missing(
        ModelRequest("", conversation(f"Do something with {PAGE}", made)), answer
    ) == [answer]


def test_call_is_unchanged() -> None:
    call = LS[0]
    assert isinstance(call, Assistant)
    assert append_missing(ModelRequest("", conversation("What is here?", LS)), call) == [call]
