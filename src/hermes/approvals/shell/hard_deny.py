"""Commands that are always denied because they would destroy the system or its data."""

import fnmatch
import posixpath
import re
from collections.abc import Callable, Sequence

from hermes.approvals.shell.expansion import UNKNOWN, word_set
from hermes.approvals.shell.nested_commands import CommandAnalysis
from hermes.approvals.shell.parser import ParsedCommand

_SAMPLE_PROCESSES = ("bash", "systemd", "python3", "sshd")
_SUDO_VALUE_FLAGS = frozenset("ughpCcrtTUDR")
_SUDO_LONG_OPTIONS = re.compile(r"--(user|group|prompt|host|chdir|chroot|role|type|other-user)")
_RECURSIVE = re.compile(r"-[A-Za-z]*[rR][A-Za-z]*|--r[ecursive]*")
_SHUTDOWN_COMMANDS = frozenset({"shutdown", "reboot", "halt", "poweroff", "killall5"})
_FORMAT_COMMANDS = re.compile(
    r"mkfs(\..+)?|mke2fs|newfs(_.+)?|wipefs|blkdiscard|mkntfs|mkdosfs|sgdisk|format"
)
_SHUTDOWN_UNITS = word_set(
    "reboot poweroff halt kexec rescue emergency soft-reboot suspend hibernate hybrid-sleep "
    "suspend-then-hibernate"
)
_FIND_TESTS = word_set(
    "-name -iname -path -ipath -wholename -regex -iregex -mtime -mmin -ctime -atime -size -newer "
    "-user -group -empty -perm -inum -samefile -links -lname"
)
_TREE_REMOVERS = re.compile(
    r"rmtree|rm_rf|rm_r\b|remove_tree|rmSync|rmdirSync|rimraf|removeSync|RemoveAll|removedirs"
)
_LITERALS = (re.compile(r"'([^'\n]*)'"), re.compile(r'"([^"\n]*)"'))
_HOME_REMOVAL = re.compile(
    rf"(?:{_TREE_REMOVERS.pattern})\s*\(\s*(?:str\(\s*)?(?:pathlib\.)?(?:Path\.home\(\)|os\.homedir\(\)"
    r"|Dir\.home|process\.env\.HOME|os\.(?:environ\[|getenv\().HOME.[\])])\s*\)*\s*[,)]"
)
_TREE_WALK = re.compile(
    r"(?:walk|Path|scandir|glob|readdirSync)\(\s*['\"](?P<place>[^'\"\n]*)['\"]"
)
_REMOVE_CALL = re.compile(r"\b(?:remove|unlink|unlinkSync|rmdir)\(")
_FORK_LOOP = re.compile(
    r"\bfork\s+while\b|while\s*\(?\s*(?:1|True)\s*\)?\s*[:{]\s*(?:os\.|__import__\(.os.\)\.)?fork\("
)
_DEVICE_OPEN = re.compile(r"\bopen\(\s*['\"](/dev/[^'\"]+)['\"]\s*,\s*['\"][a-z+]*[wa+]")
_HOME_WORDS = frozenset({"~", "~/", "$HOME", "${HOME}"})
_REMOVERS = frozenset({"rm", "shred", "unlink", "srm"})
_REMOVE_COMMAND = re.compile(r"(?:^|[;&|(/\s])(?:rm|shred|unlink|srm)\s")
_NAME_FILTERS = frozenset({"sort", "cat", "tee", "tr", "uniq", "head", "tail"})
"""Programs that pass on the names they receive."""
_MATCH_ALL = frozenset({"*", "**", "?*", "*?", "/*", "/**", ".*", "+0", "+0c", "+1c", "."})
"""Values of find and grep tests that match everything."""
_HELP_FLAGS = frozenset({"--help", "--version"})


