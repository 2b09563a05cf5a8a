"""Install skills from elsewhere: read and check packages, and detect later changes to them."""

import hashlib
import io
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path, PurePosixPath

import anyio
import msgspec
from msgspec import Struct

from hermes.kit.clock import Clock
from hermes.kit.files import read_regular_file
from hermes.kit.ids import new_id
from hermes.kit.injection_scan import injection_reason
from hermes.kit.json_errors import JSON_ERRORS
from hermes.learning.ledger import Ledger, read_if_present
from hermes.learning.skills.catalog import SKILL_FILE, SkillCatalog
from hermes.learning.skills.document import InvalidSkill, SkillMetadata, check_name, parse_skill
from hermes.learning.skills.editor import SKILL_KIND
from hermes.learning.skills.usage import INSTALLED, SkillUsageLog
from hermes.ports.ledger import Author, Change, ChangeOrigin, FileEdit

INSTALLED_FILE = "skills/.installed.json"
MAX_FILES = 500
MAX_FILE_BYTES = 1024 * 1024
MAX_TOTAL_BYTES = 16 * 1024 * 1024
MAX_ARCHIVE_BYTES = 32 * 1024 * 1024
IS_PROGRAM = "is a program"
_MAX_DEPTH = 12
_MAX_PATH = 400


class SkillPackage(Struct, frozen=True, kw_only=True):
    """One skill: its files by their paths in its folder."""

    head: SkillMetadata
    files: Mapping[str, bytes]

    @property
    def name(self) -> str:
        return self.head.name

    @property
    def fingerprint(self) -> str:
        return fingerprint({path: digest(data) for path, data in self.files.items()})


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def fingerprint(digests: Mapping[str, str]) -> str:
    """A digest of all files and their names."""
    lines = "".join(f"{digests[path]}  {path}\n" for path in sorted(digests))
    return digest(lines.encode())


def read_folder(folder: Path) -> dict[str, bytes]:
    """All files in it, except hidden ones. Raises `InvalidSkill`."""
    files = _FileCollector()
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder)
        if any(part.startswith(".") for part in relative.parts):
            continue
        if path.is_symlink():
            raise InvalidSkill(f"{relative} is a symbolic link; a skill must contain its files.")
        if path.is_dir():
            continue
        try:
            files.add(relative.as_posix(), read_regular_file(path, MAX_FILE_BYTES))
        except OSError as error:
            raise InvalidSkill(f"{relative} cannot be read: {error.strerror}.") from error
    return files.found


def read_archive(data: bytes, name: str = "The file") -> dict[str, bytes]:
    """The files of a .zip, .tar or .tar.gz, whatever its `name`. Raises `InvalidSkill`."""
    if len(data) > MAX_ARCHIVE_BYTES:
        raise InvalidSkill(f"The archive is larger than {MAX_ARCHIVE_BYTES:,} bytes.")
    files = _FileCollector()
    try:
        members = _zip_members(data) if data[:2] == b"PK" else _tar_members(data, name)
        for path, content in members:
            files.add(path, content)
    except (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, OSError) as error:
        raise InvalidSkill(f"The archive cannot be read: {error}.") from error
    except (NotImplementedError, RuntimeError, ValueError) as error:
        raise InvalidSkill(f"The archive has an unsupported format: {error}.") from error
    return {path: content for path, content in files.found.items() if not _is_hidden(path)}


def find_packages(files: Mapping[str, bytes]) -> dict[str, SkillPackage]:
    """The skills among these files, by folder. Raises `InvalidSkill`."""
    paths = map(PurePosixPath, files)
    folders = [path.parent for path in paths if path.name == SKILL_FILE]
    # Nested skills belong to the outer one.
    roots = [folder for folder in folders if not any(up in folders for up in folder.parents)]
    return {str(root): _read_package(root, files) for root in sorted(roots)}


def scan_package(package: SkillPackage) -> list[str]:
    """Return hints about what a person should check before installing."""
    found: list[str] = []
    for path, data in sorted(package.files.items()):
        try:
            text = data.decode()
        except UnicodeDecodeError:
            found.append(f"{path} is not text and was not checked")
            continue
        if why := injection_reason(text):
            found.append(f"{path} {why}")
        if text.startswith("#!") or PurePosixPath(path).parts[0] == "scripts":
            found.append(f"{path} {IS_PROGRAM}")
    return found


class _FileCollector:
    def __init__(self) -> None:
        self.found: dict[str, bytes] = {}
        self._known: set[str] = set()
        self._size = 0

    def add(self, path: str, data: bytes) -> None:
        self._size += len(data)
        too_large = self._size > MAX_TOTAL_BYTES or len(data) > MAX_FILE_BYTES
        if too_large or len(self.found) >= MAX_FILES:
            raise InvalidSkill(
                f"The skill is too large: at most {MAX_FILES} files, {MAX_FILE_BYTES:,} bytes each "
                f"and {MAX_TOTAL_BYTES:,} in total."
            )
        name = _check_path(path)
        # Names that differ only in case would overwrite each other on some disks.
        if name.casefold() in self._known:
            raise InvalidSkill(f"{name} occurs twice.")
        self._known.add(name.casefold())
        self.found[name] = data


