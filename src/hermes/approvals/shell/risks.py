"""Find what is risky about a command, to warn people; the sandbox is what enforces limits."""

import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from hermes.approvals.shell.expansion import UNKNOWN, word_set
from hermes.approvals.shell.hard_deny import is_recursive, operands
from hermes.approvals.shell.nested_commands import (
    EDITORS,
    INTERPRETERS,
    SHELLS,
    SOCKET_TOOLS,
    CommandAnalysis,
)
from hermes.approvals.shell.outside_effects import git_command, outside_effect
from hermes.approvals.shell.parser import ParsedCommand
from hermes.approvals.shell.read_only import is_private_path

_SENSITIVE = re.compile(
    r"(^|/)(\.ssh|\.gnupg|\.aws|\.kube|\.hermes)(/|$)|(^|/)\.env(\.|$)|(^|/)(authorized_keys|id_\w+"
    r"|\.netrc|\.bashrc|\.zshrc|\.profile|\.bash_profile|\.gitconfig|credentials(\.\w+)?)$"
    r"|^/(etc|boot|usr|bin|sbin|lib|var/spool/cron|System|Library)(/|$)"
)
_DESTRUCTIVE_SQL = re.compile(
    r"\b(drop\s+(table|database|schema|index|view)|truncate\s+(table\s+)?\w|delete\s+from\s+(?!.*\bwhere\b))",
    re.IGNORECASE | re.DOTALL,
)
_DATABASES = word_set("psql mysql mariadb sqlite3 mongosh mongo duckdb clickhouse-client")
_RISKY_CODE = re.compile(
    r"os\.(system|remove|unlink|rmdir|kill|popen)|subprocess|shutil\.(rmtree|move)|rmtree|child_process"
    r"|unlinkSync|rmSync|\bsystem\s*\(|\bexec\s*\(|FileUtils"
)
_GIT_PROGRAM_SETTINGS = re.compile(
    r"(?i)^(core\.(sshCommand|fsmonitor|hooksPath|editor|pager|askPass|gitProxy)|alias\.|pager\."
    r"|diff\.|filter\.|merge\.|credential\.|gpg\.|protocol\.ext|uploadpack|sequence\.)|^--exec-path"
)
_FETCHERS = word_set("curl wget aria2c")
_NETWORK_PROGRAMS = word_set(
    "curl wget nc ncat netcat socat scp sftp rsync ssh ftp tftp telnet http https rclone aws "
    "gsutil gcloud az mail mailx sendmail mutt xh websocat openssl dig nslookup host gh"
)
_KEY_OPTIONS = word_set("-i -F --cert --key -E --cacert --identity")
_FORCE_FLAGS = re.compile(r"-[A-Za-z]*f[A-Za-z]*|--force.*")

_OUTPUT_OPTIONS = word_set("-o -O --output --output-document --out")

RiskCheck = Callable[[Sequence[str]], str]


def _any_of(names: str, why: str) -> RiskCheck:
    wanted = word_set(names)
    return lambda args: why if wanted & {*args} else ""


def _always(why: str) -> RiskCheck:
    return lambda args: why


def _rm(args: Sequence[str]) -> str:
    if is_recursive(args):
        return "deletes folders with their contents"
    return "deletes files by pattern" if any("*" in one for one in operands(args)) else ""


def _git_configured(args: Sequence[str]) -> bool:
    before = list(args)[: len(args) - len(git_command(args))]
    return any(one == "-c" or one.startswith(("--exec-path=", "--config-env")) for one in before)


