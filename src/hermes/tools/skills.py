"""The `skills_list`, `skill_view` and `skill_manage` tools."""

from collections.abc import Callable
from pathlib import Path, PurePosixPath

import anyio
from msgspec import UNSET, Raw, Struct, UnsetType

from hermes.kit.errors import HermesError
from hermes.kit.text import plural
from hermes.learning.ledger import read_if_present
from hermes.learning.provenance import WAITING_NOTICE, ChangeProvenance, change_provenance
from hermes.learning.skills.catalog import (
    SKILL_FILE,
    MissingRequirements,
    Skill,
    SkillCatalog,
    SkillEnvironment,
    missing_requirements,
    usable_skills,
)
from hermes.learning.skills.document import InvalidSkill, SkillDocument
from hermes.learning.skills.editor import (
    Authorship,
    SkillEditor,
    SkillRequest,
    perform_request,
    propose_request,
)
from hermes.learning.skills.usage import SkillUsageLog
from hermes.ports.approvals import ApprovalRequest, Isolation
from hermes.ports.ledger import Author
from hermes.ports.tool import ToolContext, ToolOutput
from hermes.schema.errors import ToolError
from hermes.schema.tools import Effect
from hermes.tools.collaborators import ToolCollaborators, required
from hermes.tools.tool_io import Arguments, encode_result, require_approval

MAX_FILES = 200
MAX_SHOWN = 100_000


class SkillDeps(Struct, frozen=True, kw_only=True):
    """`environment` describes what is available now; `redact` masks secrets in what is shown."""

    catalog: SkillCatalog
    usage: SkillUsageLog
    environment: Callable[[], SkillEnvironment]
    redact: Callable[[str], str]


class ListArgs(Struct, frozen=True, forbid_unknown_fields=True):
    category: str = ""


class ListedSkill(Struct, frozen=True):
    name: str
    description: str
    category: str


class ListResult(Struct, frozen=True, kw_only=True):
    success: bool
    skills: list[ListedSkill]
    categories: list[str]
    count: int
    hint: str


class SkillsList:
    name = "skills_list"

    def __init__(self, deps: SkillDeps) -> None:
        self._deps = deps
        self._arguments = Arguments(self.name, ListArgs)
        self.spec = self._arguments.spec(
            __file__, Effect.READ, timeout=30.0, toolset="skills", own=True
        )

    async def run(self, args: Raw, ctx: ToolContext) -> ToolOutput:
        wanted = self._arguments.decode(args).category.strip().lower()
        skills = await anyio.to_thread.run_sync(self._deps.catalog.skills)
        skills = usable_skills(skills, self._deps.environment())
        categories = sorted({skill.category for skill in skills})
        chosen = [skill for skill in skills if not wanted or skill.category.lower() == wanted]
        if wanted and not chosen:
            known = ", ".join(categories) or "none"
            raise ToolError(f"skills_list: unknown category {wanted!r}. Known: {known}.")
        answer = ListResult(
            success=True,
            skills=[
                ListedSkill(skill.name, skill.head.description, skill.category) for skill in chosen
            ],
            categories=categories,
            count=len(chosen),
            hint="Open one with skill_view before you follow it.",
        )
        return ToolOutput.text(encode_result(answer), shown=plural(len(chosen), "skill"))


