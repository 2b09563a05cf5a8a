"""What a command does to the world outside: installs what others made, sends, publishes.

Known programs by their verbs, as they stand in the parsed words. Where a sandbox holds a command
back, none of this is needed; without one it is what a person would want to have seen first.
"""

import re
from collections.abc import Callable, Mapping, Sequence

from hermes.approvals.ruin import operands
from hermes.approvals.script import Found
from hermes.approvals.values import listed

INSTALLS = "installs what others made, and runs it while doing so"
RUNS = "fetches a program and runs it"
SENDS = "sends something to others"
ELSEWHERE = "acts on another machine"
PUSHES = "sends work to where others see it"
DEPLOYS = "changes what runs for others"
MAILS = "sends mail"

_HERE = re.compile(
    r"(?:\w+://)?(?:[^/@]*@)?(?:localhost|127(?:\.\d+){3}|0\.0\.0\.0|\[::1\])(?:[:/?]|$)",
    re.IGNORECASE,
)
_SENDING = re.compile(
    r"-d.*|--data.*|--json.*|-F.*|--form.*|-T.*|--upload-file.*|--post-(?:data|file).*|--body-.*"
)
_METHOD = re.compile(r"(?:-X|--request=|--method=)?(?:POST|PUT|PATCH|DELETE)", re.IGNORECASE)
_FAR = re.compile(r"(?:[\w.-]+@)?[\w.-]{2,}:(?!//)|rsync://|scp://|sftp://|s3://|gs://")
_LOCAL_TOOLS = listed(
    "tsc eslint prettier jest vitest mocha playwright tsx ts-node webpack vite rollup next turbo "
    "nx lint-staged stylelint svelte-check vue-tsc astro esbuild swc babel nyc c8 knip biome"
)
"""What a project has installed and calls through `npx`."""
_TRIALS = listed("pip pip3 npm pnpm apt apt-get git rsync helm kubectl poetry")
"""Programs that do nothing when they are told so."""
_PACMAN = re.compile(r"-S(?!s|i|l|g)|-U|--sync|--upgrade")

_GIT_VALUES = listed("-C -c --git-dir --work-tree --namespace --super-prefix --config-env")

Check = Callable[[Sequence[str]], str]


def _verbs(names: str, why: str) -> Check:
    """The first word that is no flag is one of these; it may stand behind a flag's value."""
    wanted = listed(names)
    return lambda args: why if {*operands(args)[: 1 + _flagged(args)]} & wanted else ""


def _second(names: str, why: str) -> Check:
    """The first or the second such word is, as in `gh pr create`."""
    wanted = listed(names)
    return lambda args: why if {*operands(args)[: 2 + _flagged(args)]} & wanted else ""


def _flagged(args: Sequence[str]) -> int:
    return int(bool(args) and args[0].startswith("-"))


def _always(why: str) -> Check:
    return lambda args: why


def _npm(args: Sequence[str]) -> str:
    if {*operands(args)[:1]} & listed("exec x dlx create init"):
        return RUNS if operands(args)[1:] else ""
    bare = not operands(args)
    return _verbs("install i ci add update up upgrade link it cit", INSTALLS)(args) or (
        INSTALLS if bare and {"-g", "--global"} & {*args} else ""
    )


def _yarn(args: Sequence[str]) -> str:
    """Without a word it installs."""
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
    if addresses and all(_HERE.match(one) for one in addresses):
        return ""
    methods = [one for one in args if _METHOD.fullmatch(one)]
    return SENDS if methods or any(_SENDING.fullmatch(one) for one in args) else ""


def _copies(args: Sequence[str]) -> str:
    """To or from another machine."""
    return ELSEWHERE if any(_FAR.match(one) for one in operands(args)) else ""


def git_words(args: Sequence[str]) -> list[str]:
    """From the verb on: what stands before it says where, and with which settings."""
    rest = list(args)
    while rest and rest[0].startswith("-"):
        rest = rest[2 if rest[0] in _GIT_VALUES else 1 :]
    return rest


