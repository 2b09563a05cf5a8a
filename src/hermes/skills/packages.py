"""A skill from elsewhere, read into memory and judged before anything of it touches the disk."""

import hashlib
import io
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from msgspec import Struct

from hermes.changes.scan import suspicion
from hermes.kit.files import read_ordinary
from hermes.skills.document import BadSkill, Head, check_name, parse
from hermes.skills.shelf import FILE

MOST_FILES = 500
LARGEST_FILE = 1024 * 1024
LARGEST = 16 * 1024 * 1024
LARGEST_ARCHIVE = 32 * 1024 * 1024
A_PROGRAM = "is a program"
_DEEPEST = 12
_LONGEST_PATH = 400


class Package(Struct, frozen=True, kw_only=True):
    """One skill: its files by their paths inside of its folder."""

    head: Head
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
    """Of all files together: the same files under the same names, and nothing else, have it."""
    lines = "".join(f"{digests[path]}  {path}\n" for path in sorted(digests))
    return digest(lines.encode())


def read_folder(folder: Path) -> dict[str, bytes]:
    """All files below it, without what begins with a dot. Raises `BadSkill`."""
    files = _Files()
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        if any(part.startswith(".") for part in inside.parts):
            continue
        if path.is_symlink():
            raise BadSkill(f"{inside} is a link; a skill brings its files itself.")
        if path.is_dir():
            continue
        try:
            files.add(inside.as_posix(), read_ordinary(path, LARGEST_FILE))
        except OSError as error:
            raise BadSkill(f"{inside} cannot be read: {error.strerror}.") from error
    return files.found


def read_archive(data: bytes) -> dict[str, bytes]:
    """The files of a .zip, .tar or .tar.gz, whatever it is called. Raises `BadSkill`."""
    if len(data) > LARGEST_ARCHIVE:
        raise BadSkill(f"The archive is larger than {LARGEST_ARCHIVE:,} bytes.")
    files = _Files()
    try:
        members = _zipped(data) if data[:2] == b"PK" else _tarred(data)
        for path, content in members:
            files.add(path, content)
    except (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, OSError) as error:
        raise BadSkill(f"The archive cannot be read: {error}.") from error
    except (NotImplementedError, RuntimeError, ValueError) as error:
        raise BadSkill(f"The archive is of a kind that is not read here: {error}.") from error
    return {path: content for path, content in files.found.items() if not _is_hidden(path)}


def packages_in(files: Mapping[str, bytes]) -> dict[str, Package]:
    """The skills among these files, by the folder they lie in. Raises `BadSkill`."""
    folders = [PurePosixPath(path).parent for path in files if PurePosixPath(path).name == FILE]
    # What lies inside of a skill is its own business.
    roots = [one for one in folders if not any(up in folders for up in one.parents)]
    return {str(root): _package(root, files) for root in sorted(roots)}


def findings(package: Package) -> list[str]:
    """What to look at twice before it is let in; a hint for the person, not a wall."""
    found: list[str] = []
    for path, data in sorted(package.files.items()):
        try:
            text = data.decode()
        except UnicodeDecodeError:
            found.append(f"{path} is not text and was not looked into")
            continue
        if why := suspicion(text):
            found.append(f"{path} {why}")
        if text.startswith("#!") or PurePosixPath(path).parts[0] == "scripts":
            found.append(f"{path} {A_PROGRAM}")
    return found


class _Files:
    """Collects what may be let in, and refuses what may not."""

    def __init__(self) -> None:
        self.found: dict[str, bytes] = {}
        self._known: set[str] = set()
        self._size = 0

    def add(self, path: str, data: bytes) -> None:
        self._size += len(data)
        if len(self.found) >= MOST_FILES or self._size > LARGEST or len(data) > LARGEST_FILE:
            raise BadSkill(
                f"This is too much for a skill: {MOST_FILES} files, {LARGEST_FILE:,} bytes each "
                f"and {LARGEST:,} altogether are the most."
            )
        name = _checked(path)
        # Two names that some disks take for one would hide a file behind another.
        if name.casefold() in self._known:
            raise BadSkill(f"{name} is there twice.")
        self._known.add(name.casefold())
        self.found[name] = data


def _checked(path: str) -> str:
    parts = PurePosixPath(path).parts
    bad = (
        not parts
        or path.startswith(("/", "\\"))
        or ".." in parts
        or "\\" in path
        or ":" in parts[0]
        or any(ord(mark) < ord(" ") or ord(mark) == 0x7F for mark in path)
        or len(parts) > _DEEPEST
        or len(path) > _LONGEST_PATH
    )
    if bad:
        raise BadSkill(f"{path[:80]!r} is no place for a file of a skill.")
    return "/".join(parts)


def _zipped(data: bytes) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = archive.infolist()
        if len(members) > 4 * MOST_FILES:
            raise BadSkill(f"The archive has {len(members):,} members.")
        for member in members:
            kind = stat.S_IFMT(member.external_attr >> 16)
            if member.is_dir():
                continue
            if kind not in {0, stat.S_IFREG}:
                raise BadSkill(f"{member.filename[:80]!r} is a link or a device.")
            with archive.open(member) as file:
                # What the archive says of its size may be a lie: one byte more tells.
                yield member.filename, file.read(LARGEST_FILE + 1)


def _tarred(data: bytes) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(fileobj=io.BytesIO(_unpacked(data)), mode="r:") as archive:
        for count, member in enumerate(archive):
            if count > 4 * MOST_FILES:
                raise BadSkill("The archive has too many members.")
            if member.isdir():
                continue
            if not member.isreg():
                raise BadSkill(f"{member.name[:80]!r} is a link or a device.")
            if member.size > LARGEST_FILE:
                yield member.name, b"\0" * (LARGEST_FILE + 1)
                return
            file = archive.extractfile(member)
            yield member.name, file.read() if file is not None else b""


def _unpacked(data: bytes) -> bytes:
    """No further than a skill can be large: a few bytes can stand for very many."""
    if data[:2] != b"\x1f\x8b":
        return data
    most = 2 * LARGEST
    unpacking = zlib.decompressobj(wbits=31)
    found = unpacking.decompress(data, most)
    if unpacking.unconsumed_tail or len(found) >= most:
        raise BadSkill(f"The archive holds more than {most:,} bytes.")
    return found


def _is_hidden(path: str) -> bool:
    return any(part.startswith(".") for part in path.split("/")) or path.startswith("__MACOSX/")


def _package(root: PurePosixPath, files: Mapping[str, bytes]) -> Package:
    inside = {
        PurePosixPath(path).relative_to(root).as_posix(): data
        for path, data in files.items()
        if PurePosixPath(path).is_relative_to(root)
    }
    document = parse(inside[FILE].decode("utf-8", "replace"), Path(root) / FILE)
    check_name(document.head.name)
    return Package(head=document.head, files=inside)
