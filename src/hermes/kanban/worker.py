"""Find the task that a turn works on, from its session key or its environment."""

from collections.abc import Mapping

from msgspec import Struct

from hermes.schema.scope import Scope

PLATFORM = "kanban"
"""The platform in the session keys of workers."""


class Worker(Struct, frozen=True):
    """A run of a task; its changes are refused when the task is no longer in this run."""

    board: str
    task: str
    run: int

    def session_key(self, profile: str) -> str:
        space = "main" if profile == "default" else profile
        return f"agent:{space}:{PLATFORM}:task:{self.board}:{self.task}:{self.run}"


def worker_of(scope: Scope, environment: Mapping[str, str]) -> Worker | None:
    """The worker that acts in this scope; None for everyone else."""
    parts = scope.key.split(":")
    match parts:
        case ["agent", _, "kanban", "task", board, task, run] if run.isdecimal():
            return Worker(board, task, int(run))
        case _:
            pass
    task, run = environment.get("HERMES_KANBAN_TASK"), environment.get("HERMES_KANBAN_RUN_ID", "")
    if task and run.isdecimal():
        return Worker(environment.get("HERMES_KANBAN_BOARD") or "default", task, int(run))
    return None
