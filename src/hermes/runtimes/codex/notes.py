"""What codex tells of a turn, as far as it is listened to."""

import msgspec
from msgspec import Struct

from hermes.runtimes.codex.errors import Told
from hermes.runtimes.codex.items import Item

_MARKS = {"completed": "[x]", "inProgress": "[>]"}


class ItemNote(Struct, rename="camel"):
    item: Item = msgspec.field(default_factory=Item)
    turn_id: str = ""
    started_at_ms: float = 0.0
    completed_at_ms: float = 0.0


class DeltaNote(Struct, rename="camel"):
    item_id: str = ""
    delta: str = ""
    message: str = ""
    stdin: str = ""
    turn_id: str = ""


class _Step(Struct):
    step: str = ""
    status: str = ""


class PlanNote(Struct):
    plan: list[_Step] = []

    @property
    def words(self) -> str:
        """Empty when there is no plan."""
        lines = [f"{_MARKS.get(one.status, '[ ]')} {one.step}" for one in self.plan]
        return "Plan: " + "; ".join(lines) if lines else ""


class DiffNote(Struct):
    diff: str = ""

    @property
    def words(self) -> str:
        """Empty when nothing is changed."""
        lines = self.diff.splitlines()
        files = sum(line.startswith("diff --git") for line in lines)
        more = sum(line.startswith("+") and not line.startswith("+++") for line in lines)
        less = sum(line.startswith("-") and not line.startswith("---") for line in lines)
        return f"Changes so far: {files} file(s), +{more} -{less}." if files else ""


class ErrorNote(Struct, rename="camel"):
    error: Told = Told()
    message: str = ""


class End(Struct):
    """How the turn ended: completed, interrupted or failed."""

    id: str = ""
    status: str = ""
    error: Told | None = None


class EndNote(Struct):
    turn: End = msgspec.field(default_factory=End)
