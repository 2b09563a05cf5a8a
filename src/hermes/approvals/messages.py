"""Texts about approvals for people and for the model."""

import re
from collections.abc import Sequence

from hermes.approvals.approval_store import is_awaited
from hermes.approvals.saved_approvals import can_be_saved, unsealed_runner
from hermes.kit.clock import Clock
from hermes.kit.terminal_text import show_invisible, show_invisible_line, show_lookalikes
from hermes.ports.approval_records import ANSWERED, LAPSED, OPEN, USED, QuestionRecord
from hermes.ports.approvals import ApprovalRequest, Decision
from hermes.schema.questions import (
    TERMINAL_ORIGIN,
    WEB_ORIGIN,
    ApprovalChoice,
    Question,
    QuestionKind,
)
from hermes.schema.scope import OWNER, Scope, platform_of

MAX_SHOWN = 8_000
"""Requests longer than this (in characters) are denied without asking a person."""
MAX_LINES = 400
MAX_FOLDER = 400
MAX_REASON = 300
MAX_NAME = 60
MAX_SUBJECT = 200
SHORT_ID_LENGTH = 6
"""Length of the id suffix that people use to name a request."""
MAX_DENIALS = 3
TOO_MANY_DENIALS = (
    f"Not done: {MAX_DENIALS} requests in this turn were not approved, so no more can be made "
    "in it. Stop, say what you wanted to do and why, and let the user decide what comes next."
)
ALREADY_DENIED = (
    "Not done: a person already denied exactly this in this turn, so they are not asked again. "
    "Say that it was not done, and let the user decide what comes next."
)
YES_WORDS = frozenset(
    {"yes", "y", "yep", "yeah", "ok", "okay", "approve", "approved", "👍", "✅", "once"}
)
NO_WORDS = frozenset({"no", "n", "nope", "nah", "deny", "denied", "👎", "❌"})
_CHOICE_WORDS = tuple(
    word for word in (*YES_WORDS, *NO_WORDS, "always", "session") if len(word) > 2
)
_OTHER_WORDS = frozenset({
    "alway", "approver", "approves", "defied", "defy", "den", "dene", "denier", "denies",
    "dens", "dent", "denys", "dewy", "nab", "nag", "nan", "nap", "nape", "noah", "node", "nome",
    "none", "nose", "note", "one", "ones", "ounce", "sessions", "yap", "year", "yelp", "yen",
    "yet", "yew", "yip",
})  # fmt: skip
"""Ordinary words that are one letter away from a deciding one."""
RUN_WAITS_ALREADY = (
    "Not done: another approval request of this turn is pending, and the owner is asked one thing "
    "at a time. Wait for that answer, then ask again."
)
TOO_MANY_WAITING = (
    "Not done: this person already has the maximum number of requests pending with the owner. "
    "Go on without it, and say what you wanted to do."
)
FILE_CHANGED = (
    "Not done: a file that the command names changed while approval was pending. Look at the "
    "file, then ask again."
)
NOT_RUN = "Not run: the turn was interrupted while waiting for a person. Nothing was done."
NOTHING_PENDING = "There is nothing to approve or answer here."
ASKED_ELSEWHERE = "Nothing decided: this question was asked in another chat. Answer it there."

NOT_ALLOWED = "Only the owner or the person who asked can answer this."

_RESULT_TEXT = {
    ApprovalChoice.ONCE: "Allowed once",
    ApprovalChoice.SESSION: "Allowed for this session",
    ApprovalChoice.ALWAYS: "Always allowed",
    ApprovalChoice.DENY: "Denied",
}
_APPROVED_TEXT = {
    ApprovalChoice.ONCE: "A person allowed it once.",
    ApprovalChoice.SESSION: "A person allowed it for this session.",
    ApprovalChoice.ALWAYS: "A person allowed it permanently.",
}
"""Shown to the model."""


def choice_of_word(text: str) -> ApprovalChoice | None:
    """Return the choice that a one-word reply stands for, if any."""
    word = text.strip().strip(".!").lower()
    if word in YES_WORDS:
        return ApprovalChoice.ONCE
    if word in NO_WORDS:
        return ApprovalChoice.DENY
    return ApprovalChoice(word) if word in {"always", "session"} else None


def is_misspelled_choice(text: str) -> bool:
    """Whether a one-word reply looks like a typo of a deciding word and is not a word itself."""
    word = text.strip().strip(".!").lower()
    if choice_of_word(word) is not None or not 3 <= len(word) <= 12 or not word.isalpha():
        return False
    return word not in _OTHER_WORDS and any(_is_one_typo(word, known) for known in _CHOICE_WORDS)


