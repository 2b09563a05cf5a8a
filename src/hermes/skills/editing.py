"""How skills are written: each change in the ledger, by the agent only to what is its own."""

from collections.abc import Callable, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path, PurePosixPath

import anyio
from msgspec import Raw, Struct

from hermes.changes.change import Author, Change, Edit, Origin, Proposal
from hermes.changes.files import present
from hermes.changes.ledger import Ledger
from hermes.changes.scan import suspicion
from hermes.kit.clock import Clock
from hermes.kit.ids import new_id
from hermes.skills.document import BadSkill, check_name, parse
from hermes.skills.shelf import FILE, Shelf, Skill
from hermes.skills.usage import BY_AGENT, Usage

KIND = "skill"
FOLDERS = ("references", "templates", "scripts", "assets")
MAX_FILE = 1024 * 1024
ARCHIVE = ".archive"


class By(Struct, frozen=True, kw_only=True):
    """Who changes it, from whose words, and why."""

    author: Author
    origin: Origin = Origin()
    why: str = ""


class Editor:
    """`home` is the profile's; its skills lie in `skills/` below it."""

    def __init__(
        self, home: Path, shelf: Shelf, usage: Usage, ledger: Ledger, clock: Clock
    ) -> None:
        self._home = home
        self._shelf = shelf
        self._usage = usage
        self._ledger = ledger
        self._clock = clock

    async def create(self, name: str, content: str, category: str, by: By) -> str:
        """A new skill; its folder. Raises `BadSkill`."""
        check_name(name)
        for part in category.split("/") if category else ():
            check_name(part)
        if await self._find(name) is not None:
            raise BadSkill(
                f"There is a skill {name} already.", hint="Change it with patch or edit."
            )
        folder = "/".join(["skills", *([category] if category else []), name])
        self._check_text(name, content)
        edit = Edit(f"{folder}/{FILE}", None, content.encode())
        await self._apply(name, f"create {name}", [edit], by)
        await self._noted(lambda: self._usage.created(name, _made_by(by)))
        return folder

    async def rewrite(self, name: str, content: str, by: By) -> None:
        """Put a whole new SKILL.md in place of the old one."""
        skill = await self._changeable(name, by)
        self._check_text(skill.name, content)
        await self._write(skill, skill.file, content, f"rewrite {skill.name}", by)

    async def patch(
        self, name: str, path: str, swap: tuple[str, str], by: By, *, every: bool
    ) -> None:
        """Replace one piece of text, or every one that is the same, in a file of the skill."""
        skill = await self._changeable(name, by)
        file = Path(skill.folder) / _inside(path) if path else skill.file
        old, new = swap
        data = await anyio.to_thread.run_sync(present, file)
        if data is None:
            raise BadSkill(f"{skill.name} has no file {path}.")
        text = data.decode("utf-8", "replace")
        count = text.count(old) if old else 0
        if count == 0:
            raise BadSkill(f"`old_string` is not in {file.name} of {skill.name}.")
        if count > 1 and not every:
            raise BadSkill(f"`old_string` is {count} times in {file.name}: give more around it.")
        after = text.replace(old, new)
        if file == skill.file:
            self._check_text(skill.name, after)
        await self._write(skill, file, after, f"patch {skill.name}", by)

    async def write_file(self, name: str, path: str, content: str, by: By) -> None:
        """A file beside SKILL.md, in one of the folders that skills may have."""
        skill = await self._changeable(name, by)
        inside = _inside(path)
        if len(content.encode()) > MAX_FILE:
            raise BadSkill(f"A file of a skill may have {MAX_FILE:,} bytes.")
        file = Path(skill.folder) / inside
        await self._write(skill, file, content, f"write {inside} of {skill.name}", by)

    async def remove_file(self, name: str, path: str, by: By) -> None:
        skill = await self._changeable(name, by)
        file = Path(skill.folder) / _inside(path)
        before = await anyio.to_thread.run_sync(present, file)
        if before is None:
            raise BadSkill(f"{skill.name} has no file {path}.")
        edit = Edit(self._below_home(file), before, None)
        await self._apply(skill.name, f"remove {path} of {skill.name}", [edit], by)

    async def archive(self, name: str, by: By) -> str:
        """Out of the way, with everything in it: nothing is ever deleted. Where it lies now."""
        skill = await self._changeable(name, by)
        target = f"skills/{ARCHIVE}/{skill.name}-{self._clock.now():%Y%m%d-%H%M%S}"
        edits = await anyio.to_thread.run_sync(self._moved, skill, target)
        await self._apply(skill.name, f"archive {skill.name}", edits, by)
        await self._noted(lambda: self._usage.mark(skill.name, "archived"))
        return target

    async def digest(self, name: str) -> str:
        """Changes with every letter of the skill's text. Raises `BadSkill`."""
        skill = await self._find(name)
        if skill is None:
            raise BadSkill(f"There is no skill {name!r}.", hint="See skills_list.")
        return _digest(await anyio.to_thread.run_sync(present, skill.file))

    async def absorb(self, name: str, into: str, by: By, *, seen: str | None = None) -> str:
        """Archive one skill and keep its text with another, as one change. Where it lies now.

        `seen` is the digest of what somebody agreed to; another text is refused (`BadSkill`).
        """
        skill, keep = await self._changeable(name, by), await self._changeable(into, by)
        if skill.name == keep.name:
            raise BadSkill(f"{name} cannot take in itself.")
        target = f"skills/{ARCHIVE}/{skill.name}-{self._clock.now():%Y%m%d-%H%M%S}"
        text = await anyio.to_thread.run_sync(present, skill.file)
        if seen is not None and seen != _digest(text):
            raise BadSkill(
                f"{skill.name} is not what was proposed any more: nothing was merged.",
                hint=f"Reject this proposal; merge them by hand if {skill.name} is still fine.",
            )
        merge = partial(self._merged, skill, text, keep, target)
        edits = await anyio.to_thread.run_sync(merge)
        await self._apply(keep.name, f"merge {skill.name} into {keep.name}", edits, by)
        await self._noted(lambda: self._usage.mark(skill.name, "archived"))
        await self._noted(lambda: self._usage.patched(keep.name))
        return target

    async def restore(self, name: str, by: By) -> str:
        """Bring the one that was archived last back to where skills lie. Raises `BadSkill`."""
        check_name(name)
        if await self._find(name) is not None:
            raise BadSkill(f"There is a skill {name}: archive that one first.")
        source = await anyio.to_thread.run_sync(self._archived, name)
        if source is None:
            raise BadSkill(f"No skill {name} was archived.")
        skill = await anyio.to_thread.run_sync(self._as_skill, name, source)
        edits = await anyio.to_thread.run_sync(self._moved, skill, f"skills/{name}")
        await self._apply(name, f"restore {name}", edits, by)
        await self._noted(lambda: self._usage.used(name))
        return f"skills/{name}"

    async def check(self, name: str, by: By, *, content: str = "", new: bool = False) -> None:
        """Whether such a change could be made now. Raises `BadSkill`."""
        if not new:
            await self._changeable(name, by)
        elif await self._find(check_name(name)) is not None:
            raise BadSkill(f"There is a skill {name} already.")
        if new or content:
            self._check_text(name, content)

    async def propose(self, name: str, summary: str, request: Raw, by: By) -> Proposal:
        """Let it wait for a person; `request` says what is to be done then."""
        proposal = Proposal(
            id=new_id("pro"),
            kind=KIND,
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

    async def was_refused(self, name: str) -> bool:
        """Whether a person took it back that the agent made a skill of that name, or refused it."""
        changes, proposals = await self._ledger.refusals(KIND)
        made = f"create {name}"
        return any(one.summary == made for one in (*changes, *proposals))

    async def proposed_before(self, by: Author) -> Sequence[Proposal]:
        return await self._ledger.proposed_before(KIND, by)

    async def decide(self, proposal: Proposal, *, accepted: bool) -> None:
        await self._ledger.decide(proposal, accepted=accepted)

    async def _changeable(self, name: str, by: By) -> Skill:
        skill = await self._find(name)
        if skill is None:
            raise BadSkill(f"There is no skill {name!r}.", hint="See skills_list.")
        if not skill.own:
            raise BadSkill(f"{skill.name} is not in the skills folder of this home.")
        if by.author is Author.PERSON:
            return skill
        record = await anyio.to_thread.run_sync(self._usage.of, skill.name)
        if record.pinned:
            raise BadSkill(f"{skill.name} is pinned: only the person changes it.")
        if record.created_by != BY_AGENT:
            raise BadSkill(
                f"{skill.name} was written by the person: only they change it.",
                hint="Propose the change to them, or create another skill.",
            )
        return skill

    async def _find(self, name: str) -> Skill | None:
        return await anyio.to_thread.run_sync(self._shelf.find, name)

    async def _write(self, skill: Skill, file: Path, text: str, summary: str, by: By) -> None:
        if why := suspicion(text) if by.author is not Author.PERSON else "":
            raise BadSkill(f"This was not written: it {why}.")
        before = await anyio.to_thread.run_sync(present, file)
        edit = Edit(self._below_home(file), before, text.encode())
        if edit.before != edit.after:
            await self._apply(skill.name, summary, [edit], by)
            await self._noted(lambda: self._usage.patched(skill.name))

    async def _apply(self, name: str, summary: str, edits: Sequence[Edit], by: By) -> None:
        await self._ledger.apply(
            Change(
                id=new_id("chg"),
                kind=KIND,
                name=name,
                summary=summary,
                by=by.author,
                at=self._clock.now(),
                edits=tuple(edits),
                origin=by.origin,
                why=by.why,
            )
        )

    def _check_text(self, name: str, content: str) -> None:
        document = parse(content, Path(name) / FILE)
        if document.head.name != name:
            raise BadSkill(f"The head says name: {document.head.name}, the skill is {name}.")
        if why := suspicion(content):
            raise BadSkill(f"This was not written: it {why}.")

    def _moved(self, skill: Skill, target: str) -> list[Edit]:
        edits: list[Edit] = []
        root = Path(skill.folder)
        for file in sorted(path for path in root.rglob("*") if path.is_file()):
            data = present(file)
            edits.append(Edit(f"{target}/{file.relative_to(root)}", None, data))
            edits.append(Edit(self._below_home(file), data, None))
        return edits

    def _merged(self, skill: Skill, text: bytes | None, keep: Skill, target: str) -> list[Edit]:
        path = taken_in_as(skill.name)
        taken, main = Path(keep.folder) / path, present(keep.file) or b""
        line = f"\n\nMore of this kind, from the skill {skill.name} that was merged: {path}\n"
        return [
            *self._moved(skill, target),
            Edit(self._below_home(taken), present(taken), text),
            Edit(self._below_home(keep.file), main, main.rstrip() + line.encode()),
        ]

    def _archived(self, name: str) -> Path | None:
        folder = self._home / "skills" / ARCHIVE
        stamp = "[0-9]" * 8 + "-" + "[0-9]" * 6
        found = sorted(path for path in folder.glob(f"{name}-{stamp}") if path.is_dir())
        return found[-1] if found else None

    def _as_skill(self, name: str, folder: Path) -> Skill:
        text = (present(folder / FILE) or b"").decode("utf-8", "replace")
        head = parse(text, folder / FILE).head
        return Skill(name=name, folder=str(folder), category="", head=head, own=True)

    def _below_home(self, file: Path) -> str:
        return file.relative_to(self._home).as_posix()

    async def _noted(self, note: Callable[[], None]) -> None:
        await anyio.to_thread.run_sync(note)


def taken_in_as(name: str) -> str:
    """Where the text of a skill lies within the one that took it in."""
    return f"references/from-{name}.md"


def _digest(text: bytes | None) -> str:
    return sha256(text or b"").hexdigest()


def _made_by(by: By) -> str:
    return "user" if by.author is Author.PERSON else BY_AGENT


def _inside(path: str) -> str:
    """A file in one of the folders of a skill, and nowhere else."""
    parts = PurePosixPath(path).parts
    if len(parts) < 2 or parts[0] not in FOLDERS or ".." in parts or "\0" in path:
        allowed = ", ".join(f"{name}/" for name in FOLDERS)
        raise BadSkill(f"{path!r} is no place for a file of a skill.", hint=f"Use {allowed}")
    return "/".join(parts)
