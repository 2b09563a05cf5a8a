"""Open a file in the user's editor and wait until it is closed."""

import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from hermes.schema.errors import UsageError

FALLBACK_EDITORS = ("nano", "vim", "vi")


def compose_text(draft: str, env: Mapping[str, str]) -> str:
    """The edited text. Raises `UsageError` if there is no editor or it fails."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="hermes-") as folder:
        file = Path(folder) / "message.md"
        file.write_text(f"{draft}\n" if draft else "", encoding="utf-8")
        edit_file(file, env, at_terminal=True)
        return file.read_text(encoding="utf-8", errors="replace")


def edit_file(path: Path, env: Mapping[str, str], *, at_terminal: bool) -> None:
    """Run $VISUAL, $EDITOR or, at a terminal, a common editor; `UsageError` if it fails."""
    command = [*_editor_command(env, FALLBACK_EDITORS if at_terminal else ()), str(path)]
    try:
        done = subprocess.run(command, env=dict(env), check=False)  # noqa: S603 - the user's choice
    except OSError as error:
        raise UsageError(
            f"Cannot start the editor {command[0]!r}: {error.strerror}",
            hint="Choose another one, for example: export VISUAL=nano",
        ) from error
    if done.returncode != 0:
        raise UsageError(
            f"The editor {command[0]!r} exited with code {done.returncode}; nothing was changed"
        )


def _editor_command(env: Mapping[str, str], usual: Sequence[str]) -> list[str]:
    for name in ("VISUAL", "EDITOR"):
        try:
            command = shlex.split(env.get(name, ""))
        except ValueError as error:
            raise UsageError(f"${name} is not a valid command: {error}") from error
        if command:
            return command
    for name in usual:
        if shutil.which(name, path=env.get("PATH")):
            return [name]
    raise UsageError(
        "No editor found", hint="Choose one, for example: export VISUAL=/path/to/editor"
    )
