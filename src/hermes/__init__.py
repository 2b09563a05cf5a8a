"""Hermes, a personal agent: `from hermes import Agent`."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hermes.compat.run_agent import AIAgent
    from hermes.library import Agent

__version__ = "0.1.0"
__all__ = ["AIAgent", "Agent", "__version__"]

_HOMES = {"Agent": "hermes.library", "AIAgent": "hermes.compat.run_agent"}


def __getattr__(name: str) -> object:
    """Load the library on first use, so that `hermes --version` stays fast."""
    if name not in _HOMES:
        raise AttributeError(f"module 'hermes' has no attribute {name!r}")
    import sys  # noqa: PLC0415 - as light as the rest
    from importlib import import_module  # noqa: PLC0415 - as above

    if sys.version_info < (3, 11):  # noqa: UP036 - said before anything that an old one cannot read
        found = ".".join(map(str, sys.version_info[:2]))
        raise ImportError(
            f"Hermes needs Python 3.11 or newer, but this is Python {found}. "
            "Reinstall it with a newer version: make PYTHON=python3.12 run"
        )
    return getattr(import_module(_HOMES[name]), name)
