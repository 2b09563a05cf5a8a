"""What people and models are told about leave: asked for, given, refused, too late."""

import re
from collections.abc import Sequence

from hermes.approvals.rows import ANSWERED, LAPSED, OPEN, USED, Asked
from hermes.kit.text import head_and_tail
from hermes.ports.counsel import Ruling, Wish
from hermes.schema.questions import Asking, Choice, Question
from hermes.schema.scope import Scope, platform_of

MOST_SHOWN = 6000
YES = frozenset({"yes", "y", "ok", "okay", "approve", "approved", "👍", "✅", "once"})
NO = frozenset({"no", "n", "deny", "denied", "👎", "❌"})
NOTHING = "Nothing waits for an answer here."

_GIVEN = {
    Choice.ONCE: "Allowed, this once.",
    Choice.SESSION: "Allowed for this session.",
    Choice.ALWAYS: "Allowed from now on. /approvals lists what is allowed.",
    Choice.DENY: "Refused.",
}


def choice_in(words: str) -> Choice | None:
    """What a bare word says to a request for approval."""
    word = words.strip().strip(".!").lower()
    if word in YES:
        return Choice.ONCE
    if word in NO:
        return Choice.DENY
    return Choice(word) if word in {"always", "session"} else None


def origin_of(scope: Scope) -> str:
    who = scope.asker.name or scope.asker.user or scope.principal
    where = platform_of(scope.address.channel) if scope.address else scope.source
    told = f"{who} on {where}" if where else who
    return f"{told}, {scope.asker.chat_name}" if scope.asker.chat_name else told


def asks_for(wish: Wish, why: str) -> str:
    what = "run this command" if wish.shell else f"do this with {wish.tool}"
    where = f" in {wish.folder}" if wish.folder else ""
    return f"May I {what}{where}? {why}"


def as_post(question: Question, seconds: float) -> str:
    """A question as a chat shows it."""
    if question.kind is Asking.CLARIFY:
        lines = [f"{number}. {one}" for number, one in enumerate(question.choices, 1)]
        how = "Answer with a number, or in your own words." if lines else ""
        return "\n".join(filter(None, [question.text, *lines, how]))
    shown = head_and_tail(question.subject, MOST_SHOWN)
    ticks = "`" * max(3, 1 + max(map(len, re.findall(r"`+", shown)), default=0))
    more = [f"Reason: {question.reason}"] if question.reason else []
    if question.origin:
        more.append(f"Asked by: {question.origin}")
    lasting = Choice.ALWAYS in question.choices
    ways = (
        "/approve [session|always] or /deny [reason]" if lasting else "/approve or /deny [reason]"
    )
    how = f"{ways}, or just yes or no, within {_span(seconds)}."
    return "\n".join([question.text, ticks, shown, ticks, *more, how])


def _span(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} minutes"


def given(choice: Choice, asked: Sequence[Asked], *, shortened: bool) -> str:
    if shortened:
        return "Allowed, this once: a command made of several parts cannot be remembered."
    many = f" ({len(asked)} requests)" if len(asked) > 1 else ""
    return _GIVEN[choice].removesuffix(".") + many + "." if many else _GIVEN[choice]


def too_late(latest: Asked | None) -> str:
    """For an answer to what is no longer asked."""
    if latest is None:
        return NOTHING
    match latest.state:
        case state if state in {ANSWERED, USED}:
            return f"That was answered already: {latest.answer or latest.words}."
        case state if state in {LAPSED, OPEN}:
            return "Too late: the time for an answer is over, and it was not done."
        case _:
            return NOTHING


def not_yours(asked: Asked) -> str:
    return "Only the owner, or who asked for it, can answer this."


def ruling_of(row: Asked | None, seconds: float) -> Ruling:
    if row is None:
        return Ruling(
            allowed=False,
            why=f"Not done: nobody answered within {_span(seconds)}. Do not try it again by "
            "yourself; say what you wanted to do, and go on without it.",
        )
    if row.answer == Choice.DENY:
        said = f" They said: {row.words!r}." if row.words else ""
        return Ruling(
            allowed=False,
            why=f"Not done: a person refused.{said} Do not do it in another way; ask what to do.",
        )
    return Ruling(allowed=True)
