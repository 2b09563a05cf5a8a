"""Fingerprint the files a command names, since a saved approval lapses when one changes."""

import hashlib
import os
import posixpath
import re
import shutil
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct, structs

from hermes.approvals.nested_commands import word_set
from hermes.approvals.saved_approvals import simple_argv
from hermes.kit.files import read_regular_file
from hermes.ports.approvals import ApprovalRequest

MAX_WORDS = 200
MAX_HASHED = 32 * 1024 * 1024
"""Larger files (in bytes) are identified by their metadata instead of their content."""

_SYSTEM_FOLDERS = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc", "/nix/store")
"""System folders, which the agent does not write to."""
_SEPARATORS = re.compile(r"[\s'\"|&;<>()`=@,:{}]+")
_INTERPRETERS = re.compile(
    r"(python|pypy|perl|ruby|php|lua|luajit|pythonw)[\d.]*|node|nodejs|deno|bun|rscript|julia|java"
    r"|elixir|erl|escript|groovy|scala|kotlin|tclsh[\d.]*|guile|racket|osascript|irb|ipython3?"
)
"""Interpreters, which also load files next to the program."""
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
"""Programs that read from project files what to do."""
_PACKAGE_BUILDERS = word_set("pip pip3 docker podman buildah nerdctl")
_SHELLS = word_set("sh bash dash zsh ksh ash fish mksh rbash yash csh tcsh pwsh")
UNSEALED_PREFIX = "unbound "
"""Prefix of a seal, followed by the program's name, when the program loads other files too."""
_SHEBANG = re.compile(rb"#!\s*(?:\S*/env\s+(?:-\S+\s+)*)?(\S+)")
_EXEC_FLAGS = frozenset({"-exec", "-execdir", "-ok", "-okdir"})


class SealContext(Struct, frozen=True, kw_only=True):
    """`path` is the program search path, `workspace` the folder the agent writes to."""

    folder: str
    workspace: str = ""
    path: str = ""


def unsealable_program(argv: Sequence[str]) -> str:
    """Find a program whose behaviour depends on files the words do not name; empty if none."""
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
    """Whether it may be a folder to build from, or a list of such folders."""
    return word.startswith((".", "/", "-r", "-c", "-e", "--requirement", "--editable")) or (
        word in {"build", "buildx", "compose"}
    )


def seal_request(request: ApprovalRequest, context: SealContext) -> ApprovalRequest:
    """Add the seal of the files that a simple command names. Reads from disk."""
    argv = simple_argv(request.action)
    seal = command_seal(argv, context) if argv else ""
    return structs.replace(request, seal=f"{seal} {request.seal}".strip()) if seal else request


def command_seal(argv: Sequence[str], context: SealContext) -> str:
    """Hash the programs and files that the words name; empty if none of them can change.

    Reads from disk.
    """
    parts: list[str] = []
    interpreter = ""
    for path in dict.fromkeys(_named_files(argv, context)):
        real = os.path.realpath(path)
        if _is_system_path(path, context) and _is_system_path(real, context):
            continue
        if found := _file_state(real):
            interpreter = interpreter or _interpreter_of(real, context)
            parts += path, real, found
    prefix = f"{UNSEALED_PREFIX}{interpreter} " if interpreter else ""
    return prefix + hashlib.sha256(os.fsencode("\0".join(parts))).hexdigest() if parts else ""


def _interpreter_of(path: str, context: SealContext) -> str:
    """The interpreter of a script in a folder the agent can write to; empty if it loads no more."""
    writable = [os.path.realpath(one) for one in (context.workspace, context.folder) if one]
    if not any(_is_within(path, one) for one in writable):
        return ""
    try:
        with Path(path).open("rb") as file:
            found = _SHEBANG.match(file.read(256))
    except OSError:
        return ""
    name = posixpath.basename(os.fsdecode(found[1])) if found else ""
    return name if name in _TASK_RUNNERS or _INTERPRETERS.fullmatch(name.lower()) else ""


def _named_files(argv: Sequence[str], context: SealContext) -> Iterator[str]:
    folders = [
        posixpath.join(context.folder, folder)
        for folder in context.path.split(os.pathsep)
        if folder
    ]
    programs = os.pathsep.join(folders)
    for piece in dict.fromkeys(piece for word in argv for piece in _path_candidates(word)):
        yield posixpath.join(context.folder, piece)
        if "/" not in piece and (program := shutil.which(piece, path=programs)):
            yield program


def _path_candidates(word: str) -> Iterator[str]:
    """The word, and what may be a path in it: `-fx`, `--file=x`, `@x`, `a:x`."""
    yield word
    if re.match(r"-\w.", word):
        yield word[2:]
    yield from (piece for piece in _SEPARATORS.split(word) if piece and piece != word)


def _is_system_path(path: str, context: SealContext) -> bool:
    path = os.path.normpath(path)
    if context.workspace and _is_within(path, os.path.realpath(context.workspace)):
        return False
    return any(_is_within(path, folder) for folder in _SYSTEM_FOLDERS)


def _is_within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _file_state(path: str) -> str:
    """Identify the state of a regular file; empty for anything else."""
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
