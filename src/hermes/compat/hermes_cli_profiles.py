"""`hermes_cli.profiles`: the active profile and those to serve, by the process environment."""

from pathlib import Path

from hermes.config import profiles
from hermes.config.env import process_env
from hermes.config.home import resolve_home


def get_active_profile_name() -> str:
    return profiles.get_active_profile_name(process_env())


def profiles_to_serve(multiplex: bool) -> list[tuple[str, Path]]:
    return profiles.profiles_to_serve(multiplex, resolve_home(process_env()))
