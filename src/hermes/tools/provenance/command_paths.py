"""Find the files and folders that the words of a command refer to."""

import glob
import os
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from hermes.tools.files.safe_open import resolve_or_same

MAX_FOLDERS = 8
MAX_MATCHES = 5_000
"""Files that one pattern may match; more are ignored."""
_WORD = re.compile(r"[^\s'\"|&;<>()=`$]+")
_PART = re.compile(r"[^\s'\"|&;<>()=`$,:\[\]{}@]+")
_CHANGES_FOLDER = frozenset(
    {"cd", "pushd", "-C", "--directory", "--git-dir", "--work-tree", "chdir"}
)
_PATTERN = re.compile(r"[*?\[]")


def command_words(command: str) -> list[str]:
    """Return the words without duplicates, and the parts of compound ones."""
    return list(dict.fromkeys([*_WORD.findall(command), *_PART.findall(command)]))


def command_folders(command: str, folder: Path) -> list[Path]:
    """Return the folders a command runs in, as far as its words tell."""
    bases, before = [folder], ""
    for word in _WORD.findall(command):
        if before in _CHANGES_FOLDER and len(bases) < MAX_FOLDERS:
            entered = resolve_or_same(bases[-1] / word)
            if entered.is_dir() and entered not in bases:
                bases.append(entered)
        before = word
    return bases


def word_paths(word: str, bases: Sequence[Path]) -> Iterator[Path]:
    """Yield the existing paths a word may refer to, resolved."""
    for base in bases:
        if _PATTERN.search(word) and "\0" not in word:
            found = glob.iglob(word, root_dir=base, include_hidden=True)  # noqa: PTH207 - takes any word
            yield from (resolve_or_same(base / match) for match in islice(found, MAX_MATCHES))
        path = base / word
        if os.path.lexists(path):
            yield resolve_or_same(path)
