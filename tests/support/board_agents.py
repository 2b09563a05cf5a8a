"""A board service's agents that do nothing."""

from collections.abc import Sequence

from hermes.kanban.service import DispatchReport, DownloadedFile, GoalVerdict, ServeOptions
from hermes.kanban.worker import Worker


class NoAgents:
    """Implements `BoardAgents`: nobody works, and the model gives the `answers` in order."""

    def __init__(self) -> None:
        self.answers: list[str] = []
        self.asked: list[str] = []
        self.verdicts: list[GoalVerdict] = []
        self.pull_requests: dict[str, str] = {}
        self.files: dict[str, DownloadedFile] = {}

    async def dispatch(
        self, boards: Sequence[str], options: ServeOptions, *, dry_run: bool
    ) -> Sequence[DispatchReport]:
        return []

    async def work(self, worker: Worker) -> None:
        pass

    async def serve(self, options: ServeOptions) -> None:
        pass

    async def ask(self, slot: str, instructions: str, text: str) -> str:
        self.asked.append(text)
        return self.answers.pop(0)

    async def download(self, url: str, limit: int) -> DownloadedFile:
        return self.files[url]

    async def judge(self, session: str, text: str) -> GoalVerdict:
        self.asked.append(text)
        return self.verdicts.pop(0)

    async def pull_request_problem(self, address: str) -> str:
        return self.pull_requests[address]
