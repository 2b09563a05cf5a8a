"""Stored questions to people, saved approvals, and the sessions with /yolo."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol, TypeAlias

from msgspec import Struct

from hermes.ports.approvals import ApprovalRequest, Isolation
from hermes.schema.questions import Question
from hermes.schema.scope import OWNER, Address

OPEN = "open"
ANSWERED = "answered"
USED = "used"
LAPSED = "lapsed"


class QuestionRecord(Struct, frozen=True, kw_only=True):
    """A question and its outcome.

    `answer_text` is a reason, or the answer to a clarification. `digest` identifies a repeated
    request, `principal` made the request, and `request` is empty for a clarification. `call` is the
    tool call that waits, `key` its session's topic in the inbox. `holder` is the worker that
    receives the answer; empty when there is none. `deadline` is by its machine's monotonic clock.
    """

    question: Question
    digest: str
    principal: str
    at: datetime
    state: str = OPEN
    request: ApprovalRequest | None = None
    address: Address | None = None
    answer: str = ""
    answer_text: str = ""
    answered_by: str = ""
    call: str = ""
    key: str = ""
    holder: str = ""
    deadline: float = 0.0


class SavedApproval(Struct, frozen=True, kw_only=True):
    """A saved approval. An empty `session` means every session.

    For a shell command, `argv` is its words and `action` what else was shown with it; otherwise
    `action` is the whole action or its kind. It applies only in its `folder`, and only while the
    `seal` is unchanged. `asked_by` made the request, `answered_by` allowed it.
    """

    id: str
    tool: str
    reaching: Isolation
    argv: tuple[str, ...] = ()
    action: str = ""
    folder: str = ""
    seal: str = ""
    session: str = ""
    asked_by: str = ""
    answered_by: str = ""

    @property
    def is_from_owner(self) -> bool:
        """Whether the owner gave it; older records only name who asked."""
        return (self.answered_by or self.asked_by) == OWNER

    @property
    def text(self) -> str:
        return "\n".join(filter(None, [" ".join(self.argv), self.action]))


class PutQuestion(Struct, frozen=True):
    """Add a question, or with `expected_state` change one that is in that state.

    Otherwise the commit fails with `StateConflict`.
    """

    record: QuestionRecord
    expected_state: str = ""


class AddSavedApproval(Struct, frozen=True):
    saved: SavedApproval


class RevokeSavedApproval(Struct, frozen=True):
    id: str


class SetYolo(Struct, frozen=True):
    session: str
    on: bool


ApprovalWrite: TypeAlias = PutQuestion | AddSavedApproval | RevokeSavedApproval | SetYolo


class ApprovalRecords(Protocol):
    async def question(self, id: str) -> QuestionRecord | None: ...  # noqa: A002 the field's name

    async def questions(self, session: str, limit: int = 100) -> Sequence[QuestionRecord]:
        """The newest questions of a session, in chronological order."""
        ...

    async def open_questions(self, session: str | None = None) -> Sequence[QuestionRecord]:
        """The open questions of a session or of all, in chronological order."""
        ...

    async def saved(self) -> Sequence[SavedApproval]:
        """All saved approvals, oldest first."""
        ...

    async def yolo(self, session: str) -> bool: ...

    async def forget_questions(self, before: datetime) -> int:
        """Delete questions that were closed before that time."""
        ...
