"""Curate the agent's skills: archive unused ones and propose to merge similar ones."""

import io
import tarfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import combinations
from pathlib import Path

import msgspec
from anyio.to_thread import run_sync
from msgspec import Raw, Struct

from hermes.kit.clock import Clock
from hermes.kit.files import read_regular_file, write_atomic
from hermes.learning.duplicates import compare_texts
from hermes.learning.skills.catalog import Skill, SkillCatalog
from hermes.learning.skills.editor import (
    ARCHIVE_FOLDER,
    Authorship,
    ProposedRequest,
    SkillEditor,
    SkillRequest,
    absorbed_path,
)
from hermes.learning.skills.usage import BY_AGENT, SkillUsage, SkillUsageLog
from hermes.ports.ledger import Author, Proposal

MIN_SAME = 0.5
MIN_CONTAINED = 0.8
RUN_WORDS = 2
MAX_COMPARED = 300
"""How many of the newest skills are compared with each other."""
MAX_MERGES = 5
"""Maximum merges proposed in one run, so that people read them."""
BACKUP_FOLDER = ".backups"
STALE, ACTIVE, ARCHIVED = "stale", "active", "archived"
_STATE_FILE = ".curator_state"


class SimilarSkills(Struct, frozen=True):
    """`keep` is used more; `drop` would be archived and its text added to `keep`."""

    keep: str
    drop: str


async def proposed_pairs(editor: SkillEditor) -> set[frozenset[str]]:
    """Pairs proposed for merging before, in either order, so that none is proposed twice."""
    before = await editor.proposed_before(Author.CURATOR)
    proposed = [msgspec.json.decode(proposal.request, type=ProposedRequest) for proposal in before]
    return {
        frozenset((request.request.name, request.request.absorbed_into)) for request in proposed
    }


def find_similar_skills(
    skills: Sequence[Skill],
    records: Mapping[str, SkillUsage],
    read: Callable[[Skill], str],
    proposed: Collection[frozenset[str]] = (),
) -> list[SimilarSkills]:
    """Compare only unpinned skills that the agent wrote; each is in at most one pair."""
    own = [skill for skill in skills if skill.own and _is_by_agent(records.get(skill.name))]
    texts = {skill.name: f"{skill.head.description}\n{read(skill)}" for skill in own}
    uses = {name: record.use_count + record.view_count for name, record in records.items()}
    found: list[SimilarSkills] = []
    paired: set[str] = set()
    for one, other in combinations([*texts][-MAX_COMPARED:], 2):
        if paired & {one, other} or frozenset((one, other)) in proposed:
            continue
        found_words = compare_texts(texts[one], texts[other], RUN_WORDS)
        if found_words.same < MIN_SAME and found_words.contained < MIN_CONTAINED:
            continue
        drop, keep = sorted((one, other), key=lambda name: (uses[name], name))
        paired |= {one, other}
        found.append(SimilarSkills(keep, drop))
    return found


async def propose_merge(
    editor: SkillEditor, pair: SimilarSkills, body: Callable[[], str]
) -> Proposal:
    by = Authorship(author=Author.CURATOR, why=f"{pair.drop} says nearly the same as {pair.keep}")
    # Taken before reading the text, so that a change in between makes the merge fail later.
    seen = await editor.text_digest(pair.drop)
    request = SkillRequest(
        action="delete",
        name=pair.drop,
        absorbed_into=pair.keep,
        file_path=absorbed_path(pair.drop),
        file_content=body(),
    )
    encoded = Raw(msgspec.json.encode(ProposedRequest(request, by, merge=True, seen=seen)))
    return await editor.propose(pair.drop, f"merge {pair.drop} into {pair.keep}", encoded, by)


def _is_by_agent(record: SkillUsage | None) -> bool:
    return record is not None and record.created_by == BY_AGENT and not record.pinned


class CurationLimits(Struct, frozen=True, kw_only=True):
    """Days without use; `backups` is how many are kept, 0 for none."""

    stale: int = 30
    archive: int = 90
    backups: int = 5


class SkillTransition(Struct, frozen=True):
    """The new state of a skill that was last used so many days ago."""

    name: str
    new_state: str
    days: int


