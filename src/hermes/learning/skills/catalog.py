"""Find skills and cache their metadata until their files change."""

import logging
import os
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from itertools import groupby
from operator import attrgetter
from pathlib import Path

import msgspec
from msgspec import Struct

from hermes.kit.files import read_regular_file, write_atomic
from hermes.kit.text import one_line
from hermes.learning.skills.document import (
    MAX_TEXT,
    InvalidSkill,
    SkillDocument,
    SkillMetadata,
    parse_skill,
)

log = logging.getLogger(__name__)

SKILL_FILE = "SKILL.md"
BUILTIN_SKILLS = Path(__file__).with_name("builtin")
MAX_DEPTH = 4
MAX_SKILLS = 2_000
_SNAPSHOT_FORMAT = 1
_MAX_BYTES = MAX_TEXT * 4

FileStamp = tuple[int, int, int]


class Skill(Struct, frozen=True, kw_only=True):
    """A skill on disk. Only skills in the profile's own skills folder can be changed."""

    name: str
    folder: str
    category: str
    head: SkillMetadata
    own: bool
    builtin: bool = False

    @property
    def file(self) -> Path:
        return Path(self.folder) / SKILL_FILE


_UNREAD: FileStamp = (0, 0, 0)


class _CachedSkill(Struct, frozen=True):
    stamp: FileStamp
    head: SkillMetadata | None
    problem: str = ""


class _Snapshot(Struct, frozen=True):
    format: int
    heads: dict[str, _CachedSkill]


class SkillCatalog(Struct, eq=False):
    """All skills of a profile: its own, those of folders elsewhere, and the built-in ones.

    If several have the same name, the first one is used. What was read is kept in `snapshot`.
    """

    _own: Path
    _elsewhere: Sequence[Path] = ()
    snapshot: Path | None = None
    _known: dict[str, _CachedSkill] | None = None
    _problems: dict[str, str] = {}

    def skills(self) -> list[Skill]:
        """All skills by name. Cheap when nothing changed: one stat per file."""
        known = self._known if self._known is not None else self._load()
        seen: dict[str, _CachedSkill] = {}
        found: dict[str, Skill] = {}
        self._problems = {}
        for root in (self._own, *self._elsewhere, BUILTIN_SKILLS):
            for folder, stamp in _skill_folders(root):
                file = f"{folder}/{SKILL_FILE}"
                cached = known.get(file)
                if cached is None or cached.stamp != stamp:
                    cached = _read_skill(file, stamp)
                seen[file] = cached
                if cached.head is None:
                    self._problems[file] = cached.problem
                    continue
                if cached.head.name not in found:
                    # String paths, because every new session checks all skills, and there may be
                    # hundreds.
                    between = folder[len(str(root)) :].strip("/").split("/")[:-1]
                    found[cached.head.name] = Skill(
                        name=cached.head.name,
                        folder=folder,
                        category=cached.head.category or "/".join(between) or "general",
                        head=cached.head,
                        own=root == self._own,
                        builtin=root == BUILTIN_SKILLS,
                    )
        if seen != known:
            self._save(seen)
        self._known = seen
        return [found[name] for name in sorted(found)]

    def find(self, name: str) -> Skill | None:
        """Find a skill by its name or its folder's name; a category before it is ignored."""
        wanted = name.strip().strip("/").rpartition("/")[2].lower()
        skills = self.skills()
        exact = [skill for skill in skills if skill.name.lower() == wanted]
        folder = [skill for skill in skills if Path(skill.folder).name.lower() == wanted]
        return next(iter(exact or folder), None)

    def problems(self) -> dict[str, str]:
        self.skills()
        return dict(self._problems)

    def read(self, skill: Skill) -> SkillDocument:
        """Raises `InvalidSkill`."""
        return _read_document(skill.file)

    def _load(self) -> dict[str, _CachedSkill]:
        if self.snapshot is None:
            return {}
        try:
            data = read_regular_file(self.snapshot, 16_000_000)
            snapshot = msgspec.json.decode(data, type=_Snapshot)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            return {}
        return snapshot.heads if snapshot.format == _SNAPSHOT_FORMAT else {}

    def _save(self, known: dict[str, _CachedSkill]) -> None:
        if self.snapshot is None:
            return
        try:
            data = msgspec.json.encode(_Snapshot(_SNAPSHOT_FORMAT, known))
            write_atomic(self.snapshot, data, mode=0o600)
        except (OSError, UnicodeEncodeError) as error:
            log.debug("could not cache the skills: %s", error)