def _git(args: Sequence[str]) -> str:
    if _git_configured(args) and any(_GIT_PROGRAM_SETTINGS.search(one) for one in args):
        return "makes git run another program"
    args = git_command(args)
    words = operands(args)
    verb = words[0] if words else ""
    rest = {*args} - {verb}
    forced = any(_FORCE_FLAGS.fullmatch(one) for one in rest)
    if verb == "push" and (
        forced or {"--delete", "-d", "--mirror"} & rest or any(one[:1] in "+:" for one in words[1:])
    ):
        return "rewrites or deletes published work"
    losing = (
        (verb == "reset" and {"--hard", "--merge"} & rest)
        or (verb == "clean" and forced)
        or (verb == "branch" and {"-D", "--delete"} & rest)
        or (verb in {"checkout", "restore"} and {".", "--", "-f", "--force"} & rest)
        or (verb == "stash" and {"drop", "clear"} & rest)
        or verb in {"filter-branch", "filter-repo", "update-ref"}
        or (verb == "reflog" and "expire" in rest)
    )
    return "discards work kept in git" if losing else ""


def _chmod(args: Sequence[str]) -> str:
    wide = any(
        re.fullmatch(r"0?[0-7]?777|[ao]*\+\w*w\w*|a\+rwx|\+s|u\+s|[2467]\d{3}", one) for one in args
    )
    if wide:
        return "makes files writable for everyone"
    return "changes whole folders" if is_recursive(args) else ""


def _chown(args: Sequence[str]) -> str:
    root = any(one.split(":")[0] in {"root", "0"} for one in operands(args)[:1])
    return "gives files to another user" if root or is_recursive(args) else ""


def _find(args: Sequence[str]) -> str:
    runs = {"-delete", "-exec", "-execdir", "-ok", "-okdir", "-fprint", "-fls"} & {*args}
    return "acts on everything it finds" if runs else ""


def _tar(args: Sequence[str]) -> str:
    if any(one.startswith("--remove-f") for one in args):
        return "deletes what it packs"
    runs = ("--to-command", "--checkpoint-action", "--use-compress-program", "-I", "--rsh-command")
    return "runs another program" if any(one.startswith(runs) for one in args) else ""


def _editor(args: Sequence[str]) -> str:
    runs = any(
        re.search(r"(^|[:\s+]|^-c|--cmd=?)(!|shell\b|system\b)|\bpython\b", one) for one in args
    )
    return "runs commands from an editor" if runs else ""


def _make(args: Sequence[str]) -> str:
    fed = {"-f", "--file", "--makefile"} & {*args} and {"-", "/dev/stdin", "/dev/fd/0"} & {*args}
    joined = {"-f-", "-f/dev/stdin", "--file=-", "--file=/dev/stdin", "--makefile=-"} & {*args}
    evaluated = any(one.startswith(("--eval", "-E")) for one in args)
    return "runs something that is not in a file" if fed or joined or evaluated else ""


def _ssh(args: Sequence[str]) -> str:
    names = re.compile(r"(-o)?\s*(ProxyCommand|LocalCommand|KnownHostsCommand)\b", re.IGNORECASE)
    return "runs another program to connect" if any(map(names.match, args)) else ""


def _socket_tool(args: Sequence[str]) -> str:
    shell = any(
        re.match(r"-\w*[ec]$|--exec|--sh-exec|--lua-exec|EXEC:|SYSTEM:", one, re.IGNORECASE)
        for one in args
    )
    return "exposes a program to the network" if shell else ""


def _crontab(args: Sequence[str]) -> str:
    return "" if args and {*args} <= {"-l"} else "changes scheduled jobs"


def _kill(args: Sequence[str]) -> str:
    return "ends processes by force" if {"-9", "-KILL", "-SIGKILL", "KILL"} & {*args} else ""


_READ_ONLY_VERBS = {
    "version": frozenset[str](), "status": frozenset[str](), "logs": frozenset[str](),
    "config": frozenset({"show", "get", "path", "check", "env-path"}),
    "sessions": frozenset({"list", "show", "search", "stats"}), "tools": frozenset({"list"}),
    "skills": frozenset({"list", "show"}), "mcp": frozenset({"list"}),
    "gateway": frozenset({"status", "list"}),
}  # fmt: skip
"""Verbs and actions of `hermes` that only show something."""


