"""Which places a machine cannot do without: by their names, and by the patterns that cover them."""

import fnmatch
import posixpath
import re
from collections.abc import Sequence

from hermes.approvals.values import UNKNOWN, listed

SYSTEM = listed(
    "/ /bin /boot /dev /etc /home /lib /lib32 /lib64 /libx32 /media /mnt /opt /proc /root /run "
    "/sbin /srv /sys /usr /usr/bin /usr/lib /usr/lib64 /usr/local /usr/sbin /usr/share /var "
    "/var/lib /nix /snap /System /Library /Users /Applications /private"
)
_DISK = re.compile(
    r"/dev/(sd[a-z]|hd[a-z]|vd[a-z]|xvd[a-z]|nvme\d|mmcblk\d|dm-\d|md\d|disk\d|rdisk\d|mapper/"
    r"|disk/|loop\d|ram\d|sr\d|root$|zd\d|nbd\d|bcache\d)"
)
_MEMORY = re.compile(r"/dev/(mem|kmem|port)$|/proc/sysrq-trigger$|/proc/kcore$")
_DISKS = (
    "/dev/sda",
    "/dev/sdb",
    "/dev/vda",
    "/dev/hda",
    "/dev/xvda",
    "/dev/nvme0n1",
    "/dev/mmcblk0",
)
_SELF = re.compile(r"/proc/[^/]+/(root|cwd)(?=/|$)/?")
_USUAL = (("docs", "src", "work", "usr"), (".config", ".local", ".ssh", ".cache"))


def is_vital(path: str, folder: str, homes: Sequence[str]) -> bool:
    """A system folder or a home, or all that is in one; `path` may be a pattern."""
    if path.startswith("/proc/"):
        path = _SELF.sub(lambda found: "/" if found[1] == "root" else folder + "/", path)
    if not path or path == UNKNOWN:
        return False
    if path.strip("/") == UNKNOWN and path.startswith("/"):
        return True
    if UNKNOWN in path:
        return False
    whole = posixpath.normpath(posixpath.join(folder or "/", path))
    whole = "/" + whole.lstrip("/").replace("[^", "[!")
    vital = {*SYSTEM, *(posixpath.normpath(one) for one in homes)}
    candidates = [whole]
    if _is_broad(posixpath.basename(whole)):
        candidates.append(posixpath.dirname(whole))
    return any(_covers(one, vital) for one in candidates)


def _is_broad(pattern: str) -> bool:
    """Whether it stands for nearly everything in a folder, or for all that is hidden there."""
    if not any(sign in pattern for sign in "*?["):
        return False
    if pattern in {"{*,.*}", "*.*", ".[!.]*", ".??*"}:
        return True
    return any(all(fnmatch.fnmatchcase(one, pattern) for one in group) for group in _USUAL)


def _covers(path: str, vital: set[str]) -> bool:
    if path in vital or re.fullmatch(r"/(home|Users)/[^/]+", path):
        return True
    if not any(sign in path for sign in "*?["):
        return False
    return any(one.count("/") == path.count("/") and fnmatch.fnmatch(one, path) for one in vital)


def is_device(path: str) -> bool:
    path = posixpath.normpath(path)
    path = "/" + path.lstrip("/")
    if path.startswith("/dev/") and any(sign in path for sign in (UNKNOWN, "*", "?", "[")):
        pattern = path.replace(UNKNOWN, "*")
        return any(fnmatch.fnmatchcase(one, pattern) for one in _DISKS)
    return bool(_DISK.match(path) or _MEMORY.match(path))
