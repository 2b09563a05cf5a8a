"""What the agent has learned, as slash commands ask for it."""

from collections.abc import Sequence

from anyio.to_thread import run_sync

from hermes.app.learning import Learning
from hermes.changes.change import Author, Proposal
from hermes.changes.differences import in_full, one_line, proposed_in_full, short, waiting_line
from hermes.commands.services import SkillLine
from hermes.config.env import Env
from hermes.config.home import Home
from hermes.kit.errors import UsageError
from hermes.memory.entries import Target, join
from hermes.memory.notebook import KIND as MEMORY
from hermes.memory.notebook import Full
from hermes.memory.operations import Unfit
from hermes.schema.attachments import SKILL
from hermes.schema.errors import NotFound
from hermes.skills.document import BadSkill
from hermes.skills.shelf import Skill
from hermes.skills.usage import Record
from hermes.tools.skills.listing import filled

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hermes.skills.bundles import Bundle

EVERYTHING = "all"
_LOOKED_AT, _SHOWN = 500, 10
"""Changes among which those of the curator are looked for, and how many of them are told."""


class KeptLessons:
    """Implements `hermes.commands.services.Lessons`."""

    def __init__(self, home: Home, env: Env, learning: Learning) -> None:
        self._home = home
        self._env = env
        self._learning = learning

    async def memory(self) -> str:
        sheets = [await self._learning.notebook.read(target) for target in Target]
        parts = [
            f"{sheet.target.file}  {sheet.usage}\n{join(sheet.entries) or '(nothing yet)'}"
            for sheet in sheets
        ]
        waiting = len(await self._learning.ledger.waiting(MEMORY))
        return "\n\n".join([*parts, *([f"{waiting} wait: /memory pending"] if waiting else [])])

    async def waiting(self, kind: str | None = None) -> Sequence[str]:
        return [waiting_line(one) for one in await self._learning.ledger.waiting(kind)]

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
        return [one_line(entry) for entry in await self._learning.ledger.log(limit=limit)]

    async def shown(self, name: str) -> str:
        try:
            return proposed_in_full(await self._learning.ledger.proposal(name))
        except NotFound:
            return in_full((await self._learning.ledger.get(name)).change)

    async def undo(self, name: str) -> str:
        try:
            undone = await self._learning.notebook.undo(name)
        except Full as error:
            raise UsageError(
                f"It cannot be put back: {error}.", hint="/memory shows all."
            ) from error
        return f"Done: {undone.summary}. /changes undo {short(undone.id)} takes that back, too."

    def asks(self) -> bool:
        return self._learning.asks_for_memory

    async def keep_asking(self, *, on: bool) -> None:
        from hermes.config.edit import set_setting  # noqa: PLC0415 - a turn never edits settings

        home, env = self._home, self._env
        await run_sync(set_setting, home, env, "memory.write_approval", "true" if on else "false")
        self._learning.asks_for_memory = on

    async def skills(self) -> Sequence[SkillLine]:
        return await run_sync(self._skills)

    async def curated(self) -> str:
        last = await run_sync(self._learning.curator.last)
        if last is None:
            return "The skills were not looked after yet. `hermes skills curate` does it now."
        entries = await self._learning.ledger.log(limit=_LOOKED_AT)
        done = [one for one in entries if one.change.by is Author.CURATOR][-_SHOWN:]
        return "\n".join(
            [
                f"The skills were last looked after on {last.astimezone():%Y-%m-%d at %H:%M}.",
                *(map(one_line, done) if done else ["Nothing was put away for lack of use."]),
                "`hermes skills curate --dry-run` tells what it would do now.",
            ]
        )

    async def bundles(self) -> Sequence[SkillLine]:
        from hermes.skills.bundles import bundles  # noqa: PLC0415 - few people have any

        return [
            SkillLine(name=one.name, description=one.description, marks=one.skills)
            for one in await run_sync(bundles, self._home.path)
        ]

    async def skill(self, name: str) -> str:
        return await run_sync(self._skill, name)

    async def pin(self, name: str, *, pinned: bool) -> None:
        def pin() -> None:
            self._learning.usage.pin(self._found(name).name, pinned=pinned)

        await run_sync(pin)

    def skill_named(self, name: str) -> str:
        shelf = self._learning.shelf
        found = shelf.find(name) or shelf.find(name.replace("_", "-"))
        if found is None:
            bundle = self._bundle(name)
            return "" if bundle is None else bundle.name
        return "" if found.name in self._learning.here((), ()).disabled else found.name

    async def opened(self, name: str, session: str) -> str:
        return await run_sync(self._opened, name, session)

    def _skills(self) -> list[SkillLine]:
        records = self._learning.usage.records()
        return [
            SkillLine(
                name=skill.name,
                description=skill.head.description,
                category=skill.category,
                marks=records.get(skill.name, Record()).marks(builtin=skill.builtin),
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
        from hermes.skills.bundles import bundle_named  # noqa: PLC0415 - few people have any

        home = self._home.path
        return bundle_named(home, name) or bundle_named(home, name.replace("_", "-"))

    def _followed(self, name: str, session: str) -> str:
        skill = self._found(name)
        self._learning.usage.used(skill.name)
        body = filled(self._learning.shelf.read(skill).body, skill, session)
        return (
            f"{SKILL}{skill.name}, which lies in {skill.folder}. "
            f"Its instructions are:]\n\n{body.strip()}\n\n[These were the instructions.]"
        )

    def _found(self, name: str) -> Skill:
        skill = self._learning.shelf.find(name)
        if skill is None:
            raise UsageError(f"There is no skill {name!r}.", hint="/skills lists them.")
        return skill

    async def _meant(self, name: str, kind: str | None) -> Sequence[Proposal]:
        if name == EVERYTHING:
            return await self._learning.ledger.waiting(kind)
        return [await self._learning.ledger.proposal(name)]

    async def _accepted(self, proposal: Proposal) -> str:
        try:
            await self._learning.accept(proposal)
        except (Unfit, Full, BadSkill) as error:
            raise UsageError(
                f"{proposal.summary}: {error}.", hint=f"/changes reject {short(proposal.id)}"
            ) from error
        return f"Done: {proposal.kind} {proposal.summary}"
