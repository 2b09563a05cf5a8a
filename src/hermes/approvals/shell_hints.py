"""Hints about shell commands: what is always denied, what is risky, what only reads.

They catch mistakes and obvious malice. The sandbox is what limits a command.
"""

import fnmatch
import posixpath
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from hermes.approvals.nested_commands import INTERPRETERS, SHELLS, UNKNOWN, ShellCommand, word_set
from hermes.approvals.saved_approvals import simple_commands
from hermes.approvals.shell_commands import ShellContext, ShellScript

MAX_PATTERN = 200
"""Longer file patterns (in characters) are taken as names: matching them would be slow."""
_BLANKS = re.compile(r"\s")
_EMPTY = "''"
_RULES_FILE = Path(__file__).with_name("shell_rules.txt")
_RECURSIVE = r" (?:-[A-Za-z]*[rR][A-Za-z]*|--r[ecursive]*|-\S*\ufffc\S*) "
_OPTIONS = r"^(?: -\S+(?: [^- ]\S*)?)*"
_GIT_OPTIONS = r"^(?: (?:-[Cc]|--git-dir|--work-tree|--namespace|--config-env) \S+| -\S+)*"
_Rules = Mapping[str, Sequence[tuple[str, str]]]
"""For each program: patterns for its arguments, and the hint."""


@cache
def _rules(section: str) -> _Rules:
    """Read one section of the rules."""
    text = _RULES_FILE.read_text("utf-8").partition(f"[{section}]\n")[2].partition("\n[")[0]
    rules: dict[str, list[tuple[str, str]]] = {}
    for row in filter(None, text.split("\n")):
        names, rest = row.split(" | ", 1)
        arguments, why = rest.rsplit(" | ", 1)
        for name in names.split():
            rules.setdefault(name, []).append((_pattern(arguments), why))
    return rules


def _pattern(arguments: str) -> str:
    kind, _, rest = arguments.partition(" ")
    words = rf" (?:{rest.replace(' ', '|')}) "
    match kind:
        case "always":
            return ""
        case "any":
            return words
        case "verb":
            return _OPTIONS + words
        case "second":
            return rf"{_OPTIONS}(?: [^- ]\S*)?{words}"
        case "git":
            return f"{_GIT_OPTIONS} {rest}"
        case _:
            return arguments.replace("{recursive}", _RECURSIVE)


def _matching_rule(section: str, found: ShellCommand) -> str:
    rules, line = _rules(section).get(found.name, ()), _joined(found.argv[1:])
    return next((why for pattern, why in rules if re.search(pattern, line)), "")


def _joined(args: Sequence[str]) -> str:
    """Join arguments so that a pattern can tell where each begins and ends."""
    return "".join(f" {_BLANKS.sub('␣', arg) or _EMPTY}" for arg in args) + " "


