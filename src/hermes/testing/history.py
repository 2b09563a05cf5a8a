"""The judge of what people saw: each question answered once, in order, in its own chat.

It reads the platform's own memory, in which a question's first word is its name; an answer says
`re: ` and the question (see `hermes.testing.obliging`). A second copy must say that it is one.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from msgspec import Struct, field

from hermes.gateway.bubble import BELOW
from hermes.gateway.delivery import MARK
from hermes.ports.store import Store
from hermes.schema.messages import Trust, User, text_of
from hermes.schema.scope import OWNER
from hermes.schema.sessions import Stored
from hermes.testing.obliging import ANSWER, LINES
from hermes.testing.platform.truth import Shown, Spoken, Truth

_NAME = re.compile(rf"{ANSWER}(\S+)")
_LINE = re.compile(r"(\S+) line (\d+): ")
_GIVEN_BACK = re.compile(r"“/\S+ (\S+?)” was cut off")
_SET_ASIDE = "is set aside"
PROGRESS = "· "


class WrongHistory(AssertionError):
    """Somebody saw too little, too much, the wrong thing, or in the wrong order."""


class Verdict(Struct):
    """`told` are questions that were visibly not answered: given back, or set aside."""

    asked: int = 0
    answered: int = 0
    told: list[str] = field(default_factory=list[str])
    lost: list[str] = field(default_factory=list[str])
    doubled: list[str] = field(default_factory=list[str])
    marked: int = 0
    inverted: list[str] = field(default_factory=list[str])
    strayed: list[str] = field(default_factory=list[str])
    left_over: int = 0
    """Signs of progress that a crash left standing."""

    def check(self) -> None:
        wrong = {
            "lost": self.lost,
            "doubled": self.doubled,
            "inverted": self.inverted,
            "strayed": self.strayed,
        }
        found = [f"{len(names)} {what}: {names[:5]}" for what, names in wrong.items() if names]
        if found:
            raise WrongHistory("; ".join(found))

    def __str__(self) -> str:
        return (
            f"{self.asked} asked, {self.answered} answered, {len(self.told)} told otherwise; "
            f"{len(self.lost)} lost, {len(self.doubled)} doubled unmarked, {self.marked} marked "
            f"copies, {len(self.inverted)} inverted, {len(self.strayed)} strayed, "
            f"{self.left_over} progress posts left over"
        )


def name_of(text: str) -> str:
    """A question's name; of a command that passes one on, the word behind it."""
    words = text.split()
    return words[1] if text.startswith("/") and len(words) > 1 else words[0]


def judge(truth: Truth) -> Verdict:
    """What the platform's memory says, chat by chat."""
    verdict = Verdict()
    for (account, chat), (spoken, shown) in truth.by_chat().items():
        _Chat(f"{account}/{chat}", spoken, verdict).read(shown)
    return verdict


class Waiting:
    """Which questions still wait for their answer, kept up to date at little cost."""

    def __init__(self, truth: Truth) -> None:
        self._truth = truth
        self._asked = 0
        self._read = 0
        self._names: dict[str, str] = {}
        self._missing: dict[str, set[str]] = {}
        self._seen: set[str] = set()

    def is_over(self) -> bool:
        """Whether everything that was asked has got an answer, or was told otherwise."""
        truth = self._truth
        for spoken in truth.spoken[self._asked :]:
            name = name_of(spoken.text)
            self._names[spoken.id] = name
            self._missing[name] = set(_pieces(name, spoken.text)) - self._seen
        self._asked = len(truth.spoken)
        for post in truth.changes[self._read :]:
            self._take(truth.shown[post])
        self._read = len(truth.changes)
        return not truth.waiting() and not self._missing

    def _take(self, post: Shown) -> None:
        for piece in pieces_of(post, self._names):
            self._seen.add(piece)
            name = piece.removeprefix("told ").partition(" ")[0]
            missing = self._missing.get(name, set())
            missing.discard(piece)
            if not missing or piece.startswith("told "):
                self._missing.pop(name, None)


