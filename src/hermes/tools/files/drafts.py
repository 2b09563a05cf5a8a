"""Files as they would be: edited in memory until every edit of a call has found its place."""

import os
from pathlib import Path

from hermes.schema.errors import ToolError
from hermes.tools.files.diffs import unified
from hermes.tools.files.editor import Change, read_bytes
from hermes.tools.files.lint import Lint, check
from hermes.tools.files.nearby import suggestion
from hermes.tools.files.text_file import Dress, undress
from hermes.tools.files.ways import Forbids, forbids_nothing

MAX_LINES = 300_000
"""Lines of a file that can be edited; each is looked at several times."""


class Draft:
    """One file: `old` is its text on disk, `text` the text to be; None stands for no file."""

    def __init__(self, path: Path, forbids: Forbids) -> None:
        found = read_bytes(path, forbids)
        self.path = path
        self.before: bytes | None = None
        self.stat: os.stat_result | None = None
        self.old: str | None = None
        self.dress = Dress()
        self.mode: int | None = None
        if found is not None:
            self.before, self.stat = found
            self.old, self.dress = undress(self.before, path)
            if self.old.count("\n") > MAX_LINES:
                raise ToolError(
                    f"patch: {path} has more than {MAX_LINES:,} lines.",
                    hint="Edit it with sed in the terminal.",
                )
        self.text = self.old

    def existing(self) -> str:
        """Raises `ToolError` when there is no such file."""
        if self.text is None:
            raise ToolError(f"patch: {self.path} does not exist. {suggestion(self.path)}")
        return self.text

    def create(self, text: str, dress: Dress, mode: int | None = None) -> None:
        """`mode` are the permissions of the file that it was until now."""
        if self.text is not None:
            raise ToolError(
                f"patch: {self.path} exists already.", hint="Update it, or delete it first."
            )
        self.text = text
        self.dress = dress
        self.mode = mode

    @property
    def change(self) -> Change:
        after = None if self.text is None else self.dress.put_on(self.text, self.path)
        return Change(self.path, self.before, after, self.stat, self.mode)


class Drafts:
    """The files of one call; a file named twice is edited twice."""

    def __init__(self, forbids: Forbids = forbids_nothing) -> None:
        self._files: dict[Path, Draft] = {}
        self._forbids = forbids

    def open(self, path: Path) -> Draft:
        if path not in self._files:
            self._files[path] = Draft(path, self._forbids)
        return self._files[path]

    @property
    def changed(self) -> list[Draft]:
        return [draft for draft in self._files.values() if draft.text != draft.old]

    def diff(self) -> str:
        """Each file with its name, from the folder on that all of them are in."""
        changed = self.changed
        folder = os.path.commonpath([d.path.parent for d in changed]) if changed else ""
        return "\n".join(unified(d.old, d.text, str(d.path.relative_to(folder))) for d in changed)

    def lint(self) -> Lint:
        """The worst of all files, each fault with its file's name when there are several."""
        checks = [
            (d.path, check(d.path, d.text, d.old)) for d in self.changed if d.text is not None
        ]
        faults = [(path, lint) for path, lint in checks if lint.status == "error"]
        if faults:
            several = len(checks) > 1
            return Lint(
                "error",
                "\n".join(
                    f"{path}: {lint.output}" if several else lint.output for path, lint in faults
                ),
            )
        return next((lint for _, lint in checks if lint.status == "ok"), Lint("skipped"))
