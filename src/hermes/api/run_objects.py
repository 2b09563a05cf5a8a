"""What is asked of runs, and what is answered to it at once; what they tell is in `runs_wire`."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from hermes.api.run_event_writer import RunState
from hermes.api.run_input import History, Identifier, Input
from hermes.ports.journal import RunStatus
from hermes.schema.scope import Role


class RunRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`session_id` names a session to go on in; a history is for one that is new.

    Without `later` nothing is promised that would come after the run: nobody would hear of it.
    Whoever lends the run to somebody else says in which `role`, and whether the words are
    `brought`: nobody's own, but data. Neither gives anybody more than the key does.
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
    """What goes on now. A `hermes.turn` was asked for under a key: it can be stopped, no more."""

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
    """`question_id` names one of several; without it the latest is meant, with `all` every one."""

    choice: Literal["once", "session", "always", "deny", "approve", "allow"]
    question_id: Identifier = ""
    all: bool = False
    resolve_all: bool = False


class ClarifyRequest(Struct, frozen=True, kw_only=True):
    """An answer in a person's own words, or one of the choices."""

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
