"""The arguments that the board's actions share, and the values in them."""

import re
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec

from hermes.kanban.lifecycle import Completion
from hermes.ports.feature import Action, ActionCall, ActionReply, Argument, ArgumentKind
from hermes.schema.board import BlockKind, JsonObject, TaskStatus, WorkspaceKind
from hermes.schema.errors import UsageError

S = TypeVar("S")
_DURATION = re.compile(r"(\d+)\s*(s|m|h|d)?")
_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}

SWITCH, LIST, NUMBER = ArgumentKind.SWITCH, ArgumentKind.LIST, ArgumentKind.NUMBER

BOARD = Argument(name="--board", help="the board; by default the current one")
TASK = Argument(name="task", help="the id of the task", required=True)
TASKS = Argument(name="tasks", help="ids of tasks", kind=ArgumentKind.WORDS, required=True)
REASON = Argument(name="reason", help="why", kind=ArgumentKind.WORDS)
IDS = Argument(name="--ids", help="more tasks, separated by commas", kind=LIST)


def board_action(
    name: str,
    summary: str,
    run: Callable[[S, ActionCall], Awaitable[ActionReply]],
    *arguments: Argument,
    aliases: tuple[str, ...] = (),
) -> Action[S]:
    """An action on one board, which `--board` names."""
    return Action(
        name=name, summary=summary, run=run, arguments=(*arguments, BOARD), aliases=aliases
    )


def flag(name: str, about: str, kind: ArgumentKind = ArgumentKind.TEXT) -> Argument:
    return Argument(name=name, help=about, kind=kind)


def read_seconds(text: str) -> int | None:
    """`90`, `90s`, `30m`, `2h` or `1d` in seconds; an empty text is None."""
    if not text:
        return None
    if (found := _DURATION.fullmatch(text.strip())) is None:
        raise UsageError(f"{text!r} is not a duration.", hint="Examples: 90s, 30m, 2h, 1d.")
    return int(found[1]) * _UNITS[found[2] or "s"]


def read_metadata(text: str) -> JsonObject | None:
    if not text:
        return None
    try:
        return msgspec.json.decode(text, type=dict[str, object])
    except msgspec.DecodeError as error:
        raise UsageError(f"--metadata is not a JSON object: {error}.") from error


def read_workspace(text: str) -> tuple[WorkspaceKind, str | None]:
    """`scratch`, `worktree`, `worktree:PATH` or `dir:/ABSOLUTE/PATH`."""
    kind, _, path = (text or WorkspaceKind.SCRATCH).partition(":")
    try:
        return WorkspaceKind(kind), path or None
    except ValueError:
        raise UsageError(
            f"Unknown workspace: {text}.",
            hint="Use scratch, worktree, worktree:PATH or dir:/ABSOLUTE/PATH.",
        ) from None


def read_status(text: str) -> TaskStatus:
    try:
        return TaskStatus(text)
    except ValueError:
        known = ", ".join(TaskStatus)
        raise UsageError(f"Unknown status: {text}.", hint=f"Statuses: {known}.") from None


def read_block_kind(text: str) -> BlockKind:
    try:
        return BlockKind(text or BlockKind.NEEDS_INPUT)
    except ValueError:
        known = ", ".join(BlockKind)
        raise UsageError(f"Unknown kind of block: {text}.", hint=f"Kinds: {known}.") from None


def read_completion(call: ActionCall) -> Completion:
    return Completion(
        summary=call.text("summary") or None,
        result=call.text("result") or None,
        metadata=read_metadata(call.text("metadata")),
    )


def task_ids(call: ActionCall) -> list[str]:
    """Return all task ids of a call: positional ones and those of `--ids`."""
    more = ",".join(call.texts("ids")).replace(",", " ")
    return [*call.text("tasks").split(), *call.text("task").split(), *more.split()]