def hard_deny_reason(analysis: CommandAnalysis, homes: Sequence[str]) -> str:
    """Say what it would destroy, as the end of a sentence; empty if nothing."""
    if analysis.fork_bomb or any(_FORK_LOOP.search(code) for code in analysis.code):
        return "it would fill the machine with processes"
    if any(_deletes_trees(code, homes) for code in analysis.code):
        return "it would delete the system or a home"
    listed_by_find = ""
    for found in analysis.commands:
        if found.name in {"xargs", "parallel"} and listed_by_find and _removes(found.argv):
            return f"it would delete {listed_by_find}"
        if not found.piped or not _passes_names(found):
            listed_by_find = _found_tree(found, homes)
        for target in found.targets:
            if is_device(posixpath.join(found.folder, target)):
                return f"it would overwrite {target}"
        if why := _command_reason(found, homes):
            return why
    return ""


def _passes_names(found: ParsedCommand) -> bool:
    if found.name in {"grep", "egrep", "fgrep"}:
        return any(one in _MATCH_ALL or re.fullmatch(r"-\w*v\w*", one) for one in found.argv[1:])
    return found.name in _NAME_FILTERS


def _command_reason(found: ParsedCommand, homes: Sequence[str]) -> str:
    if not found.argv:
        return ""
    name, args = found.name, list(found.argv[1:])
    for checked, check in _CHECKS:
        if matches_name(name, checked) and (why := check(args, found, homes)):
            return why
    if name in _SHUTDOWN_COMMANDS and not _HELP_FLAGS & {*args} and args[:1] != ["-c"]:
        return "it would stop the machine or everything on it"
    if _FORMAT_COMMANDS.fullmatch(name) and any(not one.startswith("-") for one in args):
        return "it would format a disk"
    return ""


def _deletes_trees(code: str, homes: Sequence[str]) -> bool:
    if _HOME_REMOVAL.search(code) or any(
        is_device(found[1]) for found in _DEVICE_OPEN.finditer(code)
    ):
        return True
    strings = (one for literal in _LITERALS for one in literal.findall(code))
    if _TREE_REMOVERS.search(code) and any(
        one in _HOME_WORDS or is_protected_path(one, "/", homes) for one in strings
    ):
        return True
    # Code that checks what it finds may be legitimate.
    walked = (found["place"] for found in _TREE_WALK.finditer(code))
    unconditional = _REMOVE_CALL.search(code) and not re.search(r"\b(?:if|filter)\b", code)
    return bool(unconditional) and any(is_protected_path(path, "/", homes) for path in walked)


def matches_name(word: str, name: str) -> bool:
    """Whether the shell may resolve the word to that name."""
    if word == name:
        return True
    if not any(sign in word for sign in (UNKNOWN, "*", "?", "[")):
        return False
    return fnmatch.fnmatchcase(name, word.replace(UNKNOWN, "*"))


def operands(args: Sequence[str]) -> list[str]:
    if "--" in args:
        cut = list(args).index("--")
        return [one for one in args[:cut] if not one.startswith("-")] + list(args[cut + 1 :])
    return [one for one in args if not one.startswith("-")]


def is_recursive(args: Sequence[str]) -> bool:
    before = args[: list(args).index("--")] if "--" in args else args
    return any(
        _RECURSIVE.fullmatch(one) or (one.startswith("-") and UNKNOWN in one) for one in before
    )


DenyCheck = Callable[[Sequence[str], ParsedCommand, Sequence[str]], str]


def _delete(args: Sequence[str], found: ParsedCommand, homes: Sequence[str]) -> str:
    if any(one.startswith("--no-p") for one in args) and operands(args):
        return "it would delete the root of the file system"
    protected = [one for one in operands(args) if is_protected_path(one, found.folder, homes)]
    return f"it would delete {protected[0]}" if protected and is_recursive(args) else ""


def _removes(args: Sequence[str]) -> bool:
    return any(
        one.rpartition("/")[2] in _REMOVERS or (" " in one and _REMOVE_COMMAND.search(one))
        for one in args
    )


def _find(args: Sequence[str], found: ParsedCommand, homes: Sequence[str]) -> str:
    tree = _found_tree(found, homes) if "-delete" in args or _removes(args) else ""
    return f"it would delete {tree}" if tree else ""


