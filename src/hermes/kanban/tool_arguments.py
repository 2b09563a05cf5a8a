"""The arguments of the board's tools, as the model sends them."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct


class _Args(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    board: Annotated[str, Meta(description="Another board than the current one")] = ""


class ShowArgs(_Args, frozen=True, kw_only=True):
    task_id: Annotated[str, Meta(description="By default your own task")] = ""


class ListArgs(_Args, frozen=True, kw_only=True):
    assignee: str = ""
    status: str = ""
    tenant: str = ""
    include_archived: bool = False
    limit: Annotated[int, Meta(ge=1, le=200)] = 50


class CompleteArgs(_Args, frozen=True, kw_only=True):
    summary: Annotated[str, Meta(description="What was done, and how it was checked")] = ""
    result: Annotated[str, Meta(description="The result for tasks that wait for this one")] = ""
    metadata: dict[str, Any] = {}
    created_cards: Annotated[list[str], Meta(description="Ids of tasks you created")] = []
    artifacts: Annotated[list[str], Meta(description="Absolute paths of files you made")] = []
    task_id: str = ""


class BlockArgs(_Args, frozen=True, kw_only=True):
    reason: str
    kind: Literal["dependency", "needs_input", "capability", "transient"] = "needs_input"
    task_id: str = ""


class HeartbeatArgs(_Args, frozen=True, kw_only=True):
    note: str = ""
    task_id: str = ""


class CommentArgs(_Args, frozen=True, kw_only=True):
    body: str
    task_id: str = ""


class CreateArgs(_Args, frozen=True, kw_only=True):
    title: str
    assignee: Annotated[str, Meta(description="A profile, or a person as @name")]
    body: str = ""
    parents: list[str] = []
    tenant: str = ""
    priority: int = 0
    workspace_kind: Literal["scratch", "dir", "worktree", ""] = ""
    workspace_path: str = ""
    project: Annotated[str, Meta(description="Only stored")] = ""
    triage: bool = False
    idempotency_key: str = ""
    max_runtime_seconds: int | None = None
    initial_status: Annotated[
        Literal["blocked", "running", ""], Meta(description="running: start normally")
    ] = ""
    skills: list[str] = []
    goal_mode: Annotated[
        bool, Meta(description="Work over several turns until a judge says that it is done")
    ] = False
    goal_max_turns: Annotated[int | None, Meta(description="Maximum number of turns")] = None
    completion_contract: Annotated[
        str,
        Meta(
            description="OWNER/REPO or a GitHub pull request: done when its required checks have"
            " passed. local-only: nothing is published"
        ),
    ] = ""


class LinkArgs(_Args, frozen=True, kw_only=True):
    parent_id: str
    child_id: str


class UnblockArgs(_Args, frozen=True, kw_only=True):
    task_id: str


class AttachArgs(_Args, frozen=True, kw_only=True):
    filename: str
    content_base64: str
    content_type: str = ""
    task_id: str = ""


class AttachUrlArgs(_Args, frozen=True, kw_only=True):
    url: Annotated[str, Meta(description="A public http or https address")]
    filename: Annotated[str, Meta(description="By default the name in the address")] = ""
    content_type: str = ""
    task_id: str = ""


class ReviewArgs(_Args, frozen=True, kw_only=True):
    summary: str
    metadata: dict[str, Any] = {}
    reviewer: Annotated[
        str, Meta(description="Another profile, or a person as @name; by default the owner")
    ] = ""
    task_id: str = ""


class ChangesArgs(_Args, frozen=True, kw_only=True):
    reason: str
    task_id: str = ""
