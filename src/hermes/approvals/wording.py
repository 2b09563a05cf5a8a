"""What people and models are told about leave: asked for, given, refused, too late."""

import re
from collections.abc import Sequence

from hermes.approvals.rows import ANSWERED, LAPSED, OPEN, USED, QuestionRow, is_awaited
from hermes.approvals.simple import can_last, runner_in
from hermes.kit.clock import Clock
from hermes.kit.plain import unmasked, visible, visible_line
from hermes.ports.counsel import Ruling, Wish
from hermes.schema.questions import HERE, Asking, Choice, Question
from hermes.schema.scope import OWNER, Scope, platform_of

MOST_SHOWN = 8_000
"""Characters of what somebody is asked about; what is longer is not asked at all."""
MOST_LINES = 400
MOST_FOLDER = 400
MOST_REASON = 300
MOST_NAME = 60
MOST_ECHO = 200
SHORT = 6
"""Letters at the end of an id that are enough to name it."""
MOST_REFUSALS = 3
TIRED = (
    f"Not done: {MOST_REFUSALS} requests of this turn were not allowed, so nobody is asked again "
    "in it. Stop, say what you wanted to do and why, and let the user decide what comes next."
)
ONCE_IS_ENOUGH = (
    "Not done: a person refused this very thing in this turn, so they are not asked again in it. "
    "Say that it was not done, and let the user decide what comes next."
)
YES = frozenset(
    {"yes", "y", "yep", "yeah", "ok", "okay", "approve", "approved", "👍", "✅", "once"}
)
NO = frozenset({"no", "n", "nope", "nah", "deny", "denied", "👎", "❌"})
_LONGER = tuple(word for word in (*YES, *NO, "always", "session") if len(word) > 2)
_ORDINARY = frozenset({
    "alway", "approver", "approves", "defied", "defy", "den", "dene", "denier", "denies",
    "dens", "dent", "denys", "dewy", "nab", "nag", "nan", "nap", "nape", "noah", "node", "nome",
    "none", "nose", "note", "one", "ones", "ounce", "sessions", "yap", "year", "yelp", "yen",
    "yet", "yew", "yip",
})  # fmt: skip
"""Words of one's own that are a letter away from those that decide."""
ONE_AT_A_TIME = (
    "Not done: another request of this turn lies before the owner, who is asked one thing at a "
    "time. Wait for that answer, then ask again."
)
TOO_MANY = (
    "Not done: as many requests of this person as may wait lie before the owner already. "
    "Go on without it, and say what you wanted to do."
)
CHANGED = (
    "Not done: a file that the command names changed while somebody was asked about it. Look at "
    "it, and ask again."
)
NOT_RUN = "Not run: the turn was interrupted while a person was asked, and nothing was done."
NOTHING = "Nothing waits for an answer here."
NOT_HERE = "Nothing was decided: that question waits where it was asked. Answer it there."

_GIVEN = {
    Choice.ONCE: "Allowed, this once",
    Choice.SESSION: "Allowed for this session",
    Choice.ALWAYS: "Allowed from now on",
    Choice.DENY: "Refused",
}


_APPROVED = {
    Choice.ONCE: "A person allowed it, this once.",
    Choice.SESSION: "A person allowed it, for this session.",
    Choice.ALWAYS: "A person allowed it, from now on.",
}
"""For the model."""


def choice_in(words: str) -> Choice | None:
    """What a bare word says to a request for approval."""
    word = words.strip().strip(".!").lower()
    if word in YES:
        return Choice.ONCE
    if word in NO:
        return Choice.DENY
    return Choice(word) if word in {"always", "session"} else None


def nearly_a_choice(words: str) -> bool:
    """Whether a single word looks like a slip of one that would decide, and is no other word."""
    word = words.strip().strip(".!").lower()
    if choice_in(word) is not None or not 3 <= len(word) <= 12 or not word.isalpha():
        return False
    if word in _ORDINARY:
        return False
    return any(_is_slip(word, known) for known in _LONGER)


