"""Editing config.yaml as a whole: on a copy, checked, and offered again when it has errors."""

import tempfile
from collections.abc import Mapping
from pathlib import Path

from hermes.cli.context import CliContext
from hermes.cli.editor import edit_file
from hermes.cli.export.plain import harmless
from hermes.cli.typed import typed_line
from hermes.config.dotenv import read_text
from hermes.config.edit import replace_whole_config
from hermes.config.home import Home, ensure_home
from hermes.config.load import parse_config
from hermes.schema.errors import ConfigError, UsageError

BEGINNING = "# Settings of Hermes. `hermes config show --all` prints them with their defaults.\n"


def edit_config(context: CliContext, env: Mapping[str, str]) -> int:
    home = context.home()
    ensure_home(home)
    old = read_text(home.config)
    copy = Path(tempfile.mkdtemp(prefix="hermes-")) / "config.yaml"
    copy.write_bytes((old or BEGINNING).encode())
    try:
        new = _edited(context, home, copy, env)
        if new == (old or BEGINNING):
            context.stdout.write("Nothing was changed\n")
        else:
            replace_whole_config(home, old, new)
            context.stdout.write(f"{home.config} is saved\n")
    except ConfigError as error:
        raise ConfigError(str(error), hint=f"Your version is kept in {copy}") from error
    except UsageError:
        if copy.read_bytes() == (old or BEGINNING).encode():
            _discard(copy)
        raise
    _discard(copy)
    return 0


def _edited(context: CliContext, home: Home, copy: Path, env: Mapping[str, str]) -> str:
    """The text once it has no errors. Raises `ConfigError` when the person gives up."""
    while True:
        edit_file(copy, context.env, at_terminal=context.stdin.isatty())
        text = read_text(copy)
        try:
            loaded = parse_config(text, home.config, env)
        except ConfigError as error:
            if not _again(context, error):
                raise
            continue
        for warning in loaded.warnings:
            context.stderr.write(harmless(f"warning: {warning}\n"))
        return text


def _again(context: CliContext, error: ConfigError) -> bool:
    if not context.stdin.isatty():
        return False
    context.stderr.write(harmless(f"{error}\n  {error.hint}\nEdit again? [Y/n] "))
    context.stderr.flush()
    answer = typed_line(context.stdin)
    return bool(answer) and answer.strip().lower() in {"", "y", "yes"}


def _discard(copy: Path) -> None:
    for leftover in copy.parent.iterdir():
        leftover.unlink()
    copy.parent.rmdir()
