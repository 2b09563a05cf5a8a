"""Recognize read-only commands: known programs with flags that write nothing.

The list is short on purpose: everything else needs approval.
"""

import posixpath
import re
from collections.abc import Callable, Mapping, Sequence

from hermes.approvals.saved_approvals import simple_commands
from hermes.approvals.shell.parser import ShellContext

_PRIVATE_PATH = re.compile(
    r"(^|[/@=])\.(ssh|gnupg|aws|azure|kube|docker|hermes|password-store|mozilla|thunderbird|gcloud"
    r"|config/(gh|gcloud|hermes|op|rclone|hub|google-chrome|chromium|sops|age)"
    r"|local/share/keyrings|cargo/credentials(\.toml)?|terraform\.d|minikube)(/|$)"
    r"|(^|[/@=])(\.env(\.[\w.-]+)?|[\w.-]*\.env|\.envrc|\.netrc|_netrc|\.pgpass|\.my\.cnf|\.npmrc|\.pypirc"
    r"|\.git-credentials|\.gitconfig|\.vault-token|\.\w*_history|id_(rsa|dsa|ecdsa|ed25519)\w*"
    r"|authorized_keys|credentials(\.\w+)?|secrets?(\.\w+)?|auth\.json|tokens?(\.\w+)?"
    r"|g?shadow-?|sudoers|[\w.-]+\.(pem|key|p12|pfx|kdbx|jks|keystore|ppk|asc|gpg))$"
    r"|(^|/)(sudoers\.d|etc/ssl/private|run/secrets)(/|$)"
    r"|(^|/)proc/[^/]+/(environ|mem|maps|fd|root|cwd|cmdline|task)(/|$)",
    re.IGNORECASE,
)
_REVISION = re.compile(r"(?!-)[\w./~^@-]+")


def is_private_path(path: str, folder: str = "") -> bool:
    """Whether the path's name suggests secrets; does not access the disk."""
    full = posixpath.normpath(posixpath.join(folder, path)) if path else folder
    return bool(_PRIVATE_PATH.search(path) or _PRIVATE_PATH.search(full))


def _is_in_hermes_home(path: str, folder: str, context: ShellContext) -> bool:
    """Whether it is in the agent's own home, outside its workspace."""
    full = posixpath.normpath(posixpath.join(folder, path)) if path else folder
    inside = bool(context.hermes_home) and f"{full}/".startswith(f"{context.hermes_home}/")
    return inside and not re.match(
        r"(profiles/[^/]+/)?workspace(/|$)", full[len(context.hermes_home) + 1 :]
    )


ArgumentCheck = Callable[[Sequence[str]], bool]


def _flags(pattern: str) -> ArgumentCheck:
    """Require every flag to match the pattern."""
    known = re.compile(pattern)
    return lambda args: all(known.fullmatch(one) for one in args if one.startswith("-"))


def _no_arguments(args: Sequence[str]) -> bool:
    return not args


def _no_flags(args: Sequence[str]) -> bool:
    return not any(one.startswith("-") for one in args)


def _exactly(*known: str) -> ArgumentCheck:
    return lambda args: " ".join(args) in known


def _uniq(args: Sequence[str]) -> bool:
    """The second operand would be written."""
    names = [one for one in args if not one.startswith("-")]
    return _flags(r"-[cdui]+")(args) and len(names) < 2


def _date(args: Sequence[str]) -> bool:
    return all(one == "-u" or one.startswith("+") for one in args)


def _git(args: Sequence[str]) -> bool:
    """Allow only what runs no program configured by a repository."""
    match args:
        case ["status", *rest]:
            return all(one in {"-s", "-b", "-sb", "--short", "--porcelain"} for one in rest)
        case ["log", *rest]:
            short = re.compile(r"--oneline|--graph|--decorate|--all|-\d{1,4}|-n\d{1,4}")
            return all(short.fullmatch(one) or _REVISION.fullmatch(one) for one in rest)
        case ["branch", *rest]:
            return all(one in {"-a", "-r", "-v", "-vv", "--show-current"} for one in rest)
        case ["rev-parse", *rest]:
            plain = {"--short", "--show-toplevel", "--abbrev-ref", "HEAD"}
            return all(one in plain for one in rest)
        case _:
            return False


