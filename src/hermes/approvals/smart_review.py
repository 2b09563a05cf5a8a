"""Ask a model about a command that looks dangerous; any doubt goes to a person."""

import logging
from collections.abc import Awaitable, Callable
from enum import StrEnum
from pathlib import Path
from typing import TypeAlias

from hermes.ports.approvals import ApprovalRequest
from hermes.schema.errors import HermesError

log = logging.getLogger(__name__)

AskModel: TypeAlias = Callable[[str, str], Awaitable[str]]
"""Return a model's reply to a system prompt and a question."""

MAX_COMMAND = 8000
"""Longer commands (in characters) go to a person: the model would see only a part."""


class Opinion(StrEnum):
    APPROVE = "APPROVE"
    DENY = "DENY"
    ESCALATE = "ESCALATE"


def _normalized_python(text: str) -> str:
    """Return a Python program without comments; empty when it does not parse."""
    import ast  # noqa: PLC0415 - few ever need it

    try:
        return ast.unparse(ast.parse(text))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""


async def ask_opinion(judge: AskModel, request: ApprovalRequest, why: str) -> Opinion:
    if not request.shell:
        command = _normalized_python(request.action)
    else:
        from hermes.approvals.shell_commands import strip_comments  # noqa: PLC0415 - few ever need it

        command = strip_comments(request.action)
    fence = "~" * 8
    if not command or len(command) > MAX_COMMAND or fence in command:
        return Opinion.ESCALATE
    system = Path(__file__).with_suffix(".md").read_text("utf-8")
    question = (
        f"Folder: {request.folder!r}\nReason for this check: {why}\n{fence}\n{command}\n{fence}"
    )
    try:
        reply = await judge(system, question)
    except (HermesError, TimeoutError) as error:
        log.warning("the model gave no opinion on a command: %s", error)
        return Opinion.ESCALATE
    try:
        return Opinion(reply.strip().strip(".*`\"'").upper())
    except ValueError:
        return Opinion.ESCALATE
