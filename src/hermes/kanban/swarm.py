"""Plan work for several agents: parallel workers, then a verifier, then a synthesizer."""

from collections.abc import Sequence

import msgspec
from msgspec import Struct, structs

from hermes.kanban.lifecycle import Completion, complete_task
from hermes.kanban.tasks import NewTask, comment_on, create_task
from hermes.ports.board import BoardRows
from hermes.schema.errors import UsageError

BLACKBOARD = "[swarm:blackboard] "
"""Prefix of comments on the root task that all agents of a swarm share."""


class SwarmWorker(Struct, frozen=True):
    profile: str
    title: str
    skills: tuple[str, ...] = ()


class Swarm(Struct, frozen=True, kw_only=True):
    goal: str
    workers: tuple[SwarmWorker, ...]
    verifier: str
    synthesizer: str
    tenant: str | None = None
    priority: int = 0
    created_by: str | None = None
    idempotency_key: str | None = None


class SwarmTasks(Struct, frozen=True):
    root_id: str
    worker_ids: tuple[str, ...]
    verifier_id: str
    synthesizer_id: str


def read_worker(text: str) -> SwarmWorker:
    """`PROFILE:TITLE` or `PROFILE:TITLE:SKILL,SKILL`."""
    profile, _, rest = text.partition(":")
    title, _, skills = rest.partition(":")
    if not profile or not title:
        raise UsageError(f"{text!r} is not a worker.", hint="Write PROFILE:TITLE[:SKILL,…].")
    return SwarmWorker(profile, title, tuple(filter(None, skills.split(","))))


def create_swarm(rows: BoardRows, swarm: Swarm, now: int) -> SwarmTasks:
    """Add all tasks of a swarm. The root is done at once: it only holds what they share."""
    if not swarm.workers:
        raise UsageError("A swarm needs at least one worker.")
    common = NewTask(
        title=swarm.goal,
        tenant=swarm.tenant,
        priority=swarm.priority,
        created_by=swarm.created_by,
        assignee=swarm.synthesizer,
    )
    first = structs.replace(common, idempotency_key=swarm.idempotency_key)
    root = create_task(rows, first, now)
    if children := rows.children(root.id):
        return _existing(rows, root.id, children)
    shared = msgspec.json.encode({"goal": swarm.goal}).decode()
    comment_on(rows, root.id, swarm.created_by or "swarm", f"{BLACKBOARD}{shared}", now)
    complete_task(rows, root.id, Completion(summary="The swarm was planned."), now)

    def add(title: str, profile: str, parents: tuple[str, ...], skills: tuple[str, ...]) -> str:
        body = f"Goal: {swarm.goal}\n\nShare findings as comments on {root.id}."
        new = structs.replace(
            common, title=title, body=body, assignee=profile, parents=parents, skills=skills
        )
        return create_task(rows, new, now).id

    workers = tuple(
        add(worker.title, worker.profile, (root.id,), worker.skills) for worker in swarm.workers
    )
    verifier = add(f"Verify: {swarm.goal}", swarm.verifier, workers, ())
    synthesizer = add(f"Summarize: {swarm.goal}", swarm.synthesizer, (verifier,), ())
    return SwarmTasks(root.id, workers, verifier, synthesizer)


def _existing(rows: BoardRows, root: str, workers: Sequence[str]) -> SwarmTasks:
    """The tasks of a swarm that was planned before with the same key."""
    verifier = rows.children(workers[0])[0]
    return SwarmTasks(root, tuple(workers), verifier, rows.children(verifier)[0])
