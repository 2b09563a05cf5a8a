"""What people and models are told about leave: asked for, given, refused, too late."""

import re
from collections.abc import Sequence

from hermes.approvals.approval_store import ANSWERED, LAPSED, OPEN, USED, QuestionRecord, is_awaited
from hermes.approvals.grants import can_be_saved, unsealed_runner
from hermes.kit.clock import Clock
from hermes.kit.terminal_text import show_invisible, show_invisible_line, show_lookalikes
from hermes.ports.approvals import ApprovalRequest, Decision
from hermes.schema.questions import TERMINAL_ORIGIN, ApprovalChoice, Question, QuestionKind
from hermes.schema.scope import OWNER, Scope, platform_of

MAX_SHOWN = 8_000
"""Characters of what somebody is asked about; what is longer is not asked at all."""
MAX_LINES = 400
MAX_FOLDER = 400
MAX_REASON = 300
MAX_NAME = 60
MAX_SUBJECT = 200
SHORT_ID_LENGTH = 6
"""Letters at the end of an id that are enough to name it."""
MAX_REFUSALS = 3
TOO_MANY_REFUSALS = (
    f"Not done: {MAX_REFUSALS} requests of this turn were not allowed, so nobody is asked again "
    "in it. Stop, say what you wanted to do and why, and let the user decide what comes next."
)
ALREADY_REFUSED = (
    "Not done: a person refused this very thing in this turn, so they are not asked again in it. "
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
"""Words of one's own that are a letter away from those that decide."""
RUN_WAITS_ALREADY = (
    "Not done: another request of this turn lies before the owner, who is asked one thing at a "
    "time. Wait for that answer, then ask again."
)
TOO_MANY_WAITING = (
    "Not done: as many requests of this person as may wait lie before the owner already. "
    "Go on without it, and say what you wanted to do."
)
FILE_CHANGED = (
    "Not done: a file that the command names changed while somebody was asked about it. Look at "
    "it, and ask again."
)
NOT_RUN = "Not run: the turn was interrupted while a person was asked, and nothing was done."
NOTHING_PENDING = "Nothing waits for an answer here."
ASKED_ELSEWHERE = "Nothing was decided: that question waits where it was asked. Answer it there."

_RESULT_TEXT = {
    ApprovalChoice.ONCE: "Allowed, this once",
    ApprovalChoice.SESSION: "Allowed for this session",
    ApprovalChoice.ALWAYS: "Allowed from now on",
    ApprovalChoice.DENY: "Refused",
}


_APPROVED_TEXT = {
    ApprovalChoice.ONCE: "A person allowed it, this once.",
    ApprovalChoice.SESSION: "A person allowed it, for this session.",
    ApprovalChoice.ALWAYS: "A person allowed it, from now on.",
}
"""For the model."""


def choice_of_word(words: str) -> ApprovalChoice | None:
    """What a bare word says to a request for approval."""
    word = words.strip().strip(".!").lower()
    if word in YES_WORDS:
        return ApprovalChoice.ONCE
    if word in NO_WORDS:
        return ApprovalChoice.DENY
    return ApprovalChoice(word) if word in {"always", "session"} else None


def is_misspelled_choice(words: str) -> bool:
    """Whether a single word looks like a slip of one that would decide, and is no other word."""
    word = words.strip().strip(".!").lower()
    if choice_of_word(word) is not None or not 3 <= len(word) <= 12 or not word.isalpha():
        return False
    if word in _OTHER_WORDS:
        return False
    return any(_is_one_typo(word, known) for known in _CHOICE_WORDS)


def _is_one_typo(word: str, known: str) -> bool:
    """One letter too many, missing or wrong, or two neighbours swapped; the first one is right."""
    if word[0] != known[0] or abs(len(word) - len(known)) > 1:
        return False
    same = next((n for n, (a, b) in enumerate(zip(word, known, strict=False)) if a != b), None)
    if same is None:
        return True
    rest, other = word[same:], known[same:]
    swapped = rest[:2] == other[1::-1] and rest[2:] == other[2:]
    return swapped or rest[1:] == other[1:] or rest[1:] == other or rest == other[1:]


def unclear_message(question: Question, words: str) -> str:
    lasting = ", session, always" if ApprovalChoice.ALWAYS in question.choices else ""
    behind = f" with its id, {short_id(question)}" if question.elsewhere else ""
    return (
        f"I did not understand {show_invisible_line(words, MAX_NAME)!r}, so nothing is decided "
        f"yet. Answer yes{lasting} or no{behind}; the question waits on."
    )


def request_origin(scope: Scope) -> str:
    if scope.principal == OWNER and scope.source == "cli" and scope.address is None:
        return TERMINAL_ORIGIN
    who = scope.asker.name or scope.asker.user or scope.principal
    where = platform_of(scope.address.channel) if scope.address else scope.source
    named = [show_invisible_line(one, MAX_NAME) for one in (who, where, scope.asker.chat_name)]
    told = f"{named[0]} on {named[1]}" if where else named[0]
    return f"{told}, {named[2]}" if named[2] else told


def request_subject(wish: ApprovalRequest) -> str:
    """All that would be done, with what cannot be seen, or passes for another, written out."""
    words = not (wish.shell or wish.code)
    done = [show_lookalikes(one, addresses=words) for one in (wish.target, wish.action)]
    # Beside a command it is what that may reach: hosts, places.
    more = show_lookalikes(wish.detail, addresses=True) if wish.shell else wish.detail
    return show_invisible("\n".join(filter(None, [*done, more])))


def request_reason(wish: ApprovalRequest) -> str:
    return show_invisible_line(wish.reason, MAX_REASON)


def too_long_reason(wish: ApprovalRequest) -> str:
    """Why nobody can be asked about it, for the model; empty when it can be shown whole."""
    shown = request_subject(wish)
    length, lines = len(shown), shown.count("\n") + 1
    if length <= MAX_SHOWN and lines <= MAX_LINES and len(wish.folder) <= MAX_FOLDER:
        return ""
    return (
        f"Not done: it needs approval, and it is too long to be shown whole to a person "
        f"({length:,} characters in {lines:,} lines; up to {MAX_SHOWN:,} in {MAX_LINES} can be). "
        "Do it in smaller steps, each with its own request."
    )


def approval_prompt(wish: ApprovalRequest, why: str) -> str:
    what = "run this command" if wish.shell else f"do this with {wish.tool}"
    what = "type this" if wish.target and wish.shell else what
    where = f" in {_quoted_folder(wish.folder)}" if wish.folder else ""
    return f"May I {what}{where}? {show_invisible_line(why, MAX_REASON)}{_saving_note(wish)}"


def _saving_note(wish: ApprovalRequest) -> str:
    """What an answer for longer is about, or why there is none."""
    if kind := show_invisible_line(wish.kind, MAX_REASON):
        return f" Session and always are for {kind}."
    if runner := show_invisible_line(unsealed_runner(wish), MAX_NAME):
        return f" This once only: what {runner} runs lies in files that can change."
    if wish.shell and wish.seal and can_be_saved(wish):
        return " Session and always count while the files it names stay as they are."
    return ""


def _quoted_folder(folder: str) -> str:
    """A name that reads like a sentence stands in quotes."""
    line = show_invisible_line(show_lookalikes(folder), MAX_SHOWN)
    if line == folder and re.fullmatch(r"[\w./@+~:,=-]+", folder):
        return folder
    quoted = line.replace('"', "'")
    return f'"{quoted}"'


def short_id(question: Question) -> str:
    return question.id[-SHORT_ID_LENGTH:]


def question_text(question: Question, seconds: float, *, carried: bool = False) -> str:
    """A question as a chat shows it; `carried` is for the chat that it was brought to."""
    if question.kind is QuestionKind.CLARIFY:
        lines = [f"{number}. {one}" for number, one in enumerate(question.choices, 1)]
        how = "Answer with a number, or in your own words." if lines else ""
        return "\n".join(filter(None, [question.text, *lines, how]))
    shown = show_invisible(question.subject)
    ticks = "`" * max(3, 1 + max(map(len, re.findall(r"`+", shown)), default=0))
    more = (
        [f"Reason: {show_invisible_line(question.reason, MAX_REASON)}"] if question.reason else []
    )
    if question.origin:
        more.append(f"Asked by: {show_invisible_line(question.origin, 3 * MAX_NAME)}")
    if question.elsewhere and not carried:
        how = f"Only the owner can allow this, and was asked. Wait up to {_duration(seconds)}."
        return "\n".join([show_invisible(question.text), ticks, shown, ticks, *more, how])
    name = f" {short_id(question)}" if carried else ""
    lasting = " [session|always]" if ApprovalChoice.ALWAYS in question.choices else ""
    ways = f"/approve{name}{lasting} or /deny{name} [reason]"
    how = f"{ways}, or just yes or no, within {_duration(seconds)}. Its id is {short_id(question)}."
    if carried:
        how = (
            f"{ways}, or yes{name} or no{name}, within {_duration(seconds)}. Somebody else asks "
            "for it, so nothing counts without the id, or as a reply to this message."
        )
    return "\n".join([show_invisible(question.text), ticks, shown, ticks, *more, how])


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} minutes"


