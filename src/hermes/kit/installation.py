"""Find out how to install packages into the environment that the program runs in."""

import shlex
import sys
from importlib.metadata import PackageNotFoundError, requires
from importlib.util import find_spec
from pathlib import Path


def pip_module() -> tuple[str, ...]:
    """Arguments of Python that run pip: installed, or the one that comes with Python.

    Environments made by uv have no pip. Empty if there is none at all.
    """
    if find_spec("pip") is not None:
        return ("-m", "pip")
    if (bundle := find_spec("ensurepip")) is None or bundle.origin is None:
        return ()
    wheels = sorted(Path(bundle.origin).parent.glob("_bundled/pip-*.whl"))
    return (str(wheels[-1] / "pip"),) if wheels else ()


def extra_requirements(extra: str) -> list[str]:
    """Return the packages of an extra, from the metadata of this installation.

    The name `hermes[extra]` is avoided: a registry may have another program of that name.
    """
    try:
        lines = requires("hermes") or []
    except PackageNotFoundError:
        return []
    parts = [line.partition(";")[::2] for line in lines]
    return [name.strip() for name, marker in parts if f'extra == "{extra}"' in marker]


def install_command(*requirements: str) -> str:
    """Return the command for the user to install packages into this environment."""
    names = shlex.join(requirements)
    if find_spec("pip") is not None:
        return f"{sys.executable} -m pip install {names}"
    return f"uv pip install --python {sys.executable} {names}"
