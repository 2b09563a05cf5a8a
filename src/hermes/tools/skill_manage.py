"""The `skill_manage` tool: create, edit and archive skills."""

from collections.abc import Callable
from pathlib import Path

from msgspec import UNSET, Raw, Struct, UnsetType

from hermes.kit.errors import HermesError
from hermes.learning.ledger.change import Author
from hermes.learning.ledger.provenance import WAITING_NOTICE, ChangeProvenance, change_provenance
from hermes.learning.skills.editor import (
    Authorship,
    SkillEditor,
    SkillRequest,
    perform_request,
    propose_request,
)
from hermes.ports.approvals import ApprovalRequest, Isolation
from hermes.ports.tool import ToolContext, ToolOutput
from hermes.schema.errors import ToolError
from hermes.schema.tools import Effect, ToolSpec
from hermes.tools.tool_io import Arguments, encode_result, load_description


class ManageResult(Struct, frozen=True, kw_only=True):
    success: bool
    message: str
    path: str | UnsetType = UNSET
    done: bool | UnsetType = UNSET


class ManageDeps(Struct, frozen=True, kw_only=True):
    """`needs_approval`: whether every change needs the owner's decision."""

    editor: SkillEditor
    needs_approval: Callable[[], bool] = lambda: False


class SkillManage:
    name = "skill_manage"

    def __init__(self, deps: ManageDeps) -> None:
        self._deps = deps
        self._arguments = Arguments(self.name, SkillRequest)
        self.spec = ToolSpec(
            self.name,
            load_description(f"{Path(__file__).parent}/skill_manage"),
            self._arguments.schema,
            Effect.WRITE,
            timeout=60.0,
            toolset="skills",
        )

    async def run(self, args: Raw, ctx: ToolContext) -> ToolOutput:
        arguments = self._arguments.decode(args)
        provenance = change_provenance(ctx, arguments.text)
        why = f"absorbed into {arguments.absorbed_into}" if arguments.absorbed_into else ""
        by = Authorship(author=provenance.author, origin=provenance.origin, why=why)
        try:
            if await self._is_refused(arguments, by):
                raise ToolError("skill_manage: the user undid this before. Do not repeat it.")
            if self._deps.needs_approval() or provenance.doubtful:
                return await self._ask(arguments, by, provenance, ctx)
            return await self._do(arguments, by, provenance)
        except HermesError as error:
            raise ToolError(f"skill_manage: {error}", hint=error.hint) from error

    async def _is_refused(self, arguments: SkillRequest, by: Authorship) -> bool:
        """Binds only background reviews: in a turn the user may want it now."""
        creates = arguments.action == "create" and by.author is Author.REVIEW
        return creates and await self._deps.editor.was_refused(arguments.name)

    async def _ask(
        self,
        arguments: SkillRequest,
        by: Authorship,
        provenance: ChangeProvenance,
        ctx: ToolContext,
    ) -> ToolOutput:
        """Ask the user if one is present; otherwise save the change as a proposal."""
        if not ctx.scope.attended or by.author is Author.REVIEW:
            await propose_request(self._deps.editor, arguments, by)
            message = "Saved as a proposal: the user decides with /changes."
            answer = ManageResult(success=True, message=message, done=False)
            return ToolOutput.text(
                encode_result(answer), shown=f"{WAITING_NOTICE}{provenance.note}"
            )
        request = ApprovalRequest(
            tool=self.name,
            action=f"{arguments.action} the skill {arguments.name}\n{arguments.text}".strip(),
            reaching=Isolation.BEYOND,
            reason=provenance.note.strip(),
            foreign=provenance.doubtful,
        )
        decision = await ctx.request_approval(request)
        if not decision.allowed:
            raise ToolError(f"skill_manage: {decision.why}")
        return await self._do(arguments, by, provenance)

    async def _do(
        self, arguments: SkillRequest, by: Authorship, provenance: ChangeProvenance
    ) -> ToolOutput:
        path = await perform_request(self._deps.editor, arguments, by)
        done = {"create": "created", "delete": "archived"}.get(arguments.action, "changed")
        message = f"Skill {arguments.name} {done}."
        answer = ManageResult(success=True, message=message, path=path or UNSET)
        return ToolOutput.text(encode_result(answer), shown=f"{message}{provenance.note}")
