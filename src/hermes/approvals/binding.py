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

from hermes.approvals.simple import simple_argv
from hermes.approvals.values import listed
from hermes.kit.files import read_ordinary
from hermes.ports.counsel import Wish

MOST_WORDS = 200
LARGE = 32 * 1024 * 1024
"""Bytes of a file that is no longer told by what is in it, but by when it was changed last."""

_FIXED = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc", "/nix/store")
"""Places of the system, where the agent writes nothing."""
_PIECES = re.compile(r"[\s'\"|&;<>()`=@,:{}]+")
_LANGUAGES = re.compile(
    r"(python|pypy|perl|ruby|php|lua|luajit|pythonw)[\d.]*|node|nodejs|deno|bun|rscript|julia|java"
    r"|elixir|erl|escript|groovy|scala|kotlin|tclsh[\d.]*|guile|racket|osascript|irb|ipython3?"
)
"""They load what lies beside a program, too."""
_RUNNERS = listed(
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
_BUILDERS = listed("pip pip3 docker podman buildah nerdctl")
_SHELLS = listed("sh bash dash zsh ksh ash fish mksh rbash yash csh tcsh pwsh")
UNBOUND = "unbound "
"""How the seal of a program begins that loads what lies beside it; its name follows."""
_INTERPRETED = re.compile(rb"#!\s*(?:\S*/env\s+(?:-\S+\s+)*)?(\S+)")
_EXECUTING = frozenset({"-exec", "-execdir", "-ok", "-okdir"})


class Where(Struct, frozen=True, kw_only=True):
    """`path` is where programs are looked for, `workspace` what the agent writes in."""

    folder: str
    workspace: str = ""
    path: str = ""


def unbound(argv: Sequence[str]) -> str:
    """The program whose meaning lies in files that the words do not name; empty for none."""
    pieces = [piece for word in argv for piece in _pieces(word)]
    if len(pieces) > MOST_WORDS:
        return argv[0]
    for piece in pieces:
        name = posixpath.basename(piece)
        low = name.lower()
        if low in _RUNNERS or _LANGUAGES.fullmatch(low):
            return name
        if low in _BUILDERS and any(_is_place(word) for word in argv):
            return name
        if low in _SHELLS and any(re.fullmatch(r"[-+]\w*[cs]\w*|--command.*", w) for w in argv):
            return name
        if piece in _EXECUTING:
            return argv[0]
    return ""


def _is_place(word: str) -> bool:
    """Whether it may be a folder to build from, or a list of such."""
    return word.startswith((".", "/", "-r", "-c", "-e", "--requirement", "--editable")) or (
        word in {"build", "buildx", "compose"}
    )


def bound(wish: Wish, where: Where) -> Wish:
    """Sealed also with what a simple command's words stand for. Reads from disk."""
    argv = simple_argv(wish.action)
    seal = seal_of(argv, where) if argv else ""
    return structs.replace(wish, seal=f"{seal} {wish.seal}".strip()) if seal else wish


def seal_of(argv: Sequence[str], where: Where) -> str:
    """A digest of the files that the words name, and of the programs; empty where none can change.

    Reads from disk.
    """
    parts: list[str] = []
    beside = ""
    for path in dict.fromkeys(_named(argv, where)):
        real = os.path.realpath(path)
        if _is_fixed(path, where) and _is_fixed(real, where):
            continue
        if found := _content(real):
            beside = beside or _language(real, where)
            parts += path, real, found
    mark = f"{UNBOUND}{beside} " if beside else ""
    return mark + hashlib.sha256(os.fsencode("\0".join(parts))).hexdigest() if parts else ""


def _language(path: str, where: Where) -> str:
    """What runs a script that the agent can write beside; empty when that loads nothing more."""
    near = [os.path.realpath(one) for one in (where.workspace, where.folder) if one]
    if not any(_beneath(path, one) for one in near):
        return ""
    try:
        with Path(path).open("rb") as file:
            found = _INTERPRETED.match(file.read(256))
    except OSError:
        return ""
    name = posixpath.basename(os.fsdecode(found[1])) if found else ""
    return name if name in _RUNNERS or _LANGUAGES.fullmatch(name.lower()) else ""


def _named(argv: Sequence[str], where: Where) -> Iterator[str]:
    places = [posixpath.join(where.folder, one) for one in where.path.split(os.pathsep) if one]
    programs = os.pathsep.join(places)
    for piece in dict.fromkeys(piece for word in argv for piece in _pieces(word)):
        yield posixpath.join(where.folder, piece)
        if "/" not in piece and (program := shutil.which(piece, path=programs)):
            yield program


def _pieces(word: str) -> Iterator[str]:
    """The word, and what may be a path in it: `-fx`, `--file=x`, `@x`, `a:x`."""
    yield word
    if re.match(r"-\w.", word):
        yield word[2:]
    yield from (piece for piece in _PIECES.split(word) if piece and piece != word)


def _is_fixed(path: str, where: Where) -> bool:
    path = os.path.normpath(path)
    if where.workspace and _beneath(path, os.path.realpath(where.workspace)):
        return False
    return any(_beneath(path, place) for place in _FIXED)


def _beneath(path: str, place: str) -> bool:
    return path == place or path.startswith(place.rstrip("/") + "/")


def _content(path: str) -> str:
    """What tells one state of a file from another; empty for what is no file."""
    try:
        found = Path(path).stat()
        if not stat.S_ISREG(found.st_mode):
            return ""
        state = f"{found.st_dev} {found.st_ino} {found.st_size} {found.st_ctime_ns}"
    except (OSError, ValueError):
        return ""
    if found.st_size > LARGE:
        return state
    try:
        return hashlib.sha256(read_ordinary(Path(path), LARGE)).hexdigest()
    except OSError:
        return state
