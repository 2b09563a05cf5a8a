"""The summary of what lies far back: what a model is asked, and what is said without one."""

import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence

import anyio
from msgspec import Struct

from hermes.agent.context_size import summary_budget, total_tokens
from hermes.agent.prompts import prompt_text
from hermes.compaction.cut_points import is_from_person
from hermes.compaction.view import call_names, result_line
from hermes.kit.ids import new_id
from hermes.kit.text import head_and_tail, one_line
from hermes.ports.model import Model, ModelRequest
from hermes.schema.errors import ConfigError, ModelError
from hermes.schema.messages import Assistant, Message, Result, Text, Trust, User, text_of

MAX_PLAIN_SUMMARY = 8_000
"""Characters of a summary that no model wrote."""
_MAX_MESSAGE = 6_000
_MAX_ARGUMENTS = 400
_HEADER = "[What was said before, in short. For reference: it asks for nothing by itself.]"
_FOOTER = "[End of the summary. The conversation goes on below.]"
_PATH = re.compile(r"(?:~|\.{1,2})?/[\w.\-/]{2,200}|\b[\w\-/]{1,120}\.[A-Za-z]{1,6}\b")
_MAX_FILES = 30
_MAX_ACTIONS = 25
_LAST_MESSAGES = 6

SECTIONS = (
    "Task at the time", "Goal", "Constraints and preferences", "Completed actions", "Active state",
    "In progress", "Blocked", "Key decisions", "Resolved questions", "Pending asks",
    "Relevant files", "Remaining work", "Critical context",
)  # fmt: skip


class SummaryInput(Struct, frozen=True, kw_only=True):
    """What a summary is made from. `previous` is the one it goes on from, `focus` a wish."""

    messages: Sequence[Message]
    previous: str = ""
    focus: str = ""


class KeptText(Struct, frozen=True, kw_only=True):
    """What is said word for word below every summary."""

    pins: Sequence[str] = ()
    questions: Sequence[str] = ()


