"""A model that follows instructions in the question and echoes it, so that answers can be checked.

Each `use:NAME` in a question calls the tool NAME, with the JSON object at the end of the question
as arguments if there is one; `long` makes the answer longer than a post. The answer is `re: ` and
the question, followed by the tool results. `hermes.testing.platform.model` serves this model over
HTTP.
"""

from collections.abc import Iterable

import msgspec
from msgspec import Struct

from hermes.agent.prompts import prompt_text
from hermes.schema.errors import ModelError

ANSWER_PREFIX = "re: "
LONG_ANSWER_LINES = 12
LONG_ANSWER_LINE = "and this is why the answer takes more than one post to say."


class RequestedCall(Struct, frozen=True):
    """A tool call requested by the question."""

    tool: str
    args: str


class ModelInput(Struct, frozen=True):
    """One message to the model: a user message or a tool result."""

    text: str
    result: bool = False


def echo_reply(said: Iterable[ModelInput]) -> str | RequestedCall:
    """Return the answer to the last question, or the next tool call it requests."""
    question, results = last_question(said)
    instructions, brace, args = question.partition("{")
    wanted = [word.removeprefix("use:") for word in instructions.split() if word.startswith("use:")]
    if len(results) < len(wanted):
        json_args = brace + args or msgspec.json.encode({"what": question}).decode()
        return RequestedCall(wanted[len(results)], json_args)
    text = "\n".join([f"{ANSWER_PREFIX}{question}", *results])
    if "long" in question.split():
        name = question.split()[0]
        text = "\n\n".join(
            [text, *(f"{name} line {n}: {LONG_ANSWER_LINE}" for n in range(LONG_ANSWER_LINES))]
        )
    return text


def last_question(said: Iterable[ModelInput]) -> tuple[str, list[str]]:
    """Return the last question of a user and the tool results after it.

    Unanswered questions are joined with the next one, so only the last paragraph counts.
    """
    note = prompt_text("resumed")
    results: list[str] = []
    for message in reversed([*said]):
        if message.result:
            results.insert(0, message.text)
        elif text := message.text.replace(note, "").strip():
            return text.rpartition("\n\n")[2], results
    raise ModelError("the request contains no question")
