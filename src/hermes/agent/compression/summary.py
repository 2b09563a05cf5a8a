"""The summary of what lies far back: what a model is asked, and what is said without one."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec import Struct

from hermes.agent.compression.cutting import is_question
from hermes.agent.compression.pruning import call_names, line_of
from hermes.agent.prompts import prompt_text
from hermes.kit.text import head_and_tail, one_line
from hermes.schema.messages import Assistant, Message, Result, text_of

PLAIN_LIMIT = 8_000
"""Characters of a summary that no model wrote."""
_SAID = 6_000
_ARGUMENTS = 400
_BEGIN = "[What was said before, in short. For reference: it asks for nothing by itself.]"
_END = "[End of the summary. The conversation goes on below.]"
_PATH = re.compile(r"(?:~|\.{1,2})?/[\w.\-/]{2,200}|\b[\w\-/]{1,120}\.[A-Za-z]{1,6}\b")
_FILES = 30
_ACTIONS = 25
_TURNS = 6

SECTIONS = (
    "Task at the time", "Goal", "Constraints and preferences", "Completed actions", "Active state",
    "In progress", "Blocked", "Key decisions", "Resolved questions", "Pending asks",
    "Relevant files", "Remaining work", "Critical context",
)  # fmt: skip


class Told(Struct, frozen=True, kw_only=True):
    """What a summary is made from. `previous` is the one it goes on from, `focus` a wish."""

    messages: Sequence[Message]
    previous: str = ""
    focus: str = ""


class Kept(Struct, frozen=True, kw_only=True):
    """What is said word for word below every summary."""

    pins: Sequence[str] = ()
    questions: Sequence[str] = ()


def asked_for(budget: int) -> str:
    """The system prompt of the request for a summary."""
    sections = "\n".join(f"## {name}" for name in SECTIONS)
    return prompt_text("summary").format(sections=sections, words=budget * 3 // 4)


def question(told: Told, redact: Callable[[str], str], limit: int) -> str:
    """The text to be summarised, without secrets, in at most about `limit` characters."""
    parts = [
        f"# Summary so far, to be brought up to date\n\n{told.previous}" if told.previous else "",
        f"# Pay attention above all to\n\n{told.focus}" if told.focus else "",
        "# The conversation to summarise",
        "\n\n".join(_lines(told.messages)),
    ]
    text = redact("\n\n".join(part for part in parts if part))
    return head_and_tail(text, limit)


def _lines(messages: Sequence[Message]) -> Iterator[str]:
    names = call_names(messages)
    for message in messages:
        match message:
            case Result():
                yield line_of(message, names.get(message.call, "a tool"))
            case Assistant():
                calls = [
                    f"[calls {call.name} {one_line(_text(bytes(call.args)), _ARGUMENTS)}]"
                    for call in message.calls
                ]
                said = head_and_tail(message.text, _SAID)
                yield "\n".join(filter(None, [f"ASSISTANT: {said}" if said else "", *calls]))
            case _:
                who = "PERSON" if is_question(message) else "PROGRAM"
                yield f"{who}: {head_and_tail(text_of(message), _SAID)}"


def plain_summary(told: Told, redact: Callable[[str], str]) -> str:
    """Goal, actions, files and the last of what is left out, taken from the words themselves."""
    asked = [text_of(one) for one in told.messages if is_question(one)]
    calls = [
        f"{call.name} {one_line(_text(bytes(call.args)), 100)}"
        for one in told.messages
        if isinstance(one, Assistant)
        for call in one.calls
    ]
    last = list(_lines(told.messages[-_TURNS:]))
    room = PLAIN_LIMIT // 4
    parts = [
        ("Summary so far", head_and_tail(told.previous, room)),
        ("Goal", one_line(asked[0], 600) if asked and not told.previous else ""),
        ("Asked since", "\n".join(f"- {one_line(one, 160)}" for one in asked[-8:])),
        ("Completed actions", _numbered(calls[-_ACTIONS:])),
        ("Relevant files", "\n".join(f"- {path}" for path in _paths(calls))),
        ("Last words before this summary", head_and_tail("\n".join(last), room)),
    ]
    text = "\n\n".join(f"## {name}\n{words}" for name, words in parts if words)
    whole = "No model could be asked for a summary; this was put together from the words.\n\n"
    return head_and_tail(whole + redact(text), PLAIN_LIMIT - 100)


def framed(body: str, kept: Kept) -> str:
    """A summary as the model reads it, with what must not depend on who summarised."""
    parts = [
        _BEGIN,
        body.strip(),
        _listed("## Pinned by the person", kept.pins),
        _listed("## Questions that still wait for an answer", kept.questions),
        _END,
    ]
    return "\n\n".join(part for part in parts if part)


def _listed(title: str, lines: Sequence[str]) -> str:
    return "\n".join([title, *(f"- {line}" for line in lines)]) if lines else ""


def _numbered(lines: Sequence[str]) -> str:
    return "\n".join(f"{number}. {line}" for number, line in enumerate(lines, start=1))


def _paths(lines: Iterable[str]) -> list[str]:
    found = dict.fromkeys(path for line in lines for path in _PATH.findall(line))
    return list(found)[-_FILES:]


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