def _skill_folders(root: Path) -> Iterator[tuple[str, FileStamp]]:
    """Yield folders with a SKILL.md, in a stable order; their subfolders are not searched."""
    stack = [(str(root), 0)]
    count = 0
    while stack and count < MAX_SKILLS:
        folder, depth = stack.pop()
        # Most folders are skills, and checking for the file is cheaper than listing them.
        try:
            stat = os.stat(f"{folder}/{SKILL_FILE}") if depth else None  # noqa: PTH116 - faster
        except OSError:
            stat = None
        if stat is not None:
            count += 1
            yield folder, (stat.st_mtime_ns, stat.st_size, stat.st_ino)
        elif depth < MAX_DEPTH:
            with suppress(OSError), os.scandir(folder) as entries:
                names = [
                    entry.name
                    for entry in entries
                    if entry.name[0] != "."
                    # A link may lead nowhere, or to itself.
                    and (os.path.isdir(entry) if entry.is_symlink() else entry.is_dir())  # noqa: PTH112 - faster
                ]
                stack.extend((f"{folder}/{name}", depth + 1) for name in sorted(names)[::-1])


def _read_skill(file: str, stamp: FileStamp) -> _CachedSkill:
    try:
        return _CachedSkill(stamp, _read_document(Path(file)).head)
    except InvalidSkill as error:
        log.warning("skipped a skill: %s", error)
        # Retry unreadable files, because permissions are not part of the stamp.
        is_read = not isinstance(error.__cause__, OSError)
        return _CachedSkill(stamp if is_read else _UNREAD, None, one_line(str(error), 300))


def _read_document(file: Path) -> SkillDocument:
    try:
        data = read_regular_file(file, _MAX_BYTES)
    except OSError as error:
        raise InvalidSkill(f"{file} cannot be read: {error.strerror or error}.") from error
    return parse_skill(data.decode("utf-8", "replace"), file)


_SYSTEM_NAMES = {"linux": "linux", "darwin": "macos", "win32": "windows"}


class SkillEnvironment(Struct, frozen=True, kw_only=True):
    """What is available to skills here.

    `has_variable` and `has_program` are called only for names that a skill mentions.
    """

    tools: Collection[str]
    toolsets: Collection[str]
    has_variable: Callable[[str], bool]
    has_program: Callable[[str], bool]
    system: str = _SYSTEM_NAMES.get(sys.platform, sys.platform)
    environments: Collection[str] = ()
    disabled: Collection[str] = ()


class MissingRequirements(Struct, frozen=True, kw_only=True):
    variables: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.variables or self.programs)


def usable_skills(skills: Sequence[Skill], environment: SkillEnvironment) -> list[Skill]:
    """Skills to show to the model: for this system, with available tools, not disabled."""
    tools, toolsets = set(environment.tools), set(environment.toolsets)
    usable: list[Skill] = []
    for skill in skills:
        head = skill.head
        if skill.name in environment.disabled:
            continue
        if head.platforms and environment.system not in map(str.lower, head.platforms):
            continue
        if head.environments and not {*head.environments}.intersection(environment.environments):
            continue
        if not tools.issuperset(head.requires_tools):
            continue
        if not toolsets.issuperset(head.requires_toolsets):
            continue
        # A fallback is shown only if the preferred tool is missing.
        if tools.isdisjoint(head.fallback_for_tools) and toolsets.isdisjoint(
            head.fallback_for_toolsets
        ):
            usable.append(skill)
    return usable


def missing_requirements(head: SkillMetadata, environment: SkillEnvironment) -> MissingRequirements:
    return MissingRequirements(
        variables=tuple(v.name for v in head.variables if not environment.has_variable(v.name)),
        programs=tuple(name for name in head.commands if not environment.has_program(name)),
    )


_INDEX_HEADING = """# Skills

Before work that one of these covers, open it with skill_view and follow it."""
MAX_INDEX_DESCRIPTION = 200


def skill_index(skills: Sequence[Skill]) -> str:
    """Return the list of skills for the prompt, or "". The same skills give the same bytes."""
    if not skills:
        return ""
    ordered = sorted(skills, key=attrgetter("category", "name"))
    lines = [_INDEX_HEADING]
    for category, some in groupby(ordered, key=attrgetter("category")):
        lines.append(f"\n{category}:")
        for skill in some:
            text = skill.head.description
            if len(text) > MAX_INDEX_DESCRIPTION:
                text = f"{text[: MAX_INDEX_DESCRIPTION - 1].rstrip()}…"
            lines.append(f"- {skill.name}: {text}")
    return "\n".join(lines)