def _is_slip(word: str, known: str) -> bool:
    """One letter too many, missing or wrong, or two neighbours swapped; the first one is right."""
    if word[0] != known[0] or abs(len(word) - len(known)) > 1:
        return False
    same = next((n for n, (a, b) in enumerate(zip(word, known, strict=False)) if a != b), None)
    if same is None:
        return True
    rest, other = word[same:], known[same:]
    swapped = rest[:2] == other[1::-1] and rest[2:] == other[2:]
    return swapped or rest[1:] == other[1:] or rest[1:] == other or rest == other[1:]


def unclear(question: Question, words: str) -> str:
    lasting = ", session, always" if Choice.ALWAYS in question.choices else ""
    behind = f" with its id, {short_id(question)}" if question.elsewhere else ""
    return (
        f"I did not understand {visible_line(words, MOST_NAME)!r}, so nothing is decided yet. "
        f"Answer yes{lasting} or no{behind}; the question waits on."
    )


def origin_of(scope: Scope) -> str:
    if scope.principal == OWNER and scope.source == "cli" and scope.address is None:
        return HERE
    who = scope.asker.name or scope.asker.user or scope.principal
    where = platform_of(scope.address.channel) if scope.address else scope.source
    named = [visible_line(one, MOST_NAME) for one in (who, where, scope.asker.chat_name)]
    told = f"{named[0]} on {named[1]}" if where else named[0]
    return f"{told}, {named[2]}" if named[2] else told


def subject_of(wish: Wish) -> str:
    """All that would be done, with what cannot be seen, or passes for another, written out."""
    words = not (wish.shell or wish.code)
    done = [unmasked(one, addresses=words) for one in (wish.target, wish.action)]
    # Beside a command it is what that may reach: hosts, places.
    more = unmasked(wish.detail, addresses=True) if wish.shell else wish.detail
    return visible("\n".join(filter(None, [*done, more])))


def reason_of(wish: Wish) -> str:
    return visible_line(wish.reason, MOST_REASON)


def unshowable(wish: Wish) -> str:
    """Why nobody can be asked about it, for the model; empty when it can be shown whole."""
    shown = subject_of(wish)
    length, lines = len(shown), shown.count("\n") + 1
    if length <= MOST_SHOWN and lines <= MOST_LINES and len(wish.folder) <= MOST_FOLDER:
        return ""
    return (
        f"Not done: it needs approval, and it is too long to be shown whole to a person "
        f"({length:,} characters in {lines:,} lines; up to {MOST_SHOWN:,} in {MOST_LINES} can be). "
        "Do it in smaller steps, each with its own request."
    )


def asks_for(wish: Wish, why: str) -> str:
    what = "run this command" if wish.shell else f"do this with {wish.tool}"
    what = "type this" if wish.target and wish.shell else what
    where = f" in {_folder(wish.folder)}" if wish.folder else ""
    return f"May I {what}{where}? {visible_line(why, MOST_REASON)}{_longer(wish)}"


def _longer(wish: Wish) -> str:
    """What an answer for longer is about, or why there is none."""
    if kind := visible_line(wish.kind, MOST_REASON):
        return f" Session and always are for {kind}."
    if runner := visible_line(runner_in(wish), MOST_NAME):
        return f" This once only: what {runner} runs lies in files that can change."
    if wish.shell and wish.seal and can_last(wish):
        return " Session and always count while the files it names stay as they are."
    return ""


def _folder(folder: str) -> str:
    """A name that reads like a sentence stands in quotes."""
    line = visible_line(unmasked(folder), MOST_SHOWN)
    if line == folder and re.fullmatch(r"[\w./@+~:,=-]+", folder):
        return folder
    quoted = line.replace('"', "'")
    return f'"{quoted}"'


def short_id(question: Question) -> str:
    return question.id[-SHORT:]