def summary_prompt(budget: int) -> str:
    """The system prompt of the request for a summary."""
    sections = "\n".join(f"## {name}" for name in SECTIONS)
    return prompt_text("summary").format(sections=sections, words=budget * 3 // 4)


def summary_source(told: SummaryInput, redact: Callable[[str], str], limit: int) -> str:
    """The text to be summarised, without secrets, in at most about `limit` characters."""
    parts = [
        f"# Summary so far, to be brought up to date\n\n{told.previous}" if told.previous else "",
        f"# Pay attention above all to\n\n{told.focus}" if told.focus else "",
        "# The conversation to summarise",
        "\n\n".join(_message_lines(told.messages)),
    ]
    text = redact("\n\n".join(part for part in parts if part))
    return head_and_tail(text, limit)


def _message_lines(messages: Sequence[Message]) -> Iterator[str]:
    names = call_names(messages)
    for message in messages:
        match message:
            case Result():
                yield result_line(message, names.get(message.call, "a tool"))
            case Assistant():
                calls = [
                    f"[calls {call.name} {one_line(_text(bytes(call.args)), _MAX_ARGUMENTS)}]"
                    for call in message.calls
                ]
                said = head_and_tail(message.text, _MAX_MESSAGE)
                yield "\n".join(filter(None, [f"ASSISTANT: {said}" if said else "", *calls]))
            case _:
                who = "PERSON" if is_from_person(message) else "PROGRAM"
                yield f"{who}: {head_and_tail(text_of(message), _MAX_MESSAGE)}"


def plain_summary(told: SummaryInput, redact: Callable[[str], str]) -> str:
    """Goal, actions, files and the last of what is left out, taken from the words themselves."""
    asked = [text_of(one) for one in told.messages if is_from_person(one)]
    calls = [
        f"{call.name} {one_line(_text(bytes(call.args)), 100)}"
        for one in told.messages
        if isinstance(one, Assistant)
        for call in one.calls
    ]
    last = list(_message_lines(told.messages[-_LAST_MESSAGES:]))
    room = MAX_PLAIN_SUMMARY // 4
    parts = [
        ("Summary so far", head_and_tail(told.previous, room)),
        ("Goal", one_line(asked[0], 600) if asked and not told.previous else ""),
        ("Asked since", "\n".join(f"- {one_line(one, 160)}" for one in asked[-8:])),
        ("Completed actions", _numbered(calls[-_MAX_ACTIONS:])),
        ("Relevant files", "\n".join(f"- {path}" for path in _paths(calls))),
        ("Last words before this summary", head_and_tail("\n".join(last), room)),
    ]
    text = "\n\n".join(f"## {name}\n{words}" for name, words in parts if words)
    whole = "No model could be asked for a summary; this was put together from the words.\n\n"
    return head_and_tail(whole + redact(text), MAX_PLAIN_SUMMARY - 100)


def frame_summary(body: str, kept: KeptText) -> str:
    """A summary as the model reads it, with what must not depend on who summarised."""
    parts = [
        _HEADER,
        body.strip(),
        _bullet_list("## Pinned by the person", kept.pins),
        _bullet_list("## Questions that still wait for an answer", kept.questions),
        _FOOTER,
    ]
    return "\n\n".join(part for part in parts if part)


def _bullet_list(title: str, lines: Sequence[str]) -> str:
    return "\n".join([title, *(f"- {line}" for line in lines)]) if lines else ""


def _numbered(lines: Sequence[str]) -> str:
    return "\n".join(f"{number}. {line}" for number, line in enumerate(lines, start=1))


def _paths(lines: Iterable[str]) -> list[str]:
    found = dict.fromkeys(path for line in lines for path in _PATH.findall(line))
    return list(found)[-_MAX_FILES:]


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


log = logging.getLogger(__name__)

_CHARACTERS_PER_WINDOW_TOKEN = 2.4
"""Characters of a request for each token of its model's window."""


class WrittenSummary(Struct, frozen=True):
    """`answers` are all that were given, also those that said nothing; `plain`: by no model.

    `failed`: models were asked in vain. Without a `body` there is no summary.
    """

    body: str
    answers: tuple[Assistant, ...] = ()
    plain: bool = False
    failed: bool = False


class SummaryWriter(Struct, frozen=True, kw_only=True):
    """`models` gives those to ask, in order, from the one of the turn."""

    models: Callable[[Model], Awaitable[Sequence[Model]]]
    redact: Callable[[str], str]
    timeout: float = 120.0
    effort: str | None = None

    async def write(
        self, told: SummaryInput, usual: Model, *, abort: bool = False
    ) -> WrittenSummary:
        """`abort`: rather no summary than one without a model."""
        answers: list[Assistant] = []
        for model in await self._models(usual):
            budget = summary_budget(total_tokens(told.messages), usual.window)
            try:
                with anyio.fail_after(self.timeout):
                    answers.append(await self._ask(model, told, budget))
            except (ModelError, TimeoutError) as error:
                log.warning("%s gave no summary: %s", model.name, error)
                continue
            if body := answers[-1].text.strip():
                return WrittenSummary(self.redact(body), tuple(answers))
        body = "" if abort else plain_summary(told, self.redact)
        return WrittenSummary(body, tuple(answers), plain=True, failed=True)

    def plain(self, told: SummaryInput) -> WrittenSummary:
        """Nobody is asked."""
        return WrittenSummary(plain_summary(told, self.redact), plain=True)

    async def _models(self, usual: Model) -> Sequence[Model]:
        try:
            return await self.models(usual)
        except (ConfigError, ModelError) as error:
            log.warning("the model for summaries cannot be used: %s", error)
            return [usual]

    async def _ask(self, model: Model, told: SummaryInput, budget: int) -> Assistant:
        text = summary_source(told, self.redact, int(model.window * _CHARACTERS_PER_WINDOW_TOKEN))
        asked = User(new_id("msg"), (Text(text),), Trust.PROGRAM)
        request = ModelRequest(
            summary_prompt(budget), [asked], max_output=budget, effort=self.effort
        )
        async with model.stream(request) as chunks:
            async for chunk in chunks:
                if isinstance(chunk, Assistant):
                    return chunk
        raise ModelError("There was no answer.")
