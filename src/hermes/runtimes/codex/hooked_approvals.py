"""Ask the owner's hooks about the actions of codex before anyone approves them."""

import msgspec
from msgspec import Raw

from hermes.ports.approvals import ApprovalRequest, Approvals, Decision
from hermes.ports.turn import Emit, TurnHooks
from hermes.schema.scope import Scope


class HookedApprovals:
    """Asks the hooks first: for a runtime with its own tools, an approval is like a tool call."""

    def __init__(self, approvals: Approvals, hooks: TurnHooks) -> None:
        self._hooks = hooks
        self._approvals = approvals
        self.ask_person = approvals.ask_person

    async def decide(self, scope: Scope, request: ApprovalRequest, emit: Emit) -> Decision:
        argument = "command" if request.shell else "path" if request.tool == "patch" else "action"
        args = Raw(msgspec.json.encode({argument: request.action, "workdir": request.folder}))
        if why := await self._hooks.before_tool(scope, request.tool, args):
            return Decision(allowed=False, why=why)
        return await self._approvals.decide(scope, request, emit)