# Commands that only read

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
_READING_FLAGS: Mapping[str, str] = {
    "ls": r"-[A-Za-z0-9]+|--color(=\w+)?|--all|--human-readable", "cat": r"-[AbeEnstTuv]+",
    "head": r"-\d+|-[nc]-?\d*|-[qv]", "tail": r"-\d+|-[nc][-+]?\d*|-[qv]", "wc": r"-[clmwL]+",
    **dict.fromkeys(
        ("grep", "egrep", "fgrep"), r"-[EFGPivwxcoqshHnlLabeABC0-9]+|--color(=\w+)?"
    ),
    "pwd": "-[LP]", "echo": "-[neE]+", "file": r"-[biLk]+", "which": "-a", "tr": "-[cdsC]+",
    "stat": r"-[cfLt]|--format=.*|--printf=.*", "du": r"-[abchksmxd0-9]+|--max-depth=\d+",
    "df": r"-[ahTikmlP]+", "id": "-[ugnG]+", "uname": "-[asnrvmpio]+", "cut": r"-[dfbcs].*",
    "sort": r"-[nrufhVbMgsc]+|-k[\d.,nrfb]*|-t.?", "nl": r"-[a-z]\w*", "basename": "-[as]",
    **dict.fromkeys(("tac", "rev", "dirname", "sleep", "cd"), "(?!)"),
    "realpath": "-[emsLPq]", "readlink": "-[efmn]+", "tree": r"-[adfhsipugDtrCLIP]+",
    "diff": r"-[uqBbwiyE]+|-U\d+|--color(=\w+)?", "cmp": "-[slb]", "comm": "-[123]+",
    "column": "-[ts]+", "fold": r"-[wsb]\d*", "strings": r"-[an]\d*", "od": r"-[A-Za-z]\w*",
    "hexdump": "-C", **dict.fromkeys(("md5sum", "sha1sum", "sha256sum"), "-[bt]"),
    "free": "-[bkmgh]+", "seq": r"-\d+",
    "find": r"-(i?name|i?path|type|maxdepth|mindepth|size|m?time|mmin|empty|print|not|o|a)",
}  # fmt: skip
"""Programs that only read, with the flags known to write nothing."""
_READING_LINES: Mapping[str, str] = {
    **dict.fromkeys(("true", "false", "whoami", "uptime"), " "),
    "date": r"(?: (?:-u|\+\S*))* ", "ps": r"(?: (?:aux|ax|-ef|-e|-A|-f))? ",
    "uniq": r"(?: -[cdui]+)*(?: [^- ]\S*)?(?: -[cdui]+)* ",
    # Only options that run no program configured by a repository.
    "git": r" status(?: (?:-s|-b|-sb|--short|--porcelain))* "
    r"| log(?: (?:--oneline|--graph|--decorate|--all|-\d{1,4}|-n\d{1,4}|(?!-)[\w./~^@-]+))* "
    r"| branch(?: (?:-a|-r|-v|-vv|--show-current))* "
    r"| rev-parse(?: (?:--short|--show-toplevel|--abbrev-ref|HEAD))* ",
}  # fmt: skip
"""Programs that only read with exactly these arguments."""


def is_private_path(path: str, folder: str = "") -> bool:
    """Whether the path's name suggests secrets; does not access the disk."""
    full = posixpath.normpath(posixpath.join(folder, path)) if path else folder
    return bool(_PRIVATE_PATH.search(path) or _PRIVATE_PATH.search(full))


def is_read_only_command(argv: Sequence[str]) -> bool:
    """Whether the command only reads what its arguments name."""
    name, args = argv[0], argv[1:]
    if (line := _READING_LINES.get(name)) is not None:
        return re.fullmatch(line, _joined(args)) is not None
    flags = _READING_FLAGS.get(name)
    return flags is not None and all(
        re.fullmatch(flags, arg) for arg in args if arg.startswith("-")
    )


def is_read_only_script(text: str, context: ShellContext) -> bool:
    """Whether every command is read-only and touches neither secrets nor the agent's home."""
    commands, folder = simple_commands(text), context.folder
    if commands is None or _is_off_limits("", folder, context):
        return False
    for name, *args in commands:
        if not is_read_only_command((name, *args)):
            return False
        if any(_is_off_limits(arg, folder, context) for arg in args):
            return False
        if name == "cd":
            folder = posixpath.join(folder, args[0]) if args else context.home
    return True


def _is_off_limits(path: str, folder: str, context: ShellContext) -> bool:
    full = posixpath.normpath(posixpath.join(folder, path)) if path else folder
    inside = bool(context.hermes_home) and f"{full}/".startswith(f"{context.hermes_home}/")
    workspace = r"(profiles/[^/]+/)?workspace(/|$)"
    own = inside and not re.match(workspace, full[len(context.hermes_home) + 1 :])
    return own or is_private_path(path, folder)


# Commands that are always denied

