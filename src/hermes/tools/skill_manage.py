"""The `skill_manage` tool."""

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
    """`approval` lets a person decide about each change."""

    editor: SkillEditor
    approval: Callable[[], bool] = lambda: False


class SkillManage:
    name = "skill_manage"

    def __init__(self, parts: ManageDeps) -> None:
        self._parts = parts
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
        asked = self._arguments.decode(args)
        whence = change_provenance(ctx, asked.text)
        why = f"absorbed into {asked.absorbed_into}" if asked.absorbed_into else ""
        by = Authorship(author=whence.author, origin=whence.origin, why=why)
        try:
            if await self._is_refused(asked, by):
                raise ToolError("skill_manage: the person took this back before. Leave it.")
            if self._parts.approval() or whence.doubtful:
                return await self._ask(asked, by, whence, ctx)
            return await self._do(asked, by, whence)
        except HermesError as error:
            raise ToolError(f"skill_manage: {error}", hint=error.hint) from error

    async def _is_refused(self, asked: SkillRequest, by: Authorship) -> bool:
        """In a turn the person may have come to want it; a review does not know."""
        creates = asked.action == "create" and by.author is Author.REVIEW
        return creates and await self._parts.editor.was_refused(asked.name)

    async def _ask(
        self, asked: SkillRequest, by: Authorship, whence: ChangeProvenance, ctx: ToolContext
    ) -> ToolOutput:
        """Somebody who is there decides now; else it waits for the person."""
        if not ctx.scope.attended or by.author is Author.REVIEW:
            await propose_request(self._parts.editor, asked, by)
            message = "Noted as a proposal: the person decides with /changes."
            answer = ManageResult(success=True, message=message, done=False)
            return ToolOutput.text(encode_result(answer), shown=f"{WAITING_NOTICE}{whence.said}")
        wish = ApprovalRequest(
            tool=self.name,
            action=f"{asked.action} the skill {asked.name}\n{asked.text}".strip(),
            reaching=Isolation.BEYOND,
            reason=whence.said.strip(),
            foreign=whence.doubtful,
        )
        decision = await ctx.ask(wish)
        if not decision.allowed:
            raise ToolError(f"skill_manage: {decision.why}")
        return await self._do(asked, by, whence)

    async def _do(
        self, asked: SkillRequest, by: Authorship, whence: ChangeProvenance
    ) -> ToolOutput:
        path = await perform_request(self._parts.editor, asked, by)
        done = {"create": "created", "delete": "archived"}.get(asked.action, "changed")
        message = f"Skill {asked.name} {done}."
        answer = ManageResult(success=True, message=message, path=path or UNSET)
        return ToolOutput.text(encode_result(answer), shown=f"{message}{whence.said}")
