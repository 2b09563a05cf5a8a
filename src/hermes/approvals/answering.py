"""Who may answer which question, and which one is meant."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from hermes.approvals import wording
from hermes.approvals.rows import QuestionRow, digest_of
from hermes.ports.counsel import Wish
from hermes.schema.questions import Asking, Choice, Question
from hermes.schema.scope import OWNER, Address, Role, Scope


class Answerer(Struct, frozen=True, kw_only=True):
    """Who answers, and where: what is asked in the session, or of the owner at that address."""

    session: str = ""
    principal: str = OWNER
    role: Role = Role.OWNER
    address: Address | None = None


class Carrier(Protocol):
    """Brings a member's question to the owner, who is not in the member's chat."""

    def home_of(self, scope: Scope) -> Address | None:
        """The owner's own chat; None when there is none. Looks at the settings on disk."""
        ...

    async def carry(self, question: str, address: Address, text: str) -> None:
        """Once for the question of that id, also over a restart."""
        ...


def may_answer(who: Answerer, row: QuestionRow) -> bool:
    return who.role is Role.OWNER or who.principal == row.question.asked


def is_put_to(who: Answerer, row: QuestionRow) -> bool:
    """Whether it was asked there: in the session, or of the owner at that address."""
    here = row.question.session == who.session
    there = who.role is Role.OWNER and who.address is not None
    return here or (there and row.address == who.address)


def is_for(who: Answerer, row: QuestionRow) -> bool:
    if row.question.kind is Asking.APPROVAL:
        return may_answer(who, row)
    return row.question.asked == who.principal


def is_named(question: Question, name: str) -> bool:
    """By its id or the letters at the end of it; without a name every one is."""
    if not name or question.id == name:
        return True
    return len(name) >= wording.SHORT and question.id.casefold().endswith(name.casefold())


def word_and_id(words: str) -> tuple[str, str]:
    """A word, and the id behind it if there is nothing else."""
    match words.split():
        case [first, name]:
            return first, name.strip(".!")
        case _:
            return words, ""


def choice_for(question: Question, words: str) -> Choice | None:
    """A bare word, or one with the id of this very question; whatever follows else is no answer."""
    first, name = word_and_id(words)
    return wording.choice_in(first if name and is_named(question, name) else words)


def lacks_id(question: Question, words: str) -> bool:
    """Whether the words would have to name it: what others asked for is never meant by chance."""
    name = word_and_id(words)[1]
    return question.elsewhere and not (name and is_named(question, name))


def unnamed_in(
    own: Sequence[QuestionRow], choice: Choice, *, everything: bool
) -> Sequence[QuestionRow]:
    """Those that an answer without an id may settle; all can be refused at once, not allowed."""
    if everything and choice is Choice.DENY:
        return own
    near = [one for one in own if not one.question.elsewhere]
    return near if everything or len(own) == len(near) else []


def meant_in(waiting: Sequence[QuestionRow], words: str) -> list[QuestionRow]:
    """The questions that bare words may answer, oldest first."""
    first, name = word_and_id(words)
    approvals = [one for one in waiting if one.question.kind is Asking.APPROVAL]
    clarifies = [one for one in waiting if one.question.kind is Asking.CLARIFY]
    slips = wording.nearly_a_choice(first)
    if name and (slips or wording.choice_in(first)):
        named = [one for one in approvals if is_named(one.question, name)]
        if named:
            return named
    if wording.choice_in(words):
        near = [one for one in waiting if not one.question.elsewhere]
        return near if clarifies else list(waiting)
    # A slip is asked about, unless any words may be an answer.
    return approvals if slips and not name and not clarifies else clarifies


def digest_in(scope: Scope, wish: Wish) -> str:
    """The same wish of the same person, in the same circumstances."""
    what = (wish.tool, wish.action, wish.target, wish.detail, wish.reaching, wish.folder)
    lasting = (wish.kind, wish.seal)
    whose = (scope.principal, scope.role.value, "foreign" if wish.foreign else "")
    return digest_of("wish", *what, *lasting, *whose)


def chosen_in(question: Question, words: str) -> str:
    """A number stands for the choice of that number."""
    number = words.strip().strip(".)")
    if number.isdecimal() and 1 <= int(number) <= len(question.choices):
        return question.choices[int(number) - 1]
    return words.strip()