_SUM = _flags(r"-[bt]")
_READ_ONLY_PROGRAMS: Mapping[str, ArgumentCheck] = {
    "ls": _flags(r"-[A-Za-z0-9]+|--color(=\w+)?|--all|--human-readable"),
    "cat": _flags(r"-[AbeEnstTuv]+"),
    "head": _flags(r"-\d+|-[nc]-?\d*|-[qv]"), "tail": _flags(r"-\d+|-[nc][-+]?\d*|-[qv]"),
    "wc": _flags(r"-[clmwL]+"),
    **dict.fromkeys(
        ("grep", "egrep", "fgrep"),
        _flags(r"-[EFGPivwxcoqshHnlLabeABC0-9]+|--color(=\w+)?"),
    ),
    "pwd": _flags("-[LP]"), "echo": _flags("-[neE]+"), "true": _no_arguments,
    "false": _no_arguments,
    "file": _flags(r"-[biLk]+"), "stat": _flags(r"-[cfLt]|--format=.*|--printf=.*"),
    "du": _flags(r"-[abchksmxd0-9]+|--max-depth=\d+"), "df": _flags(r"-[ahTikmlP]+"),
    "date": _date, "whoami": _no_arguments, "id": _flags("-[ugnG]+"),
    "uname": _flags("-[asnrvmpio]+"),
    "which": _flags("-a"), "cut": _flags(r"-[dfbcs].*"), "tr": _flags("-[cdsC]+"),
    "sort": _flags(r"-[nrufhVbMgsc]+|-k[\d.,nrfb]*|-t.?"), "uniq": _uniq,
    "nl": _flags(r"-[a-z]\w*"), "tac": _no_flags, "rev": _no_flags,
    "basename": _flags("-[as]"), "dirname": _no_flags,
    "realpath": _flags("-[emsLPq]"), "readlink": _flags("-[efmn]+"),
    "tree": _flags(r"-[adfhsipugDtrCLIP]+"), "diff": _flags(r"-[uqBbwiyE]+|-U\d+|--color(=\w+)?"),
    "cmp": _flags("-[slb]"), "comm": _flags("-[123]+"), "column": _flags("-[ts]+"),
    "fold": _flags(r"-[wsb]\d*"), "strings": _flags(r"-[an]\d*"), "od": _flags(r"-[A-Za-z]\w*"),
    "hexdump": _flags("-C"), "md5sum": _SUM, "sha1sum": _SUM, "sha256sum": _SUM,
    "ps": _exactly("", "aux", "ax", "-ef", "-e", "-A", "-f"), "uptime": _no_arguments,
    "free": _flags("-[bkmgh]+"), "seq": _flags(r"-\d+"), "sleep": _no_flags,
    "cd": _no_flags, "git": _git,
    "find": _flags(r"-(i?name|i?path|type|maxdepth|mindepth|size|m?time|mmin|empty|print|not|o|a)"),
}  # fmt: skip


def is_read_only_command(argv: Sequence[str]) -> bool:
    """Whether the command only reads what its arguments name."""
    check = _READ_ONLY_PROGRAMS.get(argv[0])
    return check is not None and check(argv[1:])


def is_read_only_script(text: str, context: ShellContext) -> bool:
    """Whether every command is read-only and touches no secrets."""
    commands, folder = simple_commands(text), context.folder
    if commands is None or _is_protected("", folder, context):
        return False
    for name, *args in commands:
        if not is_read_only_command((name, *args)):
            return False
        if any(_is_protected(one, folder, context) for one in args):
            return False
        if name == "cd":
            folder = posixpath.join(folder, args[0]) if args else context.home
    return True


def _is_protected(path: str, folder: str, context: ShellContext) -> bool:
    return is_private_path(path, folder) or _is_in_hermes_home(path, folder, context)
