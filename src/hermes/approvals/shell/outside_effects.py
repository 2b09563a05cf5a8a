"""Detect commands that act outside the machine: install, send, publish or deploy.

Known programs are matched by their verbs. A sandbox makes this unnecessary; without one, a
person should see these commands first.
"""

import re
from collections.abc import Callable, Mapping, Sequence

from hermes.approvals.shell.expansion import word_set
from hermes.approvals.shell.hard_deny import operands
from hermes.approvals.shell.parser import ParsedCommand

INSTALLS = "installs third-party code, which may run during installation"
RUNS = "downloads a program and runs it"
SENDS = "sends data to a server"
REMOTE = "acts on a remote machine"
PUSHES = "publishes work to a remote"
DEPLOYS = "changes a deployed service"
MAILS = "sends mail"

_LOCALHOST = re.compile(
    r"(?:\w+://)?(?:[^/@]*@)?(?:localhost|127(?:\.\d+){3}|0\.0\.0\.0|\[::1\])(?:[:/?]|$)",
    re.IGNORECASE,
)
_UPLOAD_OPTIONS = re.compile(
    r"-d.*|--data.*|--json.*|-F.*|--form.*|-T.*|--upload-file.*|--post-(?:data|file).*|--body-.*"
)
_METHOD = re.compile(r"(?:-X|--request=|--method=)?(?:POST|PUT|PATCH|DELETE)", re.IGNORECASE)
_REMOTE_PATH = re.compile(r"(?:[\w.-]+@)?[\w.-]{2,}:(?!//)|rsync://|scp://|sftp://|s3://|gs://")
_LOCAL_TOOLS = word_set(
    "tsc eslint prettier jest vitest mocha playwright tsx ts-node webpack vite rollup next turbo "
    "nx lint-staged stylelint svelte-check vue-tsc astro esbuild swc babel nyc c8 knip biome"
)
"""Tools that projects install and call through `npx`."""
_DRY_RUN_PROGRAMS = word_set("pip pip3 npm pnpm apt apt-get git rsync helm kubectl poetry")
"""Programs with a --dry-run option that prevents any change."""
_PACMAN = re.compile(r"-S(?!s|i|l|g)|-U|--sync|--upgrade")

_GIT_VALUE_OPTIONS = word_set("-C -c --git-dir --work-tree --namespace --super-prefix --config-env")

EffectCheck = Callable[[Sequence[str]], str]


def _verbs(names: str, why: str) -> EffectCheck:
    """Match the first operand, which may follow the value of a flag."""
    wanted = word_set(names)
    return lambda args: why if {*operands(args)[: 1 + _leading_flags(args)]} & wanted else ""


def _first_two(names: str, why: str) -> EffectCheck:
    """Match the first or second operand, as in `gh pr create`."""
    wanted = word_set(names)
    return lambda args: why if {*operands(args)[: 2 + _leading_flags(args)]} & wanted else ""


def _leading_flags(args: Sequence[str]) -> int:
    return int(bool(args) and args[0].startswith("-"))


def _always(why: str) -> EffectCheck:
    return lambda args: why


def _npm(args: Sequence[str]) -> str:
    if {*operands(args)[:1]} & word_set("exec x dlx create init"):
        return RUNS if operands(args)[1:] else ""
    bare = not operands(args)
    return _verbs("install i ci add update up upgrade link it cit", INSTALLS)(args) or (
        INSTALLS if bare and {"-g", "--global"} & {*args} else ""
    )


def _yarn(args: Sequence[str]) -> str:
    """Without arguments, yarn installs."""
    return INSTALLS if not args else _npm(args)


def _npx(args: Sequence[str]) -> str:
    called = operands(args)[:1]
    return "" if called and called[0] in _LOCAL_TOOLS else RUNS


def _uv(args: Sequence[str]) -> str:
    match operands(args):
        case ["pip" | "tool" | "python", verb, *_] if verb in {"install", "sync", "upgrade"}:
            return INSTALLS
        case ["tool", "run", *_]:
            return RUNS
        case ["add" | "sync" | "lock", *_] if "--locked" not in args:
            return INSTALLS if operands(args)[0] != "lock" else ""
        case _:
            return ""


def _pacman(args: Sequence[str]) -> str:
    return INSTALLS if any(_PACMAN.match(one) for one in args) else ""


def _curl(args: Sequence[str]) -> str:
    addresses = [one for one in operands(args) if "." in one or ":" in one]
    if addresses and all(_LOCALHOST.match(one) for one in addresses):
        return ""
    methods = [one for one in args if _METHOD.fullmatch(one)]
    return SENDS if methods or any(_UPLOAD_OPTIONS.fullmatch(one) for one in args) else ""


def _remote_copy(args: Sequence[str]) -> str:
    """Copy to or from a remote machine."""
    return REMOTE if any(_REMOTE_PATH.match(one) for one in operands(args)) else ""


def git_command(args: Sequence[str]) -> list[str]:
    """Return the arguments from the verb on, without global options."""
    rest = list(args)
    while rest and rest[0].startswith("-"):
        rest = rest[2 if rest[0] in _GIT_VALUE_OPTIONS else 1 :]
    return rest


def _git(args: Sequence[str]) -> str:
    words = operands(git_command(args))
    if words[:1] == ["push"]:
        return PUSHES
    return MAILS if words[:1] == ["send-email"] else ""


