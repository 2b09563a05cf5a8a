"""Who may answer which question, and which one is meant."""

from typing import Protocol

from msgspec import Struct

from hermes.approvals import wording
from hermes.approvals.rows import Asked, digest_of
from hermes.ports.counsel import Wish
from hermes.schema.questions import Asking, Question
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

    async def carry(self, key: str, address: Address, text: str) -> None:
        """Once for the same key, also over a restart."""
        ...


def may_answer(who: Answerer, row: Asked) -> bool:
    return who.role is Role.OWNER or who.principal == row.question.asked


def is_for(who: Answerer, row: Asked) -> bool:
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


def digest_in(scope: Scope, wish: Wish) -> str:
    """The same wish of the same person, in the same circumstances."""
    what = (wish.tool, wish.action, wish.target, wish.detail, wish.reaching, wish.folder)
    whose = (scope.principal, scope.role.value, "foreign" if wish.foreign else "")
    return digest_of("wish", *what, *whose)


def chosen_in(question: Question, words: str) -> str:
    """A number stands for the choice of that number."""
    number = words.strip().strip(".)")
    if number.isdecimal() and 1 <= int(number) <= len(question.choices):
        return question.choices[int(number) - 1]
    return words.strip()