def answer_message(
    choice: ApprovalChoice, asked: Sequence[QuestionRecord], *, shortened: bool
) -> str:
    """What the answer was taken for, and for what."""
    how = _RESULT_TEXT[ApprovalChoice.ONCE if shortened else choice]
    if len(asked) == 1:
        told = f"{how}: {_subject_line(asked[0])}"
    else:
        lines = [f"- {_subject_line(one)}" for one in asked]
        told = "\n".join([f"{how}, {len(asked)} requests:", *lines])
    if shortened:
        return f"{told}\nIt cannot be remembered, so it is for this time only."
    listed = choice is ApprovalChoice.ALWAYS
    return f"{told}\n/approvals lists what is allowed." if listed else told


def several_message(asked: Sequence[QuestionRecord]) -> str:
    """For an answer that does not say to which of them."""
    lines = [
        f"{short_id(one.question)}  {one.question.origin}: {_subject_line(one)}" for one in asked
    ]
    first = short_id(asked[0].question)
    how = f"For example: /approve {first}, /deny {first}, or /approve all."
    if all(one.question.elsewhere for one in asked):
        told = "Nothing was decided about what somebody else asks for. Say which, by its id:"
        how = f"For example: /approve {first}, or /deny {first}."
    elif len(asked) == 1:
        told = "Nothing was decided: name the one that waits by its id:"
        how = f"For example: /approve {first}, or /deny {first}."
    else:
        told = "Several requests wait, so nothing was decided. Say which, by its id:"
    return "\n".join([told, *lines, how])


