"""Marks that stand for the values of an environment, so that two can be compared unseen."""

from collections.abc import Mapping
from hashlib import blake2b
from typing import TypeAlias

SIZE = 12

Marks: TypeAlias = dict[str, str]


def marks_of(env: Mapping[str, str]) -> Marks:
    return {_plain(name): _mark(name, value) for name, value in env.items()}


def _mark(name: str, value: str) -> str:
    data = f"{name}={value}".encode("utf-8", "surrogateescape")
    return blake2b(data, digest_size=SIZE).hexdigest()


def _plain(name: str) -> str:
    """A name that is no text would not pass through JSON."""
    return name if name.isascii() else name.encode("utf-8", "backslashreplace").decode()
