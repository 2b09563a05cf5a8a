"""Skills from elsewhere: let in as one change, known by their content, compared with it later."""

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

import anyio
import msgspec
from msgspec import Struct

from hermes.kit.clock import Clock
from hermes.kit.ids import new_id
from hermes.learning.ledger.change import Author, Change, ChangeOrigin, FileEdit, read_if_present
from hermes.learning.ledger.ledger import Ledger
from hermes.learning.skills.catalog import SkillCatalog
from hermes.learning.skills.document import InvalidSkill
from hermes.learning.skills.editor import SKILL_KIND
from hermes.learning.skills.packages import SkillPackage, digest, fingerprint
from hermes.learning.skills.usage import INSTALLED, SkillUsageLog

INSTALLED_FILE = "skills/.installed.json"


class InstalledSkill(Struct, frozen=True, kw_only=True):
    """Where a skill came from, and the digest of each of its files as they came."""

    source: str
    folder: str
    hash: str
    at: datetime
    files: Mapping[str, str]
    path: str = ""


class LocalChanges(Struct, frozen=True, kw_only=True):
    """How a skill on the disk differs from the one that was let in."""

    changed: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    added: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.changed or self.missing or self.added)

    @property
    def touched(self) -> tuple[str, ...]:
        """What somebody wrote that is not in what came."""
        return (*self.changed, *self.added)


class PreparedInstall(Struct, frozen=True, kw_only=True):
    """All that letting it in would do, to be shown first; `mine` are files somebody changed."""

    package: SkillPackage
    edits: tuple[FileEdit, ...]
    record: InstalledSkill
    mine: tuple[str, ...] = ()
    update: bool = False

    @property
    def nothing_new(self) -> bool:
        return all(edit.before == edit.after for edit in self.edits)


class SkillInstaller:
    def __init__(
        self, home: Path, shelf: SkillCatalog, usage: SkillUsageLog, ledger: Ledger, clock: Clock
    ) -> None:
        self._home = home
        self._catalog = shelf
        self._usage = usage
        self._ledger = ledger
        self._clock = clock

    def installed(self) -> dict[str, InstalledSkill]:
        """Raises `BadSkill` when the book cannot be read: then nothing is known of anything."""
        return self._book()[0]

    def deviation(self, record: InstalledSkill) -> LocalChanges:
        there = self._there(record.folder)
        known = record.files
        return LocalChanges(
            changed=tuple(p for p, d in there.items() if p in known and known[p] != digest(d)),
            missing=tuple(path for path in known if path not in there),
            added=tuple(path for path in there if path not in known),
        )

    def prepare(
        self, package: SkillPackage, source: str, path: str = "", category: str = ""
    ) -> PreparedInstall:
        """Raises `BadSkill` when there is a skill of that name that did not come this way."""
        book, _ = self._book()
        record = book.get(package.name)
        found = self._catalog.find(package.name)
        if record is None and found is not None and found.own and found.name == package.name:
            raise InvalidSkill(
                f"There is a skill {package.name} already, and it was not installed.",
                hint=f"`hermes skills archive {package.name}` puts it out of the way.",
            )
        parts = ["skills", *([category] if category else []), package.name]
        folder = record.folder if record is not None else "/".join(parts)
        there = self._there(folder)
        if record is None and there:
            raise InvalidSkill(f"{folder} is there already and has files in it.")
        names = sorted({*there, *package.files})
        # What the person put beside it stays; what came before and comes no more, goes.
        known: Mapping[str, str] = record.files if record is not None else {}
        edits = [
            FileEdit(f"{folder}/{name}", there.get(name), package.files.get(name))
            for name in names
            if name in package.files or name in known
        ]
        digests = {name: digest(data) for name, data in package.files.items()}
        fresh = InstalledSkill(
            source=source,
            folder=folder,
            hash=fingerprint(digests),
            at=self._clock.now(),
            files=digests,
            path=path,
        )
        mine = self.deviation(record).changed if record is not None else ()
        return PreparedInstall(
            package=package,
            edits=tuple(edits),
            record=fresh,
            mine=mine,
            update=record is not None,
        )

    async def install(self, prepared: PreparedInstall) -> Change:
        """Raises `Drifted` when a file was changed since it was prepared."""
        name = prepared.package.name
        book, data = await anyio.to_thread.run_sync(self._book)
        edits = [edit for edit in prepared.edits if edit.before != edit.after]
        edits.append(
            FileEdit(INSTALLED_FILE, data, _encode_installed({**book, name: prepared.record}))
        )
        verb = "update" if prepared.update else "install"
        change = Change(
            id=new_id("chg"),
            kind=SKILL_KIND,
            name=name,
            summary=f"{verb} {name}",
            by=Author.PERSON,
            at=self._clock.now(),
            edits=tuple(edits),
            origin=ChangeOrigin(words=(prepared.record.source,)),
            why=f"content {prepared.record.hash[:16]}",
        )
        await self._ledger.apply(change)
        await anyio.to_thread.run_sync(self._usage.created, name, INSTALLED)
        return change

    def _there(self, folder: str) -> dict[str, bytes]:
        root = self._home / folder
        files = sorted(path for path in root.rglob("*") if path.is_file())
        found = {path.relative_to(root).as_posix(): read_if_present(path) for path in files}
        return {path: data for path, data in found.items() if data is not None}

    def _book(self) -> tuple[dict[str, InstalledSkill], bytes | None]:
        data = read_if_present(self._home / INSTALLED_FILE)
        if data is None:
            return {}, None
        try:
            return msgspec.json.decode(data, type=dict[str, InstalledSkill]), data
        except msgspec.DecodeError as error:
            raise InvalidSkill(
                f"{self._home / INSTALLED_FILE} cannot be read: {error}.",
                hint="Mend it, or take it away.",
            ) from error


def _encode_installed(book: Mapping[str, InstalledSkill]) -> bytes:
    return msgspec.json.format(msgspec.json.encode(dict(sorted(book.items()))), indent=2) + b"\n"
