"""Edit a message or config.yaml in the user's editor."""

import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from hermes.cli.context import CliContext
from hermes.cli.dialog import TerminalDialog
from hermes.config.editor import replace_whole_config
from hermes.config.env import read_text
from hermes.config.home import Home, ensure_home
from hermes.config.loader import load_config
from hermes.kit.terminal_text import escape_controls
from hermes.schema.errors import ConfigError, UsageError

FALLBACK_EDITORS = ("nano", "vim", "vi")
EMPTY_CONFIG = "# Settings of Hermes. `hermes config show --all` prints them with their defaults.\n"


def compose_text(draft: str, env: Mapping[str, str]) -> str:
    """The edited text. Raises `UsageError` if there is no editor or it fails."""
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
            f"Cannot start the editor {command[0]!r}: {error.strerror}.",
            hint="Choose another one, for example: export VISUAL=nano",
        ) from error
    if done.returncode != 0:
        raise UsageError(
            f"The editor {command[0]!r} exited with code {done.returncode}; nothing was changed."
        )


def _editor_command(env: Mapping[str, str], usual: Sequence[str]) -> list[str]:
    for name in ("VISUAL", "EDITOR"):
        try:
            command = shlex.split(env.get(name, ""))
        except ValueError as error:
            raise UsageError(f"${name} is not a valid command: {error}.") from error
        if command:
            return command
    for name in usual:
        if shutil.which(name, path=env.get("PATH")):
            return [name]
    raise UsageError(
        "No editor found.", hint="Choose one, for example: export VISUAL=/path/to/editor"
    )


def edit_config(context: CliContext, env: Mapping[str, str]) -> int:
    home = context.home()
    ensure_home(home)
    old = read_text(home.config)
    copy = Path(tempfile.mkdtemp(prefix="hermes-")) / "config.yaml"
    copy.write_bytes((old or EMPTY_CONFIG).encode())
    try:
        new = _edit_until_valid(context, home, copy, env)
        if new == (old or EMPTY_CONFIG):
            context.print("No changes")
        else:
            replace_whole_config(home, old, new)
            context.print(f"{home.config} saved")
    except ConfigError as error:
        raise ConfigError(str(error), hint=f"Your version is kept in {copy}") from error
    except UsageError:
        if copy.read_bytes() == (old or EMPTY_CONFIG).encode():
            shutil.rmtree(copy.parent)
        raise
    shutil.rmtree(copy.parent)
    return 0


def _edit_until_valid(context: CliContext, home: Home, copy: Path, env: Mapping[str, str]) -> str:
    """The text once it is valid. Raises `ConfigError` if the user gives up."""
    while True:
        edit_file(copy, context.env, at_terminal=context.stdin.isatty())
        text = read_text(copy)
        try:
            loaded = load_config(home, env, text)
        except ConfigError as error:
            if not _ask_again(context, error):
                raise
            continue
        for warning in loaded.warnings:
            context.note(escape_controls(f"warning: {warning}"))
        return text


def _ask_again(context: CliContext, error: ConfigError) -> bool:
    if not context.stdin.isatty():
        return False
    context.note(escape_controls(f"{error}\n  {error.hint}"))
    return TerminalDialog(context, interactive=True).confirm("Edit again?", default=True)
