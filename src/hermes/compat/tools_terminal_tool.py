"""`tools.terminal_tool`: the `terminal` tool as a plain function."""

from typing import Any

import msgspec
from anyio.lowlevel import checkpoint
from msgspec import Raw

from hermes.compat.tools_process_registry import current_scope, process_registry
from hermes.ports.approvals import ApprovalRequest, Decision
from hermes.ports.tool import ToolContext, ToolOutput
from hermes.schema.errors import ToolError
from hermes.schema.events import Event
from hermes.schema.messages import Text


def terminal_tool(command: str, **arguments: Any) -> str:
    """Return the result as JSON, even if the call fails."""
    _, app = process_registry.agent.use()
    tool = app.tools.get("terminal")
    if tool is None:
        return _failure("The terminal tool is disabled in the settings.")
    args = Raw(msgspec.json.encode({"command": command, **arguments}))
    scope = current_scope(app)

    async def ask(request: ApprovalRequest) -> Decision:
        return await app.approvals.decide(scope, request, _ignore_event)

    context = ToolContext(scope, "", _ignore_progress, ask)
    try:
        output = process_registry.agent.run(tool.run(args, context))
    except ToolError as error:
        return _failure(error.sentence)
    return _text(output)


def _text(output: ToolOutput) -> str:
    return "".join(part.text for part in output.parts if isinstance(part, Text))


def _failure(sentence: str) -> str:
    return msgspec.json.encode({"output": "", "exit_code": -1, "error": sentence}).decode()


async def _ignore_progress(text: str) -> None:
    await checkpoint()


async def _ignore_event(event: Event) -> None:
    await checkpoint()
