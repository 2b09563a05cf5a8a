"""Slash commands for memory, skills and proposed changes."""

from collections.abc import Sequence
from functools import partial

from anyio.to_thread import run_sync

from hermes.app.learning import Learning
from hermes.commands.services import SkillSummary
from hermes.config.env import Env
from hermes.config.home import Home
from hermes.kit.errors import UsageError
from hermes.learning.diffs import change_text, entry_line, proposal_line, proposal_text, short_id
from hermes.learning.memory import MEMORY_KIND as MEMORY
from hermes.learning.memory import InvalidOperation, MemoryFull, MemoryTarget, join_entries
from hermes.learning.skills.catalog import Skill
from hermes.learning.skills.document import Bundle, InvalidSkill, find_bundle, list_bundles
from hermes.learning.skills.usage import SkillUsage
from hermes.ports.ledger import Author, Proposal
from hermes.schema.errors import NotFound
from hermes.schema.messages import SKILL_HEADER
from hermes.tools.skills import fill_placeholders

ALL_PROPOSALS = "all"
_MAX_EXAMINED, _MAX_SHOWN = 500, 10
"""How many changes to search for those of the curator, and how many to show."""


class LearningCommands:
    """Implements `hermes.commands.services.LearningControl`."""

    def __init__(self, home: Home, env: Env, learning: Learning) -> None:
        self._home = home
        self._env = env
        self._learning = learning

    async def memory(self) -> str:
        files = [await self._learning.memory_store.read(target) for target in MemoryTarget]
        parts = [
            f"{file.target.file}  {file.usage}\n{join_entries(file.entries) or '(nothing yet)'}"
            for file in files
        ]
        waiting = len(await self._learning.ledger.waiting(MEMORY))
        return "\n\n".join([*parts, *([f"{waiting} pending: /memory pending"] if waiting else [])])

    async def pending(self, kind: str | None = None) -> Sequence[str]:
        return [proposal_line(proposal) for proposal in await self._learning.ledger.waiting(kind)]

    async def accept(self, name: str, kind: str | None = None) -> Sequence[str]:
        proposals = await self._find_proposals(name, kind)
        if not proposals:
            return ["Nothing is pending."]
        if name != ALL_PROPOSALS:
            return [await self._accept(proposal) for proposal in proposals]
        return [await self._try_accept(proposal) for proposal in proposals]

    async def reject(self, name: str, kind: str | None = None) -> int:
        proposals = await self._find_proposals(name, kind)
        for proposal in proposals:
            await self._learning.ledger.decide(proposal, accepted=False)
        return len(proposals)

    async def changes(self, limit: int) -> Sequence[str]:
        return [entry_line(entry) for entry in await self._learning.ledger.log(limit=limit)]

    async def describe(self, name: str) -> str:
        try:
            return proposal_text(await self._learning.ledger.proposal(name))
        except NotFound:
            return change_text((await self._learning.ledger.get(name)).change)

    async def undo(self, name: str) -> str:
        try:
            undone = await self._learning.memory_store.undo(name)
        except MemoryFull as error:
            reason = str(error).rstrip(".")
            raise UsageError(f"Cannot restore it: {reason}.", hint="See /memory.") from error
        return f"Done: {undone.summary}. Revert with /changes undo {short_id(undone.id)}."

    def memory_approval(self) -> bool:
        return self._learning.memory_approval

    async def set_memory_approval(self, *, on: bool) -> None:
        from hermes.config.editor import set_setting  # noqa: PLC0415 - rarely used

        home, env = self._home, self._env
        await run_sync(set_setting, home, env, "memory.write_approval", "true" if on else "false")
        self._learning.memory_approval = on

    async def skills(self) -> Sequence[SkillSummary]:
        return await run_sync(self._skills)

    async def curation_report(self) -> str:
        last = await run_sync(self._learning.curator.last_run)
        if last is None:
            return "Skills have not been curated yet. Run `hermes skills curate` to do it now."
        entries = await self._learning.ledger.log(limit=_MAX_EXAMINED)
        done = [entry for entry in entries if entry.change.by is Author.CURATOR][-_MAX_SHOWN:]
        return "\n".join(
            [
                f"Skills were last curated on {last.astimezone():%Y-%m-%d at %H:%M}.",
                *(map(entry_line, done) if done else ["Nothing was archived as unused."]),
                "`hermes skills curate --dry-run` shows what it would do now.",
            ]
        )

    async def bundles(self) -> Sequence[SkillSummary]:
        return [
            SkillSummary(name=bundle.name, description=bundle.description, marks=bundle.skills)
            for bundle in await run_sync(list_bundles, self._home.path)
        ]

    async def skill(self, name: str) -> str:
        return await run_sync(self._skill, name)

    async def pin(self, name: str, *, pinned: bool) -> None:
        skill = await run_sync(self._find_skill, name)
        await run_sync(partial(self._learning.usage.pin, skill.name, pinned=pinned))

    def skill_for_command(self, name: str) -> str:
        catalog = self._learning.skill_catalog
        skill = catalog.find(name) or catalog.find(name.replace("_", "-"))
        if skill is None:
            bundle = self._bundle(name)
            return "" if bundle is None else bundle.name
        return "" if skill.name in self._learning.environment((), ()).disabled else skill.name

    async def skill_instructions(self, name: str, session: str) -> str:
        return await run_sync(self._skill_text, name, session)

    def _skills(self) -> list[SkillSummary]:
        records = self._learning.usage.records()
        return [
            SkillSummary(
                name=skill.name,
                description=skill.head.description,
                category=skill.category,
                marks=records.get(skill.name, SkillUsage()).labels(builtin=skill.builtin),
            )
            for skill in self._learning.skill_catalog.skills()
        ]

    def _skill(self, name: str) -> str:
        skill = self._find_skill(name)
        record = self._learning.usage.get(skill.name)
        labels = ", ".join(record.labels(builtin=skill.builtin)) or "yours"
        body = self._learning.skill_catalog.read(skill).body
        head = f"{skill.name}: {skill.head.description}\n{skill.folder}  ({labels})"
        return f"{head}\n\n{body}"

    def _skill_text(self, name: str, session: str) -> str:
        bundle = self._bundle(name) if self._learning.skill_catalog.find(name) is None else None
        if bundle is None:
            return self._instructions_of(name, session)
        disabled = self._learning.environment((), ()).disabled
        available = [
            skill
            for skill in bundle.skills
            if skill not in disabled and self._learning.skill_catalog.find(skill)
        ]
        missing = [skill for skill in bundle.skills if skill not in available]
        if not available:
            raise UsageError(f"None of the skills of {name} is available.", hint="See /skills.")
        parts = [self._instructions_of(skill, session) for skill in available]
        if missing:
            parts.append(f"[Not available, from the same bundle: {', '.join(missing)}.]")
        return "\n\n".join([*parts, bundle.instruction]).strip()

    def _bundle(self, name: str) -> Bundle | None:
        home = self._home.path
        return find_bundle(home, name) or find_bundle(home, name.replace("_", "-"))

    def _instructions_of(self, name: str, session: str) -> str:
        skill = self._find_skill(name)
        self._learning.usage.used(skill.name)
        body = fill_placeholders(self._learning.skill_catalog.read(skill).body, skill, session)
        return (
            f"{SKILL_HEADER}{skill.name}, which lies in {skill.folder}. "
            f"Its instructions are:]\n\n{body.strip()}\n\n[These were the instructions.]"
        )

    def _find_skill(self, name: str) -> Skill:
        skill = self._learning.skill_catalog.find(name)
        if skill is None:
            raise UsageError(f"Unknown skill: {name}.", hint="See /skills.")
        return skill

    async def _find_proposals(self, name: str, kind: str | None) -> Sequence[Proposal]:
        if name == ALL_PROPOSALS:
            return await self._learning.ledger.waiting(kind)
        proposal = await self._learning.ledger.proposal(name)
        if kind is not None and proposal.kind != kind:
            hint = f"See /changes show {short_id(proposal.id)}."
            raise UsageError(f"{name} is a change to a {proposal.kind}.", hint=hint)
        return [proposal]

    async def _accept(self, proposal: Proposal) -> str:
        try:
            await self._learning.accept(proposal)
        except (InvalidOperation, MemoryFull, InvalidSkill) as error:
            reason = str(error).rstrip(".")
            raise UsageError(
                f"{proposal.summary}: {reason}.",
                hint=f"Reject it: /changes reject {short_id(proposal.id)}",
            ) from error
        return f"Done: {proposal.kind} {proposal.summary}"

    async def _try_accept(self, proposal: Proposal) -> str:
        """Accept one of several; a proposal that cannot be applied does not hold up the others."""
        try:
            return await self._accept(proposal)
        except UsageError as error:
            return f"Not done: {error} {error.hint}"
