"""Edit a copy of config.yaml and save it once it is valid."""

import tempfile
from collections.abc import Mapping
from pathlib import Path

from hermes.cli.context import CliContext
from hermes.cli.dialog import read_line
from hermes.cli.editor import edit_file
from hermes.config.dotenv import read_text
from hermes.config.editor import replace_whole_config
from hermes.config.home import Home, ensure_home
from hermes.config.loader import parse_config
from hermes.kit.terminal_text import escape_controls
from hermes.schema.errors import ConfigError, UsageError

EMPTY_CONFIG = "# Settings of Hermes. `hermes config show --all` prints them with their defaults.\n"


def edit_config(context: CliContext, env: Mapping[str, str]) -> int:
    home = context.home()
    ensure_home(home)
    old = read_text(home.config)
    copy = Path(tempfile.mkdtemp(prefix="hermes-")) / "config.yaml"
    copy.write_bytes((old or EMPTY_CONFIG).encode())
    try:
        new = _edit_until_valid(context, home, copy, env)
        if new == (old or EMPTY_CONFIG):
            context.stdout.write("No changes\n")
        else:
            replace_whole_config(home, old, new)
            context.stdout.write(f"{home.config} saved\n")
    except ConfigError as error:
        raise ConfigError(str(error), hint=f"Your version is kept in {copy}") from error
    except UsageError:
        if copy.read_bytes() == (old or EMPTY_CONFIG).encode():
            _discard(copy)
        raise
    _discard(copy)
    return 0


def _edit_until_valid(context: CliContext, home: Home, copy: Path, env: Mapping[str, str]) -> str:
    """The text once it is valid. Raises `ConfigError` if the user gives up."""
    while True:
        edit_file(copy, context.env, at_terminal=context.stdin.isatty())
        text = read_text(copy)
        try:
            loaded = parse_config(text, home.config, env)
        except ConfigError as error:
            if not _ask_again(context, error):
                raise
            continue
        for warning in loaded.warnings:
            context.stderr.write(escape_controls(f"warning: {warning}\n"))
        return text


def _ask_again(context: CliContext, error: ConfigError) -> bool:
    if not context.stdin.isatty():
        return False
    context.stderr.write(escape_controls(f"{error}\n  {error.hint}\nEdit again? [Y/n] "))
    context.stderr.flush()
    answer = read_line(context.stdin)
    return bool(answer) and answer.strip().lower() in {"", "y", "yes"}


def _discard(copy: Path) -> None:
    for leftover in copy.parent.iterdir():
        leftover.unlink()
    copy.parent.rmdir()