def as_post(question: Question, seconds: float, *, carried: bool = False) -> str:
    """A question as a chat shows it; `carried` is for the chat that it was brought to."""
    if question.kind is Asking.CLARIFY:
        lines = [f"{number}. {one}" for number, one in enumerate(question.choices, 1)]
        how = "Answer with a number, or in your own words." if lines else ""
        return "\n".join(filter(None, [question.text, *lines, how]))
    shown = visible(question.subject)
    ticks = "`" * max(3, 1 + max(map(len, re.findall(r"`+", shown)), default=0))
    more = [f"Reason: {visible_line(question.reason, MOST_REASON)}"] if question.reason else []
    if question.origin:
        more.append(f"Asked by: {visible_line(question.origin, 3 * MOST_NAME)}")
    if question.elsewhere and not carried:
        how = f"Only the owner can allow this, and was asked. Wait up to {_span(seconds)}."
        return "\n".join([visible(question.text), ticks, shown, ticks, *more, how])
    name = f" {short_id(question)}" if carried else ""
    lasting = " [session|always]" if Choice.ALWAYS in question.choices else ""
    ways = f"/approve{name}{lasting} or /deny{name} [reason]"
    how = f"{ways}, or just yes or no, within {_span(seconds)}. Its id is {short_id(question)}."
    if carried:
        how = (
            f"{ways}, or yes{name} or no{name}, within {_span(seconds)}. Somebody else asks for "
            "it, so nothing counts without the id, or as a reply to this message."
        )
    return "\n".join([visible(question.text), ticks, shown, ticks, *more, how])


def _span(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} minutes"


def given(choice: Choice, asked: Sequence[QuestionRow], *, shortened: bool) -> str:
    """What the answer was taken for, and for what."""
    how = _GIVEN[Choice.ONCE if shortened else choice]
    if len(asked) == 1:
        told = f"{how}: {_echo(asked[0])}"
    else:
        lines = [f"- {_echo(one)}" for one in asked]
        told = "\n".join([f"{how}, {len(asked)} requests:", *lines])
    if shortened:
        return f"{told}\nIt cannot be remembered, so it is for this time only."
    listed = choice is Choice.ALWAYS
    return f"{told}\n/approvals lists what is allowed." if listed else told


def several(asked: Sequence[QuestionRow]) -> str:
    """For an answer that does not say to which of them."""
    lines = [f"{short_id(one.question)}  {one.question.origin}: {_echo(one)}" for one in asked]
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


def _echo(asked: QuestionRow) -> str:
    return visible_line(asked.question.subject or asked.question.text, MOST_ECHO)


def too_late(latest: QuestionRow | None, clock: Clock) -> str:
    """For an answer to what is no longer asked, or not there."""
    if latest is None:
        return NOTHING
    match latest.state:
        case state if state in {ANSWERED, USED}:
            return f"That was answered already: {latest.answer or latest.words}."
        case state if state == OPEN and is_awaited(latest, clock):
            return NOT_HERE
        case state if state in {LAPSED, OPEN}:
            return "Too late: the time for an answer is over, and it was not done."
        case _:
            return NOTHING


def undone(row: QuestionRow) -> str:
    """What the model is told of a call whose process ended over this question, if that did nothing.

    Empty when it was allowed: then nobody knows how far it came.
    """
    if row.question.kind is Asking.CLARIFY:
        return f"Interrupted. The user had answered: {row.words!r}." if row.words else NOT_RUN
    if row.state == USED:
        return ruling_of(row, 0.0).why if row.answer == Choice.DENY else ""
    return NOT_RUN


def not_yours(asked: QuestionRow) -> str:
    return "Only the owner, or who asked for it, can answer this."


def ruling_of(row: QuestionRow | None, seconds: float) -> Ruling:
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
    choice = Choice(row.answer) if row.answer in _APPROVED else Choice.ONCE
    return Ruling(allowed=True, why=_APPROVED[choice])
