"""Hermes, a personal agent: `from hermes import Agent`."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hermes.compat.run_agent import AIAgent
    from hermes.library import Agent

__version__ = "0.1.0"
__all__ = ["AIAgent", "Agent", "__version__"]

_HOMES = {"Agent": "hermes.library", "AIAgent": "hermes.compat.run_agent"}


def __getattr__(name: str) -> object:
    """The library is loaded when it is asked for, so that `hermes --version` need not be."""
    if name not in _HOMES:
        raise AttributeError(f"module 'hermes' has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415

    return getattr(import_module(_HOMES[name]), name)
