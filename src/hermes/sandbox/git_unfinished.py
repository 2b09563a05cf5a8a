"""Find what an unfinished rebase, cherry-pick, revert or `git am` would execute."""

import re
from collections.abc import Iterator

from hermes.sandbox.git_config import STRATEGIES, parse_config
from hermes.sandbox.git_config_paths import LINK_PREFIX, MAX_READ, entry_content

_FOLDERS = ("rebase-merge", "rebase-apply", "sequencer")
_EXEC_LINE = re.compile(rb"^[ \t]*(?:exec|x)[ \t]", re.MULTILINE)
_OPTIONS_OF_APPLY = re.compile(
    rb"(?:\s*'(?:-[Cp]\d+|--(?:whitespace|directory|exclude|include)=[^'\\]*"
    rb"|--ignore-(?:space-change|whitespace)|--reject)')*\s*"
)


def partial_file(git: str) -> Iterator[tuple[str, bytes]]:
    """Each state file that makes git execute something, or might, with its content."""
    for folder in _FOLDERS:
        text = entry_content(f"{git}/{folder}")
        if text is not None:
            yield f"{git}/{folder}", text
            continue
        for name, is_safe in _CHECKS.items():
            text = entry_content(f"{git}/{folder}/{name}")
            if text is None:
                continue
            if text.startswith(LINK_PREFIX) or len(text) >= MAX_READ or not is_safe(text):
                yield f"{git}/{folder}/{name}", text


def _is_plain_todo(text: bytes) -> bool:
    return _EXEC_LINE.search(text) is None


def _is_own_strategy(text: bytes) -> bool:
    return not (name := text.decode("latin-1").strip()) or name in STRATEGIES


def _has_own_strategy(text: bytes) -> bool:
    parsed = parse_config(text)
    named = (value for name, value in parsed.settings if name == "options.strategy")
    return parsed.complete and STRATEGIES.issuperset(named)


def _are_plain_options(text: bytes) -> bool:
    """Other options make `git apply` write files of any name."""
    return _OPTIONS_OF_APPLY.fullmatch(text) is not None


_CHECKS = {
    "git-rebase-todo": _is_plain_todo,
    "todo": _is_plain_todo,
    "strategy": _is_own_strategy,
    "opts": _has_own_strategy,
    "apply-opt": _are_plain_options,
}
