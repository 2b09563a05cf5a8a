"""What the agent has learned, as slash commands ask for it."""

from collections.abc import Sequence

from anyio.to_thread import run_sync

from hermes.app.learning import Learning
from hermes.commands.services import SkillSummary
from hermes.config.env import Env
from hermes.config.home import Home
from hermes.kit.errors import UsageError
from hermes.learning.ledger.change import Author, Proposal
from hermes.learning.ledger.diffs import (
    change_text,
    entry_line,
    proposal_line,
    proposal_text,
    short_id,
)
from hermes.learning.memory.entries import InvalidOperation, MemoryTarget, join_entries
from hermes.learning.memory.memory_store import MEMORY_KIND as MEMORY
from hermes.learning.memory.memory_store import MemoryFull
from hermes.learning.skills.catalog import Skill
from hermes.learning.skills.document import InvalidSkill
from hermes.learning.skills.usage import SkillUsage
from hermes.schema.attachments import SKILL_HEADER
from hermes.schema.errors import NotFound
from hermes.tools.skills_list import fill_placeholders

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hermes.learning.skills.bundles import Bundle

ALL_PROPOSALS = "all"
_MAX_EXAMINED, _MAX_SHOWN = 500, 10
"""Changes among which those of the curator are looked for, and how many of them are told."""