def _is_one_typo(word: str, known: str) -> bool:
    """One letter too many, missing or wrong, or two swapped; the first letter must match."""
    if word[0] != known[0] or abs(len(word) - len(known)) > 1:
        return False
    same = next((n for n, (a, b) in enumerate(zip(word, known, strict=False)) if a != b), None)
    if same is None:
        return True
    rest, other = word[same:], known[same:]
    swapped = rest[:2] == other[1::-1] and rest[2:] == other[2:]
    return swapped or rest[1:] == other[1:] or rest[1:] == other or rest == other[1:]


def unclear_message(question: Question, reply: str) -> str:
    lasting = ", session, always" if ApprovalChoice.ALWAYS in question.choices else ""
    with_id = f" with its id, {short_id(question)}" if question.elsewhere else ""
    return (
        f"I did not understand {show_invisible_line(reply, MAX_NAME)!r}. Nothing is decided yet: "
        f"answer yes{lasting} or no{with_id}."
    )


def request_origin(scope: Scope) -> str:
    if scope.principal == OWNER and scope.source == "cli" and scope.address is None:
        return TERMINAL_ORIGIN
    if scope.principal == OWNER and scope.source == "web" and scope.address is None:
        return WEB_ORIGIN
    person = scope.asker.name or scope.asker.user or scope.principal
    platform = platform_of(scope.address.channel) if scope.address else scope.source
    names = [
        show_invisible_line(name, MAX_NAME) for name in (person, platform, scope.asker.chat_name)
    ]
    origin = f"{names[0]} on {names[1]}" if platform else names[0]
    return f"{origin}, {names[2]}" if names[2] else origin


def refusal_notice(scope: Scope, request: ApprovalRequest, why: str) -> str:
    """Tell the person who started an unattended run what was not done, and how to allow it."""
    subject = show_invisible_line(request.action or request.target, MAX_SUBJECT)
    hint = " Use `hermes` or `hermes -q` in a terminal, or --yolo." if scope.source == "cli" else ""
    reason = show_invisible_line(why, MAX_REASON)
    return f"Not done: {subject}. {reason} This needs approval, and no one can be asked here.{hint}"


def request_subject(request: ApprovalRequest) -> str:
    """Return everything that would be done, with invisible and lookalike characters spelled out."""
    is_text = not (request.shell or request.code)
    parts = [show_lookalikes(one, addresses=is_text) for one in (request.target, request.action)]
    # For a command, the detail lists what it may reach: hosts and paths.
    detail = show_lookalikes(request.detail, addresses=True) if request.shell else request.detail
    return show_invisible("\n".join(filter(None, [*parts, detail])))


def request_reason(request: ApprovalRequest) -> str:
    return show_invisible_line(request.reason, MAX_REASON)


def too_long_reason(request: ApprovalRequest) -> str:
    """Explain to the model why this is too long to show to a person; empty if it is not."""
    shown = request_subject(request)
    length, lines = len(shown), shown.count("\n") + 1
    if length <= MAX_SHOWN and lines <= MAX_LINES and len(request.folder) <= MAX_FOLDER:
        return ""
    return (
        f"Not done: it needs approval, but is too long to show to a person in full "
        f"({length:,} characters in {lines:,} lines; the limit is {MAX_SHOWN:,} in {MAX_LINES}). "
        "Do it in smaller steps, each with its own request."
    )


def approval_prompt(request: ApprovalRequest, why: str) -> str:
    prompt = "Run this command" if request.shell else f"Let {request.tool} do this"
    prompt = "Type this" if request.target and request.shell else prompt
    folder = f" in {_quoted_folder(request.folder)}" if request.folder else ""
    return f"{prompt}{folder}? {show_invisible_line(why, MAX_REASON)}{_saving_note(request)}"


def _saving_note(request: ApprovalRequest) -> str:
    """Say what "session" and "always" would cover, or why they are not offered."""
    if kind := show_invisible_line(request.kind, MAX_REASON):
        return f' "Session" and "always" cover {kind}.'
    if runner := show_invisible_line(unsealed_runner(request), MAX_NAME):
        return f" Once only: {runner} runs code from files that can change."
    if request.shell and request.seal and can_be_saved(request):
        return ' "Session" and "always" lapse if the files it names change.'
    return ""


def _quoted_folder(folder: str) -> str:
    """Quote names that could read like a sentence."""
    line = show_invisible_line(show_lookalikes(folder), MAX_SHOWN)
    if line == folder and re.fullmatch(r"[\w./@+~:,=-]+", folder):
        return folder
    quoted = line.replace('"', "'")
    return f'"{quoted}"'


def short_id(question: Question) -> str:
    return question.id[-SHORT_ID_LENGTH:]


