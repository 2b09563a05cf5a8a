"""The heartbeat: a job that works on `HEARTBEAT.md`, without a model call if nothing is listed."""

import re
from pathlib import Path

import anyio

from hermes.cron.job_changes import JobChange
from hermes.cron.service import JobService
from hermes.ports.jobs import HEARTBEAT_JOB
from hermes.schema.errors import NotFound

FILE = "HEARTBEAT.md"
MAX_TEXT = 20_000
PROMPT = "Do what is due on the owner's list below, and nothing else."
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_DONE = re.compile(r"\s*[-*] \[[xX]\]")


def open_tasks(text: str) -> str:
    """Return the open tasks, without comments, headings and ticked entries."""
    lines = _COMMENT.sub("", text[:MAX_TEXT]).splitlines()
    kept = [line for line in lines if line.strip() and not _DONE.match(line)]
    tasks = [line for line in kept if not line.lstrip().startswith("#")]
    return "\n".join(kept) if tasks else ""


def read_tasks(file: Path) -> str:
    """What the file lists; nothing if it is missing or cannot be read."""
    try:
        return open_tasks(file.read_text("utf-8", errors="replace"))
    except OSError:
        return ""


async def ensure_heartbeat(service: JobService, file: Path, every: str) -> None:
    """Create the job once the file exists; it can then be changed and paused like any other."""
    if not every or not await anyio.Path(file).is_file():
        return
    try:
        await service.find(HEARTBEAT_JOB)
    except NotFound:
        change = JobChange(
            schedule=f"every {every}", name="heartbeat", prompt=PROMPT, deliver="origin"
        )
        await service.create(change, job_id=HEARTBEAT_JOB)