class LearningCommands:
    """Implements `hermes.commands.services.Lessons`."""

    def __init__(self, home: Home, env: Env, learning: Learning) -> None:
        self._home = home
        self._env = env
        self._learning = learning

    async def memory(self) -> str:
        sheets = [await self._learning.notebook.read(target) for target in MemoryTarget]
        parts = [
            f"{sheet.target.file}  {sheet.usage}\n{join_entries(sheet.entries) or '(nothing yet)'}"
            for sheet in sheets
        ]
        waiting = len(await self._learning.ledger.waiting(MEMORY))
        return "\n\n".join([*parts, *([f"{waiting} wait: /memory pending"] if waiting else [])])

    async def waiting(self, kind: str | None = None) -> Sequence[str]:
        return [proposal_line(one) for one in await self._learning.ledger.waiting(kind)]

    async def accept(self, name: str, kind: str | None = None) -> Sequence[str]:
        found = await self._meant(name, kind)
        if not found:
            return ["Nothing waits for a decision."]
        return [await self._accepted(one) for one in found]

    async def reject(self, name: str, kind: str | None = None) -> int:
        found = await self._meant(name, kind)
        for proposal in found:
            await self._learning.ledger.decide(proposal, accepted=False)
        return len(found)

    async def changes(self, limit: int) -> Sequence[str]:
        return [entry_line(entry) for entry in await self._learning.ledger.log(limit=limit)]

    async def shown(self, name: str) -> str:
        try:
            return proposal_text(await self._learning.ledger.proposal(name))
        except NotFound:
            return change_text((await self._learning.ledger.get(name)).change)

    async def undo(self, name: str) -> str:
        try:
            undone = await self._learning.notebook.undo(name)
        except MemoryFull as error:
            raise UsageError(
                f"It cannot be put back: {error}.", hint="/memory shows all."
            ) from error
        return f"Done: {undone.summary}. /changes undo {short_id(undone.id)} takes that back, too."

    def asks(self) -> bool:
        return self._learning.memory_approval

    async def set_memory_approval(self, *, on: bool) -> None:
        from hermes.config.editor import set_setting  # noqa: PLC0415 - a turn never edits settings

        home, env = self._home, self._env
        await run_sync(set_setting, home, env, "memory.write_approval", "true" if on else "false")
        self._learning.memory_approval = on

    async def skills(self) -> Sequence[SkillSummary]:
        return await run_sync(self._skills)

    async def curation_report(self) -> str:
        last = await run_sync(self._learning.curator.last)
        if last is None:
            return "The skills were not looked after yet. `hermes skills curate` does it now."
        entries = await self._learning.ledger.log(limit=_MAX_EXAMINED)
        done = [one for one in entries if one.change.by is Author.CURATOR][-_MAX_SHOWN:]
        return "\n".join(
            [
                f"The skills were last looked after on {last.astimezone():%Y-%m-%d at %H:%M}.",
                *(map(entry_line, done) if done else ["Nothing was put away for lack of use."]),
                "`hermes skills curate --dry-run` tells what it would do now.",
            ]
        )

    async def bundles(self) -> Sequence[SkillSummary]:
        from hermes.learning.skills.bundles import list_bundles  # noqa: PLC0415 - few people have any

        return [
            SkillSummary(name=one.name, description=one.description, marks=one.skills)
            for one in await run_sync(list_bundles, self._home.path)
        ]

    async def skill(self, name: str) -> str:
        return await run_sync(self._skill, name)

    async def pin(self, name: str, *, pinned: bool) -> None:
        def pin() -> None:
            self._learning.usage.pin(self._found(name).name, pinned=pinned)

        await run_sync(pin)

    def skill_for_command(self, name: str) -> str:
        shelf = self._learning.shelf
        found = shelf.find(name) or shelf.find(name.replace("_", "-"))
        if found is None:
            bundle = self._bundle(name)
            return "" if bundle is None else bundle.name
        return "" if found.name in self._learning.here((), ()).disabled else found.name

    async def opened(self, name: str, session: str) -> str:
        return await run_sync(self._opened, name, session)

    def _skills(self) -> list[SkillSummary]:
        records = self._learning.usage.records()
        return [
            SkillSummary(
                name=skill.name,
                description=skill.head.description,
                category=skill.category,
                marks=records.get(skill.name, SkillUsage()).marks(builtin=skill.builtin),
            )
            for skill in self._learning.shelf.skills()
        ]

    def _skill(self, name: str) -> str:
        skill = self._found(name)
        record = self._learning.usage.of(skill.name)
        marks = ", ".join(record.marks(builtin=skill.builtin)) or "yours"
        body = self._learning.shelf.read(skill).body
        head = f"{skill.name}: {skill.head.description}\n{skill.folder}  ({marks})"
        return f"{head}\n\n{body}"

    def _opened(self, name: str, session: str) -> str:
        bundle = self._bundle(name) if self._learning.shelf.find(name) is None else None
        if bundle is None:
            return self._followed(name, session)
        disabled = self._learning.here((), ()).disabled
        there = [
            one for one in bundle.skills if one not in disabled and self._learning.shelf.find(one)
        ]
        missing = [one for one in bundle.skills if one not in there]
        if not there:
            raise UsageError(f"None of the skills of {name} is here.", hint="/skills lists them.")
        parts = [self._followed(one, session) for one in there]
        if missing:
            parts.append(f"[Not here, of the same bundle: {', '.join(missing)}.]")
        return "\n\n".join([*parts, bundle.instruction]).strip()

    def _bundle(self, name: str) -> "Bundle | None":
        from hermes.learning.skills.bundles import find_bundle  # noqa: PLC0415 - few people have any

        home = self._home.path
        return find_bundle(home, name) or find_bundle(home, name.replace("_", "-"))

    def _followed(self, name: str, session: str) -> str:
        skill = self._found(name)
        self._learning.usage.used(skill.name)
        body = fill_placeholders(self._learning.shelf.read(skill).body, skill, session)
        return (
            f"{SKILL_HEADER}{skill.name}, which lies in {skill.folder}. "
            f"Its instructions are:]\n\n{body.strip()}\n\n[These were the instructions.]"
        )

    def _found(self, name: str) -> Skill:
        skill = self._learning.shelf.find(name)
        if skill is None:
            raise UsageError(f"There is no skill {name!r}.", hint="/skills lists them.")
        return skill

    async def _meant(self, name: str, kind: str | None) -> Sequence[Proposal]:
        if name == ALL_PROPOSALS:
            return await self._learning.ledger.waiting(kind)
        return [await self._learning.ledger.proposal(name)]

    async def _accepted(self, proposal: Proposal) -> str:
        try:
            await self._learning.accept(proposal)
        except (InvalidOperation, MemoryFull, InvalidSkill) as error:
            raise UsageError(
                f"{proposal.summary}: {error}.", hint=f"/changes reject {short_id(proposal.id)}"
            ) from error
        return f"Done: {proposal.kind} {proposal.summary}"