def _hermes(args: Sequence[str]) -> str:
    """Allow only a few verbs: another agent would act without approval, or change the rules."""
    match operands(args):
        case []:
            shows = bool(args) and {*args} <= {"-V", "--version", "-h", "--help"}
        case [verb, *rest]:
            actions = _READ_ONLY_VERBS.get(verb)
            shows = actions is not None and (not actions or rest[:1] in [[one] for one in actions])
            shows = shows and not {"--yolo", "-z", "--oneshot", "-q"} & {*args}
        case _:
            shows = False
    return "" if shows else "starts, changes or stops an agent"


def _python(args: Sequence[str]) -> str:
    """`python -m hermes` is the same program."""
    for index, one in enumerate(args):
        if one == "-m":
            return _hermes(args[index + 2 :]) if "hermes" in args[index + 1 : index + 2] else ""
    return ""


def _writes_sensitive(paths_of: Callable[[Sequence[str]], Sequence[str]]) -> RiskCheck:
    def check(args: Sequence[str]) -> str:
        touched = [one for one in paths_of(args) if _SENSITIVE.search(one)]
        return f"writes to {touched[0]}" if touched else ""

    return check


def _sed(args: Sequence[str]) -> str:
    changes = any(one.startswith(("-i", "--in-place")) for one in args)
    return _writes_sensitive(operands)(args) if changes else ""


_CONTAINERS = "stops or deletes containers"
_RISK_CHECKS: Mapping[str, RiskCheck] = {
    "rm": _rm, "shred": _always("destroys files"), "truncate": _always("empties files"),
    "dd": _always("writes raw bytes"), "git": _git, "chmod": _chmod, "chown": _chown,
    "chgrp": _chown, "find": _find, "kill": _kill, "hermes": _hermes,
    **dict.fromkeys(("pkill", "killall"), _always("ends processes by name")),
    "systemctl": _any_of("stop disable mask restart kill isolate", "stops services"),
    "service": _any_of("stop restart", "stops services"),
    "launchctl": _any_of("unload bootout remove kill", "stops services"),
    "docker": _any_of("rm rmi stop kill prune down --privileged", _CONTAINERS),
    "podman": _any_of("rm rmi stop kill prune --privileged", _CONTAINERS),
    "kubectl": _any_of("delete drain replace scale", "changes a cluster"),
    "terraform": _any_of("destroy apply", "changes infrastructure"),
    "helm": _any_of("uninstall delete rollback", "changes a cluster"),
    **dict.fromkeys(
        ("aws", "gcloud", "az", "gsutil"),
        _any_of(
            "delete destroy rm rb terminate-instances drain uninstall purge", "deletes in the cloud"
        ),
    ),
    **dict.fromkeys(("sudo", "doas", "su", "pkexec"), _always("acts as another user")),
    "crontab": _crontab, "tar": _tar, "bsdtar": _tar, "make": _make, "gmake": _make,
    "ssh": _ssh, "scp": _ssh, "sftp": _ssh, **dict.fromkeys(SOCKET_TOOLS, _socket_tool),
    **dict.fromkeys(EDITORS, _editor),
    "at": _always("runs later"),
    **dict.fromkeys(("userdel", "usermod", "useradd", "chsh"), _always("changes users")),
    "passwd": _always("changes a password"), "visudo": _always("changes user permissions"),
    **dict.fromkeys(("iptables", "nft", "ufw"), _always("changes the firewall")),
    **dict.fromkeys(("mount", "umount"), _always("changes file systems")),
    "fdisk": _always("changes disks"),
    "sysctl": _any_of("-w", "changes the kernel"), "modprobe": _always("changes the kernel"),
    "redis-cli": _any_of("FLUSHALL FLUSHDB flushall flushdb", "deletes data"),
    "dropdb": _always("deletes data"), "history": _any_of("-c", "clears the shell history"),
    "npm": _any_of("publish unpublish deprecate", "publishes"),
    "twine": _any_of("upload", "publishes"), "cargo": _any_of("publish yank", "publishes"),
    "gh": _any_of("delete merge transfer archive", "changes a remote repository"),
    **dict.fromkeys(("apt", "apt-get"), _any_of("remove purge autoremove", "removes software")),
    "dnf": _any_of("remove erase", "removes software"),
    "brew": _any_of("uninstall", "removes software"),
    "tee": _writes_sensitive(operands), "sed": _sed,
    **dict.fromkeys(
        ("cp", "mv", "install", "ln"), _writes_sensitive(lambda args: operands(args)[-1:])
    ),
}  # fmt: skip


