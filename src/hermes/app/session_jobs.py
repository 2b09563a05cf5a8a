"""The background processes and delegated tasks of a session, for commands and the status bar."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from hermes.ports.delegation import Task
from hermes.schema.scope import Role, Scope
from hermes.schema.sessions import Session

if TYPE_CHECKING:
    from hermes.app.build import App
    from hermes.commands.services import BackgroundTask


class SessionJobs:
    def __init__(self, app: "App") -> None:
        self._processes = app.processes
        self._delegations = app.delegations
        self._clock = app.clock

    async def start(self, scope: Scope, prompt: str) -> str:
        # Requests by anyone but the owner count as untrusted.
        task = Task(goal=prompt, foreign=scope.role is not Role.OWNER)
        return await self._delegations.dispatch(scope, [task], asked=True)

    async def list_tasks(self, session: Session) -> "Sequence[BackgroundTask]":
        from hermes.commands.services import BackgroundTask  # noqa: PLC0415 - only for commands

        now = self._clock.now()
        processes = [
            BackgroundTask(
                name=one.id,
                command=one.command,
                seconds=((one.ended or now) - one.started).total_seconds(),
                state="" if one.is_running else one.state.value,
            )
            for one in await self._processes.list_for(_SessionOwner(session.id, session.key))
        ]
        return processes + [
            BackgroundTask(
                name=f"{going.work.id} [{number}]",
                command=task.goal,
                seconds=(now - going.started).total_seconds(),
                activity=doing,
            )
            for going in self._delegations.running_in(session.id, session.key)
            for number, (task, doing) in enumerate(
                zip(going.work.tasks, going.activity, strict=True), 1
            )
        ]

    def running(self, session: Session) -> int:
        """Return how many tasks are running, as `list_tasks` lists them."""
        tasks = self._delegations.running_in(session.id, session.key)
        processes = self._processes.running_in(_SessionOwner(session.id, session.key))
        return processes + sum(len(one.work.tasks) for one in tasks)

    async def end_all(self, session: Session) -> int:
        delegated = self._delegations.end_all(session.id, session.key)
        owner = _SessionOwner(session.id, session.key)
        return delegated + await self._processes.end_all(owner, "/stop")


class _SessionOwner(Struct, frozen=True):
    session: str
    key: str