_PROTECTED = word_set(
    "/ /bin /boot /dev /etc /home /lib /lib32 /lib64 /libx32 /media /mnt /opt /proc /root /run "
    "/sbin /srv /sys /usr /usr/bin /usr/lib /usr/lib64 /usr/local /usr/sbin /usr/share /var "
    "/var/lib /nix /snap /System /Library /Users /Applications /private"
)
_DEVICE = re.compile(
    r"/dev/(sd[a-z]|hd[a-z]|vd[a-z]|xvd[a-z]|nvme\d|mmcblk\d|dm-\d|md\d|disk\d|rdisk\d|mapper/"
    r"|disk/|loop\d|ram\d|sr\d|root$|zd\d|nbd\d|bcache\d|mem$|kmem$|port$|(sd)?[*?\ufffc])"
    r"|/proc/(sysrq-trigger|kcore)$"
)
_MOST_NAMES = re.compile(r"\*+|\?\*|\*\?|\*\.\*|\.\*|\.\?\?\*|\.?\[[!^].\]\*|\[a-z\]\*")
"""Patterns that match nearly everything in a folder."""
_PATH_RULES = (
    ("rm srm", _RECURSIVE, slice(None), "delete"),
    ("tar bsdtar", " --remove-f", slice(None), "delete"),
    ("git", r" clean(?: \S+)* -[a-mo-z]*f[a-mo-z]* ", slice(None), "delete"),
    ("mv", "", slice(-1), "move away"),
    ("rsync", " --del", slice(-1, None), "empty"),
    ("chmod", rf"{_RECURSIVE}|^ (?:0+|a?=|a-[rwx]*x[rwx]*) ", slice(1, None), "change access to"),
    ("chown chgrp", _RECURSIVE, slice(1, None), "change access to"),
    ("setfacl chattr", _RECURSIVE, slice(None), "change access to"),
)
"""Programs that are denied with these arguments for the system's folders and homes."""
_DEVICE_WRITERS = word_set("dd tee shred truncate mkswap wipefs blkdiscard curl wget")
_DEVICE_COPIERS = word_set("cp mv install ddrescue qemu-img")
_FORMATTERS = re.compile(r"mkfs(\..+)?|mke2fs|newfs(_.+)?|mkntfs|mkdosfs|sgdisk|wipefs|blkdiscard")
_TREE_REMOVAL = re.compile(
    r"rmtree|rm_rf|rm_r\b|remove_tree|rmSync|rmdirSync|rimraf|removeSync|RemoveAll|removedirs"
)
_HOME_REMOVAL = re.compile(
    rf"(?:{_TREE_REMOVAL.pattern})\s*\(\s*(?:str\(\s*)?(?:pathlib\.)?(?:Path\.home\(\)"
    r"|os\.homedir\(\)|Dir\.home|process\.env\.HOME)\s*\)*\s*[,)]"
)
_LITERAL = re.compile(r"'([^'\n]*)'|\"([^\"\n]*)\"")
_FIND_FILTER = re.compile(
    r"(?<! !)(?<! -not) -(?:i?name|i?path|regex|[mca]?time|mmin|size|newer|user|group|empty|perm)"
    r" (?!(?:\*+|\?\*|/\*+|\.\*|\+0) )"
)


def hard_deny_reason(script: ShellScript, homes: Sequence[str]) -> str:
    """Say what it would destroy, as the end of a sentence; empty if nothing."""
    if script.fork_bomb:
        return "it would fill the machine with processes"
    if any(_deletes_trees(code, homes) for code in script.code):
        return "it would delete the system or a home"
    listed = ""
    for found in script.commands:
        if found.name in {"xargs", "parallel"} and listed and _names_remover(found.argv):
            return f"it would delete {listed}"
        listed = _listed_tree(found, homes) or (listed if _passes_names(found) else "")
        if why := _denied_command(found, homes):
            return why
    return ""


def _passes_names(found: ShellCommand) -> bool:
    """Whether it passes on nearly all of the names it receives."""
    if found.name == "grep":
        return any(arg == "." or re.fullmatch(r"-\w*v\w*", arg) for arg in found.argv[1:])
    return found.piped and found.name in {"sort", "cat", "tee", "tr", "uniq", "head", "tail"}


def _denied_command(found: ShellCommand, homes: Sequence[str]) -> str:
    args = found.argv[1:]
    written = [*found.targets, *_device_operands(found.name, args)]
    for path in written:
        if _DEVICE.match(posixpath.normpath(posixpath.join(found.folder, path))):
            return f"it would overwrite {path}"
    if _FORMATTERS.fullmatch(found.name) and operands(args):
        return "it would format a disk"
    if _matches_name(found.name, "rm") and any(arg.startswith("--no-p") for arg in args):
        return "it would delete the root of the file system"
    if found.name == "find" and ("-delete" in args or _names_remover(args)):
        tree = _listed_tree(found, homes)
        return f"it would delete {tree}" if tree else ""
    return _denied_path(found, homes) or _matching_rule("denied", found)


def _denied_path(found: ShellCommand, homes: Sequence[str]) -> str:
    args, line = found.argv[1:], _joined(found.argv[1:])
    for names, pattern, chosen, verb in _PATH_RULES:
        known = any(_matches_name(found.name, name) for name in names.split())
        if not known or not re.search(pattern, line):
            continue
        paths = operands(args)[chosen]
        if found.name == "git" and paths[-1:] == ["clean"]:
            paths = [*paths, "."]
        for path in paths:
            if is_protected_path(path, found.folder, homes):
                return f"it would {verb} {path}"
    return ""


