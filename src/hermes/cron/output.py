"""Write the output of each run to `cron/output/<job>/<time>.md`, and delete the oldest."""

from datetime import datetime
from pathlib import Path

from hermes.kit.files import write_atomic
from hermes.ports.jobs import Fire, Job


class OutputFolder:
    def __init__(self, folder: Path, keep: int) -> None:
        """`keep` files of each job are kept; 0 means all."""
        self._folder = folder
        self._keep = keep

    def path(self, job: Job, at: datetime) -> Path:
        return self._folder / job.id / f"{at.astimezone():%Y-%m-%d_%H-%M-%S}.md"

    def write(self, job: Job, fire: Fire, text: str) -> Path:
        """Write one file. Raises `OSError`."""
        at = fire.started_at or fire.at
        path = self.path(job, at)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        status = fire.state.value + (f": {fire.reason}" if fire.reason else "")
        facts = [
            f"**Job ID:** {job.id}",
            f"**Run Time:** {at.astimezone():%Y-%m-%d %H:%M:%S}",
            f"**Schedule:** {job.schedule_display}",
            f"**Status:** {status}",
        ]
        parts = [
            f"# Cron Job: {job.name}",
            "\n".join(facts),
            f"## Prompt\n\n{job.prompt or '(none)'}",
            f"## Response\n\n{text or '(none)'}",
        ]
        # Not synced: the transcript has the text, and syncing many files would delay every commit.
        write_atomic(path, ("\n\n".join(parts) + "\n").encode(), mode=0o600, durable=False)
        self._prune(path.parent)
        return path

    def _prune(self, folder: Path) -> None:
        if self._keep:
            for old in sorted(folder.glob("*.md"))[: -self._keep]:
                old.unlink(missing_ok=True)
