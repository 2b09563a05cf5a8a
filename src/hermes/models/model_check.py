"""Whether a provider has the model that is meant: one rule, wherever a model is chosen.

A name that a provider does not list is refused, with the nearest names. Where nothing can be
listed, the name is taken as it is, and it is said that nobody checked it.
"""

from collections.abc import Collection

import anyio

from hermes.kit.text import similar_names
from hermes.models.discovery import list_models
from hermes.models.providers import EMBEDDED
from hermes.models.resolver import ModelTarget
from hermes.schema.errors import ConfigError, ModelError, UsageError

LIST_TIMEOUT = 5.0
"""Seconds for the provider to answer."""
_MAX_SUGGESTIONS = 3


async def verify_model(target: ModelTarget) -> str:
    """Why its name could not be checked, in a sentence; mostly nothing.

    Raises `UsageError` or `ConfigError` when there is no such model.
    """
    name = target.model
    try:
        with anyio.fail_after(LIST_TIMEOUT):
            listed = await list_models(target, LIST_TIMEOUT)
    except TimeoutError:
        return unverified_message(
            name, f"no answer from {target.provider} within {LIST_TIMEOUT:.0f} seconds"
        )
    except ModelError as error:
        return unverified_message(name, str(error))
    if target.provider == EMBEDDED and name not in listed:
        raise ConfigError(
            f"{name} is not on this machine yet.",
            hint=f"Fetch it: hermes setup --local --model {name}",
        )
    if not listed:
        return unverified_message(name, f"{target.provider} does not say which models it has")
    check_listed(target.provider, name, listed)
    return ""


def unverified_message(name: str, why: str) -> str:
    return f"{name} could not be checked ({why.rstrip('.')}); once it should work: hermes doctor"


def check_listed(provider: str, name: str, listed: Collection[str]) -> None:
    """Raises `UsageError` for a name that is not on a list that has some."""
    if not listed or is_listed(name, listed):
        return
    offered = nearest_models(name, listed) or "What it has is shown by `hermes model`"
    raise UsageError(
        not_listed_message(provider, name),
        hint=f"{offered}; to take the name as it is, add --force",
    )


def not_listed_message(provider: str, name: str) -> str:
    return f"{provider} does not list the model {name!r}."


def nearest_models(name: str, listed: Collection[str]) -> str:
    """Nothing when none is like it."""
    near = ", ".join(similar_names(name, listed, _MAX_SUGGESTIONS))
    return f"The nearest it has: {near}" if near else ""


def is_listed(name: str, listed: Collection[str]) -> bool:
    """Ollama adds `:latest` to a bare name; routers take an addition that their list leaves out."""
    return name in listed or f"{name}:latest" in listed or name.rpartition(":")[0] in listed
