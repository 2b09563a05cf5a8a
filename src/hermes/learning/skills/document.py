"""The files of skills: SKILL.md with a YAML header, and bundles of several skills."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec import Struct

from hermes.config.plain_yaml import read_plain_yaml
from hermes.kit.errors import ConfigError, HermesError
from hermes.kit.files import read_regular_file

MAX_NAME = 64
MAX_DESCRIPTION = 1024
MAX_TEXT = 100_000
BUNDLE_FOLDER = "skill-bundles"
"""Next to the skills; one file each, as in the public system."""
_SUFFIXES = (".yaml", ".yml")
_MAX_BYTES = 100_000
_MAX_BUNDLES = 200
_FRONT_MATTER = re.compile(r"\A\ufeff?---[ \t]*\r?\n(.*?)\r?\n---[ \t]*(?:\r?\n|\Z)", re.DOTALL)
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")


class InvalidSkill(HermesError):
    """A SKILL.md that cannot be used, and why."""

    code = "bad_skill"


class SkillVariable(Struct, frozen=True, kw_only=True):
    name: str
    prompt: str = ""
    help: str = ""


class SkillMetadata(Struct, frozen=True, kw_only=True):
    """The YAML header; missing lists are empty."""

    name: str
    description: str
    version: str = ""
    author: str = ""
    platforms: tuple[str, ...] = ()
    environments: tuple[str, ...] = ()
    variables: tuple[SkillVariable, ...] = ()
    commands: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    related: tuple[str, ...] = ()
    category: str = ""
    requires_toolsets: tuple[str, ...] = ()
    requires_tools: tuple[str, ...] = ()
    fallback_for_toolsets: tuple[str, ...] = ()
    fallback_for_tools: tuple[str, ...] = ()


class SkillDocument(Struct, frozen=True):
    head: SkillMetadata
    body: str


def parse_skill(text: str, file: Path) -> SkillDocument:
    """Raises `InvalidSkill` with what to change."""
    if len(text) > MAX_TEXT:
        raise InvalidSkill(f"{file} is longer than {MAX_TEXT:,} characters.")
    found = _FRONT_MATTER.match(text)
    if found is None:
        raise InvalidSkill(f"{file} does not start with a YAML header between two --- lines.")
    return SkillDocument(
        _metadata(parse_mapping(found[1], file), file), text[found.end() :].lstrip("\r\n")
    )


def check_name(name: str) -> str:
    """Raises `InvalidSkill` for what cannot be used as a folder and as a command."""
    if len(name) > MAX_NAME or not _NAME.fullmatch(name) or ".." in name:
        raise InvalidSkill(
            f"{name[:80]!r} cannot be the name of a skill.",
            hint="Use up to 64 lowercase letters, digits, dots, hyphens and underscores.",
        )
    return name


def parse_mapping(text: str, file: Path) -> dict[str, Any]:
    """Parse YAML; most headers are simple enough not to need the YAML library."""
    plain = read_plain_yaml(text)
    return _full_yaml(text, file) if plain is None else cast("dict[str, Any]", plain)


def _full_yaml(text: str, file: Path) -> dict[str, Any]:
    import yaml  # noqa: PLC0415 - slow to load, and seldom needed

    from hermes.config.yaml_parser import check_limits  # noqa: PLC0415 - as above

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        events = cast("Iterable[yaml.Event]", yaml.parse(text, Loader=loader))  # pyright: ignore[reportUnknownMemberType] - it has no types
        check_limits(events, file)
        header: object = yaml.load(text, Loader=loader)  # noqa: S506 a safe loader
    except ConfigError as error:
        raise InvalidSkill(str(error), hint=error.hint) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InvalidSkill(f"The header of {file} is not valid YAML: {first}.") from error
    if not isinstance(header, dict):
        raise InvalidSkill(f"The header of {file} must be a mapping.")
    return cast("dict[str, Any]", header)


def _metadata(table: dict[str, Any], file: Path) -> SkillMetadata:
    name, description = scalar_text(table.get("name")), scalar_text(table.get("description"))
    if not name or not description:
        raise InvalidSkill(f"{file} needs a `name` and a `description` in its header.")
    if len(name) > MAX_NAME or len(description) > MAX_DESCRIPTION:
        raise InvalidSkill(
            f"In {file}, `name` may have at most {MAX_NAME} characters and `description` "
            f"{MAX_DESCRIPTION}."
        )
    ours = _dict(_dict(table.get("metadata")).get("hermes"))
    needs = _dict(table.get("prerequisites"))
    return SkillMetadata(
        name=name,
        description=" ".join(description.split()),
        version=scalar_text(table.get("version")),
        author=scalar_text(table.get("author")),
        platforms=name_list(table.get("platforms")),
        environments=name_list(table.get("environments")),
        variables=_variables(table, needs),
        commands=name_list(needs.get("commands")),
        tags=name_list(ours.get("tags") or table.get("tags")),
        related=name_list(ours.get("related_skills")),
        category=scalar_text(ours.get("category") or table.get("category")),
        requires_toolsets=name_list(ours.get("requires_toolsets")),
        requires_tools=name_list(ours.get("requires_tools")),
        fallback_for_toolsets=name_list(ours.get("fallback_for_toolsets")),
        fallback_for_tools=name_list(ours.get("fallback_for_tools")),
    )


def _variables(table: dict[str, Any], needs: dict[str, Any]) -> tuple[SkillVariable, ...]:
    """Listed as plain names or as mappings with a name."""
    found: dict[str, SkillVariable] = {}
    value = table.get("required_environment_variables")
    listed = cast("list[object]", value) if isinstance(value, list) else []
    for one in [*listed, *name_list(needs.get("env_vars"))]:
        try:
            variable = msgspec.convert(_dict(one) or {"name": str(one)}, SkillVariable)
        except msgspec.ValidationError:
            continue
        found.setdefault(variable.name, variable)
    return tuple(found.values())


def scalar_text(value: object) -> str:
    return "" if value is None or isinstance(value, dict | list) else str(value).strip()


def _dict(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def name_list(value: object) -> tuple[str, ...]:
    """A list, or names separated by commas."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    if not isinstance(value, list):
        return ()
    return tuple(text for item in cast("list[object]", value) if (text := scalar_text(item)))