def question_text(question: Question, seconds: float, *, forwarded: bool = False) -> str:
    """Render a question for a chat; `forwarded` is for the owner's chat it was forwarded to."""
    if question.kind is QuestionKind.CLARIFY:
        lines = [f"{number}. {choice}" for number, choice in enumerate(question.choices, 1)]
        hint = "Answer with a number, or in your own words." if lines else ""
        return "\n".join(filter(None, [question.text, *lines, hint]))
    shown = show_invisible(question.subject)
    ticks = "`" * max(3, 1 + max(map(len, re.findall(r"`+", shown)), default=0))
    lines = [show_invisible(question.text), ticks, shown, ticks]
    if question.reason:
        lines.append(f"Reason: {show_invisible_line(question.reason, MAX_REASON)}")
    if question.origin:
        lines.append(f"Asked by: {show_invisible_line(question.origin, 3 * MAX_NAME)}")
    return "\n".join([*lines, _how_to_answer(question, _duration(seconds), forwarded=forwarded)])


def _how_to_answer(question: Question, time: str, *, forwarded: bool) -> str:
    if question.elsewhere and not forwarded:
        return f"Only the owner can allow this. I have asked, and wait up to {time}."
    name = f" {short_id(question)}" if forwarded else ""
    lasting = " [session|always]" if ApprovalChoice.ALWAYS in question.choices else ""
    ways = f"/approve{name}{lasting} or /deny{name} [reason]"
    if not forwarded:
        return f"{ways}, or reply yes or no. Auto-denied in {time}. Id: {short_id(question)}."
    return (
        f"{ways}, or yes{name} or no{name}. Auto-denied in {time}. Someone else asked for this: "
        "include the id, or reply to this message."
    )


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} minutes"


def answer_message(
    choice: ApprovalChoice, questions: Sequence[QuestionRecord], *, shortened: bool
) -> str:
    """Confirm how an answer was understood, and for which requests."""
    result = _RESULT_TEXT[ApprovalChoice.ONCE if shortened else choice]
    if len(questions) == 1:
        text = f"{result}: {_subject_line(questions[0])}"
    else:
        lines = [f"- {_subject_line(question)}" for question in questions]
        text = "\n".join([f"{result}, {len(questions)} requests:", *lines])
    if shortened:
        return f"{text}\nThis cannot be saved, so it is allowed once only."
    listed = choice is ApprovalChoice.ALWAYS
    return f"{text}\n/approvals lists what is always allowed." if listed else text


def several_message(questions: Sequence[QuestionRecord]) -> str:
    """Reply to an answer that does not say which request it is for."""
    lines = [
        f"{short_id(question.question)}  {question.question.origin}: {_subject_line(question)}"
        for question in questions
    ]
    first = short_id(questions[0].question)
    example = f"For example: /approve {first}, or /deny {first}."
    if all(question.question.elsewhere for question in questions):
        text = "Nothing decided: someone else asked for this. Name the request by its id:"
    elif len(questions) == 1:
        text = "Nothing decided: name the pending request by its id:"
    else:
        text = "Nothing decided: several requests are pending. Name one by its id:"
        example = f"For example: /approve {first}, /deny {first}, or /approve all."
    return "\n".join([text, *lines, example])


def _subject_line(question: QuestionRecord) -> str:
    return show_invisible_line(question.question.subject or question.question.text, MAX_SUBJECT)


def late_message(latest: QuestionRecord | None, clock: Clock) -> str:
    """Reply to an answer for a question that is closed or does not exist."""
    if latest is None:
        return NOTHING_PENDING
    if latest.state in {ANSWERED, USED}:
        return f"Already answered: {latest.answer or latest.answer_text}."
    if latest.state == OPEN and is_awaited(latest, clock):
        return ASKED_ELSEWHERE
    if latest.state in {LAPSED, OPEN}:
        return "Too late: the request timed out and was denied."
    return NOTHING_PENDING


def interrupted_message(row: QuestionRecord) -> str:
    """Tell the model what happened to a call whose process ended while the question was pending.

    Empty if it was allowed: then it is unknown how far the call got.
    """
    if row.question.kind is QuestionKind.CLARIFY:
        return (
            f"Interrupted. The user had answered: {row.answer_text!r}."
            if row.answer_text
            else NOT_RUN
        )
    if row.state == USED:
        return decision_of(row, 0.0).why if row.answer == ApprovalChoice.DENY else ""
    return NOT_RUN


def decision_of(row: QuestionRecord | None, seconds: float) -> Decision:
    if row is None:
        return Decision(
            allowed=False,
            why=f"Not done: no answer within {_duration(seconds)}. Do not try it again by "
            "yourself; say what you wanted to do, and go on without it.",
        )
    if row.answer == ApprovalChoice.DENY:
        reason = f" Their reason: {row.answer_text!r}." if row.answer_text else ""
        return Decision(
            allowed=False,
            why=f"Not done: a person denied it.{reason} Do not do it another way; ask what to do.",
        )
    choice = ApprovalChoice(row.answer) if row.answer in _APPROVED_TEXT else ApprovalChoice.ONCE
    return Decision(allowed=True, why=_APPROVED_TEXT[choice])
