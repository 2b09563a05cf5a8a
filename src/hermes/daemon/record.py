"""Who runs the gateway of a home: the record in its lock, and whether that process still lives."""

import os
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from hermes.config.home import DEFAULT, Home
from hermes.kit.files import read_ordinary
from hermes.kit.holder import is_surely_dead, this_process

KIND = "hermes-gateway"


class Record(Struct, frozen=True, kw_only=True):
    """`start_time` is in clock ticks since boot; `holder` tells the process from all others.

    `profile` and `home` say whose gateway it is: one that serves several profiles leaves the
    same record in the home of each.
    """

    pid: int
    kind: str = KIND
    argv: tuple[str, ...] = ()
    start_time: int | float | str | None = None
    holder: str = ""
    profile: str = DEFAULT
    home: str = ""
    started_at: Annotated[datetime, Meta(tz=True)] | None = None

    @property
    def surely_dead(self) -> bool:
        return bool(self.holder) and is_surely_dead(self.holder)

    @property
    def surely_alive(self) -> bool:
        """Its pid is one of ours to look up, and belongs to no other process."""
        ours = self.holder.split("/")[:2] == this_process().split("/")[:2]
        return bool(self.holder) and ours and not is_surely_dead(self.holder)

    def serves_as_guest(self, home: Home) -> bool:
        """Whether it is the gateway of another profile that serves this home as well."""
        return bool(self.home) and Path(self.home) != home.path


def own_record(home: Home, now: datetime, argv: Sequence[str] | None = None) -> Record:
    """This process as the gateway of `home`."""
    holder = this_process()
    start = holder.rpartition("/")[2]
    return Record(
        pid=os.getpid(),
        argv=tuple(sys.argv if argv is None else argv),
        start_time=int(start) if start.isdecimal() else None,
        holder=holder,
        profile=home.profile,
        home=str(home.path),
        started_at=now,
    )


def read_record(path: Path) -> Record | None:
    """None for a file that is missing, empty, or holds something else."""
    try:
        record = msgspec.json.decode(read_ordinary(path), type=Record)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    return record if record.kind == KIND and record.pid > 0 else None
