"""Homes for profiles that speak on the test platform and think with its mind."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from hermes.config.home import DEFAULT_PROFILE

CHANNEL_NAME = "test"
OWNER = "ann"


class ProfileSettings(Struct, frozen=True, kw_only=True):
    """What one profile is given; `settings` are merged over those that all have.

    The first profile of a process is its own home, whatever its account is called.
    """

    account: str
    url: str
    key: str = "sk-none-of-ours"
    people: Sequence[str] = (OWNER,)
    owners: Sequence[str] = (OWNER,)
    env: Mapping[str, str] = {}
    settings: Mapping[str, object] = {}


def profile_path(root: Path, profile: str) -> Path:
    return root if profile == DEFAULT_PROFILE else root / "profiles" / profile


def write_profile(home: Path, given: ProfileSettings) -> None:
    """Write the settings and variables of one profile; what else is in the home stays."""
    home.mkdir(parents=True, exist_ok=True)
    settings = _merged(_settings(given), given.settings)
    (home / "config.yaml").write_bytes(msgspec.json.format(msgspec.json.encode(settings)))
    variables = {"OPENAI_API_KEY": given.key, **given.env}
    lines = [f"{name}={value}\n" for name, value in variables.items()]
    (home / ".env").write_text("".join(lines))


def _settings(given: ProfileSettings) -> dict[str, object]:
    extra = {
        "url": given.url,
        "account": given.account,
        "allow_from": list(given.people),
        "allow_admin_from": list(given.owners),
        "group_allow_admin_from": list(given.owners),
    }
    mind = {"default": "obliging", "provider": "openai", "base_url": model_url(given)}
    return {
        "model": mind,
        "platforms": {CHANNEL_NAME: {"enabled": True, "extra": extra}},
        "display": {"busy_input_mode": "queue"},
        "streaming": {"edit_interval": 0.1},
        # What a test kills on purpose is not a program that keeps failing.
        "gateway": {
            "restart_loop_guard": {"enabled": False},
            "respawn_storm": {"enabled": False},
        },
    }


def model_url(given: ProfileSettings) -> str:
    return f"{given.url}/{given.account}/v1"


def _merged(below: Mapping[str, object], above: Mapping[str, object]) -> dict[str, object]:
    merged = dict(below)
    for name, value in above.items():
        under = merged.get(name)
        if isinstance(under, dict) and isinstance(value, Mapping):
            inner = msgspec.convert(under, dict[str, object])
            merged[name] = _merged(inner, msgspec.convert(value, dict[str, object]))
        else:
            merged[name] = value
    return merged
