"""Several skills under one name: `/<bundle>` has the agent follow all of them."""

from pathlib import Path

import msgspec
from msgspec import Struct

from hermes.kit.files import read_ordinary
from hermes.skills.document import BadSkill, check_name, names_in, table, text_in

FOLDER = "skill-bundles"
"""Beside the skills; one file for each, as the public system keeps them."""
_ENDS = (".yaml", ".yml")
_LARGEST = 100_000
_MOST = 200


class Bundle(Struct, frozen=True, kw_only=True):
    name: str
    skills: tuple[str, ...]
    description: str = ""
    instruction: str = ""


def bundle_named(home: Path, name: str) -> Bundle | None:
    """None also for a file that is none: whoever names it gets told of skills as usual."""
    try:
        check_name(name)
    except BadSkill:
        return None
    found = (_read(home / FOLDER / f"{name}{end}") for end in _ENDS)
    return next((bundle for bundle in found if bundle is not None), None)


def bundles(home: Path) -> list[Bundle]:
    """By name."""
    try:
        files = sorted(path for path in (home / FOLDER).iterdir() if path.suffix in _ENDS)
    except OSError:
        return []
    found = {path.stem: bundle for path in files[:_MOST] if (bundle := _read(path)) is not None}
    return list(found.values())


def file_of(home: Path, name: str) -> str | None:
    """Where below the home a bundle is written down."""
    files = [f"{FOLDER}/{check_name(name)}{end}" for end in _ENDS]
    return next((file for file in files if (home / file).is_file()), None)


def written(bundle: Bundle) -> tuple[str, bytes]:
    """The file below the home, and what is to be in it."""
    said = {"description": bundle.description, "instruction": bundle.instruction}
    # A text in JSON is one in YAML, whatever is in it.
    lines = [f"{key}: {msgspec.json.encode(text).decode()}" for key, text in said.items() if text]
    lines += ["skills:", *(f"  - {check_name(name)}" for name in bundle.skills)]
    return f"{FOLDER}/{check_name(bundle.name)}.yaml", ("\n".join(lines) + "\n").encode()


def _read(path: Path) -> Bundle | None:
    try:
        given = table(read_ordinary(path, _LARGEST).decode("utf-8", "replace"), path)
        name = check_name(path.stem)
    except (OSError, BadSkill):
        return None
    skills = tuple(dict.fromkeys(names_in(given.get("skills"))))
    if not skills:
        return None
    return Bundle(
        name=name,
        skills=skills,
        description=" ".join(text_in(given.get("description")).split()),
        instruction=text_in(given.get("instruction")),
    )
