"""Write skills through the ledger; the agent may only change its own."""

from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Literal

import msgspec
from anyio.to_thread import run_sync
from msgspec import Raw, Struct

from hermes.kit.clock import Clock
from hermes.kit.ids import new_id
from hermes.kit.injection_scan import injection_reason
from hermes.learning.ledger import Ledger, read_if_present
from hermes.learning.skills.catalog import SKILL_FILE, Skill, SkillCatalog
from hermes.learning.skills.document import InvalidSkill, check_name, parse_skill
from hermes.learning.skills.usage import BY_AGENT, SkillUsageLog
from hermes.ports.ledger import Author, Change, ChangeOrigin, FileEdit, Proposal

SKILL_KIND = "skill"
SKILL_FOLDERS = ("references", "templates", "scripts", "assets")
MAX_FILE = 1024 * 1024
ARCHIVE_FOLDER = ".archive"


class Authorship(Struct, frozen=True, kw_only=True):
    """Who changes a skill, from which origin, and why."""

    author: Author
    origin: ChangeOrigin = ChangeOrigin()
    why: str = ""


class SkillEditor:
    """`home` is the profile's; its skills are in `skills/`."""

    def __init__(
        self, home: Path, catalog: SkillCatalog, usage: SkillUsageLog, ledger: Ledger, clock: Clock
    ) -> None:
        self._home = home
        self._catalog = catalog
        self._usage = usage
        self._ledger = ledger
        self._clock = clock

    async def create(self, name: str, content: str, category: str, by: Authorship) -> str:
        """Create a skill and return its folder. Raises `InvalidSkill`."""
        check_name(name)
        for part in category.split("/") if category else ():
            check_name(part)
        if await self._find(name) is not None:
            raise InvalidSkill(
                f"A skill {name} already exists.", hint="Change it with patch or edit."
            )
        folder = "/".join(["skills", *([category] if category else []), name])
        self._check_text(name, content)
        edit = FileEdit(f"{folder}/{SKILL_FILE}", None, content.encode())
        await self._apply(name, f"create {name}", [edit], by)
        creator = "user" if by.author is Author.PERSON else BY_AGENT
        await run_sync(self._usage.created, name, creator)
        return folder

    async def rewrite(self, name: str, content: str, by: Authorship) -> None:
        skill = await self._require_editable(name, by)
        self._check_text(skill.name, content)
        await self._write(skill, skill.file, content, f"rewrite {skill.name}", by)

    async def patch(
        self, name: str, path: str, swap: tuple[str, str], by: Authorship, *, every: bool
    ) -> None:
        """Replace one occurrence of a text, or all of them, in a file of the skill."""
        skill = await self._require_editable(name, by)
        file = Path(skill.folder) / _check_path(path) if path else skill.file
        old, new = swap
        data = await run_sync(read_if_present, file)
        if data is None:
            raise InvalidSkill(f"{skill.name} has no file {path}.")
        text = data.decode("utf-8", "replace")
        count = text.count(old) if old else 0
        if count == 0:
            raise InvalidSkill(f"`old_string` does not occur in {file.name} of {skill.name}.")
        if count > 1 and not every:
            raise InvalidSkill(
                f"`old_string` occurs {count} times in {file.name}: give more context."
            )
        after = text.replace(old, new)
        if file == skill.file:
            self._check_text(skill.name, after)
        await self._write(skill, file, after, f"patch {skill.name}", by)

    async def write_file(self, name: str, path: str, content: str, by: Authorship) -> None:
        """Write a file next to SKILL.md, in one of the allowed folders."""
        skill = await self._require_editable(name, by)
        relative = _check_path(path)
        if len(content.encode()) > MAX_FILE:
            raise InvalidSkill(f"A file of a skill may have at most {MAX_FILE:,} bytes.")
        file = Path(skill.folder) / relative
        await self._write(skill, file, content, f"write {relative} of {skill.name}", by)

    async def remove_file(self, name: str, path: str, by: Authorship) -> None:
        skill = await self._require_editable(name, by)
        file = Path(skill.folder) / _check_path(path)
        before = await run_sync(read_if_present, file)
        if before is None:
            raise InvalidSkill(f"{skill.name} has no file {path}.")
        edit = FileEdit(self._below_home(file), before, None)
        await self._apply(skill.name, f"remove {path} of {skill.name}", [edit], by)

    async def archive(self, name: str, by: Authorship) -> str:
        """Move a skill with all its files to the archive and return its new folder."""
        skill = await self._require_editable(name, by)
        target = f"skills/{ARCHIVE_FOLDER}/{skill.name}-{self._clock.now():%Y%m%d-%H%M%S}"
        edits = await run_sync(self._move_edits, skill, target)
        await self._apply(skill.name, f"archive {skill.name}", edits, by)
        await run_sync(self._usage.mark, skill.name, "archived")
        return target

    async def text_digest(self, name: str) -> str:
        """A digest of the skill's text. Raises `InvalidSkill`."""
        skill = await self._require(name)
        return _digest(await run_sync(read_if_present, skill.file))

    async def absorb(self, name: str, into: str, by: Authorship, *, seen: str | None = None) -> str:
        """Archive one skill and add its text to another, as one change; return its new folder.

        `seen` is the digest of the approved text; a different one is rejected (`InvalidSkill`).
        """
        skill, keep = await self._require_editable(name, by), await self._require_editable(into, by)
        if skill.name == keep.name:
            raise InvalidSkill(f"{name} cannot be merged into itself.")
        target = f"skills/{ARCHIVE_FOLDER}/{skill.name}-{self._clock.now():%Y%m%d-%H%M%S}"
        text = await run_sync(read_if_present, skill.file)
        if seen is not None and seen != _digest(text):
            raise InvalidSkill(
                f"{skill.name} has changed since it was proposed: nothing was merged.",
                hint=f"Reject this proposal; merge them by hand if {skill.name} is still fine.",
            )
        edits = await run_sync(self._merge_edits, skill, text, keep, target)
        await self._apply(keep.name, f"merge {skill.name} into {keep.name}", edits, by)
        await run_sync(self._usage.mark, skill.name, "archived")
        await run_sync(self._usage.patched, keep.name)
        return target

    async def restore(self, name: str, by: Authorship) -> str:
        """Restore the most recently archived skill of that name. Raises `InvalidSkill`."""
        check_name(name)
        if await self._find(name) is not None:
            raise InvalidSkill(f"A skill {name} already exists: archive it first.")
        skill = await run_sync(self._latest_archive, name)
        if skill is None:
            raise InvalidSkill(f"There is no archived skill {name}.")
        edits = await run_sync(self._move_edits, skill, f"skills/{name}")
        await self._apply(name, f"restore {name}", edits, by)
        await run_sync(self._usage.used, name)
        return f"skills/{name}"

    async def check(
        self, name: str, by: Authorship, *, content: str = "", new: bool = False
    ) -> None:
        """Check whether such a change could be made now. Raises `InvalidSkill`."""
        if not new:
            await self._require_editable(name, by)
        elif await self._find(check_name(name)) is not None:
            raise InvalidSkill(f"A skill {name} already exists.")
        if new or content:
            self._check_text(name, content)

    async def propose(self, name: str, summary: str, request: Raw, by: Authorship) -> Proposal:
        """Propose a change; `request` says what to do when it is accepted."""
        proposal = Proposal(
            id=new_id("pro"),
            kind=SKILL_KIND,
            name=name,
            summary=summary,
            by=by.author,
            at=self._clock.now(),
            request=request,
            origin=by.origin,
            why=by.why,
        )
        await self._ledger.propose(proposal)
        return proposal

    async def was_rejected(self, name: str) -> bool:
        """Whether a person undid or rejected a skill of that name made by the agent."""
        changes, proposals = await self._ledger.rejected(SKILL_KIND)
        summary = f"create {name}"
        return any(one.summary == summary for one in (*changes, *proposals))

    async def proposed_before(self, by: Author) -> Sequence[Proposal]:
        return await self._ledger.proposed_before(SKILL_KIND, by)

    async def decide(self, proposal: Proposal, *, accepted: bool) -> None:
        await self._ledger.decide(proposal, accepted=accepted)

    async def _require_editable(self, name: str, by: Authorship) -> Skill:
        skill = await self._require(name)
        if not skill.own:
            raise InvalidSkill(f"{skill.name} is not in the skills folder of this home.")
        if by.author is Author.PERSON:
            return skill
        record = await run_sync(self._usage.get, skill.name)
        if record.pinned:
            raise InvalidSkill(f"{skill.name} is pinned: only the user may change it.")
        if record.created_by != BY_AGENT:
            raise InvalidSkill(
                f"{skill.name} was written by the user: only they may change it.",
                hint="Propose the change to them, or create another skill.",
            )
        return skill

    async def _require(self, name: str) -> Skill:
        skill = await self._find(name)
        if skill is None:
            raise InvalidSkill(f"Unknown skill: {name}.", hint="See skills_list.")
        return skill

    async def _find(self, name: str) -> Skill | None:
        return await run_sync(self._catalog.find, name)

    async def _write(
        self, skill: Skill, file: Path, text: str, summary: str, by: Authorship
    ) -> None:
        if why := injection_reason(text) if by.author is not Author.PERSON else "":
            raise InvalidSkill(f"This was not written: it {why}.")
        before = await run_sync(read_if_present, file)
        edit = FileEdit(self._below_home(file), before, text.encode())
        if edit.before != edit.after:
            await self._apply(skill.name, summary, [edit], by)
            await run_sync(self._usage.patched, skill.name)

    async def _apply(
        self, name: str, summary: str, edits: Sequence[FileEdit], by: Authorship
    ) -> None:
        change = Change(
            id=new_id("chg"),
            kind=SKILL_KIND,
            name=name,
            summary=summary,
            by=by.author,
            at=self._clock.now(),
            edits=tuple(edits),
            origin=by.origin,
            why=by.why,
        )
        await self._ledger.apply(change)

    def _check_text(self, name: str, content: str) -> None:
        document = parse_skill(content, Path(name) / SKILL_FILE)
        if document.head.name != name:
            raise InvalidSkill(f"The header has name: {document.head.name}, the skill is {name}.")
        if why := injection_reason(content):
            raise InvalidSkill(f"This was not written: it {why}.")

    def _move_edits(self, skill: Skill, target: str) -> list[FileEdit]:
        edits: list[FileEdit] = []
        root = Path(skill.folder)
        for file in sorted(path for path in root.rglob("*") if path.is_file()):
            data = read_if_present(file)
            edits.append(FileEdit(f"{target}/{file.relative_to(root)}", None, data))
            edits.append(FileEdit(self._below_home(file), data, None))
        return edits

    def _merge_edits(
        self, skill: Skill, text: bytes | None, keep: Skill, target: str
    ) -> list[FileEdit]:
        path = absorbed_path(skill.name)
        absorbed, main = Path(keep.folder) / path, read_if_present(keep.file) or b""
        line = f"\n\nMore of this kind, from the skill {skill.name} that was merged: {path}\n"
        return [
            *self._move_edits(skill, target),
            FileEdit(self._below_home(absorbed), read_if_present(absorbed), text),
            FileEdit(self._below_home(keep.file), main, main.rstrip() + line.encode()),
        ]

    def _latest_archive(self, name: str) -> Skill | None:
        stamp = "[0-9]" * 8 + "-" + "[0-9]" * 6
        archived = (self._home / "skills" / ARCHIVE_FOLDER).glob(f"{name}-{stamp}")
        folder = max((path for path in archived if path.is_dir()), default=None)
        if folder is None:
            return None
        text = (read_if_present(folder / SKILL_FILE) or b"").decode("utf-8", "replace")
        head = parse_skill(text, folder / SKILL_FILE).head
        return Skill(name=name, folder=str(folder), category="", head=head, own=True)

    def _below_home(self, file: Path) -> str:
        return file.relative_to(self._home).as_posix()


