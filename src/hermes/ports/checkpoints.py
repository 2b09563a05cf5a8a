"""How the files of a workspace are kept before they are changed, and brought back."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from msgspec import Struct

from hermes.schema.scope import Scope


class Checkpoint(Struct, frozen=True, kw_only=True):
    """A workspace as it was: before the run `run` changed it, or when somebody asked for it.

    `reason` is for people and may be empty.
    """

    id: str
    workspace: str
    session: str
    at: datetime
    run: str = ""
    reason: str = ""


class RestoreResult(Struct, frozen=True, kw_only=True):
    """What bringing files back did; `before` has everything as it was until then.

    `failed` names files that could not be brought back, each with the reason.
    """

    before: Checkpoint
    written: int
    removed: int
    failed: tuple[str, ...] = ()


class Checkpoints(Protocol):
    """Nothing here touches a repository of the user's own."""

    async def before(self, scope: Scope) -> str:
        """A run is about to change files: keep them, once per run.

        Never in the way: where it is not possible, the answer is a sentence that says why.
        """
        ...

    async def take(self, workspace: str, session: str, reason: str = "") -> Checkpoint:
        """Keep the files now. Raises `UsageError` or `SandboxError`."""
        ...

    async def list(self, workspace: str) -> Sequence[Checkpoint]:
        """The newest first."""
        ...

    async def restore(self, checkpoint: Checkpoint, session: str) -> RestoreResult:
        """Bring the files back as they were; those that came since are removed.

        They are kept first, so that this can be undone. Files that were not kept, because they
        are ignored or too large, stay as they are.
        """
        ...