def _subject_line(asked: QuestionRecord) -> str:
    return show_invisible_line(asked.question.subject or asked.question.text, MAX_SUBJECT)


def late_message(latest: QuestionRecord | None, clock: Clock) -> str:
    """For an answer to what is no longer asked, or not there."""
    if latest is None:
        return NOTHING_PENDING
    match latest.state:
        case state if state in {ANSWERED, USED}:
            return f"That was answered already: {latest.answer or latest.words}."
        case state if state == OPEN and is_awaited(latest, clock):
            return ASKED_ELSEWHERE
        case state if state in {LAPSED, OPEN}:
            return "Too late: the time for an answer is over, and it was not done."
        case _:
            return NOTHING_PENDING


def interrupted_message(row: QuestionRecord) -> str:
    """What the model is told of a call whose process ended over this question, if that did nothing.

    Empty when it was allowed: then nobody knows how far it came.
    """
    if row.question.kind is QuestionKind.CLARIFY:
        return f"Interrupted. The user had answered: {row.words!r}." if row.words else NOT_RUN
    if row.state == USED:
        return decision_of(row, 0.0).why if row.answer == ApprovalChoice.DENY else ""
    return NOT_RUN


def not_allowed_message(asked: QuestionRecord) -> str:
    return "Only the owner, or who asked for it, can answer this."


def decision_of(row: QuestionRecord | None, seconds: float) -> Decision:
    if row is None:
        return Decision(
            allowed=False,
            why=f"Not done: nobody answered within {_duration(seconds)}. Do not try it again by "
            "yourself; say what you wanted to do, and go on without it.",
        )
    if row.answer == ApprovalChoice.DENY:
        said = f" They said: {row.words!r}." if row.words else ""
        return Decision(
            allowed=False,
            why=f"Not done: a person refused.{said} Do not do it in another way; ask what to do.",
        )
    choice = ApprovalChoice(row.answer) if row.answer in _APPROVED_TEXT else ApprovalChoice.ONCE
    return Decision(allowed=True, why=_APPROVED_TEXT[choice])