def _check_path(path: str) -> str:
    parts = PurePosixPath(path).parts
    invalid = (
        not parts
        or path.startswith(("/", "\\"))
        or ".." in parts
        or "\\" in path
        or ":" in parts[0]
        or any(ord(char) < ord(" ") or ord(char) == 0x7F for char in path)
        or len(parts) > _MAX_DEPTH
        or len(path) > _MAX_PATH
    )
    if invalid:
        raise InvalidSkill(f"{path[:80]!r} is not a valid path in a skill.")
    return "/".join(parts)


def _zip_members(data: bytes) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = archive.infolist()
        if len(members) > 4 * MAX_FILES:
            raise InvalidSkill(f"The archive has {len(members):,} members.")
        for member in members:
            kind = stat.S_IFMT(member.external_attr >> 16)
            if member.is_dir():
                continue
            if kind not in {0, stat.S_IFREG}:
                raise InvalidSkill(f"{member.filename[:80]!r} is a link or a device.")
            with archive.open(member) as file:
                # The size in the archive may be wrong: one byte more reveals it.
                yield member.filename, file.read(MAX_FILE_BYTES + 1)


def _tar_members(data: bytes, name: str) -> Iterator[tuple[str, bytes]]:
    try:
        opened = tarfile.open(fileobj=io.BytesIO(_decompress(data)), mode="r:")  # noqa: SIM115 - closed below
    except tarfile.ReadError as error:
        raise InvalidSkill(
            f"{name} is not an archive.", hint="Give the folder that contains SKILL.md, or a .zip."
        ) from error
    with opened as archive:
        for count, member in enumerate(archive):
            if count > 4 * MAX_FILES:
                raise InvalidSkill("The archive has too many members.")
            if member.isdir():
                continue
            if not member.isreg():
                raise InvalidSkill(f"{member.name[:80]!r} is a link or a device.")
            if member.size > MAX_FILE_BYTES:
                yield member.name, b"\0" * (MAX_FILE_BYTES + 1)
                return
            file = archive.extractfile(member)
            yield member.name, file.read() if file is not None else b""


def _decompress(data: bytes) -> bytes:
    """Decompress up to the size limit: a few bytes can expand to very many."""
    if data[:2] != b"\x1f\x8b":
        return data
    limit = 2 * MAX_TOTAL_BYTES
    decompressor = zlib.decompressobj(wbits=31)
    found = decompressor.decompress(data, limit)
    if decompressor.unconsumed_tail or len(found) >= limit:
        raise InvalidSkill(f"The archive holds more than {limit:,} bytes.")
    return found


def _is_hidden(path: str) -> bool:
    return any(part.startswith(".") for part in path.split("/")) or path.startswith("__MACOSX/")


def _read_package(root: PurePosixPath, files: Mapping[str, bytes]) -> SkillPackage:
    inside = {
        PurePosixPath(path).relative_to(root).as_posix(): data
        for path, data in files.items()
        if PurePosixPath(path).is_relative_to(root)
    }
    document = parse_skill(inside[SKILL_FILE].decode("utf-8", "replace"), Path(root) / SKILL_FILE)
    check_name(document.head.name)
    return SkillPackage(head=document.head, files=inside)


class InstalledSkill(Struct, frozen=True, kw_only=True):
    """Where a skill came from, and the digests of its original files."""

    source: str
    folder: str
    hash: str
    at: datetime
    files: Mapping[str, str]
    path: str = ""


class LocalChanges(Struct, frozen=True, kw_only=True):
    changed: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    added: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.changed or self.missing or self.added)


class PreparedInstall(Struct, frozen=True, kw_only=True):
    """Everything the installation would do, to be shown first."""

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
        return PreparedInstall(
            package=package,
            edits=tuple(edits),
            record=InstalledSkill(
                source=source,
                folder=folder,
                hash=fingerprint(digests),
                at=self._clock.now(),
                files=digests,
                path=path,
            ),
            locally_changed=self.local_changes(record).changed if record is not None else (),
            update=record is not None,
        )

    async def install(self, prepared: PreparedInstall) -> Change:
        """Raises `FileConflict` when a file changed since it was prepared."""
        name = prepared.package.name
        installed, data = await anyio.to_thread.run_sync(self._read_installed)
        edits = [edit for edit in prepared.edits if edit.before != edit.after]
        listed = _encode_installed({**installed, name: prepared.record})
        edits.append(FileEdit(INSTALLED_FILE, data, listed))
        verb = "update" if prepared.update else "install"
        change = Change(
            id=new_id("chg"),
            kind=SKILL_KIND,
            name=name,
            summary=f"{verb} {name}",
            by=Author.PERSON,
            at=self._clock.now(),
            edits=tuple(edits),
            origin=ChangeOrigin(sources=(prepared.record.source,)),
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
        except JSON_ERRORS as error:
            raise InvalidSkill(
                f"{self._home / INSTALLED_FILE} cannot be read: {error}.",
                hint="Repair or remove it.",
            ) from error


def _encode_installed(installed: Mapping[str, InstalledSkill]) -> bytes:
    data = msgspec.json.encode(dict(sorted(installed.items())))
    return msgspec.json.format(data, indent=2) + b"\n"