def _device_operands(name: str, args: Sequence[str]) -> Sequence[str]:
    if name in _DEVICE_COPIERS:
        return operands(args)[:1] if "-t" in args else operands(args)[-1:]
    if name not in _DEVICE_WRITERS:
        return ()
    return [
        operand.removeprefix("of=") for operand in operands(args) if not operand.startswith("if=")
    ]


def _names_remover(args: Sequence[str]) -> bool:
    return any(re.search(r"(?:^|[;&|(/\s])(?:rm|shred|unlink|srm)(?:\s|$)", arg) for arg in args)


def _listed_tree(found: ShellCommand, homes: Sequence[str]) -> str:
    """The protected folder that a find lists entirely; empty if there is none or it filters."""
    if found.name != "find" or _FIND_FILTER.search(_joined(found.argv[1:])):
        return ""
    args = [arg for arg in found.argv[1:] if not re.fullmatch(r"-[HLP]|-O\d?", arg)]
    end = next((n for n, arg in enumerate(args) if arg.startswith(("-", "(", "!"))), len(args))
    roots = args[:end] or ["."]
    return next((root for root in roots if is_protected_path(root, found.folder, homes)), "")


def _deletes_trees(code: str, homes: Sequence[str]) -> bool:
    if _HOME_REMOVAL.search(code):
        return True
    strings = ("".join(filter(None, one.groups())) for one in _LITERAL.finditer(code))
    return _TREE_REMOVAL.search(code) is not None and any(
        string in {"~", "~/", "$HOME"} or is_protected_path(string, "/", homes)
        for string in strings
    )


def _matches_name(word: str, name: str) -> bool:
    """Whether the shell may resolve the word to that name."""
    if len(word) > MAX_PATTERN or not any(sign in word for sign in (UNKNOWN, "*", "?", "[")):
        return word == name
    return fnmatch.fnmatchcase(name, word.replace(UNKNOWN, "*"))


def operands(args: Sequence[str]) -> list[str]:
    if "--" in args:
        cut = list(args).index("--")
        return [arg for arg in args[:cut] if not arg.startswith("-")] + list(args[cut + 1 :])
    return [arg for arg in args if not arg.startswith("-")]


def is_protected_path(path: str, folder: str, homes: Sequence[str]) -> bool:
    """Whether it is a system folder or a home, or everything in one; `path` may be a pattern."""
    if path.startswith("/") and path.strip("/") == UNKNOWN:
        return True
    if not path or UNKNOWN in path:
        return False
    full = "/" + posixpath.normpath(posixpath.join(folder or "/", path)).lstrip("/")
    candidates = [full]
    if _MOST_NAMES.fullmatch(posixpath.basename(full)):
        candidates.append(posixpath.dirname(full))
    return any(_covers_protected(candidate, homes) for candidate in candidates)


def _covers_protected(path: str, homes: Sequence[str]) -> bool:
    protected = {*_PROTECTED, *(posixpath.normpath(home) for home in homes)}
    if path in protected or re.fullmatch(r"/(home|Users)/[^/]+", path):
        return True
    if len(path) > MAX_PATTERN or not any(sign in path for sign in "*?["):
        return False
    return any(
        one.count("/") == path.count("/") and fnmatch.fnmatch(one, path) for one in protected
    )


# Commands with effects outside the machine: install, send, publish or deploy

_LOCALHOST = re.compile(
    r"(?:\w+://)?(?:[^/@]*@)?(?:localhost|127(?:\.\d+){3}|0\.0\.0\.0|\[::1\])(?:[:/?]|$)",
    re.IGNORECASE,
)
_DRY_RUN = word_set("pip pip3 npm pnpm apt apt-get git rsync helm kubectl poetry")
"""Programs with a --dry-run option that prevents any change."""
_NETWORK_READERS = word_set(
    "curl wget http https xh lynx w3m links elinks gh glab nc ncat telnet websocat ssh"
)
_DOWNLOADERS = word_set("aria2c yt-dlp scp rsync sftp rclone ftp svn hg")
_GIT_DOWNLOADS = word_set("clone fetch pull submodule remote ls-remote")


