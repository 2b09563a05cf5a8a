"""The `skill_manage` tool."""

from pathlib import Path
from typing import Literal

from msgspec import UNSET, Raw, Struct, UnsetType

from hermes.changes.change import Author, Origin
from hermes.kit.errors import HermesError
from hermes.ports.counsel import Reaching, Wish
from hermes.ports.tool import Output, ToolContext
from hermes.schema.errors import ToolError
from hermes.schema.scope import Role
from hermes.schema.tools import Effect, ToolSpec
from hermes.skills.editing import By, Editor
from hermes.tools.arguments import Arguments, description, result

Action = Literal["create", "patch", "edit", "delete", "write_file", "remove_file"]


class ManageArgs(Struct, frozen=True, forbid_unknown_fields=True):
    action: Action
    name: str
    content: str = ""
    category: str = ""
    old_string: str = ""
    new_string: str = ""
    replace_all: bool = False
    file_path: str = ""
    file_content: str = ""
    absorbed_into: str = ""


class ManageResult(Struct, frozen=True, kw_only=True):
    success: bool
    message: str
    path: str | UnsetType = UNSET


class ManageParts(Struct, frozen=True, kw_only=True):
    """`approval` asks a person before each change; `author` is whose changes these are."""

    editor: Editor
    approval: bool = False
    author: Author = Author.AGENT


class SkillManage:
    name = "skill_manage"

    def __init__(self, parts: ManageParts) -> None:
        self._parts = parts
        self._arguments = Arguments(self.name, ManageArgs)
        self.spec = ToolSpec(
            self.name,
            description(f"{Path(__file__).parent}/skill_manage"),
            self._arguments.schema,
            Effect.WRITE,
            timeout=60.0,
            toolset="skills",
        )

    async def run(self, args: Raw, ctx: ToolContext) -> Output:
        asked = self._arguments.decode(args)
        await self._may(asked, ctx)
        try:
            answer = await self._done(asked, self._by(asked, ctx))
        except HermesError as error:
            raise ToolError(f"skill_manage: {error}", hint=error.hint) from error
        return Output.text(result(answer), shown=answer.message)

    async def _may(self, asked: ManageArgs, ctx: ToolContext) -> None:
        """What strangers' words led to, or somebody else than the owner, is asked about first."""
        others = ctx.foreign or ctx.scope.role is not Role.OWNER
        if not self._parts.approval and not others:
            return
        wish = Wish(
            tool=self.name,
            action=f"{asked.action} the skill {asked.name}",
            reaching=Reaching.BEYOND,
            reason="Words of others are in this turn." if others else "",
            foreign=others,
        )
        ruling = await ctx.ask(wish)
        if not ruling.allowed:
            raise ToolError(f"skill_manage: {ruling.why}")

    def _by(self, asked: ManageArgs, ctx: ToolContext) -> By:
        scope = ctx.scope
        others = ctx.foreign or scope.role is not Role.OWNER
        origin = Origin(
            session=scope.session,
            run=scope.run,
            principal=scope.principal,
            words=("others in this turn",) if others else (),
        )
        why = f"absorbed into {asked.absorbed_into}" if asked.absorbed_into else ""
        return By(author=self._parts.author, origin=origin, why=why)

    async def _done(self, asked: ManageArgs, by: By) -> ManageResult:
        editor, name = self._parts.editor, asked.name
        match asked.action:
            case "create":
                path = await editor.create(name, asked.content, asked.category, by)
                return ManageResult(success=True, message=f"Skill {name} created.", path=path)
            case "edit":
                await editor.rewrite(name, asked.content, by)
            case "patch":
                swap = asked.old_string, asked.new_string
                await editor.patch(name, asked.file_path, swap, by, every=asked.replace_all)
            case "write_file":
                await editor.write_file(name, asked.file_path, asked.file_content, by)
            case "remove_file":
                await editor.remove_file(name, asked.file_path, by)
            case "delete":
                path = await editor.archive(name, by)
                return ManageResult(success=True, message=f"Skill {name} archived.", path=path)
        return ManageResult(success=True, message=f"Skill {name} changed.")
