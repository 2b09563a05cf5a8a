"""Write the summary of older messages, with a model or without one."""

import logging
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence

import anyio
from msgspec import Struct

from hermes.agent.answers import ask_model
from hermes.agent.history import summary_budget, total_tokens
from hermes.agent.prompts import prompt_text
from hermes.compaction.view import call_names, is_from_person, result_line
from hermes.kit.ids import new_id
from hermes.kit.text import head_and_tail, one_line
from hermes.ports.model import Model, ModelRequest
from hermes.schema.errors import ConfigError, ModelError
from hermes.schema.messages import Assistant, Message, Result, Text, Trust, Usage, User, text_of

log = logging.getLogger(__name__)

_CHARACTERS_PER_WINDOW_TOKEN = 2.4
"""Characters of a request for each token of its model's window."""
MAX_PLAIN_SUMMARY = 8_000
"""Maximum characters of a summary written without a model."""
_MAX_MESSAGE = 6_000
_MAX_ARGUMENTS = 400
_HEADER = "[Summary of the earlier conversation. For reference only: it requests nothing.]"
_FOOTER = "[End of the summary. The conversation continues below.]"
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
    messages: Sequence[Message]
    previous: str = ""  # the summary to update
    focus: str = ""  # what to pay attention to


class KeptText(Struct, frozen=True, kw_only=True):
    pins: Sequence[str] = ()
    questions: Sequence[str] = ()


def summary_prompt(budget: int) -> str:
    sections = "\n".join(f"## {name}" for name in SECTIONS)
    return prompt_text("summary").format(sections=sections, words=budget * 3 // 4)


def summary_source(source: SummaryInput, redact: Callable[[str], str], limit: int) -> str:
    """The text to summarize, with secrets redacted, of about `limit` characters at most."""
    parts = [
        source.previous and f"# Summary so far, to be updated\n\n{source.previous}",
        source.focus and f"# Pay attention above all to\n\n{source.focus}",
        "# The conversation to summarize",
        "\n\n".join(_message_lines(source.messages)),
    ]
    return head_and_tail(redact("\n\n".join(filter(None, parts))), limit)


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
                text = head_and_tail(message.text, _MAX_MESSAGE)
                yield "\n".join(filter(None, [f"ASSISTANT: {text}" if text else "", *calls]))
            case _:
                speaker = "PERSON" if is_from_person(message) else "PROGRAM"
                yield f"{speaker}: {head_and_tail(text_of(message), _MAX_MESSAGE)}"


def plain_summary(source: SummaryInput, redact: Callable[[str], str]) -> str:
    """Extract goal, actions, files and the last messages without a model."""
    questions = [text_of(message) for message in source.messages if is_from_person(message)]
    calls = [
        f"{call.name} {one_line(_text(bytes(call.args)), 100)}"
        for message in source.messages
        if isinstance(message, Assistant)
        for call in message.calls
    ]
    actions = [f"{number}. {call}" for number, call in enumerate(calls[-_MAX_ACTIONS:], start=1)]
    paths = list(dict.fromkeys(path for call in calls for path in _PATH.findall(call)))
    last = list(_message_lines(source.messages[-_LAST_MESSAGES:]))
    room = MAX_PLAIN_SUMMARY // 4
    parts = [
        ("Summary so far", head_and_tail(source.previous, room)),
        ("Goal", one_line(questions[0], 600) if questions and not source.previous else ""),
        ("Asked since", "\n".join(f"- {one_line(question, 160)}" for question in questions[-8:])),
        ("Completed actions", "\n".join(actions)),
        ("Relevant files", "\n".join(f"- {path}" for path in paths[-_MAX_FILES:])),
        ("Last messages before this summary", head_and_tail("\n".join(last), room)),
    ]
    text = "\n\n".join(f"## {name}\n{content}" for name, content in parts if content)
    notice = "No model was available for a summary; this was extracted from the messages.\n\n"
    return head_and_tail(notice + redact(text), MAX_PLAIN_SUMMARY - 100)


def frame_summary(body: str, kept: KeptText) -> str:
    """The summary as the model reads it, with pins and open questions added verbatim."""
    parts = [
        _HEADER,
        body.strip(),
        _bullet_list("## Pinned by the user", kept.pins),
        _bullet_list("## Open questions", kept.questions),
        _FOOTER,
    ]
    return "\n\n".join(part for part in parts if part)


def _bullet_list(title: str, lines: Sequence[str]) -> str:
    return "\n".join([title, *(f"- {line}" for line in lines)]) if lines else ""


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


class WrittenSummary(Struct, frozen=True):
    body: str  # empty: no summary
    answers: tuple[Assistant, ...] = ()  # of all models asked, including empty ones
    plain: bool = False  # written without a model
    failed: bool = False  # every model failed

    @property
    def usage(self) -> Usage:
        return sum((answer.usage for answer in self.answers), Usage())


class SummaryWriter(Struct, frozen=True, kw_only=True):
    """Asks the models in order; `models` lists them for the model of the turn."""

    models: Callable[[Model], Awaitable[Sequence[Model]]]
    redact: Callable[[str], str]
    timeout: float = 120.0
    effort: str | None = None

    async def write(
        self, source: SummaryInput, usual: Model, *, abort: bool = False
    ) -> WrittenSummary:
        """Write a summary; with `abort`, do not fall back to one without a model."""
        answers: list[Assistant] = []
        for model in await self._models(usual):
            budget = summary_budget(total_tokens(source.messages), usual.window)
            try:
                with anyio.fail_after(self.timeout):
                    answers.append(await self._ask(model, source, budget))
            except (ModelError, TimeoutError) as error:
                log.warning("%s returned no summary: %s", model.name, error)
                continue
            if body := answers[-1].text.strip():
                return WrittenSummary(self.redact(body), tuple(answers))
        body = "" if abort else plain_summary(source, self.redact)
        return WrittenSummary(body, tuple(answers), plain=True, failed=True)

    def plain(self, source: SummaryInput) -> WrittenSummary:
        """Write a summary without asking a model."""
        return WrittenSummary(plain_summary(source, self.redact), plain=True)

    async def _models(self, usual: Model) -> Sequence[Model]:
        try:
            return await self.models(usual)
        except (ConfigError, ModelError) as error:
            log.warning("the summary model is unavailable: %s", error)
            return [usual]

    async def _ask(self, model: Model, source: SummaryInput, budget: int) -> Assistant:
        text = summary_source(source, self.redact, int(model.window * _CHARACTERS_PER_WINDOW_TOKEN))
        question = User(new_id("msg"), (Text(text),), Trust.PROGRAM)
        request = ModelRequest(
            summary_prompt(budget), [question], max_output=budget, effort=self.effort
        )
        return await ask_model(model, request)
