"""`tools.terminal_tool`: the `terminal` tool as a plain function of old programs."""

from typing import Any

import msgspec
from anyio.lowlevel import checkpoint
from msgspec import Raw

from hermes.compat.tools_process_registry import process_registry, scope_here
from hermes.ports.counsel import Ruling, Wish
from hermes.ports.tool import Output, ToolContext
from hermes.schema.errors import ToolError
from hermes.schema.events import Event
from hermes.schema.messages import Text


def terminal_tool(command: str, **given: Any) -> str:
    """The result as JSON, also when the call is refused."""
    _, app = process_registry.house.use()
    tool = app.tools.get("terminal")
    if tool is None:
        return _refusal("The settings leave the terminal tool out.")
    args = Raw(msgspec.json.encode({"command": command, **given}))
    scope = scope_here(app)

    async def ask(wish: Wish) -> Ruling:
        return await app.approvals.rule(scope, wish, _unseen)

    context = ToolContext(scope, "", _untold, ask)
    try:
        output = process_registry.house.run(tool.run(args, context))
    except ToolError as error:
        return _refusal(error.sentence)
    return _text(output)


def _text(output: Output) -> str:
    return "".join(part.text for part in output.parts if isinstance(part, Text))


def _refusal(sentence: str) -> str:
    return msgspec.json.encode({"output": "", "exit_code": -1, "error": sentence}).decode()


async def _untold(text: str) -> None:
    await checkpoint()


async def _unseen(event: Event) -> None:
    await checkpoint()
