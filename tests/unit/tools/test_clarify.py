"""The `clarify` tool: one question, a few choices, and the user's answer."""

from collections.abc import Sequence

import msgspec
import pytest
from msgspec import Raw

from hermes.ports.tool import ToolContext
from hermes.schema.errors import ToolError
from hermes.schema.messages import Text
from hermes.schema.scope import Scope
from hermes.tools.clarify import Clarify


async def _silence(text: str) -> None:
    return None


def context(answer: str | None, questions: list[tuple[str, list[str]]]) -> ToolContext:
    async def inquire(text: str, choices: Sequence[str]) -> str | None:
        questions.append((text, list(choices)))
        return answer

    return ToolContext(Scope("default", "s", "r", "/w"), "c", _silence, ask_person=inquire)


def args(**options: object) -> Raw:
    return Raw(msgspec.json.encode(options))


async def test_answer_is_returned_with_the_question() -> None:
    questions: list[tuple[str, list[str]]] = []
    output = await Clarify().run(
        args(question=" Which? ", choices=["red", " ", "blue"]), context("blue", questions)
    )
    assert questions == [("Which?", ["red", "blue"])]
    (part,) = output.parts
    assert isinstance(part, Text)
    assert msgspec.json.decode(part.text) == {
        "question": "Which?",
        "choices_offered": ["red", "blue"],
        "user_response": "blue",
    }


async def test_missing_answer_is_an_error() -> None:
    with pytest.raises(ToolError, match="no answer was given"):
        await Clarify().run(args(question="Which?"), context(None, []))


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"question": " "},
        {"question": "x" * 2001},
        {"question": "x", "choices": ["a"] * 5},
        {"question": "x", "choices": ["a" * 201]},
        {"question": "x", "other": 1},
    ],
)
async def test_invalid_questions_are_refused(given: dict[str, object]) -> None:
    with pytest.raises(ToolError, match="clarify"):
        await Clarify().run(args(**given), context("x", []))
