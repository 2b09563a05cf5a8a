"""What of others a command may show or bring: by its reach, its words, and the files it names."""

import re
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from hermes.tools.origins import Origins

_WORD = re.compile(r"[^\s'\"|&;<>()=`$]+")


class Foreign(Struct, frozen=True):
    """`shown`: in what it prints; `brought`: in the files that it writes."""

    shown: bool = False
    brought: bool = False


def foreign_of(command: str, folder: Path, origins: Origins | None) -> Foreign:
    """For a command that can reach the network: what its words say that it does with it."""
    from hermes.approvals.outward import brings_in, shows_others  # noqa: PLC0415 - few commands need it
    from hermes.approvals.script import Place  # noqa: PLC0415 - as above
    from hermes.approvals.unwrap import every_command  # noqa: PLC0415 - as above

    found = every_command(command, Place(str(folder), "/")).found
    named = named_in(command, folder, origins)
    return Foreign(
        shown=named.shown or shows_others(found), brought=named.brought or brings_in(found)
    )


def named_in(command: str, folder: Path, origins: Origins | None) -> Foreign:
    """A command that names a file which came in may show it, copy it or unpack it."""
    if origins is None:
        return Foreign()
    named = origins.names_foreign(_WORD.findall(command), folder)
    return Foreign(named, named)


@contextmanager
def bringing(origins: Origins | None, foreign: Foreign) -> Generator[None]:
    """What changes on disk in the block was brought by a command, if it brings anything."""
    began = origins.now() if origins is not None else 0.0
    try:
        yield
    finally:
        if origins is not None and foreign.brought:
            origins.fetched_since(began)