def pieces_of(post: Shown, names: Mapping[str, str]) -> Iterator[str]:
    """What a post answers, or tells of; `names` are those of questions by their ids."""
    for match in _NAME.finditer(post.text):
        yield match[1]
    for match in _LINE.finditer(post.text):
        yield f"{match[1]} line {match[2]}"
    for match in _GIVEN_BACK.finditer(post.text):
        yield f"told {match[1].rstrip('”')}"
    if _SET_ASIDE in post.text and post.reply_to is not None and post.reply_to in names:
        yield f"told {names[post.reply_to]}"


class _Chat:
    def __init__(self, place: str, spoken: Sequence[Spoken], verdict: Verdict) -> None:
        self._place = place
        self._verdict = verdict
        self._questions = {name_of(one.text): one for one in spoken}
        self._by_id = {one.id: name_of(one.text) for one in spoken}
        self._order = {name: number for number, name in enumerate(self._questions)}
        self._seen: set[str] = set()
        self._answers: list[str] = []

    def read(self, shown: Sequence[Shown]) -> None:
        for post in shown:
            self._post(post)
        verdict = self._verdict
        verdict.asked += len(self._questions)
        verdict.answered += len(self._answers)
        told = {name for name in self._questions if f"told {name}" in self._seen}
        verdict.told += sorted(told - set(self._answers))
        verdict.lost += [
            f"{self._place}: {piece}"
            for name, one in self._questions.items()
            if name not in told
            for piece in _pieces(name, one.text)
            if piece not in self._seen
        ]

    def _post(self, post: Shown) -> None:
        pieces = list(self._read(post))
        marked = post.text.startswith(MARK)
        if not pieces:
            progress = post.text.startswith(PROGRESS) or post.text == BELOW
            self._verdict.left_over += progress and post.text != BELOW
            return
        self._verdict.marked += marked
        for piece in pieces:
            if piece in self._seen and not marked:
                self._verdict.doubled.append(f"{self._place}: {piece}")
            if piece in self._questions and piece not in self._seen:
                self._answer(piece)
            self._seen.add(piece)

    def _read(self, post: Shown) -> Iterator[str]:
        """What this post answers, or tells of, piece by piece."""
        for piece in pieces_of(post, self._by_id):
            name = piece.removeprefix("told ").partition(" ")[0]
            replied = self._by_id.get(post.reply_to or "", name)
            if name not in self._questions or replied != name:
                self._verdict.strayed.append(f"{self._place}: {post.text[:60]}")
            else:
                yield piece

    def _answer(self, name: str) -> None:
        if self._answers and self._order[name] < self._order[self._answers[-1]]:
            self._verdict.inverted.append(f"{self._place}: {name} after {self._answers[-1]}")
        self._answers.append(name)


def _pieces(name: str, question: str) -> list[str]:
    if "long" not in question.split():
        return [name]
    return [name, *(f"{name} line {n}" for n in range(LINES))]


async def judge_store(
    store: Store, spoken: Sequence[Spoken], keys: Mapping[str, str], told: Collection[str] = ()
) -> list[str]:
    """What is wrong on disk: a question heard not once, out of order, or in the wrong session.

    `keys` gives the session key of each chat; what was `told` otherwise may not have been heard.
    """
    wrong: list[str] = []
    archive = store.seen_by(OWNER)
    for chat, key in keys.items():
        wanted = [name_of(one.text) for one in spoken if one.chat == chat]
        session = await archive.by_key(key)
        heard = [] if session is None else _questions(await archive.messages(session.id))
        if [name for name in heard if name not in told] != [n for n in wanted if n not in told]:
            strange = sorted(set(heard) ^ set(wanted)) or "another order, or one twice"
            wrong.append(f"{chat}: heard {len(heard)} of {len(wanted)}: {strange}")
    for lane in ("inbox", "commands"):
        wrong += [f"{lane}: {topic} is not settled" for topic in await store.lanes.topics(lane)]
    return wrong


def _questions(rows: Sequence[Stored]) -> list[str]:
    said = [row.message for row in rows if isinstance(row.message, User)]
    return [name_of(text_of(user)) for user in said if user.trust is not Trust.HOUSE]