def outside_effect(found: ShellCommand) -> str:
    """Describe its effect in a few words; empty if none is known."""
    if found.name in _DRY_RUN and {"--dry-run", "--help"} & {*found.argv}:
        return ""
    addresses = [
        operand for operand in operands(found.argv[1:]) if "." in operand or ":" in operand
    ]
    local = addresses and all(map(_LOCALHOST.match, addresses))
    return "" if local else _matching_rule("outside", found)


def shows_untrusted(commands: Sequence[ShellCommand]) -> bool:
    """Whether a command may print content written by others."""
    return any(command.name in _NETWORK_READERS for command in commands)


def downloads_files(commands: Sequence[ShellCommand]) -> bool:
    """Whether a command may write content from others to files."""
    return shows_untrusted(commands) or any(
        command.name in _DOWNLOADERS
        or outside_effect(command).startswith(("installs third-party", "downloads"))
        or (command.name == "git" and _GIT_DOWNLOADS & {*command.argv[1:4]})
        for command in commands
    )


# Commands that look dangerous

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
_NETWORK_PROGRAMS = word_set(
    "curl wget nc ncat netcat socat scp sftp rsync ssh ftp tftp telnet http https rclone aws "
    "gsutil gcloud az mail mailx sendmail mutt xh websocat openssl dig nslookup host gh"
)
_KEY_OPTIONS = word_set("-i -F --cert --key -E --cacert --identity")


def risk_reason(script: ShellScript) -> str:
    """Describe the risk in a few words; empty if there is none."""
    if any(_RISKY_CODE.search(code) for code in script.code):
        return "runs code that starts programs or deletes files"
    for found in script.commands:
        if why := _command_risk(found):
            return why
    if _runs_download(script.commands):
        return "runs what it has just downloaded"
    sends = any(command.name in _NETWORK_PROGRAMS for command in script.commands)
    if sends and any(map(_holds_secrets, script.commands)):
        return "may send secrets over the network"
    unread = "cannot be parsed as a command" if script.invalid else ""
    return next((why for command in script.commands if (why := outside_effect(command))), unread)


def _command_risk(found: ShellCommand) -> str:
    name, args = found.name, found.argv[1:]
    for path in (*found.targets, *_written_files(name, args)):
        if _SENSITIVE.search(path):
            return f"writes to {path}"
    if UNKNOWN in name:
        return "runs a program whose name is not in the command"
    if name in {*SHELLS, "source", ".", "eval"} and _runs_unknown(found):
        return "runs something that is not in the command"
    sql = name in _DATABASES or INTERPRETERS.match(name)
    if sql and any(_DESTRUCTIVE_SQL.search(arg) for arg in args):
        return "deletes data"
    return _matching_rule("risky", found)


def _written_files(name: str, args: Sequence[str]) -> Sequence[str]:
    if name == "tee" or (name == "sed" and any(arg.startswith(("-i", "--in-pl")) for arg in args)):
        return operands(args)
    return operands(args)[-1:] if name in {"cp", "mv", "install", "ln"} else ()


def _runs_unknown(found: ShellCommand) -> bool:
    if any(UNKNOWN in arg for arg in found.argv[1:]):
        return True
    named = [arg for arg in found.argv[1:] if not arg.startswith("-")]
    return found.piped and found.stdin is None and not named


def _runs_download(commands: Sequence[ShellCommand]) -> bool:
    """Whether a later command runs a file that an earlier one downloaded."""
    downloaded: set[str] = set()
    for command in commands:
        args = command.argv[1:]
        if command.name in {"curl", "wget", "aria2c"}:
            words = [arg.partition("=")[2] or arg for arg in (*args, *command.targets)]
            downloaded |= {posixpath.basename(word.partition("?")[0]) for word in words} - {""}
            continue
        runs = command.name in {*SHELLS, "source", "."} or INTERPRETERS.match(command.name)
        run = operands(args) if runs else [word for word in command.argv[:1] if "/" in word]
        if downloaded & {posixpath.basename(path) for path in run}:
            return True
    return False


def _holds_secrets(found: ShellCommand) -> bool:
    if found.name in {"env", "printenv"} and len(found.argv) == 1:
        return True
    words = zip(found.argv, found.argv[1:], strict=False)
    arguments = [word for before, word in words if before not in _KEY_OPTIONS]
    return any(is_private_path(word, found.folder) for word in (*arguments, *found.sources))
