"""Offer the settings of another home on this machine to a home that has none."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from hermes.cli.context import CliContext
from hermes.cli.dialog import TerminalDialog
from hermes.config.clone_credentials import profile_credentials
from hermes.config.env import Env, parse_dotenv, profile_env, read_text
from hermes.config.home import Home
from hermes.config.loader import load_config
from hermes.config.profiles import copy_home
from hermes.config.variables import is_secret
from hermes.kit.terminal_text import single_line
from hermes.kit.text import plural
from hermes.schema.errors import ConfigError

CONTAINER_HOME = Path("/opt/data")
"""The path of the home in the public system's container."""


def offer_other_home(context: CliContext, home: Home, dialog: TerminalDialog) -> bool:
    """Copy another home's settings, keys, memory and skills here, if the user wants that."""
    if not dialog.interactive or home.path != home.root or _has_settings(home):
        return False
    for other in _other_homes(home, context.env):
        contents = _contents(other, context.env)
        where = single_line(str(other.path))
        if not contents or not dialog.confirm(
            f"Found a home in {where}: {', '.join(contents)}. Copy its settings, keys, memory and "
            "skills?",
            default=True,
        ):
            continue
        copy_home(other, home)
        context.print(f"Copied from {where}, which is unchanged.")
        if removed := profile_credentials(other.path).removed:
            context.print(
                f"Not copied (each home needs its own): {single_line(', '.join(removed))}"
            )
        return True
    return False


def _has_settings(home: Home) -> bool:
    return home.config.exists() or home.dotenv.exists()


def _other_homes(home: Home, env: Env) -> Iterator[Home]:
    own = env.get("HOME", "").strip()
    usual = [Path(own) / ".hermes"] if own else []
    for path in [*usual, CONTAINER_HOME]:
        other = Home(path, path)
        try:
            if _has_settings(other) and not (home.path.exists() and path.samefile(home.path)):
                yield other
        except OSError:
            # The home belongs to another user.
            continue


def _contents(home: Home, env: Env) -> Sequence[str]:
    """What would be copied, in a few words; nothing if its files cannot be read."""
    try:
        config = load_config(home, profile_env(home.dotenv, env)).config
        assigned = parse_dotenv(read_text(home.dotenv), str(home.dotenv))
    except ConfigError:
        return ()
    model = config.main_model
    keys = sum(bool(assignment.value) and is_secret(assignment.name) for assignment in assigned)
    skills = sum(1 for _ in home.skills.rglob("SKILL.md"))
    named = "/".join(filter(None, (model.provider, model.default)))
    parts = [
        f"model {single_line(named)}" if model.default else "",
        plural(keys, "key") if keys else "",
        plural(skills, "skill") if skills else "",
    ]
    return [part for part in parts if part]