def _git(args: Sequence[str]) -> str:
    words = operands(git_words(args))
    if words[:1] == ["push"]:
        return PUSHES
    return MAILS if words[:1] == ["send-email"] else ""


def _gh(args: Sequence[str]) -> str:
    if operands(args)[:1] == ["api"]:
        sends = {"-f", "-F", "--field", "--raw-field", "--input"} & {*args}
        return SENDS if sends or any(_METHOD.fullmatch(one) for one in args) else ""
    return SENDS if {*operands(args)[1 : 2 + _flagged(args)]} & _GH else ""


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


_GH = listed(
    "create comment close reopen edit review upload fork rename sync run rerun cancel enable "
    "disable set"
)
_PIP = _verbs("install wheel download", INSTALLS)
_SYSTEM = _verbs(
    "install upgrade dist-upgrade full-upgrade update add reinstall groupinstall in dup refresh",
    "installs software on this machine",
)
_CLOUD = _second(
    "create put deploy apply update start run mv cp sync publish set add push run-instances invoke",
    DEPLOYS,
)
_CHECKS: Mapping[str, Check] = {
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
        listed("apt apt-get aptitude dnf yum zypper apk brew snap flatpak port pkg emerge nix-env"),
        _SYSTEM,
    ),
    "pacman": _pacman, "yay": _pacman, "paru": _pacman, "dpkg": _always("installs software"),
    "curl": _curl, "wget": _curl, "http": _curl, "https": _curl, "xh": _curl,
    "git": _git, "gh": _gh, "glab": _gh, "hub": _gh, "svn": _verbs("commit ci", PUSHES),
    "hg": _verbs("push", PUSHES), "scp": _copies, "rsync": _copies, "sftp": _always(ELSEWHERE),
    "ssh": _always(ELSEWHERE), "mosh": _always(ELSEWHERE), "rclone": _always(ELSEWHERE),
    **dict.fromkeys(listed("mail mailx sendmail mutt msmtp swaks"), _always(MAILS)),
    **dict.fromkeys(("docker", "podman"), _second("push login", PUSHES)),
    "kubectl": _verbs("apply create patch set edit exec rollout expose run label", DEPLOYS),
    "helm": _verbs("install upgrade", DEPLOYS), "ansible-playbook": _always(DEPLOYS),
    "pulumi": _verbs("up destroy", DEPLOYS), "serverless": _verbs("deploy remove", DEPLOYS),
    **dict.fromkeys(("aws", "gcloud", "az", "gsutil", "doctl", "oci"), _CLOUD),
    **dict.fromkeys(
        listed("vercel netlify heroku flyctl fly firebase wrangler surge railway eb"),
        _second("deploy publish up push create set --prod", DEPLOYS),
    ),
}  # fmt: skip

_SHOWS = listed("curl wget http https xh lynx w3m links elinks gh glab nc ncat telnet websocat ssh")
_FETCHES = listed("aria2c yt-dlp scp rsync sftp rclone ftp svn hg")
_GIT_FETCHES = listed("clone fetch pull submodule remote ls-remote")


def outward(found: Found) -> str:
    """What it would do outside, in a few words; empty when it is not known to do anything."""
    name, args = found.name, found.argv[1:]
    check = _python if re.match(r"python[\d.]*$", name) else _CHECKS.get(name)
    if check is None or (name in _TRIALS and {"--dry-run", "--help"} & {*args}):
        return ""
    return check(args)


def shows_others(found: Sequence[Found]) -> bool:
    """Whether what a command prints may be what others wrote."""
    return any(one.name in _SHOWS for one in found)


def brings_in(found: Sequence[Found]) -> bool:
    """Whether a command may put what others wrote into files."""
    if shows_others(found):
        return True
    for one in found:
        fetched = one.name in _FETCHES or outward(one) in {INSTALLS, RUNS}
        if fetched or (one.name == "git" and _GIT_FETCHES & {*one.argv[1:4]}):
            return True
    return False
