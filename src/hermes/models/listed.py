"""Whether a provider has the model that is meant: one rule, wherever a model is chosen.

A name that a provider does not list is refused, with the nearest names. Where nothing can be
listed, the name is taken as it is, and it is said that nobody checked it.
"""

from collections.abc import Collection

import anyio

from hermes.kit.text import alike
from hermes.models.discover import list_models
from hermes.models.providers import EMBEDDED
from hermes.models.resolve import Target
from hermes.schema.errors import ConfigError, ModelError, UsageError

PATIENCE = 5.0
"""Seconds for the provider to answer."""
_OFFERED = 3


async def doubt_about(target: Target) -> str:
    """Why its name could not be checked, in a sentence; mostly nothing.

    Raises `UsageError` or `ConfigError` when there is no such model.
    """
    name = target.model
    try:
        with anyio.fail_after(PATIENCE):
            listed = await list_models(target, PATIENCE)
    except TimeoutError:
        return unchecked(name, f"no answer from {target.provider} within {PATIENCE:.0f} seconds")
    except ModelError as error:
        return unchecked(name, str(error))
    if target.provider == EMBEDDED and name not in listed:
        raise ConfigError(
            f"{name} is not on this machine yet.",
            hint=f"Fetch it: hermes setup --local --model {name}",
        )
    if not listed:
        return unchecked(name, f"{target.provider} does not say which models it has")
    check_listed(target.provider, name, listed)
    return ""


def unchecked(name: str, why: str) -> str:
    return f"{name} could not be checked ({why.rstrip('.')}); once it should work: hermes doctor"


def check_listed(provider: str, name: str, listed: Collection[str]) -> None:
    """Raises `UsageError` for a name that is not on a list that has some."""
    if not listed or is_listed(name, listed):
        return
    offered = nearest(name, listed) or "What it has is shown by `hermes model`"
    raise UsageError(
        unlisted(provider, name), hint=f"{offered}; to take the name as it is, add --force"
    )


def unlisted(provider: str, name: str) -> str:
    return f"{provider} does not list the model {name!r}."


def nearest(name: str, listed: Collection[str]) -> str:
    """Nothing when none is like it."""
    near = ", ".join(alike(name, listed, _OFFERED))
    return f"The nearest it has: {near}" if near else ""


def is_listed(name: str, listed: Collection[str]) -> bool:
    """Ollama adds `:latest` to a bare name; routers take an addition that their list leaves out."""
    return name in listed or f"{name}:latest" in listed or name.rpartition(":")[0] in listed
