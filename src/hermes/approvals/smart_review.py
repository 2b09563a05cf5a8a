"""A model's opinion on a command that looks dangerous; in any doubt a person is asked."""

import logging
from collections.abc import Awaitable, Callable
from enum import StrEnum
from pathlib import Path
from typing import TypeAlias

from hermes.ports.approvals import ApprovalRequest

log = logging.getLogger(__name__)

AskModel: TypeAlias = Callable[[str, str], Awaitable[str]]
"""Gives a model's words for a system prompt and a question."""

MAX_COMMAND = 8000
"""Characters; of a longer command a model would be shown only a part."""


class Opinion(StrEnum):
    APPROVE = "APPROVE"
    DENY = "DENY"
    ESCALATE = "ESCALATE"


def _normalized_python(text: str) -> str:
    """A program in Python without what it says to its readers; empty when it is none."""
    import ast  # noqa: PLC0415 - few ever need it

    try:
        return ast.unparse(ast.parse(text))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""


async def ask_opinion(judge: AskModel, wish: ApprovalRequest, why: str) -> Opinion:
    if not wish.shell:
        command = _normalized_python(wish.action)
    else:
        from hermes.approvals.shell.parser import strip_comments  # noqa: PLC0415 - few ever need it

        command = strip_comments(wish.action)
    fence = "~" * 8
    if not command or len(command) > MAX_COMMAND or fence in command:
        return Opinion.ESCALATE
    system = Path(__file__).with_suffix(".md").read_text("utf-8")
    question = f"Folder: {wish.folder!r}\nWhy it is looked at: {why}\n{fence}\n{command}\n{fence}"
    try:
        words = await judge(system, question)
    except Exception as error:  # noqa: BLE001 - whatever keeps a model from answering, a person can
        log.warning("no opinion on a command: %s", error)
        return Opinion.ESCALATE
    try:
        return Opinion(words.strip().strip(".*`\"'").upper())
    except ValueError:
        return Opinion.ESCALATE
