"""Memory as the prompt shows it: read once when a session begins, then the same to its end."""

from functools import lru_cache

from hermes.changes.scan import suspicion
from hermes.memory.entries import Target, join, usage
from hermes.memory.notebook import Notebook, Sheet

_LINE = "═" * 46
_TITLES = {
    Target.MEMORY: "MEMORY (your personal notes)",
    Target.USER: "USER PROFILE (who the user is)",
}


def blocks(notebook: Notebook, *, memory: bool, user: bool) -> str:
    """What to put into a prompt; empty when nothing is remembered."""
    wanted = [Target.MEMORY] * memory + [Target.USER] * user
    sheets = [notebook.read_now(target) for target in wanted]
    return "\n\n".join(_block(sheet) for sheet in sheets if sheet.entries)


@lru_cache(maxsize=8)
def _block(sheet: Sheet) -> str:
    """An entry that somebody slipped in past the scan is named, not shown."""
    shown = [
        f"[BLOCKED: this entry {why}]" if (why := suspicion(entry)) else entry
        for entry in sheet.entries
    ]
    title = f"{_TITLES[sheet.target]} [{usage(sheet.entries, sheet.limit)}]"
    return "\n".join([_LINE, title, _LINE, join(shown)])