def _found_tree(found: ParsedCommand, homes: Sequence[str]) -> str:
    """The protected folder that a find lists entirely; empty if there is none or it filters."""
    args = found.argv[1:]
    if not found.argv or not matches_name(found.name, "find"):
        return ""
    while args and re.fullmatch(r"-[HLP]|-O\d?|-D", args[0]):
        args = args[2 if args[0] == "-D" else 1 :]
    roots: list[str] = []
    for one in args:
        if one.startswith(("-", "(", "!")):
            break
        roots.append(one)
    protected = [one for one in roots or ["."] if is_protected_path(one, found.folder, homes)]
    before = ["", *args]
    tests = [
        one for last, one, value in zip(before, args, [*args[1:], ""], strict=False)
        if one in _FIND_TESTS and value not in _MATCH_ALL
        and not (last in {"!", "-not"} and one.endswith(("name", "path")))
    ]  # fmt: skip
    return protected[0] if protected and not tests else ""


def _git_clean(args: Sequence[str], found: ParsedCommand, homes: Sequence[str]) -> str:
    """Check `git clean` of a home or system folder."""
    rest, folder = list(args), found.folder
    while rest and rest[0].startswith("-"):
        valued = rest[0] in {"-C", "-c", "--git-dir", "--work-tree"}
        if rest[0] in {"-C", "--work-tree"} and len(rest) > 1:
            folder = posixpath.join(folder, rest[1])
        rest = rest[2 if valued else 1 :]
    flags = "".join(one for one in rest if one.startswith("-"))
    clears = rest[:1] == ["clean"] and "f" in flags and "n" not in flags and len(rest) > 1
    paths = operands(rest)[1:] or ["."]
    protected = [one for one in paths if is_protected_path(one, folder, homes)]
    return f"it would delete the contents of {folder}" if clears and protected else ""


def _pack_and_remove(args: Sequence[str], found: ParsedCommand, homes: Sequence[str]) -> str:
    removes = any(one.startswith("--remove-f") for one in args)
    protected = [one for one in operands(args) if is_protected_path(one, found.folder, homes)]
    return f"it would delete {protected[0]}" if removes and protected else ""


def _change_access(args: Sequence[str], found: ParsedCommand, homes: Sequence[str]) -> str:
    no_mode = found.name in {"setfacl", "chattr"} or any(one.startswith("--ref") for one in args)
    paths = operands(args)[0 if no_mode else 1 :]
    protected = [one for one in paths if is_protected_path(one, found.folder, homes)]
    revokes = any(re.fullmatch(r"0+|a?=|a-[rwx]*x[rwx]*", one) for one in operands(args)[:1])
    applies = is_recursive(args) or (found.name == "chmod" and revokes)
    return f"it would change access to {protected[0]}" if protected and applies else ""


def _target_option(args: Sequence[str]) -> str:
    """The folder given with `-t`."""
    for word, value in zip(args, [*args[1:], ""], strict=False):
        if word.startswith("--target-d"):
            return word.partition("=")[2] or value
        if re.fullmatch(r"-[a-zA-SU-Z]*t", word):
            return value
    return ""


def _move(args: Sequence[str], found: ParsedCommand, homes: Sequence[str]) -> str:
    target = _target_option(args)
    moved = [one for one in operands(args) if one != target] if target else operands(args)[:-1]
    protected = [one for one in moved if is_protected_path(one, found.folder, homes)]
    return f"it would move {protected[0]} away" if protected else _overwrite(args, found, homes)


def _synchronize(args: Sequence[str], found: ParsedCommand, homes: Sequence[str]) -> str:
    given = operands(args)
    deletes = any(one.startswith("--del") for one in args)
    empties = deletes and given and is_protected_path(given[-1], found.folder, homes)
    return f"it would empty {given[-1]}" if empties else ""


def _overwrite(args: Sequence[str], found: ParsedCommand, homes: Sequence[str]) -> str:
    written = [one.removeprefix("of=") for one in operands(args) if not one.startswith("if=")]
    for one in written:
        if is_device(posixpath.join(found.folder, one)):
            return f"it would overwrite {one}"
    return ""


def _copy(args: Sequence[str], found: ParsedCommand, homes: Sequence[str]) -> str:
    return _overwrite(
        [_target_option(args)] if _target_option(args) else operands(args)[-1:], found, homes
    )