class Bundle(Struct, frozen=True, kw_only=True):
    """`/<bundle>` makes the agent follow several skills."""

    name: str
    skills: tuple[str, ...]
    description: str = ""
    instruction: str = ""


def find_bundle(home: Path, name: str) -> Bundle | None:
    """None even for an invalid file."""
    try:
        check_name(name)
    except InvalidSkill:
        return None
    found = (_read_bundle(home / BUNDLE_FOLDER / f"{name}{end}") for end in _SUFFIXES)
    return next((bundle for bundle in found if bundle is not None), None)


def list_bundles(home: Path) -> list[Bundle]:
    try:
        paths = sorted((home / BUNDLE_FOLDER).iterdir())
    except OSError:
        return []
    files = [path for path in paths if path.suffix in _SUFFIXES][:_MAX_BUNDLES]
    found = {path.stem: bundle for path in files if (bundle := _read_bundle(path)) is not None}
    return list(found.values())


def bundle_file(home: Path, name: str) -> str | None:
    files = [f"{BUNDLE_FOLDER}/{check_name(name)}{end}" for end in _SUFFIXES]
    return next((file for file in files if (home / file).is_file()), None)


def encode_bundle(bundle: Bundle) -> tuple[str, bytes]:
    """The path of the file in the home, and its content."""
    texts = {"description": bundle.description, "instruction": bundle.instruction}
    # A JSON string is valid YAML, whatever it contains.
    lines = [f"{key}: {msgspec.json.encode(text).decode()}" for key, text in texts.items() if text]
    lines += ["skills:", *(f"  - {check_name(name)}" for name in bundle.skills)]
    return f"{BUNDLE_FOLDER}/{check_name(bundle.name)}.yaml", ("\n".join(lines) + "\n").encode()


def _read_bundle(path: Path) -> Bundle | None:
    try:
        values = parse_mapping(read_regular_file(path, _MAX_BYTES).decode("utf-8", "replace"), path)
        name = check_name(path.stem)
    except (OSError, InvalidSkill):
        return None
    skills = tuple(dict.fromkeys(name_list(values.get("skills"))))
    if not skills:
        return None
    return Bundle(
        name=name,
        skills=skills,
        description=" ".join(scalar_text(values.get("description")).split()),
        instruction=scalar_text(values.get("instruction")),
    )