def absorbed_path(name: str) -> str:
    """Where the text of a merged skill is kept in the other one."""
    return f"references/from-{name}.md"


def _digest(text: bytes | None) -> str:
    return sha256(text or b"").hexdigest()


def _check_path(path: str) -> str:
    """Require a file in one of the folders of a skill."""
    parts = PurePosixPath(path).parts
    if len(parts) < 2 or parts[0] not in SKILL_FOLDERS or ".." in parts or "\0" in path:
        allowed = ", ".join(f"{name}/" for name in SKILL_FOLDERS)
        raise InvalidSkill(f"{path!r} is not a valid path in a skill.", hint=f"Use {allowed}")
    return "/".join(parts)


SkillAction = Literal["create", "patch", "edit", "delete", "write_file", "remove_file"]


class SkillRequest(Struct, frozen=True, forbid_unknown_fields=True):
    action: SkillAction
    name: str
    content: str = ""
    category: str = ""
    old_string: str = ""
    new_string: str = ""
    replace_all: bool = False
    file_path: str = ""
    file_content: str = ""
    absorbed_into: str = ""

    @property
    def text(self) -> str:
        return "\n".join(filter(None, [self.content, self.new_string, self.file_content]))


class ProposedRequest(Struct, frozen=True):
    """`merge` adds the deleted skill's text to the skill that absorbs it.

    `seen` is the digest of its text as shown to the person.
    """

    request: SkillRequest
    by: Authorship
    merge: bool = False
    seen: str = ""


