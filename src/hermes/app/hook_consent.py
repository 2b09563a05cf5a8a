"""Which programs the owner has agreed to have run at which event, word for word."""

import os
import shlex
import stat
from collections.abc import Iterable, Sequence
from datetime import datetime
from hashlib import sha256
from pathlib import Path

import msgspec
from msgspec import Struct

from hermes.kit.files import read_ordinary, write_atomic
from hermes.schema.errors import ConfigError


class Consent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`seal` is what the files that the command names had in them; of old there is none."""

    event: str
    command: str
    approved_at: str = ""
    seal: str = ""


class _File(Struct):
    approvals: list[Consent] = []


class Consents:
    """The list in a home. Whoever can write it decides what runs, so nobody else may."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def all(self) -> Sequence[Consent]:
        """Raises `ConfigError` when it cannot be trusted."""
        try:
            found = self._path.stat()
            if found.st_uid not in {os.geteuid(), 0} or found.st_mode & (
                stat.S_IWGRP | stat.S_IWOTH
            ):
                raise ConfigError(
                    f"{self._path} can be written by others than you.",
                    hint=f"chmod 600 {self._path}",
                )
            return msgspec.json.decode(read_ordinary(self._path), type=_File).approvals
        except FileNotFoundError:
            return ()
        except (OSError, msgspec.DecodeError) as error:
            raise ConfigError(
                f"{self._path} cannot be read: {error}", hint="Move it away and accept them anew."
            ) from error

    def given(self, event: str, command: str) -> bool:
        """For this very command, whose files are as they were."""
        return any(
            (one.event, one.command) == (event, command) and one.seal in {"", seal_of(command)}
            for one in self.all()
        )

    def give(self, wanted: Iterable[tuple[str, str]], now: datetime) -> list[Consent]:
        """Those that are new."""
        new = [
            Consent(event=event, command=line, approved_at=now.isoformat(), seal=seal_of(line))
            for event, line in dict.fromkeys(wanted)
            if not self.given(event, line)
        ]
        again = {(one.event, one.command) for one in new}
        if new:
            old = [one for one in self.all() if (one.event, one.command) not in again]
            self._write([*old, *new])
        return new

    def take_back(self, command: str) -> int:
        """Of a command, at whatever event, or of all; how many there were."""
        kept = [one for one in self.all() if command and one.command != command]
        gone = len(self.all()) - len(kept)
        if gone:
            self._write(kept)
        return gone

    def _write(self, approvals: list[Consent]) -> None:
        data = msgspec.json.format(msgspec.json.encode(_File(approvals)))
        write_atomic(self._path, data + b"\n", mode=0o600)


def words_of(command: str) -> list[str]:
    """As it is started, without a shell. Raises `ValueError` for what cannot be."""
    words = [
        str(Path(one).expanduser()) if one[:2] == "~/" else one for one in shlex.split(command)
    ]
    if not words or ("/" in words[0] and not words[0].startswith("/")):
        # Beside the files that the agent works on, somebody else may have put another.
        raise ValueError("a program is named by its whole path, or found in PATH")
    return words


def seal_of(command: str) -> str:
    """What the files that are named in full have in them."""
    digest = sha256()
    try:
        for word in words_of(command):
            if word.startswith("/") and Path(word).is_file():
                digest.update(sha256(Path(word).read_bytes()).digest())
    except (OSError, ValueError, RuntimeError):
        return "unreadable"
    return digest.hexdigest()
