"""What of others a program may show or bring: by its reach, and the files that its text names."""

import re
from pathlib import Path

from hermes.tools.origins import Origins
from hermes.tools.terminal.foreign import Foreign, places_of
from hermes.tools.touched import bases_of, words_of

_LOOKS_AROUND = re.compile(r"\b(?:r?glob|i?glob|walk|iterdir|listdir|scandir|copytree|fwalk)\b")
"""Names of what finds files that no word names."""
_REACHES = re.compile(
    r"://|\b(?:socket|urllib|urllib3|requests|httpx|aiohttp|http\.client|ftplib|telnetlib|paramiko)\b"
)


def foreign_in(code: str, folder: Path, origins: Origins | None, *, walled: bool) -> Foreign:
    """Where no wall stands, also by what it fetches with."""
    reaches = not walled and (_REACHES.search(code) is not None or _fetches(code, folder))
    if origins is None:
        return Foreign(reaches, reaches)
    words, bases = words_of(code), bases_of(code, folder)
    if _LOOKS_AROUND.search(code):
        words = [*words, "."]
    named = origins.names_foreign(words, *bases)
    return Foreign(reaches or named, reaches or named, places_of(words, bases))


def _fetches(code: str, folder: Path) -> bool:
    from hermes.approvals.outward import brings_in  # noqa: PLC0415 - only without a wall
    from hermes.approvals.script import Place  # noqa: PLC0415 - as above
    from hermes.approvals.unwrap import every_call  # noqa: PLC0415 - as above

    return brings_in(every_call(code, Place(str(folder), "/")).found)