class ViewArgs(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    file_path: str = ""


class ViewResult(Struct, frozen=True, kw_only=True):
    success: bool
    name: str
    description: str
    tags: tuple[str, ...]
    related_skills: tuple[str, ...]
    content: str
    path: str
    skill_dir: str
    linked_files: list[str]
    required_environment_variables: list[str]
    required_commands: tuple[str, ...]
    missing_required_environment_variables: tuple[str, ...]
    missing_required_commands: tuple[str, ...]
    setup_needed: bool
    readiness_status: str
    note: str | UnsetType = UNSET


class FileResult(Struct, frozen=True, kw_only=True):
    success: bool
    name: str
    file: str
    content: str


class SkillView:
    name = "skill_view"

    def __init__(self, deps: SkillDeps) -> None:
        self._deps = deps
        self._arguments = Arguments(self.name, ViewArgs)
        self.spec = self._arguments.spec(
            __file__, Effect.READ, timeout=30.0, toolset="skills", own=True
        )

    async def run(self, args: Raw, ctx: ToolContext) -> ToolOutput:
        arguments = self._arguments.decode(args)
        try:
            return await anyio.to_thread.run_sync(self._view, arguments, ctx.scope.session)
        except HermesError as error:
            raise ToolError(f"skill_view: {error}", hint=error.hint) from error

    def _view(self, arguments: ViewArgs, session: str) -> ToolOutput:
        skill = self._deps.catalog.find(arguments.name)
        if skill is None:
            raise InvalidSkill(f"There is no skill {arguments.name!r}.", hint="See skills_list.")
        if arguments.file_path:
            return self._file(skill, arguments.file_path)
        document = self._deps.catalog.read(skill)
        self._deps.usage.viewed(skill.name)
        answer = self._view_result(
            skill, document, missing_requirements(skill.head, self._deps.environment()), session
        )
        return ToolOutput.text(encode_result(answer), shown=f"skill {skill.name}")

    def _view_result(
        self, skill: Skill, doc: SkillDocument, missing: MissingRequirements, session: str
    ) -> ViewResult:
        head = skill.head
        return ViewResult(
            success=True,
            name=skill.name,
            description=head.description,
            tags=head.tags,
            related_skills=head.related,
            content=self._deps.redact(fill_placeholders(doc.body, skill, session)),
            path=str(skill.file),
            skill_dir=skill.folder,
            linked_files=skill_files(skill),
            required_environment_variables=[variable.name for variable in head.variables],
            required_commands=head.commands,
            missing_required_environment_variables=missing.variables,
            missing_required_commands=missing.programs,
            setup_needed=bool(missing),
            readiness_status="setup_needed" if missing else "available",
            note=_setup_note(missing) if missing else UNSET,
        )

    def _file(self, skill: Skill, path: str) -> ToolOutput:
        if path not in skill_files(skill):
            known = ", ".join(skill_files(skill)) or "none"
            raise InvalidSkill(f"{skill.name} has no file {path!r}. Its files: {known}.")
        data = read_if_present(Path(skill.folder) / path) or b""
        try:
            text = self._deps.redact(data.decode())[:MAX_SHOWN]
        except UnicodeDecodeError:
            text = f"[{len(data):,} bytes of binary data: {Path(skill.folder) / path}]"
        answer = FileResult(success=True, name=skill.name, file=path, content=text)
        return ToolOutput.text(encode_result(answer), shown=f"{skill.name}/{path}")


def skill_files(skill: Skill) -> list[str]:
    """List the files of a skill, without symlinks and hidden files."""
    root = Path(skill.folder)
    found = (path for path in sorted(root.rglob("*")) if path.is_file() and not path.is_symlink())
    names = (PurePosixPath(path.relative_to(root)).as_posix() for path in found)
    return [name for name in names if name != SKILL_FILE and not name.startswith(".")][:MAX_FILES]


def fill_placeholders(body: str, skill: Skill, session: str) -> str:
    """Replace the placeholders a skill may use."""
    return body.replace("${HERMES_SKILL_DIR}", skill.folder).replace(
        "${HERMES_SESSION_ID}", session
    )


def _setup_note(missing: MissingRequirements) -> str:
    parts: list[str] = []
    if missing.variables:
        parts.append(f"set {', '.join(missing.variables)} in the .env file of the Hermes home")
    if missing.programs:
        parts.append(f"install {', '.join(missing.programs)}")
    return f"To make it work here: {'; '.join(parts)}."


class ManageResult(Struct, frozen=True, kw_only=True):
    success: bool
    message: str
    path: str | UnsetType = UNSET
    done: bool | UnsetType = UNSET


class SkillManage:
    name = "skill_manage"

    def __init__(
        self, editor: SkillEditor, needs_approval: Callable[[], bool] = lambda: False
    ) -> None:
        """`needs_approval`: whether the owner decides about every change."""
        self._editor = editor
        self._needs_approval = needs_approval
        self._arguments = Arguments(self.name, SkillRequest)
        self.spec = self._arguments.spec(
            __file__, Effect.WRITE, timeout=60.0, toolset="skills", own=True
        )

    async def run(self, args: Raw, ctx: ToolContext) -> ToolOutput:
        arguments = self._arguments.decode(args)
        provenance = change_provenance(ctx, arguments.text)
        why = f"absorbed into {arguments.absorbed_into}" if arguments.absorbed_into else ""
        by = Authorship(author=provenance.author, origin=provenance.origin, why=why)
        try:
            # In a turn the user may want it now; a background review must not repeat it.
            creates = arguments.action == "create" and by.author is Author.REVIEW
            if creates and await self._editor.was_rejected(arguments.name):
                raise ToolError("skill_manage: the user undid this before. Do not repeat it.")
            if self._needs_approval() or provenance.doubtful:
                return await self._ask(arguments, by, provenance, ctx)
            return await self._do(arguments, by, provenance)
        except HermesError as error:
            raise ToolError(f"skill_manage: {error}", hint=error.hint) from error

    async def _ask(
        self,
        arguments: SkillRequest,
        by: Authorship,
        provenance: ChangeProvenance,
        ctx: ToolContext,
    ) -> ToolOutput:
        """Ask the user if one is present; otherwise save the change as a proposal."""
        if not ctx.scope.attended or by.author is Author.REVIEW:
            await propose_request(self._editor, arguments, by)
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
        await require_approval(ctx, request)
        return await self._do(arguments, by, provenance)

    async def _do(
        self, arguments: SkillRequest, by: Authorship, provenance: ChangeProvenance
    ) -> ToolOutput:
        path = await perform_request(self._editor, arguments, by)
        done = {"create": "created", "delete": "archived"}.get(arguments.action, "changed")
        message = f"Skill {arguments.name} {done}."
        answer = ManageResult(success=True, message=message, path=path or UNSET)
        return ToolOutput.text(encode_result(answer), shown=f"{message}{provenance.note}")


def _skill_deps(deps: ToolCollaborators) -> SkillDeps:
    learning = required(deps.learning)
    return SkillDeps(
        catalog=learning.skill_catalog(),
        usage=learning.usage(),
        environment=learning.skill_environment,
        redact=deps.redact,
    )


def build_skills_list(deps: ToolCollaborators) -> SkillsList:
    return SkillsList(_skill_deps(deps))


def build_skill_view(deps: ToolCollaborators) -> SkillView:
    return SkillView(_skill_deps(deps))


def build_skill_manage(deps: ToolCollaborators) -> SkillManage:
    learning = required(deps.learning)
    return SkillManage(learning.skill_editor(), learning.skills_need_approval)
