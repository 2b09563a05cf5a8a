"""A model that does what the question says and answers it by name, so that answers can be judged.

`use:NAME` in a question calls the tool NAME, once for each time it is written, with the JSON object
at the question's end if there is one; `long` makes the answer longer than a post. The answer is
`re: ` and the question, then what the tools said. `hermes.testing.platform.model` puts it behind
the wire of a real provider.
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
    """A call that the question asks for."""

    tool: str
    args: str


class ModelInput(Struct, frozen=True):
    """One thing that was said to the model: by a person, or by a tool."""

    text: str
    result: bool = False


def echo_reply(said: Iterable[ModelInput]) -> str | RequestedCall:
    """The answer to the last question, or the next call that it asks for."""
    question, results = last_question(said)
    words, brace, args = question.partition("{")
    wanted = [word.removeprefix("use:") for word in words.split() if word.startswith("use:")]
    if len(results) < len(wanted):
        given = brace + args or msgspec.json.encode({"what": question}).decode()
        return RequestedCall(wanted[len(results)], given)
    text = "\n".join([f"{ANSWER_PREFIX}{question}", *results])
    if "long" in question.split():
        name = question.split()[0]
        text = "\n\n".join(
            [text, *(f"{name} line {n}: {LONG_ANSWER_LINE}" for n in range(LONG_ANSWER_LINES))]
        )
    return text


def last_question(said: Iterable[ModelInput]) -> tuple[str, list[str]]:
    """The last question a person asked, and what the tools said since.

    One that got no answer is joined with the next, so a question is one paragraph.
    """
    note = prompt_text("resumed")
    results: list[str] = []
    for one in reversed([*said]):
        if one.result:
            results.insert(0, one.text)
        elif text := one.text.replace(note, "").strip():
            return text.rpartition("\n\n")[2], results
    raise ModelError("nothing was asked")