async def perform_request(editor: SkillEditor, request: SkillRequest, by: Authorship) -> str:
    """Return the skill's new folder if it is created or moved. Raises `InvalidSkill`."""
    match request.action:
        case "create":
            return await editor.create(request.name, request.content, request.category, by)
        case "edit":
            await editor.rewrite(request.name, request.content, by)
        case "patch":
            swap = request.old_string, request.new_string
            await editor.patch(request.name, request.file_path, swap, by, every=request.replace_all)
        case "write_file":
            await editor.write_file(request.name, request.file_path, request.file_content, by)
        case "remove_file":
            await editor.remove_file(request.name, request.file_path, by)
        case "delete":
            return await editor.archive(request.name, by)
    return ""


async def propose_request(editor: SkillEditor, request: SkillRequest, by: Authorship) -> Proposal:
    """Propose a change if it could be made now. Raises `InvalidSkill`."""
    await editor.check(request.name, by, content=request.content, new=request.action == "create")
    if why := injection_reason(request.text):
        raise InvalidSkill(f"This was not proposed: it {why}.")
    proposed = Raw(msgspec.json.encode(ProposedRequest(request, by)))
    return await editor.propose(request.name, f"{request.action} {request.name}", proposed, by)


async def accept_proposal(editor: SkillEditor, proposal: Proposal) -> str:
    """Apply an accepted proposal to the current skill. Raises `InvalidSkill`, `FileConflict`.

    Only a merged skill must be unchanged, because all of its text is used.
    """
    proposed = msgspec.json.decode(proposal.request, type=ProposedRequest)
    request, by = proposed.request, proposed.by
    if proposed.merge:
        folder = await editor.absorb(request.name, request.absorbed_into, by, seen=proposed.seen)
    else:
        folder = await perform_request(editor, request, by)
    await editor.decide(proposal, accepted=True)
    return folder