def _fetch(args: Sequence[str], found: ParsedCommand, homes: Sequence[str]) -> str:
    return _overwrite([one.removeprefix("--output=") for one in args], found, homes)


def _format_with(verb: str) -> DenyCheck:
    def check(args: Sequence[str], found: ParsedCommand, homes: Sequence[str]) -> str:
        named = any(is_device(posixpath.join(found.folder, one)) for one in args)
        erases = verb in args if verb else found.piped
        return "it would erase a disk" if named and erases else ""

    return check


def _kill(args: Sequence[str], found: ParsedCommand, homes: Sequence[str]) -> str:
    rest = list(args)
    if rest[:1] in (["-s"], ["-n"]):
        rest = rest[2:]
    elif rest[:1] and rest[0].startswith("-") and rest[0] != "--":
        if rest == ["-1"]:
            return "it would end every process"
        rest = rest[1:]
    return "it would end every process" if "-1" in rest else ""


def _kill_named(args: Sequence[str], found: ParsedCommand, homes: Sequence[str]) -> str:
    given = [one for one in operands(args) if _matches_every_process(one)]
    inverse = {"-v", "--inverse"} & {*args} and found.name == "pkill"
    return "it would end every process" if given or inverse else ""


def _matches_every_process(pattern: str) -> bool:
    if pattern in {"", "*", "^"}:
        return True
    if UNKNOWN in pattern or len(pattern) > 32 or pattern.count("*") + pattern.count("+") > 2:
        return False
    try:
        return all(re.search(pattern, one) for one in _SAMPLE_PROCESSES)
    except re.error:
        return False


def _init(args: Sequence[str], found: ParsedCommand, homes: Sequence[str]) -> str:
    return "it would stop the machine" if {"0", "6", "1"} & {*args} else ""


def _systemctl(args: Sequence[str], found: ParsedCommand, homes: Sequence[str]) -> str:
    given = operands(args)
    stops = given[:1] and given[0] in _SHUTDOWN_UNITS
    units = {one.removesuffix(".target") for one in given[1:]}
    targets = given[:1] in (["start"], ["isolate"]) and units & {*_SHUTDOWN_UNITS, "ctrl-alt-del"}
    return "it would stop the machine" if stops or targets else ""


def _partition(args: Sequence[str], found: ParsedCommand, homes: Sequence[str]) -> str:
    changes = {"mklabel", "mkpart", "rm", "luksFormat", "luksErase", "erase", "eraseDisk",
               "eraseVolume", "--delete", "--security-erase", "secureErase", "zap",
               "-w"}  # fmt: skip
    return "it would erase a disk" if changes & {*args} else ""


def _guess_password(args: Sequence[str], found: ParsedCommand, homes: Sequence[str]) -> str:
    rest = list(args)
    while rest and (rest[0].startswith("-") or re.match(r"\w+=", rest[0])):
        word = rest.pop(0)
        if word == "--":
            break
        flags = re.match(r"-([A-Za-z]*)", word)
        letters = flags[1] if flags else ""
        valued = next(
            (at for at, one in enumerate(letters) if one in _SUDO_VALUE_FLAGS), len(letters)
        )
        if word == "--stdin" or "S" in letters[:valued]:
            return "it would try a password"
        if (letters and valued == len(letters) - 1) or _SUDO_LONG_OPTIONS.fullmatch(word):
            rest[:1] = []
    return ""


_CHECKS: Sequence[tuple[str, DenyCheck]] = (
    ("rm", _delete), ("srm", _delete), ("find", _find), ("mv", _move), ("rsync", _synchronize),
    ("chmod", _change_access), ("chown", _change_access), ("chgrp", _change_access),
    ("setfacl", _change_access),
    ("dd", _overwrite), ("tee", _overwrite), ("shred", _overwrite), ("truncate", _overwrite),
    ("cp", _copy), ("install", _copy), ("mkswap", _overwrite), ("badblocks", _partition),
    ("kill", _kill), ("pkill", _kill_named), ("killall", _kill_named), ("init", _init),
    ("telinit", _init), ("systemctl", _systemctl), ("loginctl", _systemctl),
    ("parted", _partition), ("sfdisk", _partition), ("cryptsetup", _partition),
    ("diskutil", _partition), ("git", _git_clean), ("tar", _pack_and_remove),
    ("bsdtar", _pack_and_remove),
    ("hdparm", _partition), ("sudo", _guess_password), ("chattr", _change_access), ("curl", _fetch),
    ("wget", _fetch), ("ddrescue", _copy), ("qemu-img", _copy), ("fdisk", _format_with("")),
    ("gdisk", _format_with("")), ("mdadm", _format_with("--zero-superblock")),
    ("nvme", _format_with("format")),
)  # fmt: skip