def skill_transitions(
    skills: Sequence[Skill], records: Mapping[str, SkillUsage], now: datetime, ages: CurationLimits
) -> list[SkillTransition]:
    """Return changes of state, only for unpinned skills that the agent wrote."""
    return [
        SkillTransition(skill.name, becomes, days)
        for skill in skills
        if skill.own and (record := records.get(skill.name)) is not None and _is_by_agent(record)
        if (used := _last_used(record)) is not None
        for days in [max(0, (now - used) // timedelta(days=1))]
        if (becomes := _state_after(days, ages)) != record.state
    ]


class Curator:
    def __init__(
        self,
        folder: Path,
        catalog: SkillCatalog,
        usage: SkillUsageLog,
        editor: SkillEditor,
        clock: Clock,
    ) -> None:
        """`folder` contains the skills of the home."""
        self._folder = folder
        self._catalog = catalog
        self._usage = usage
        self._editor = editor
        self._clock = clock

    def due(self, interval: timedelta) -> bool:
        """Whether the interval has passed since the last curation."""
        last = self.last_run()
        return last is None or self._clock.now() - last >= interval

    def last_run(self) -> datetime | None:
        try:
            data = read_regular_file(self._folder / _STATE_FILE)
            last = datetime.fromisoformat(data.decode().strip())
        except (OSError, ValueError):
            return None
        return last if last.tzinfo else last.astimezone()

    async def preview(self, ages: CurationLimits) -> list[SkillTransition]:
        """Return what `curate` would do now."""

        def judge() -> list[SkillTransition]:
            records = self._usage.records()
            return skill_transitions(self._catalog.skills(), records, self._clock.now(), ages)

        return await run_sync(judge)

    async def curate(self, ages: CurationLimits) -> list[SkillTransition]:
        found = await self.preview(ages)
        if ages.backups and any(transition.new_state == ARCHIVED for transition in found):
            await run_sync(self._write_backup, ages.backups)
        for transition in found:
            if transition.new_state == ARCHIVED:
                by = Authorship(author=Author.CURATOR, why=f"not used for {transition.days} days")
                await self._editor.archive(transition.name, by)
            else:
                await run_sync(self._usage.mark, transition.name, transition.new_state)
        await run_sync(self._record_run)
        return found

    async def similar_skills(self) -> list[SimilarSkills]:
        """The pairs that `propose_merges` would propose; none that was proposed before."""
        proposed = await proposed_pairs(self._editor)

        def look() -> list[SimilarSkills]:
            records = self._usage.records()
            return find_similar_skills(self._catalog.skills(), records, self._body, proposed)

        return await run_sync(look)

    async def propose_merges(self, keep: int) -> list[Proposal]:
        """Back up everything and propose merges; nothing changes until a person agrees."""
        found = (await self.similar_skills())[:MAX_MERGES]
        if keep and found:
            await run_sync(self._write_backup, keep)
        return [
            await propose_merge(self._editor, pair, partial(self._body_of, pair.drop))
            for pair in found
        ]

    def _body_of(self, name: str) -> str:
        skill = self._catalog.find(name)
        return "" if skill is None else self._body(skill)

    def _body(self, skill: Skill) -> str:
        return self._catalog.read(skill).body

    def _record_run(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        stamp = self._clock.now().isoformat().encode()
        write_atomic(self._folder / _STATE_FILE, stamp, mode=0o600)

    def _write_backup(self, keep: int) -> None:
        """Archive all current skills; the oldest backups beyond `keep` are deleted."""
        folder = self._folder / BACKUP_FOLDER
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as archive:
            for path in _own_files(self._folder):
                archive.add(path, path.relative_to(self._folder).as_posix(), recursive=False)
        name = f"skills-{self._clock.now():%Y%m%d-%H%M%S}.tar.gz"
        write_atomic(folder / name, packed.getvalue(), mode=0o600)
        for old in sorted(folder.glob("skills-*.tar.gz"))[:-keep]:
            old.unlink()


def _own_files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        hidden = path.relative_to(folder).parts[0] in {BACKUP_FOLDER, ARCHIVE_FOLDER}
        if not hidden and path.is_file() and not path.is_symlink():
            yield path


def _last_used(record: SkillUsage) -> datetime | None:
    times = [
        record.created_at, record.last_viewed_at, record.last_used_at, record.last_patched_at,
    ]  # fmt: skip
    return max((time for time in times if time is not None), default=None)


def _state_after(days: int, ages: CurationLimits) -> str:
    if ages.archive and days >= ages.archive:
        return ARCHIVED
    return STALE if ages.stale and days >= ages.stale else ACTIVE
