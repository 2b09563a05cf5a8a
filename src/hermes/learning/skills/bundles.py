"""Skill bundles: `/<bundle>` makes the agent follow several skills."""

from pathlib import Path

import msgspec
from msgspec import Struct

from hermes.kit.files import read_regular_file
from hermes.learning.skills.document import (
    InvalidSkill,
    check_name,
    name_list,
    parse_mapping,
    scalar_text,
)

BUNDLE_FOLDER = "skill-bundles"
"""Next to the skills; one file each, as in the public system."""
_SUFFIXES = (".yaml", ".yml")
_MAX_BYTES = 100_000
_MAX_BUNDLES = 200


class Bundle(Struct, frozen=True, kw_only=True):
    name: str
    skills: tuple[str, ...]
    description: str = ""
    instruction: str = ""


def find_bundle(home: Path, name: str) -> Bundle | None:
    """None also for an invalid file."""
    try:
        check_name(name)
    except InvalidSkill:
        return None
    found = (_read_bundle(home / BUNDLE_FOLDER / f"{name}{end}") for end in _SUFFIXES)
    return next((bundle for bundle in found if bundle is not None), None)


def list_bundles(home: Path) -> list[Bundle]:
    """All bundles, sorted by name."""
    try:
        files = sorted(
            path for path in (home / BUNDLE_FOLDER).iterdir() if path.suffix in _SUFFIXES
        )
    except OSError:
        return []
    found = {
        path.stem: bundle
        for path in files[:_MAX_BUNDLES]
        if (bundle := _read_bundle(path)) is not None
    }
    return list(found.values())


def bundle_file(home: Path, name: str) -> str | None:
    """The path of a bundle's file in the home."""
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
