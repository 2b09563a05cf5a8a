"""Snapshot workspace files before they change, and restore them."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from msgspec import Raw, Struct

from hermes.schema.scope import Scope


class Checkpoint(Struct, frozen=True, kw_only=True):
    """A snapshot of a workspace, taken on request or before a run changed files."""

    id: str
    workspace: str
    session: str
    at: datetime
    run: str = ""  # empty when taken on request
    reason: str = ""  # shown to people


class RestoreResult(Struct, frozen=True, kw_only=True):
    """The outcome of a restore."""

    before: Checkpoint  # the state just before the restore
    written: int
    removed: int
    failed: tuple[str, ...] = ()  # files that could not be restored, each with the reason


class Checkpoints(Protocol):
    """Never touches the user's own repositories."""

    async def checkpoint_before(self, scope: Scope, args: Raw) -> str:
        """Snapshot the files that a call with these arguments may be the first to change.

        Never raises: if it is not possible, returns a sentence that says why.
        """
        ...

    async def changed(self, run: str) -> bool | None:
        """Whether files differ from before the run; None if that is not known."""
        ...

    async def take(self, workspace: str, session: str, reason: str = "") -> Checkpoint:
        """Snapshot the files now. Raises `UsageError` or `SandboxError`."""
        ...

    async def list(self, workspace: str) -> Sequence[Checkpoint]:
        """Newest first."""
        ...

    async def restore(self, checkpoint: Checkpoint, session: str) -> RestoreResult:
        """Restore the files and remove those added since.

        The current state is snapshotted first, so a restore can be undone. Files that are not
        in the checkpoint because they are ignored, too large or were not about to change stay as
        they are.
        """
        ...
