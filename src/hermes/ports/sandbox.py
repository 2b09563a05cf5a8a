"""How processes are run: the one door out."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from msgspec import Struct


class Job(Struct, frozen=True, kw_only=True):
    """`env` is the whole environment of the child, nothing is inherited.

    At most `keep` bytes of the output (stdout and stderr as they came) are
    returned, beginning (40 %) and end; when there is more, all of it goes to the file `spill`.
    """

    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str]
    timeout: float
    stdin: bytes = b""
    keep: int = 200_000
    spill: str | None = None


class Finished(Struct, frozen=True, kw_only=True):
    """`exit_code` is 124 after a timeout and negative after a signal.

    Of `total` bytes the `output` may lack the middle: then `seam` is the length of its
    beginning. `left` counts processes that outlived the command; they were ended with it.
    """

    exit_code: int
    output: bytes
    total: int
    seam: int | None = None
    timed_out: bool = False
    left: int = 0


class Sandbox(Protocol):
    @property
    def name(self) -> str: ...

    async def run(
        self, job: Job, heard: Callable[[bytes], Awaitable[None]] | None = None
    ) -> Finished:
        """Run to the end; cancelling kills the whole process tree. Raises `SandboxError`."""
        ...
