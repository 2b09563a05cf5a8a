"""Request and response objects of the runs API; run events are in `run_event_writer`."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from hermes.api.run_event_writer import RunState
from hermes.api.run_input import History, Identifier, Input
from hermes.ports.journal import RunStatus
from hermes.schema.scope import Role


class RunRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Start a run. `session_id` continues a session; a history is only for a new one.

    Without `later` the run cannot promise results after its end. A caller acting for another person
    passes that person's `role`, and sets `brought` if the input is untrusted data. Neither grants
    more than the key does.
    """

    input: Input
    instructions: str | None = None
    conversation_history: History | None = None
    previous_response_id: Identifier | None = None
    session_id: Identifier | None = None
    model: Identifier | None = None
    later: bool = True
    role: Role = Role.OWNER
    brought: bool = False
    callback_url: str | None = None
    callback_secret: str | None = None


class RunAccepted(Struct, frozen=True, kw_only=True):
    run_id: str
    session_id: str
    status: str = "started"


class RunList(Struct, frozen=True):
    """Active runs. A `hermes.turn` belongs to an idempotency key and can only be stopped."""

    data: list[RunState]
    object: str = "list"


class RunStopped(Struct, frozen=True, kw_only=True):
    run_id: str
    status: RunStatus


class SteerRequest(Struct, frozen=True, kw_only=True):
    input: Input


class RunSteered(Struct, frozen=True, kw_only=True):
    run_id: str
    status: str = "accepted"


class ApprovalAnswerRequest(Struct, frozen=True, kw_only=True):
    """Answer one question by `question_id`, the latest one without it, or every one with `all`."""

    choice: Literal["once", "session", "always", "deny", "approve", "allow"]
    question_id: Identifier = ""
    all: bool = False
    resolve_all: bool = False


class ClarifyRequest(Struct, frozen=True, kw_only=True):
    """An answer in free text, or one of the choices."""

    answer: Annotated[str, Meta(min_length=1, max_length=20_000)]
    question_id: Identifier = ""


class ClarifyAnswer(Struct, frozen=True, kw_only=True):
    object: str = "hermes.run.clarify_response"
    run_id: str
    resolved: int


class ApprovalAnswer(Struct, frozen=True, kw_only=True):
    object: str = "hermes.run.approval_response"
    run_id: str
    choice: str
    resolved: int
