"""What a command's words stand for on disk: a grant counts while that stays the same."""

import hashlib
import os
import posixpath
import re
import shutil
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct, structs

from hermes.approvals.grants import simple_argv
from hermes.approvals.shell.expansion import word_set
from hermes.kit.files import read_regular_file
from hermes.ports.approvals import ApprovalRequest

MAX_WORDS = 200
MAX_HASHED = 32 * 1024 * 1024
"""Bytes of a file that is no longer told by what is in it, but by when it was changed last."""

_SYSTEM_FOLDERS = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc", "/nix/store")
"""Places of the system, where the agent writes nothing."""
_SEPARATORS = re.compile(r"[\s'\"|&;<>()`=@,:{}]+")
_INTERPRETERS = re.compile(
    r"(python|pypy|perl|ruby|php|lua|luajit|pythonw)[\d.]*|node|nodejs|deno|bun|rscript|julia|java"
    r"|elixir|erl|escript|groovy|scala|kotlin|tclsh[\d.]*|guile|racket|osascript|irb|ipython3?"
)
"""They load what lies beside a program, too."""
_TASK_RUNNERS = word_set(
    "make gmake bmake cmake ctest ninja meson scons waf just rake bundle bazel bazelisk buck2 "
    "npm pnpm pnpx yarn npx bunx corepack jest vitest mocha playwright cypress tsx ts-node vite "
    "webpack rollup esbuild eslint prettier next nuxt turbo nx lerna gulp grunt node-gyp "
    "pytest py.test tox nox invoke inv fab hatch poetry pdm pipenv pre-commit uv uvx pipx coverage "
    "django-admin flask uvicorn gunicorn celery alembic streamlit jupyter sphinx-build mkdocs "
    "cargo rustup-run go dotnet swift zig gradle gradlew mvn mvnw ant sbt lein mill clojure clj "
    "mix rebar3 stack cabal composer phpunit rspec terraform tofu terragrunt ansible "
    "ansible-playbook vagrant packer pulumi docker-compose skaffold earthly dagger act snakemake "
    "nextflow xargs parallel eval"
)
"""Programs that find out from the files of a folder what they are to do."""
_PACKAGE_BUILDERS = word_set("pip pip3 docker podman buildah nerdctl")
_SHELLS = word_set("sh bash dash zsh ksh ash fish mksh rbash yash csh tcsh pwsh")
UNSEALED_PREFIX = "unbound "
"""How the seal of a program begins that loads what lies beside it; its name follows."""
_SHEBANG = re.compile(rb"#!\s*(?:\S*/env\s+(?:-\S+\s+)*)?(\S+)")
_EXEC_FLAGS = frozenset({"-exec", "-execdir", "-ok", "-okdir"})


class SealContext(Struct, frozen=True, kw_only=True):
    """`path` is where programs are looked for, `workspace` what the agent writes in."""

    folder: str
    workspace: str = ""
    path: str = ""


def unsealable_program(argv: Sequence[str]) -> str:
    """The program whose meaning lies in files that the words do not name; empty for none."""
    pieces = [piece for word in argv for piece in _path_candidates(word)]
    if len(pieces) > MAX_WORDS:
        return argv[0]
    for piece in pieces:
        name = posixpath.basename(piece)
        low = name.lower()
        if low in _TASK_RUNNERS or _INTERPRETERS.fullmatch(low):
            return name
        if low in _PACKAGE_BUILDERS and any(_is_build_source(word) for word in argv):
            return name
        if low in _SHELLS and any(re.fullmatch(r"[-+]\w*[cs]\w*|--command.*", w) for w in argv):
            return name
        if piece in _EXEC_FLAGS:
            return argv[0]
    return ""


def _is_build_source(word: str) -> bool:
    """Whether it may be a folder to build from, or a list of such."""
    return word.startswith((".", "/", "-r", "-c", "-e", "--requirement", "--editable")) or (
        word in {"build", "buildx", "compose"}
    )


def seal_request(wish: ApprovalRequest, where: SealContext) -> ApprovalRequest:
    """Sealed also with what a simple command's words stand for. Reads from disk."""
    argv = simple_argv(wish.action)
    seal = command_seal(argv, where) if argv else ""
    return structs.replace(wish, seal=f"{seal} {wish.seal}".strip()) if seal else wish


def command_seal(argv: Sequence[str], where: SealContext) -> str:
    """A digest of the files that the words name, and of the programs; empty where none can change.

    Reads from disk.
    """
    parts: list[str] = []
    beside = ""
    for path in dict.fromkeys(_named_files(argv, where)):
        real = os.path.realpath(path)
        if _is_system_path(path, where) and _is_system_path(real, where):
            continue
        if found := _file_state(real):
            beside = beside or _interpreter_of(real, where)
            parts += path, real, found
    mark = f"{UNSEALED_PREFIX}{beside} " if beside else ""
    return mark + hashlib.sha256(os.fsencode("\0".join(parts))).hexdigest() if parts else ""


def _interpreter_of(path: str, where: SealContext) -> str:
    """What runs a script that the agent can write beside; empty when that loads nothing more."""
    near = [os.path.realpath(one) for one in (where.workspace, where.folder) if one]
    if not any(_is_within(path, one) for one in near):
        return ""
    try:
        with Path(path).open("rb") as file:
            found = _SHEBANG.match(file.read(256))
    except OSError:
        return ""
    name = posixpath.basename(os.fsdecode(found[1])) if found else ""
    return name if name in _TASK_RUNNERS or _INTERPRETERS.fullmatch(name.lower()) else ""


def _named_files(argv: Sequence[str], where: SealContext) -> Iterator[str]:
    places = [posixpath.join(where.folder, one) for one in where.path.split(os.pathsep) if one]
    programs = os.pathsep.join(places)
    for piece in dict.fromkeys(piece for word in argv for piece in _path_candidates(word)):
        yield posixpath.join(where.folder, piece)
        if "/" not in piece and (program := shutil.which(piece, path=programs)):
            yield program


def _path_candidates(word: str) -> Iterator[str]:
    """The word, and what may be a path in it: `-fx`, `--file=x`, `@x`, `a:x`."""
    yield word
    if re.match(r"-\w.", word):
        yield word[2:]
    yield from (piece for piece in _SEPARATORS.split(word) if piece and piece != word)


def _is_system_path(path: str, where: SealContext) -> bool:
    path = os.path.normpath(path)
    if where.workspace and _is_within(path, os.path.realpath(where.workspace)):
        return False
    return any(_is_within(path, place) for place in _SYSTEM_FOLDERS)


def _is_within(path: str, place: str) -> bool:
    return path == place or path.startswith(place.rstrip("/") + "/")


def _file_state(path: str) -> str:
    """What tells one state of a file from another; empty for what is no file."""
    try:
        found = Path(path).stat()
        if not stat.S_ISREG(found.st_mode):
            return ""
        state = f"{found.st_dev} {found.st_ino} {found.st_size} {found.st_ctime_ns}"
    except (OSError, ValueError):
        return ""
    if found.st_size > MAX_HASHED:
        return state
    try:
        return hashlib.sha256(read_regular_file(Path(path), MAX_HASHED)).hexdigest()
    except OSError:
        return state