PROTECTED_FOLDERS = word_set(
    "/ /bin /boot /dev /etc /home /lib /lib32 /lib64 /libx32 /media /mnt /opt /proc /root /run "
    "/sbin /srv /sys /usr /usr/bin /usr/lib /usr/lib64 /usr/local /usr/sbin /usr/share /var "
    "/var/lib /nix /snap /System /Library /Users /Applications /private"
)
_DISK_DEVICE = re.compile(
    r"/dev/(sd[a-z]|hd[a-z]|vd[a-z]|xvd[a-z]|nvme\d|mmcblk\d|dm-\d|md\d|disk\d|rdisk\d|mapper/"
    r"|disk/|loop\d|ram\d|sr\d|root$|zd\d|nbd\d|bcache\d)"
)
_MEMORY_DEVICE = re.compile(r"/dev/(mem|kmem|port)$|/proc/sysrq-trigger$|/proc/kcore$")
_SAMPLE_DISKS = word_set("/dev/sda /dev/sdb /dev/vda /dev/hda /dev/xvda /dev/nvme0n1 /dev/mmcblk0")
_PROC_LINK = re.compile(r"/proc/[^/]+/(root|cwd)(?=/|$)/?")
_SAMPLE_NAMES = (("docs", "src", "work", "usr"), (".config", ".local", ".ssh", ".cache"))


def is_protected_path(path: str, folder: str, homes: Sequence[str]) -> bool:
    """Whether it is a system folder or a home, or everything in one; `path` may be a pattern."""
    if path.startswith("/proc/"):
        path = _PROC_LINK.sub(lambda found: "/" if found[1] == "root" else folder + "/", path)
    if not path or path == UNKNOWN:
        return False
    if path.strip("/") == UNKNOWN and path.startswith("/"):
        return True
    if UNKNOWN in path:
        return False
    full = posixpath.normpath(posixpath.join(folder or "/", path))
    full = "/" + full.lstrip("/").replace("[^", "[!")
    protected = {*PROTECTED_FOLDERS, *(posixpath.normpath(one) for one in homes)}
    candidates = [full]
    if _matches_most(posixpath.basename(full)):
        candidates.append(posixpath.dirname(full))
    return any(_covers_protected(one, protected) for one in candidates)


def _matches_most(pattern: str) -> bool:
    """Whether it matches nearly everything in a folder, or all hidden files there."""
    if not any(sign in pattern for sign in "*?["):
        return False
    if pattern in {"{*,.*}", "*.*", ".[!.]*", ".??*"}:
        return True
    return any(all(fnmatch.fnmatchcase(one, pattern) for one in group) for group in _SAMPLE_NAMES)


def _covers_protected(path: str, protected: set[str]) -> bool:
    if path in protected or re.fullmatch(r"/(home|Users)/[^/]+", path):
        return True
    if not any(sign in path for sign in "*?["):
        return False
    return any(
        one.count("/") == path.count("/") and fnmatch.fnmatch(one, path) for one in protected
    )


def is_device(path: str) -> bool:
    path = posixpath.normpath(path)
    path = "/" + path.lstrip("/")
    if path.startswith("/dev/") and any(sign in path for sign in (UNKNOWN, "*", "?", "[")):
        pattern = path.replace(UNKNOWN, "*")
        return any(fnmatch.fnmatchcase(one, pattern) for one in _SAMPLE_DISKS)
    return bool(_DISK_DEVICE.match(path) or _MEMORY_DEVICE.match(path))
