"""Hints for people: what about a command deserves a second look. The wall is elsewhere."""

import re
from collections.abc import Callable, Mapping, Sequence

from hermes.approvals.ruin import is_recursive, operands
from hermes.approvals.script import Found
from hermes.approvals.unwrap import INTERPRETERS, SHELLS, Whole
from hermes.approvals.values import UNKNOWN, listed

_SENSITIVE = re.compile(
    r"(^|/)(\.ssh|\.gnupg|\.aws|\.kube|\.hermes)(/|$)|(^|/)\.env(\.|$)|(^|/)(authorized_keys|id_\w+"
    r"|\.netrc|\.bashrc|\.zshrc|\.profile|\.bash_profile|\.gitconfig|credentials(\.\w+)?)$"
    r"|^/(etc|boot|usr|bin|sbin|lib|var/spool/cron|System|Library)(/|$)"
)
_SQL = re.compile(
    r"\b(drop\s+(table|database|schema|index|view)|truncate\s+(table\s+)?\w|delete\s+from\s+(?!.*\bwhere\b))",
    re.IGNORECASE | re.DOTALL,
)
_DATABASES = listed("psql mysql mariadb sqlite3 mongosh mongo duckdb clickhouse-client")
_CODE = re.compile(
    r"os\.(system|remove|unlink|rmdir|kill|popen)|subprocess|shutil\.(rmtree|move)|rmtree|child_process"
    r"|unlinkSync|rmSync|\bsystem\s*\(|\bexec\s*\(|FileUtils"
)
_FLAGS = re.compile(r"-[A-Za-z]*f[A-Za-z]*|--force.*")

Check = Callable[[Sequence[str]], str]


def _any(*words: str) -> Callable[[str], Check]:
    wanted = frozenset(words)

    def told(why: str) -> Check:
        return lambda args: why if wanted & {*args} else ""

    return told


def _always(why: str) -> Check:
    return lambda args: why


def _rm(args: Sequence[str]) -> str:
    if is_recursive(args):
        return "deletes folders with all that is in them"
    return "deletes by a pattern" if any("*" in one for one in operands(args)) else ""


def _git(args: Sequence[str]) -> str:
    words = operands(args)
    verb = words[0] if words else ""
    rest = {*args} - {verb}
    forced = any(_FLAGS.fullmatch(one) for one in rest)
    if verb == "push" and (
        forced or {"--delete", "-d", "--mirror"} & rest or any(one[:1] in "+:" for one in words[1:])
    ):
        return "rewrites or deletes what others may have"
    losing = (
        (verb == "reset" and {"--hard", "--merge"} & rest)
        or (verb == "clean" and forced)
        or (verb == "branch" and {"-D", "--delete"} & rest)
        or (verb in {"checkout", "restore"} and {".", "--", "-f", "--force"} & rest)
        or (verb == "stash" and {"drop", "clear"} & rest)
        or verb in {"filter-branch", "filter-repo", "update-ref"}
        or (verb == "reflog" and "expire" in rest)
    )
    return "throws away work that git keeps" if losing else ""


def _chmod(args: Sequence[str]) -> str:
    wide = any(
        re.fullmatch(r"0?[0-7]?777|[ao]*\+\w*w\w*|a\+rwx|\+s|u\+s|[2467]\d{3}", one) for one in args
    )
    return (
        "opens files to everybody"
        if wide
        else ("changes whole folders" if is_recursive(args) else "")
    )


def _chown(args: Sequence[str]) -> str:
    root = any(one.split(":")[0] in {"root", "0"} for one in operands(args)[:1])
    return "gives files to another user" if root or is_recursive(args) else ""


def _find(args: Sequence[str]) -> str:
    runs = {"-delete", "-exec", "-execdir", "-ok", "-okdir", "-fprint", "-fls"} & {*args}
    return "acts on everything it finds" if runs else ""


def _kill(args: Sequence[str]) -> str:
    return "ends processes by force" if {"-9", "-KILL", "-SIGKILL", "KILL"} & {*args} else ""


def _hermes(args: Sequence[str]) -> str:
    words = operands(args)
    own = words[:1] and words[0] in {"gateway", "config", "pairing", "approvals", "profile"}
    return "changes or stops the agent itself" if own else ""


def _database(args: Sequence[str]) -> str:
    return "deletes data" if any(_SQL.search(one) for one in args) else ""


def _written(places: Callable[[Sequence[str]], Sequence[str]]) -> Check:
    def check(args: Sequence[str]) -> str:
        touched = [one for one in places(args) if _SENSITIVE.search(one)]
        return f"writes to {touched[0]}" if touched else ""

    return check


def _last(args: Sequence[str]) -> Sequence[str]:
    return operands(args)[-1:]


def _sed(args: Sequence[str]) -> str:
    changes = any(one.startswith(("-i", "--in-place")) for one in args)
    return _written(operands)(args) if changes else ""


