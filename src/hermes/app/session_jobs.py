"""The background processes and delegated tasks of a session, for commands and the status bar."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from hermes.ports.delegation import Task
from hermes.ports.processes import BackgroundProcess, ProcessState
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
        return await self._delegations.dispatch(scope, [task], requested=True)

    async def list_tasks(self, session: Session) -> "Sequence[BackgroundTask]":
        from hermes.commands.services import BackgroundTask  # noqa: PLC0415 - only for commands

        now = self._clock.now()
        processes = [
            BackgroundTask(
                name=process.id,
                command=process.command,
                seconds=((process.ended or now) - process.started).total_seconds(),
                state="" if process.is_running else _process_state(process),
            )
            for process in await self._processes.list_for(_SessionOwner(session.id, session.key))
        ]
        return processes + [
            BackgroundTask(
                name=f"{delegation.work.id} [{number + 1}]",
                command=task.goal,
                seconds=((delegation.ended or now) - delegation.started).total_seconds(),
                state=state or "",
                activity="" if state else delegation.activity[number],
            )
            for delegation in (
                *self._delegations.running_in(session.id, session.key),
                *self._delegations.ended_in(session.id, session.key),
            )
            for number, task in enumerate(delegation.work.tasks)
            for state in (delegation.state_of(number),)
        ]

    def running(self, session: Session) -> int:
        """Return how many tasks are running, as `list_tasks` lists them."""
        delegated = [
            delegation.state_of(number)
            for delegation in self._delegations.running_in(session.id, session.key)
            for number in range(len(delegation.work.tasks))
        ]
        processes = self._processes.running_in(_SessionOwner(session.id, session.key))
        return processes + delegated.count(None)

    def running_anywhere(self) -> int:
        """Return how many tasks of all sessions are running in this process."""
        delegated = [
            delegation.state_of(number)
            for delegation in self._delegations.running
            for number in range(len(delegation.work.tasks))
        ]
        return len(self._processes.running) + delegated.count(None)

    async def end_all(self, session: Session) -> int:
        delegated = self._delegations.end_all(session.id, session.key)
        owner = _SessionOwner(session.id, session.key)
        return delegated + await self._processes.end_all(owner, "/stop")


def _process_state(process: BackgroundProcess) -> str:
    code = process.exit_code
    return f"exit code {code}" if process.state is ProcessState.EXITED and code else process.state


class _SessionOwner(Struct, frozen=True):
    session: str
    key: str
