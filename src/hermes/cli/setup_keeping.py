"""Writing what `hermes setup` has found out, so that no key ever meets another's address."""

from collections.abc import Mapping

from msgspec import Struct

from hermes.config.edit import set_setting, set_variable, unset_setting
from hermes.config.env import Env
from hermes.config.home import Home
from hermes.config.load import load_config
from hermes.config.shapes import as_mapping
from hermes.models.providers import CUSTOM, Provider

CUSTOM_KEY = "CUSTOM_API_KEY"
"""Holds the key of a server of one's own; the settings refer to it."""


class Chosen(Struct, frozen=True, kw_only=True):
    """`key` is a new one; empty means that there is one, or that none is needed."""

    provider: Provider
    base_url: str = ""
    key: str = ""
    model: str = ""


def keep(home: Home, env: Env, chosen: Chosen) -> None:
    """What belonged to another provider goes first, the key comes before what needs it."""
    before = _model_section(home, env)
    moved = before.get("provider") != chosen.provider.name
    stale = ["base_url"] if before.get("base_url") != chosen.base_url else []
    if moved or stale or chosen.key:
        stale += ["api_key"]
    if moved:
        stale += ["api_mode", "context_length", "max_tokens"]
    for name in stale:
        if name in before:
            unset_setting(home, env, f"model.{name}")
    variable = _variable(chosen.provider)
    if chosen.key:
        set_variable(home, variable, chosen.key)
        env = env.under({variable: chosen.key})
    set_setting(home, env, "model.default", chosen.model)
    set_setting(home, env, "model.provider", chosen.provider.name)
    if chosen.base_url:
        set_setting(home, env, "model.base_url", chosen.base_url)
    if chosen.key and variable == CUSTOM_KEY:
        set_setting(home, env, "model.api_key", f"${{{CUSTOM_KEY}}}")


def _variable(provider: Provider) -> str:
    """Of an address of one's own, no variable but this one surely belongs to it."""
    if provider.name == CUSTOM.name or not provider.key_env:
        return CUSTOM_KEY
    return provider.key_env[0]


def _model_section(home: Home, env: Env) -> Mapping[str, object]:
    section = as_mapping(load_config(home, env).raw.get("model"))
    return {str(name): value for name, value in (section or {}).items()}