_CLOUD = _any("delete", "destroy", "rm", "rb", "terminate-instances", "drain", "uninstall", "purge")
_HINTS: Mapping[str, Check] = {
    "rm": _rm, "shred": _always("destroys files"), "truncate": _always("empties files"),
    "dd": _always("writes raw bytes"), "git": _git, "chmod": _chmod, "chown": _chown,
    "chgrp": _chown, "find": _find, "kill": _kill, "pkill": _always("ends processes by name"),
    "killall": _always("ends processes by name"), "hermes": _hermes,
    "systemctl": _any("stop", "disable", "mask", "restart", "kill", "isolate")("stops services"),
    "service": _any("stop", "restart")("stops services"),
    "launchctl": _any("unload", "bootout", "remove", "kill")("stops services"),
    "docker": _any("rm", "rmi", "stop", "kill", "prune", "down", "--privileged")(
        "stops or deletes containers"
    ),
    "podman": _any("rm", "rmi", "stop", "kill", "prune", "--privileged")(
        "stops or deletes containers"
    ),
    "kubectl": _any("delete", "drain", "replace", "scale")("changes a cluster"),
    "terraform": _any("destroy", "apply")("changes infrastructure"),
    "helm": _any("uninstall", "delete", "rollback")("changes a cluster"),
    "aws": _CLOUD("deletes in the cloud"), "gcloud": _CLOUD("deletes in the cloud"),
    "az": _CLOUD("deletes in the cloud"), "gsutil": _CLOUD("deletes in the cloud"),
    "sudo": _always("acts as another user"), "doas": _always("acts as another user"),
    "su": _always("acts as another user"), "pkexec": _always("acts as another user"),
    "crontab": _any("-r", "-")("changes what runs by itself"), "at": _always("runs later"),
    "userdel": _always("changes users"), "usermod": _always("changes users"),
    "useradd": _always("changes users"), "passwd": _always("changes a password"),
    "visudo": _always("changes who may do what"), "chsh": _always("changes users"),
    "iptables": _always("changes the firewall"), "nft": _always("changes the firewall"),
    "ufw": _always("changes the firewall"), "mount": _always("changes file systems"),
    "umount": _always("changes file systems"), "fdisk": _always("changes disks"),
    "sysctl": _any("-w")("changes the kernel"), "modprobe": _always("changes the kernel"),
    "redis-cli": _any("FLUSHALL", "FLUSHDB", "flushall", "flushdb")("deletes data"),
    "dropdb": _always("deletes data"), "history": _any("-c")("forgets what was done"),
    "npm": _any("publish", "unpublish", "deprecate")("publishes"),
    "twine": _any("upload")("publishes"), "cargo": _any("publish", "yank")("publishes"),
    "gh": _any("delete", "merge", "transfer", "archive")("changes what others see"),
    "apt": _any("remove", "purge", "autoremove")("removes software"),
    "apt-get": _any("remove", "purge", "autoremove")("removes software"),
    "dnf": _any("remove", "erase")("removes software"),
    "brew": _any("uninstall")("removes software"),
    "tee": _written(operands), "cp": _written(_last), "mv": _written(_last),
    "install": _written(_last), "ln": _written(_last), "sed": _sed,
}  # fmt: skip


def danger_in(whole: Whole) -> str:
    """Why somebody should look at it first, in a few words; empty when nothing stands out."""
    if any(_CODE.search(code) for code in whole.code):
        return "runs code that starts programs or deletes files"
    for found in whole.found:
        if why := _danger_of(found):
            return why
    return "cannot be read as a command" if whole.broken and not whole.found else ""


def _danger_of(found: Found) -> str:
    for target in found.targets:
        if _SENSITIVE.search(target):
            return f"writes to {target}"
    if not found.argv:
        return ""
    name, args = found.name, found.argv[1:]
    if UNKNOWN in name:
        return "runs a program that is not named in it"
    if name in {*SHELLS, "source", ".", "eval"} and _runs_unknown(found):
        return "runs something that is not in the command"
    if name in _DATABASES or INTERPRETERS.match(name):
        return _database(args)
    hint = _HINTS.get(name)
    return hint(args) if hint else ""


def _runs_unknown(found: Found) -> bool:
    if any(UNKNOWN in one for one in found.argv[1:]):
        return True
    named = [one for one in found.argv[1:] if not one.startswith("-")]
    return found.piped and found.fed is None and not named


_READERS = listed(
    "ls cat head tail wc grep egrep fgrep rg pwd echo printf true false test [ file stat du df "
    "date whoami id uname hostname which type sort uniq cut tr nl tac rev basename "
    "dirname realpath "
    "readlink tree jq yq diff cmp comm column fold strings od xxd hexdump md5sum sha1sum sha256sum "
    "ps uptime free cd env printenv seq sleep locale lsof pgrep less more : "
)
_GIT_READERS = listed(
    "status log diff show branch blame describe rev-parse ls-files ls-tree shortlog grep tag "
    "remote cat-file rev-list merge-base"
)


def only_reads(whole: Whole) -> bool:
    """Whether every command is known to look and not to touch."""
    if whole.broken or whole.code or not whole.found:
        return False
    return all(_reads(found) for found in whole.found)


def _reads(found: Found) -> bool:
    if any(
        target not in {"/dev/null", "/dev/stderr", "/dev/stdout", "1", "2"}
        for target in found.targets
    ):
        return False
    if not found.argv or UNKNOWN in found.name:
        return False
    if found.name == "git":
        verb = operands(found.argv[1:])[:1]
        plain = len(operands(found.argv[1:])) == 1 or verb[0] not in {"branch", "tag", "remote"}
        return bool(verb) and verb[0] in _GIT_READERS and plain and "-c" not in found.argv
    if found.name == "find":
        return not _find(found.argv[1:])
    if found.name in {"env", "sort", "tree", "yq", "xxd"}:
        return not any(
            one.startswith(("-o", "-i", "-r", "--output")) for one in found.argv[1:]
        ) and (found.name != "env" or len(found.argv) == 1)
    return found.name in _READERS
