"""Where skills are found, and what each is about; read again only when its file has changed."""

import logging
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from hermes.kit.files import read_ordinary, write_atomic
from hermes.kit.text import one_line
from hermes.skills.document import MAX_TEXT, BadSkill, Document, Head, parse

log = logging.getLogger(__name__)

FILE = "SKILL.md"
BUILTIN = Path(__file__).with_name("builtin")
DEEPEST = 4
MOST = 2_000
_FORMAT = 1
_LARGEST = MAX_TEXT * 4

Stamp = tuple[int, int, int]


class Skill(Struct, frozen=True, kw_only=True):
    """One skill that was found. Only those under the home's own folder may be changed."""

    name: str
    folder: str
    category: str
    head: Head
    own: bool
    builtin: bool = False

    @property
    def file(self) -> Path:
        return Path(self.folder) / FILE


class _Known(Struct, frozen=True):
    stamp: Stamp
    head: Head | None
    trouble: str = ""


class _Snapshot(Struct, frozen=True):
    format: int
    heads: dict[str, _Known]


class Shelf:
    """All skills of a profile. The first folder that has a name wins: the person's own."""

    def __init__(
        self, own: Path, elsewhere: Sequence[Path] = (), snapshot: Path | None = None
    ) -> None:
        self._own = own
        self._folders = (own, *elsewhere, BUILTIN)
        self._snapshot = snapshot
        self._known: dict[str, _Known] | None = None
        self._troubles: dict[str, str] = {}

    def skills(self) -> list[Skill]:
        """By name. Cheap when nothing changed: one look at each file."""
        known = self._known if self._known is not None else self._load()
        seen: dict[str, _Known] = {}
        found: dict[str, Skill] = {}
        self._troubles = {}
        for root in self._folders:
            for folder, stamp in _skill_folders(root):
                file = f"{folder}/{FILE}"
                one = seen[file] = _look(file, stamp, known.get(file))
                if one.head is None:
                    self._troubles[file] = one.trouble
                    continue
                skill = self._skill(root, folder, one.head)
                found.setdefault(skill.name, skill)
        if seen != known:
            self._save(seen)
        self._known = seen
        return sorted(found.values(), key=lambda skill: skill.name)

    def find(self, name: str) -> Skill | None:
        """By its name, with or without its category, or by its folder's name."""
        wanted = name.strip().strip("/").rpartition("/")[2].lower()
        skills = self.skills()
        exact = [skill for skill in skills if skill.name.lower() == wanted]
        folder = [skill for skill in skills if Path(skill.folder).name.lower() == wanted]
        return next(iter(exact or folder), None)

    def troubles(self) -> dict[str, str]:
        """Files that cannot be used, and why."""
        self.skills()
        return dict(self._troubles)

    def read(self, skill: Skill) -> Document:
        """Raises `BadSkill`."""
        return _document(skill.file)

    def _skill(self, root: Path, folder: str, head: Head) -> Skill:
        # Text, not paths: there may be hundreds, and every new session looks at all of them.
        between = folder[len(str(root)) :].strip("/").split("/")[:-1]
        return Skill(
            name=head.name,
            folder=folder,
            category=head.category or "/".join(between) or "general",
            head=head,
            own=root == self._own,
            builtin=root == BUILTIN,
        )

    def _load(self) -> dict[str, _Known]:
        if self._snapshot is None:
            return {}
        try:
            kept = msgspec.json.decode(read_ordinary(self._snapshot, 16_000_000), type=_Snapshot)
        except (OSError, msgspec.DecodeError):
            return {}
        return kept.heads if kept.format == _FORMAT else {}

    def _save(self, known: dict[str, _Known]) -> None:
        if self._snapshot is None:
            return
        try:
            write_atomic(self._snapshot, msgspec.json.encode(_Snapshot(_FORMAT, known)), mode=0o600)
        except OSError as error:
            log.debug("the skills are not remembered: %s", error)


def _skill_folders(root: Path) -> Iterator[tuple[str, Stamp]]:
    """Folders with a SKILL.md, in a steady order; what is inside of one is its own business."""
    stack = [(str(root), 0)]
    count = 0
    while stack and count < MOST:
        folder, depth = stack.pop()
        # Most are skills: to ask for the file is cheaper than to list what is there.
        stamp = _stamp(f"{folder}/{FILE}") if depth else None
        if stamp is not None:
            count += 1
            yield folder, stamp
        elif depth < DEEPEST:
            stack.extend((f"{folder}/{name}", depth + 1) for name in _folders_in(folder))


def _folders_in(folder: str) -> list[str]:
    """The last first."""
    try:
        with os.scandir(folder) as entries:
            names = [one.name for one in entries if one.name[0] != "." and one.is_dir()]
    except OSError:
        return []
    return sorted(names, reverse=True)


def _stamp(file: str) -> Stamp | None:
    try:
        stat = os.stat(file)  # noqa: PTH116 - as above
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino


def _look(file: str, stamp: Stamp, known: _Known | None) -> _Known:
    if known is not None and known.stamp == stamp:
        return known
    try:
        return _Known(stamp, _document(Path(file)).head)
    except BadSkill as error:
        log.warning("a skill is left out: %s", error)
        return _Known(stamp, None, one_line(str(error), 300))


def _document(file: Path) -> Document:
    try:
        data = read_ordinary(file, _LARGEST)
    except OSError as error:
        raise BadSkill(f"{file} cannot be read: {error.strerror}.") from error
    return parse(data.decode("utf-8", "replace"), file)
