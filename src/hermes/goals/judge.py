"""Ask a model whether a goal is met; a verdict without evidence in the transcript is a doubt."""

import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

import anyio
import msgspec
from msgspec import Struct

from hermes.agent.answers import ask_model
from hermes.kit.ids import new_id
from hermes.kit.json_errors import JSON_ERRORS
from hermes.kit.text import one_line
from hermes.ports.goals import Goal
from hermes.ports.model import Model, ModelRequest, OutputConstraints, OutputFormat
from hermes.schema.errors import ModelError, NotFound
from hermes.schema.messages import Assistant, Message, Result, Text, Trust, User, text_of
from hermes.schema.sessions import Session

T = TypeVar("T", bound=Struct)

MAX_MESSAGES = 40
MAX_BYTES = 200_000
"""How much of the transcript is read for one verdict."""
_MAX_SHOWN = 2_000
"""Characters of one message that the judge sees: its beginning and its end."""
_MAX_REASON = 400
_MAX_QUOTES = 3
_LABELS = re.compile(r"^(failed result|result|assistant):")
_HERE = Path(__file__).parent


class Verdict(StrEnum):
    MET = "met"
    NOT_MET = "not_met"
    BLOCKED = "blocked"


class Judgment(Struct, frozen=True):
    """The judge's verdict."""

    verdict: Verdict
    reason: str = ""
    evidence: tuple[str, ...] = ()


class _Draft(Struct, frozen=True):
    conditions: tuple[str, ...]


class UnusableAnswer(ModelError):
    """An answer of the judge that cannot be used."""


class Judge:
    """`model` is chosen by the session; `record` stores what an answer cost."""

    def __init__(
        self,
        *,
        model: Callable[[Session], Awaitable[Model]],
        record: Callable[[Session, Assistant], Awaitable[None]],
        redact: Callable[[str], str],
        timeout: float,
    ) -> None:
        self._model = model
        self._record = record
        self._redact = redact
        self._timeout = timeout

    async def judge(self, goal: str, session: Session, messages: Sequence[Message]) -> Judgment:
        """Whether the goal is met.

        Raises `UnusableAnswer`, and `ModelError` if the model cannot be asked.
        """
        shown = self._redact(transcript_text(messages))
        text = f"# Goal\n\n{goal}\n\n# Last messages\n\n{shown}"
        judgment = await self._ask(session, "judge", text, Judgment)
        evidence = found_quotes(judgment.evidence, self._redact(answer_text(messages)))
        if judgment.verdict is Verdict.MET and not evidence:
            raise UnusableAnswer("The judge called the goal met, but quoted nothing that shows it.")
        return msgspec.structs.replace(
            judgment,
            reason=one_line(judgment.reason, _MAX_REASON),
            evidence=tuple(one_line(one, _MAX_REASON) for one in evidence[:_MAX_QUOTES]),
        )

    async def draft(self, session: Session, text: str) -> Sequence[str]:
        """Return conditions that show whether the goal is met. Raises the errors of `judge`."""
        found = await self._ask(session, "draft", text, _Draft)
        return [
            one_line(condition, _MAX_REASON) for condition in found.conditions if condition.strip()
        ]

    async def _ask(self, session: Session, prompt: str, text: str, kind: type[T]) -> T:
        system = (_HERE / f"{prompt}.md").read_text("utf-8").strip()
        question = User(new_id("msg"), (Text(text),), Trust.PROGRAM)
        answer_format = OutputFormat(schema=msgspec.json.schema(kind), name=prompt)
        request = ModelRequest(
            system, [question], constraints=OutputConstraints(format=answer_format)
        )
        try:
            with anyio.fail_after(self._timeout):
                answer = await ask_model(await self._model(session), request)
        except TimeoutError as error:
            raise ModelError(f"The judge did not answer in {self._timeout:g} seconds.") from error
        with suppress(NotFound):  # a session without a message is not stored yet
            await self._record(session, answer)
        return parse_answer(answer.text, kind)


def parse_answer(text: str, kind: type[T]) -> T:
    """Return the JSON object in an answer, even if the model added other text."""
    start, end = text.find("{"), text.rfind("}")
    try:
        return msgspec.json.decode(text[start : end + 1], type=kind)
    except JSON_ERRORS as error:
        raise UnusableAnswer(f"The judge's answer cannot be read: {error}.") from error


def goal_text(goal: Goal) -> str:
    """The goal with its parts as a list."""
    parts = [f"{number}. {subgoal}" for number, subgoal in enumerate(goal.subgoals, 1)]
    return "\n".join([goal.text, *(["", "Parts:"] if parts else []), *parts])


def transcript_text(messages: Sequence[Message]) -> str:
    """Return the messages as the judge sees them, without those from Hermes itself."""
    return "\n\n".join(filter(None, map(_shown, messages)))


def _shown(message: Message) -> str:
    text = _indented(_shortened(text_of(message).strip()))
    match message:
        case User(trust=Trust.PROGRAM):
            return ""
        case User(trust=Trust.DATA):
            return f"DATA: {text}"
        case User(trust=Trust.GUEST):
            return f"GUEST: {text}"
        case User():
            return f"PERSON: {text}"
        case Assistant():
            calls = [
                f"CALL {call.name} {_indented(_shortened(bytes(call.args).decode()))}"
                for call in message.calls
            ]
            return "\n".join([*([f"ASSISTANT: {text}"] if text else []), *calls])
        case Result(failed=failed):
            return f"{'FAILED RESULT' if failed else 'RESULT'}: {text}"


def answer_text(messages: Sequence[Message]) -> str:
    """Return what the assistant answered and its tools returned, as far as the judge sees it.

    Labels and call arguments are not evidence.
    """
    answers = [message for message in messages if not isinstance(message, User)]
    return "\n\n".join(_shortened(text_of(answer).strip()) for answer in answers)


def _indented(text: str) -> str:
    """Indent text, so that only labels start a line and text cannot imitate them."""
    return "\n  ".join(text.splitlines())


def _shortened(text: str) -> str:
    if len(text) <= _MAX_SHOWN:
        return text
    half = _MAX_SHOWN // 2
    return f"{text[:half]}\n[...]\n{text[-half:]}"


def found_quotes(quotes: Sequence[str], text: str) -> list[str]:
    """Return the quotations that occur, as whole words, in the assistant's and tools' text."""
    text = _comparable(text)
    return [quote for quote in quotes if _occurs(_LABELS.sub("", _comparable(quote)), text)]


def _occurs(quote: str, text: str) -> bool:
    words = re.escape(_comparable(quote))
    return bool(words) and re.search(rf"(?<!\w){words}(?!\w)", text) is not None


def _comparable(text: str) -> str:
    return " ".join(text.split()).casefold().strip(" \"'`.…“”")
