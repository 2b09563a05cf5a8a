"""Write profile homes that use the test platform and its model."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from hermes.config.home import DEFAULT_PROFILE

CHANNEL_NAME = "test"
OWNER = "ann"


class ProfileSettings(Struct, frozen=True, kw_only=True):
    """The configuration of one profile; `settings` are merged over the defaults.

    The first profile of a process uses the root home, whatever the name of its account.
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


def write_profile(home: Path, gateway_settings: ProfileSettings) -> None:
    """Write the settings and variables of one profile, and keep other files of the home."""
    home.mkdir(parents=True, exist_ok=True)
    settings = _merged(_settings(gateway_settings), gateway_settings.settings)
    (home / "config.yaml").write_bytes(msgspec.json.format(msgspec.json.encode(settings)))
    variables = {"OPENAI_API_KEY": gateway_settings.key, **gateway_settings.env}
    lines = [f"{name}={value}\n" for name, value in variables.items()]
    (home / ".env").write_text("".join(lines))


def _settings(settings: ProfileSettings) -> dict[str, object]:
    extra = {
        "url": settings.url,
        "account": settings.account,
        "allow_from": list(settings.people),
        "allow_admin_from": list(settings.owners),
        "group_allow_admin_from": list(settings.owners),
    }
    model = {"default": "obliging", "provider": "openai", "base_url": model_url(settings)}
    return {
        "model": model,
        "platforms": {CHANNEL_NAME: {"enabled": True, "extra": extra}},
        "display": {"busy_input_mode": "queue"},
        "streaming": {"edit_interval": 0.1},
        # Tests kill the gateway on purpose, which must not count as repeated failures.
        "gateway": {"restart_loop_guard": {"enabled": False}, "respawn_storm": {"enabled": False}},
    }


def model_url(settings: ProfileSettings) -> str:
    return f"{settings.url}/{settings.account}/v1"


def _merged(below: Mapping[str, object], above: Mapping[str, object]) -> dict[str, object]:
    merged = dict(below)
    for name, value in above.items():
        base = merged.get(name)
        if isinstance(base, dict) and isinstance(value, Mapping):
            inner = msgspec.convert(base, dict[str, object])
            merged[name] = _merged(inner, msgspec.convert(value, dict[str, object]))
        else:
            merged[name] = value
    return merged
