"""Who listens on this machine on a socket with a path: programs that would act for the caller."""

from pathlib import Path

SOCKETS = "/proc/net/unix"
_LISTENS = 0x10000
_DATAGRAM = "0002"
_HAVE_THEIR_OWN = ("/run/", "/var/run/", "/dev/", "/proc/")
"""Hidden already, or made anew for a command."""


def listening(table: str = SOCKETS) -> list[str]:
    """The paths of sockets that take connections or letters, outside of what is hidden anyway.

    A command without network has a table of its own, so what it listens on is not in this one.
    """
    try:
        lines = Path(table).read_text("utf-8", "surrogateescape").splitlines()[1:]
    except OSError:
        return []
    return [*dict.fromkeys(path for line in lines if (path := _path(line)))]


def _path(line: str) -> str:
    words = line.split(None, 7)
    if len(words) < 8 or not words[7].startswith("/") or words[7].startswith(_HAVE_THEIR_OWN):
        return ""
    takes = int(words[3], 16) & _LISTENS or words[4] == _DATAGRAM
    return words[7] if takes else ""