def _gh(args: Sequence[str]) -> str:
    if operands(args)[:1] == ["api"]:
        sends = {"-f", "-F", "--field", "--raw-field", "--input"} & {*args}
        return SENDS if sends or any(_METHOD.fullmatch(one) for one in args) else ""
    return SENDS if {*operands(args)[1 : 2 + _leading_flags(args)]} & _GH_VERBS else ""


def _python(args: Sequence[str]) -> str:
    match args:
        case ["-m", "pip" | "pip3", *rest]:
            return _PIP(rest)
        case ["-m", "uv", *rest]:
            return _uv(rest)
        case ["-m", "twine", "upload", *_]:
            return PUSHES
        case _:
            return ""


_GH_VERBS = word_set(
    "create comment close reopen edit review upload fork rename sync run rerun cancel enable "
    "disable set"
)
_PIP = _verbs("install wheel download", INSTALLS)
_SYSTEM = _verbs(
    "install upgrade dist-upgrade full-upgrade update add reinstall groupinstall in dup refresh",
    "installs software on this machine",
)
_CLOUD = _first_two(
    "create put deploy apply update start run mv cp sync publish set add push run-instances invoke",
    DEPLOYS,
)
_CHECKS: Mapping[str, EffectCheck] = {
    **dict.fromkeys(("pip", "pip3", "pipx"), lambda args: _PIP(args) or _verbs("run", RUNS)(args)),
    "uv": _uv, "uvx": _always(RUNS), "bunx": _always(RUNS), "npx": _npx,
    "npm": _npm, "pnpm": _npm, "bun": _verbs("install i add update x", INSTALLS), "yarn": _yarn,
    "poetry": _verbs("install add update self", INSTALLS),
    "pdm": _verbs("install add update sync", INSTALLS),
    "pipenv": _verbs("install update sync", INSTALLS),
    **dict.fromkeys(("conda", "mamba", "micromamba"), _verbs("install update upgrade", INSTALLS)),
    "gem": _verbs("install update", INSTALLS), "bundle": _verbs("install update add", INSTALLS),
    "composer": _verbs("install require update", INSTALLS),
    "cargo": _verbs("install", INSTALLS), "go": _verbs("install get", INSTALLS),
    "luarocks": _verbs("install", INSTALLS), "cpan": _always(INSTALLS),
    "cpanm": _always(INSTALLS), "opam": _verbs("install upgrade", INSTALLS),
    **dict.fromkeys(
        word_set(
            "apt apt-get aptitude dnf yum zypper apk brew snap flatpak port pkg emerge nix-env"
        ),
        _SYSTEM,
    ),
    "pacman": _pacman, "yay": _pacman, "paru": _pacman, "dpkg": _always("installs software"),
    "curl": _curl, "wget": _curl, "http": _curl, "https": _curl, "xh": _curl,
    "git": _git, "gh": _gh, "glab": _gh, "hub": _gh, "svn": _verbs("commit ci", PUSHES),
    "hg": _verbs("push", PUSHES), "scp": _remote_copy, "rsync": _remote_copy,
    "sftp": _always(REMOTE),
    "ssh": _always(REMOTE), "mosh": _always(REMOTE), "rclone": _always(REMOTE),
    **dict.fromkeys(word_set("mail mailx sendmail mutt msmtp swaks"), _always(MAILS)),
    **dict.fromkeys(("docker", "podman"), _first_two("push login", PUSHES)),
    "kubectl": _verbs("apply create patch set edit exec rollout expose run label", DEPLOYS),
    "helm": _verbs("install upgrade", DEPLOYS), "ansible-playbook": _always(DEPLOYS),
    "pulumi": _verbs("up destroy", DEPLOYS), "serverless": _verbs("deploy remove", DEPLOYS),
    **dict.fromkeys(("aws", "gcloud", "az", "gsutil", "doctl", "oci"), _CLOUD),
    **dict.fromkeys(
        word_set("vercel netlify heroku flyctl fly firebase wrangler surge railway eb"),
        _first_two("deploy publish up push create set --prod", DEPLOYS),
    ),
}  # fmt: skip

_NETWORK_READERS = word_set(
    "curl wget http https xh lynx w3m links elinks gh glab nc ncat telnet websocat ssh"
)
_DOWNLOADERS = word_set("aria2c yt-dlp scp rsync sftp rclone ftp svn hg")
_GIT_DOWNLOADS = word_set("clone fetch pull submodule remote ls-remote")


def outside_effect(found: ParsedCommand) -> str:
    """Describe its effect in a few words; empty if none is known."""
    name, args = found.name, found.argv[1:]
    check = _python if re.match(r"python[\d.]*$", name) else _CHECKS.get(name)
    if check is None or (name in _DRY_RUN_PROGRAMS and {"--dry-run", "--help"} & {*args}):
        return ""
    return check(args)


def shows_untrusted(found: Sequence[ParsedCommand]) -> bool:
    """Whether a command may print content written by others."""
    return any(one.name in _NETWORK_READERS for one in found)


def downloads_files(found: Sequence[ParsedCommand]) -> bool:
    """Whether a command may write content from others to files."""
    if shows_untrusted(found):
        return True
    for one in found:
        fetched = one.name in _DOWNLOADERS or outside_effect(one) in {INSTALLS, RUNS}
        if fetched or (one.name == "git" and _GIT_DOWNLOADS & {*one.argv[1:4]}):
            return True
    return False
