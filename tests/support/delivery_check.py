"""Check what a fake platform shows: each question answered once, in order, in its own chat.

The first word of a question is its name; an answer is `re: ` and the question (see
`support.chat_platform.model`). A repeated answer must be marked as a recovered copy.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct, field

from hermes.gateway.delivery import RECOVERED_MARK
from hermes.gateway.messages import OutboxMessage, address_of_topic
from hermes.gateway.stale_progress import LIVE_PROGRESS, final_edits_name, post_in_key
from hermes.kit.clock import SystemClock
from hermes.ports.store import Store
from hermes.schema.messages import Trust, User, text_of
from hermes.schema.scope import OWNER
from hermes.schema.sessions import StoredMessage
from hermes.store.connection import READ_ONLY, connect
from hermes.store.sqlite import open_store
from support.chat_platform.model import ANSWER_PREFIX, LONG_ANSWER_LINES
from support.chat_platform.state import FakePlatform, PlatformPost, WrittenMessage

_NAME = re.compile(rf"{ANSWER_PREFIX}(\S+)")
_LINE = re.compile(r"(\S+) line (\d+): ")
_INTERRUPTED_COMMAND = re.compile(r"“/\S+ (\S+?)” was interrupted")
_SKIPPED_TEXT = "I will not retry it on my own"
PROGRESS_PREFIX = "· "
_PROGRESS_QUEUES = (LIVE_PROGRESS, final_edits_name(""))
_DONE, _PARKED = 2, 3


class DeliveryError(AssertionError):
    """Answers are missing, repeated, misplaced or out of order."""


class DeliveryReport(Struct):
    """The result of a delivery check.

    `reported` are questions that were reported as skipped or interrupted instead of answered. The
    answers to questions in `parked` are parked in the outbox, as their delivery is uncertain.
    """

    asked: int = 0
    answered: int = 0
    reported: list[str] = field(default_factory=list[str])
    parked: list[str] = field(default_factory=list[str])
    lost: list[str] = field(default_factory=list[str])
    repeated: list[str] = field(default_factory=list[str])
    marked: int = 0
    copies: list[str] = field(default_factory=list[str])
    """The first words of marked posts that the platform had shown before."""
    misordered: list[str] = field(default_factory=list[str])
    misplaced: list[str] = field(default_factory=list[str])
    left_over: list[str] = field(default_factory=list[str])
    """Progress posts that were not removed although their receipt was known."""
    unknown: int = 0
    """Progress posts that could not be removed because their receipt was lost."""
    receipts: Collection[str] | None = None

    def check(self) -> None:
        wrong = {
            "lost": self.lost,
            "doubled": self.repeated,
            "inverted": self.misordered,
            "strayed": self.misplaced,
            "left over": self.left_over,
        }
        found = [f"{len(names)} {what}: {names[:5]}" for what, names in wrong.items() if names]
        if found:
            raise DeliveryError("; ".join(found))

    def __str__(self) -> str:
        return (
            f"{self.asked} asked, {self.answered} answered, {len(self.reported)} skipped, "
            f"{len(self.parked)} parked in the outbox; {len(self.lost)} lost, "
            f"{len(self.repeated)} doubled unmarked, {self.marked} marked, "
            f"{len(self.copies)} of them copies, {len(self.misordered)} inverted, "
            f"{len(self.misplaced)} strayed, {len(self.left_over)} progress posts left over, "
            f"{self.unknown} more without receipt"
        )


def question_name(text: str) -> str:
    """Return the first word of a question, or the second one if it is passed to a command."""
    words = text.split()
    return words[1] if text.startswith("/") and len(words) > 1 else words[0]


def is_question(text: str) -> bool:
    """Return whether the text expects an answer by name; commands without arguments do not."""
    return not text.startswith("/") or len(text.split()) > 1


def check_delivery(
    platform: FakePlatform, parked: Collection[str] = (), receipts: Collection[str] | None = None
) -> DeliveryReport:
    """Check every chat of the platform; `parked` are the names of answers parked in an outbox.

    `receipts` are the progress posts known to the gateway, which must not be left over.
    """
    report = DeliveryReport(parked=sorted(parked))
    report.receipts = receipts
    for (account, chat), (spoken, shown) in platform.by_chat().items():
        _ChatCheck(f"{account}/{chat}", spoken, report).read(shown)
    return report


class PendingAnswers:
    """Tracks incrementally which questions still wait for their answer."""

    def __init__(self, platform: FakePlatform) -> None:
        self._platform = platform
        self._asked = 0
        self._read = 0
        self._names: dict[str, str] = {}
        self._missing: dict[str, set[str]] = {}
        self._seen: set[str] = set()

    def all_answered(self) -> bool:
        """Return whether every question was answered or reported as not answered."""
        platform = self._platform
        for spoken in platform.written[self._asked :]:
            if not is_question(spoken.text):
                continue
            name = question_name(spoken.text)
            self._names[spoken.id] = name
            self._missing[name] = set(_expected_pieces(name, spoken.text)) - self._seen
        self._asked = len(platform.written)
        for post in platform.changes[self._read :]:
            self._take(platform.posts[post])
        self._read = len(platform.changes)
        return not platform.unacknowledged() and not self._missing

    def give_up(self, names: Collection[str]) -> None:
        """Stop waiting for these answers."""
        for name in names:
            self._missing.pop(name, None)

    def _take(self, post: PlatformPost) -> None:
        for piece in answered_pieces(post, self._names):
            self._seen.add(piece)
            name = piece.removeprefix("reported ").partition(" ")[0]
            missing = self._missing.get(name, set())
            missing.discard(piece)
            if not missing or piece.startswith("reported "):
                self._missing.pop(name, None)


def answered_pieces(post: PlatformPost, names: Mapping[str, str]) -> Iterator[str]:
    """Yield what a post answers or reports; `names` maps message ids to question names."""
    for match in _NAME.finditer(post.text):
        yield match[1]
    for match in _LINE.finditer(post.text):
        yield f"{match[1]} line {match[2]}"
    for match in _INTERRUPTED_COMMAND.finditer(post.text):
        yield f"reported {match[1].rstrip('”')}"
    if _SKIPPED_TEXT in post.text and post.reply_to is not None and post.reply_to in names:
        yield f"reported {names[post.reply_to]}"


class _ChatCheck:
    def __init__(
        self, place: str, spoken: Sequence[WrittenMessage], report: DeliveryReport
    ) -> None:
        self._place = place
        self._report = report
        questions = [one for one in spoken if is_question(one.text)]
        self._questions = {question_name(one.text): one for one in questions}
        self._by_id = {one.id: question_name(one.text) for one in questions}
        self._order = {name: number for number, name in enumerate(self._questions)}
        self._seen: set[str] = set()
        self._answers: list[str] = []
        self._last: dict[str, str] = {}

    def read(self, shown: Sequence[PlatformPost]) -> None:
        for post in shown:
            self._post(post)
        report = self._report
        report.asked += len(self._questions)
        report.answered += len(self._answers)
        reported = {name for name in self._questions if f"reported {name}" in self._seen}
        report.reported += sorted(reported - set(self._answers))
        report.lost += [
            f"{self._place}: {piece}"
            for name, one in self._questions.items()
            if name not in reported and name not in report.parked
            for piece in _expected_pieces(name, one.text)
            if piece not in self._seen
        ]

    def _post(self, post: PlatformPost) -> None:
        pieces = list(self._read(post))
        marked = post.text.startswith(RECOVERED_MARK)
        if not pieces:
            if post.text.startswith(PROGRESS_PREFIX):
                self._stale_post(post)
            return
        self._report.marked += marked
        if marked and pieces[0] in self._seen:
            self._report.copies.append(pieces[0])
        for piece in pieces:
            if piece in self._seen and not marked:
                self._report.repeated.append(f"{self._place}: {piece}")
            if piece in self._questions and piece not in self._seen:
                self._answer(piece)
            self._seen.add(piece)

    def _stale_post(self, post: PlatformPost) -> None:
        receipts = self._report.receipts
        if receipts is not None and post.id in receipts:
            self._report.left_over.append(f"{self._place}: {post.text[:60]}")
        else:
            self._report.unknown += 1

    def _read(self, post: PlatformPost) -> Iterator[str]:
        """Yield what this post answers or reports, piece by piece."""
        for piece in answered_pieces(post, self._by_id):
            name = piece.removeprefix("reported ").partition(" ")[0]
            replied = self._by_id.get(post.reply_to or "", name)
            if name not in self._questions or replied != name:
                self._report.misplaced.append(f"{self._place}: {post.text[:60]}")
            else:
                yield piece

    def _answer(self, name: str) -> None:
        # In a group each person has a separate session, so only the order per person counts.
        question = self._questions[name]
        conversation = question.person if question.in_group else ""
        last = self._last.get(conversation)
        if last is not None and self._order[name] < self._order[last]:
            self._report.misordered.append(f"{self._place}: {name} after {last}")
        self._last[conversation] = name
        self._answers.append(name)


def _expected_pieces(name: str, question: str) -> list[str]:
    if "long" not in question.split():
        return [name]
    return [name, *(f"{name} line {n}" for n in range(LONG_ANSWER_LINES))]


async def check_stored_questions(
    database: Path, spoken: Sequence[WrittenMessage], keys: Mapping[str, str]
) -> list[str]:
    """The same as `check_store`, for a database that no process uses any more."""
    async with open_store(database, SystemClock()) as store:
        return await check_store(store, spoken, keys)


async def check_store(
    store: Store,
    spoken: Sequence[WrittenMessage],
    keys: Mapping[str, str],
    reported: Collection[str] = (),
) -> list[str]:
    """Return the errors in a store: questions missing, repeated, misordered or misplaced.

    `keys` maps chats to session keys; questions in `reported` may be missing from the store.
    """
    wrong: list[str] = []
    archive = store.archive_for(OWNER)
    for chat, key in keys.items():
        wanted = [question_name(one.text) for one in spoken if one.chat == chat]
        session = await archive.by_key(key)
        stored = [] if session is None else _questions(await archive.messages(session.id))
        if [name for name in stored if name not in reported] != [
            n for n in wanted if n not in reported
        ]:
            details = sorted(set(stored) ^ set(wanted)) or "wrong order or repeated"
            wrong.append(f"{chat}: {len(stored)} of {len(wanted)} questions stored: {details}")
    for queue in ("inbox", "commands", "after_commands"):
        wrong += [f"{queue}: {topic} is not settled" for topic in await store.queues.topics(queue)]
    return wrong


UNSETTLED = "is not settled"


class OutboxReport(Struct):
    """Errors in an outbox, and the questions whose answers are parked there.

    `receipts` are the progress posts known to the gateway.
    """

    wrong: list[str]
    parked: list[str]
    receipts: set[str] = field(default_factory=set[str])


def check_outbox(database: Path, spoken: Sequence[WrittenMessage] = ()) -> OutboxReport:
    """Check that each inbox message has exactly one answer, either delivered or parked.

    An item whose key ends in `reply` is a notice that precedes the answer and is not counted.
    """
    connection = connect(database, READ_ONLY)
    try:
        rows = connection.execute(
            "SELECT queue, key, topic, state, body FROM queue_items ORDER BY n"
        )
        items = rows.fetchall()
    finally:
        connection.close()
    chats = {one.id: one.chat for one in spoken}
    received: Counter[str] = Counter()
    answered: Counter[str] = Counter()
    outbox = OutboxReport([], [])
    for queue, key, topic, state, body in items:
        if queue == "inbox":
            received[chats.get(str(key).split(":")[1], "nowhere")] += 1
        if str(queue).startswith(_PROGRESS_QUEUES):
            outbox.receipts.add(post_in_key(str(key)))
            if state != _DONE:
                outbox.wrong.append(f"progress: {key} {UNSETTLED}")
        if not str(queue).startswith("outbox:"):
            continue
        answered[address_of_topic(str(topic)).chat] += not str(key).endswith(":reply")
        if state == _PARKED and isinstance(body, bytes):
            text = msgspec.json.decode(body, type=OutboxMessage).text
            outbox.parked += [match[1] for match in _NAME.finditer(text)]
        elif state != _DONE:
            outbox.wrong.append(f"outbox: {key} {UNSETTLED}")
    outbox.wrong += [
        f"{chat}: {answered[chat]} answers in the outbox to {received[chat]} messages"
        for chat in sorted(received.keys() | answered.keys())
        if answered[chat] != received[chat]
    ]
    return outbox


def unknown_outcomes(database: Path) -> set[str]:
    """Return the pieces of answers that a killed process was sending, from its outbox."""
    connection = connect(database, READ_ONLY)
    try:
        rows = connection.execute(
            "SELECT body, attempts + (state = 1) FROM queue_items "
            "WHERE queue LIKE 'outbox:%' AND state < 2"
        ).fetchall()
    finally:
        connection.close()
    pieces: set[str] = set()
    for body, attempts in rows:
        assert isinstance(body, bytes)
        message = msgspec.json.decode(body, type=OutboxMessage)
        if int(str(attempts)) > message.known:
            pieces.update(answered_pieces(PlatformPost("", "", "", message.text), {}))
    return pieces


def _questions(rows: Sequence[StoredMessage]) -> list[str]:
    messages = [row.message for row in rows if isinstance(row.message, User)]
    return [question_name(text_of(user)) for user in messages if user.trust is not Trust.PROGRAM]
