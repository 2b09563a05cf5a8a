"""Install skills from elsewhere, and detect later changes by their content."""

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
    """Where a skill came from, and the digests of its original files."""

    source: str
    folder: str
    hash: str
    at: datetime
    files: Mapping[str, str]
    path: str = ""


class LocalChanges(Struct, frozen=True, kw_only=True):
    """How an installed skill differs from its original."""

    changed: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    added: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.changed or self.missing or self.added)

    @property
    def modified_files(self) -> tuple[str, ...]:
        """Files that were changed or added after the installation."""
        return (*self.changed, *self.added)


class PreparedInstall(Struct, frozen=True, kw_only=True):
    """Everything the installation would do, to be shown first; `mine` are locally changed files."""

    package: SkillPackage
    edits: tuple[FileEdit, ...]
    record: InstalledSkill
    locally_changed: tuple[str, ...] = ()
    update: bool = False

    @property
    def is_unchanged(self) -> bool:
        return all(edit.before == edit.after for edit in self.edits)


class SkillInstaller:
    def __init__(
        self, home: Path, catalog: SkillCatalog, usage: SkillUsageLog, ledger: Ledger, clock: Clock
    ) -> None:
        self._home = home
        self._catalog = catalog
        self._usage = usage
        self._ledger = ledger
        self._clock = clock

    def installed(self) -> dict[str, InstalledSkill]:
        """Raises `InvalidSkill` when the list cannot be read."""
        return self._read_installed()[0]

    def local_changes(self, record: InstalledSkill) -> LocalChanges:
        existing = self._files_in(record.folder)
        known = record.files
        return LocalChanges(
            changed=tuple(p for p, d in existing.items() if p in known and known[p] != digest(d)),
            missing=tuple(path for path in known if path not in existing),
            added=tuple(path for path in existing if path not in known),
        )

    def prepare(
        self, package: SkillPackage, source: str, path: str = "", category: str = ""
    ) -> PreparedInstall:
        """Raises `InvalidSkill` if a skill of that name exists that was not installed."""
        installed, _ = self._read_installed()
        record = installed.get(package.name)
        found = self._catalog.find(package.name)
        if record is None and found is not None and found.own and found.name == package.name:
            raise InvalidSkill(
                f"A skill {package.name} already exists that was not installed from a source.",
                hint=f"Archive it first: hermes skills archive {package.name}",
            )
        parts = ["skills", *([category] if category else []), package.name]
        folder = record.folder if record is not None else "/".join(parts)
        existing = self._files_in(folder)
        if record is None and existing:
            raise InvalidSkill(f"{folder} already exists and is not empty.")
        names = sorted({*existing, *package.files})
        # Files added by the user stay; installed files that are no longer part of it are removed.
        known: Mapping[str, str] = record.files if record is not None else {}
        edits = [
            FileEdit(f"{folder}/{name}", existing.get(name), package.files.get(name))
            for name in names
            if name in package.files or name in known
        ]
        digests = {name: digest(data) for name, data in package.files.items()}
        installed_skill = InstalledSkill(
            source=source,
            folder=folder,
            hash=fingerprint(digests),
            at=self._clock.now(),
            files=digests,
            path=path,
        )
        mine = self.local_changes(record).changed if record is not None else ()
        return PreparedInstall(
            package=package,
            edits=tuple(edits),
            record=installed_skill,
            locally_changed=mine,
            update=record is not None,
        )

    async def install(self, prepared: PreparedInstall) -> Change:
        """Raises `FileConflict` when a file changed since it was prepared."""
        name = prepared.package.name
        installed, data = await anyio.to_thread.run_sync(self._read_installed)
        edits = [edit for edit in prepared.edits if edit.before != edit.after]
        edits.append(
            FileEdit(INSTALLED_FILE, data, _encode_installed({**installed, name: prepared.record}))
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

    def _files_in(self, folder: str) -> dict[str, bytes]:
        root = self._home / folder
        files = sorted(path for path in root.rglob("*") if path.is_file())
        found = {path.relative_to(root).as_posix(): read_if_present(path) for path in files}
        return {path: data for path, data in found.items() if data is not None}

    def _read_installed(self) -> tuple[dict[str, InstalledSkill], bytes | None]:
        data = read_if_present(self._home / INSTALLED_FILE)
        if data is None:
            return {}, None
        try:
            return msgspec.json.decode(data, type=dict[str, InstalledSkill]), data
        except msgspec.DecodeError as error:
            raise InvalidSkill(
                f"{self._home / INSTALLED_FILE} cannot be read: {error}.",
                hint="Repair or remove it.",
            ) from error


def _encode_installed(installed: Mapping[str, InstalledSkill]) -> bytes:
    return (
        msgspec.json.format(msgspec.json.encode(dict(sorted(installed.items()))), indent=2) + b"\n"
    )
