"""What the agent wrote and nobody uses any more is put out of the way, and nothing is deleted."""

import io
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import anyio
from msgspec import Struct

from hermes.changes.change import Author, Proposal
from hermes.kit.clock import Clock
from hermes.kit.files import read_ordinary, write_atomic
from hermes.skills.editing import ARCHIVE, By, Editor
from hermes.skills.merging import Pair, asked_about, pairs, propose_merge
from hermes.skills.shelf import Shelf, Skill
from hermes.skills.usage import BY_AGENT, Record, Usage

AT_ONCE = 5
"""Merges that are proposed in one go: more at once are not read."""
BACKUPS = ".backups"
STALE, ACTIVE, ARCHIVED = "stale", "active", "archived"
_STATE = ".curator_state"


class Ages(Struct, frozen=True, kw_only=True):
    """Days without use; `keep` backups are kept, and 0 makes none."""

    stale: int = 30
    archive: int = 90
    keep: int = 5


class Verdict(Struct, frozen=True):
    """What becomes of a skill that was last used so many days ago."""

    name: str
    becomes: str
    days: int


def verdicts(
    skills: Sequence[Skill], records: Mapping[str, Record], now: datetime, ages: Ages
) -> list[Verdict]:
    """Only for what the agent wrote and nobody pinned; only what changes is named."""
    return [
        Verdict(skill.name, becomes, days)
        for skill in skills
        if skill.own and (record := records.get(skill.name)) is not None
        if record.created_by == BY_AGENT and not record.pinned
        if (used := _last_used(record)) is not None
        for days in [max(0, (now - used) // timedelta(days=1))]
        if (becomes := _state(days, ages)) != record.state
    ]


class Curator:
    def __init__(
        self, folder: Path, shelf: Shelf, usage: Usage, editor: Editor, clock: Clock
    ) -> None:
        """`folder` is where the skills of the home lie."""
        self._folder = folder
        self._shelf = shelf
        self._usage = usage
        self._editor = editor
        self._clock = clock

    def due(self, interval: timedelta) -> bool:
        """Whether so much time has passed since it was last done here."""
        last = self.last()
        return last is None or self._clock.now() - last >= interval

    def last(self) -> datetime | None:
        """When it was last done here, if it was."""
        try:
            last = datetime.fromisoformat(read_ordinary(self._folder / _STATE).decode().strip())
        except (OSError, ValueError):
            return None
        return last if last.tzinfo else last.astimezone()

    async def judge(self, ages: Ages) -> list[Verdict]:
        """What `curate` would do now."""

        def judge() -> list[Verdict]:
            records = self._usage.records()
            return verdicts(self._shelf.skills(), records, self._clock.now(), ages)

        return await anyio.to_thread.run_sync(judge)

    async def curate(self, ages: Ages) -> list[Verdict]:
        found = await self.judge(ages)
        if ages.keep and any(one.becomes == ARCHIVED for one in found):
            await anyio.to_thread.run_sync(self._back_up, ages.keep)
        for one in found:
            if one.becomes == ARCHIVED:
                by = By(author=Author.CURATOR, why=f"not used for {one.days} days")
                await self._editor.archive(one.name, by)
            else:
                await anyio.to_thread.run_sync(self._usage.mark, one.name, one.becomes)
        await anyio.to_thread.run_sync(self._note)
        return found

    async def alike(self) -> list[Pair]:
        """Skills that `propose_merges` would propose to merge; nothing that it did before."""
        asked = await asked_about(self._editor)

        def look() -> list[Pair]:
            return pairs(self._shelf.skills(), self._usage.records(), self._body, asked)

        return await anyio.to_thread.run_sync(look)

    async def propose_merges(self, keep: int) -> list[Proposal]:
        """Everything is packed first, and nothing changes before a person agrees."""
        found = (await self.alike())[:AT_ONCE]
        if keep and found:
            await anyio.to_thread.run_sync(self._back_up, keep)
        return [
            await propose_merge(self._editor, pair, partial(self._body_of, pair.drop))
            for pair in found
        ]

    def _body_of(self, name: str) -> str:
        skill = self._shelf.find(name)
        return "" if skill is None else self._body(skill)

    def _body(self, skill: Skill) -> str:
        return self._shelf.read(skill).body

    def _note(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        stamp = self._clock.now().isoformat().encode()
        write_atomic(self._folder / _STATE, stamp, mode=0o600)

    def _back_up(self, keep: int) -> None:
        """Everything as it is now, in one archive; the oldest beyond `keep` go."""
        folder = self._folder / BACKUPS
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
        first = path.relative_to(folder).parts[0]
        if first not in {BACKUPS, ARCHIVE} and path.is_file() and not path.is_symlink():
            yield path


def _last_used(record: Record) -> datetime | None:
    times = [
        record.created_at, record.last_viewed_at, record.last_used_at, record.last_patched_at,
    ]  # fmt: skip
    return max((time for time in times if time is not None), default=None)


def _state(days: int, ages: Ages) -> str:
    if ages.archive and days >= ages.archive:
        return ARCHIVED
    return STALE if ages.stale and days >= ages.stale else ACTIVE