def risk_reason(analysis: CommandAnalysis) -> str:
    """Describe the risk in a few words; empty if there is none."""
    if any(_RISKY_CODE.search(code) for code in analysis.code):
        return "runs code that starts programs or deletes files"
    for found in analysis.commands:
        if why := _command_risk(found):
            return why
    if _runs_download(analysis.commands):
        return "runs what it has just downloaded"
    sends = any(one.name in _NETWORK_PROGRAMS for one in analysis.commands)
    if sends and any(_holds_secrets(one) for one in analysis.commands):
        return "may send secrets over the network"
    for found in analysis.commands:
        if why := outside_effect(found):
            return why
    return "cannot be parsed as a command" if analysis.invalid and not analysis.commands else ""


def _command_risk(found: ParsedCommand) -> str:
    for target in found.targets:
        if _SENSITIVE.search(target):
            return f"writes to {target}"
    if not found.argv:
        return ""
    name, args = found.name, found.argv[1:]
    if UNKNOWN in name:
        return "runs a program whose name is not in the command"
    if name in {*SHELLS, "source", ".", "eval"} and _runs_unknown(found):
        return "runs something that is not in the command"
    if name in _DATABASES or INTERPRETERS.match(name):
        destructive = any(_DESTRUCTIVE_SQL.search(one) for one in args)
        return _python(args) or ("deletes data" if destructive else "")
    hint = _RISK_CHECKS.get(name)
    return hint(args) if hint else ""


def _runs_unknown(found: ParsedCommand) -> bool:
    if any(UNKNOWN in one for one in found.argv[1:]):
        return True
    named = [one for one in found.argv[1:] if not one.startswith("-")]
    return found.piped and found.stdin is None and not named


def _runs_download(found: Sequence[ParsedCommand]) -> bool:
    """Whether a later command runs a file that an earlier one downloaded."""
    downloaded: set[str] = set()
    for one in found:
        if one.name in _FETCHERS:
            downloaded |= {posixpath.basename(path) for path in _downloaded_files(one)}
            continue
        runs = one.name in {*SHELLS, "source", "."} or INTERPRETERS.match(one.name)
        run = [*operands(one.argv[1:])] if runs else [one.argv[0]] if one.argv else []
        if downloaded & {posixpath.basename(path) for path in run if runs or "/" in path}:
            return True
    return False


def _downloaded_files(one: ParsedCommand) -> list[str]:
    args = one.argv[1:]
    named = [value for flag, value in pairwise(args) if flag in _OUTPUT_OPTIONS]
    joined = [arg.partition("=")[2] or arg[2:] for arg in args if arg.startswith(("-o", "--out"))]
    addresses = [arg.partition("?")[0] for arg in operands(args)]
    return [path for path in (*named, *joined, *one.targets, *addresses) if path]


def _holds_secrets(one: ParsedCommand) -> bool:
    if one.name in {"env", "printenv"} and len(one.argv) == 1:
        return True
    words = zip(("", *one.argv), one.argv, strict=False)
    given = [word for before, word in words if before not in _KEY_OPTIONS]
    return any(is_private_path(word, one.folder) for word in (*given[1:], *one.sources))
