"""What a walled process sees of the machine: what is hidden, what may be changed.

The rule is the same for every wall, only the means differ: everything may be read except what
is hidden, nothing may be changed except what the reach of the job names. Of two rules the one
for the deeper path counts, and of two for the same path the stricter one.
"""

import fnmatch
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from enum import IntEnum
from pathlib import Path

from msgspec import Struct, structs

from hermes.kit.mounts import Mounts
from hermes.ports.sandbox import ProcessPermissions
from hermes.schema.errors import SandboxError
from hermes.schema.scope import principal_digest

HOME_SECRETS = (
    ".ssh", ".gnupg", ".aws", ".azure", ".config/gcloud", ".config/gh", ".config/hub",
    ".config/op", ".config/rclone", ".config/doctl", ".config/sops", ".config/age", ".kube",
    ".docker", ".config/containers/auth.json", ".netrc", ".git-credentials",
    ".config/git/credentials", ".pypirc", ".npmrc", ".yarnrc.yml", ".cargo/credentials*",
    ".gem/credentials", ".m2/settings.xml", ".gradle/gradle.properties", ".terraform.d",
    ".terraformrc", ".vault-token", ".pgpass", ".my.cnf", ".mylogin.cnf", ".s3cfg", ".boto",
    ".password-store", ".local/share/keyrings", ".local/share/kwalletd", ".kde/share/apps/kwallet",
    ".mozilla", ".config/google-chrome*", ".config/chromium", ".config/BraveSoftware",
    ".config/microsoft-edge*", ".config/vivaldi", ".config/opera", ".thunderbird",
    ".config/Signal", ".local/share/TelegramDesktop", ".config/discord", ".config/Slack",
    "snap/firefox", "snap/chromium", ".var/app", "Library/Keychains", "Library/Cookies",
    ".hermes", ".claude", ".claude.json", ".codex", ".gemini", ".config/opencode",
    ".local/share/opencode", ".*_history", ".lesshst", ".viminfo", ".local/share/fish",
    ".python_history", ".Xauthority", ".ICEauthority", ".config/pulse", ".dbus", ".colima",
    ".lima", ".orbstack", ".rd", ".local/share/containers/podman", ".gnome/keyring", ".1password",
)  # fmt: skip
"""Below the home of a user: keys, passwords, cookies, what was typed, and other agents."""

ROOT_SECRETS = (
    "/etc/shadow*", "/etc/gshadow*", "/etc/sudoers", "/etc/sudoers.d", "/etc/ssh/*_key",
    "/etc/ssl/private", "/etc/krb5.keytab", "/etc/NetworkManager/system-connections",
    "/var/spool/cron", "/var/spool/mail", "/var/mail", "/proc/kcore",
)  # fmt: skip
"""Of the machine, and only root could read it anyway."""

CONTAINER_STORES = ("/var/lib/docker", "/var/lib/containerd")
"""The same, with whole machines inside: too many files to look through for second names."""

SOCKET_FOLDERS = (
    "/run", "/var/run", "/var/lib/lxd", "/var/lib/incus", "/var/snap/lxd/common/lxd",
    "/var/lib/libvirt",
)  # fmt: skip
"""Here listens everybody who would act for us: docker, dbus, the agents of ssh and gpg.

The filter of system calls keeps commands from all Unix sockets; this hides these also from those
to whom the settings give `unix_sockets`.
"""

VISIBLE_IN_RUN = (
    "/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager/resolv.conf",
    "/run/current-system", "/run/wrappers", "/run/opengl-driver", "/run/media", "/run/mount",
)  # fmt: skip

GUARDED = (".husky", ".envrc")
"""In a folder that may be changed: what the owner's own git or shell executes unasked.

Of repositories, the `read_only` of a reach says it.
"""

STARTUP_FILES = (
    ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile",
    ".zshrc", ".zshenv", ".zlogout", ".config/zsh", ".oh-my-zsh", ".cargo/bin", "go/bin",
    ".zprofile", ".zlogin", ".inputrc", ".gitconfig", ".config/git", ".config/systemd",
    ".config/autostart", ".config/fish", ".config/environment.d", ".local/bin", "bin",
    ".pam_environment", ".vimrc", ".config/nvim", ".xprofile", ".xsession", ".xinitrc",
    ".tmux.conf", ".pip", ".config/pip", ".condarc",
)  # fmt: skip
"""Below the home of a user: what is executed at the next login, should the home be writable."""


MAX_HOME_ENTRIES = 100
"""What of a home may be changed at most; folders come before files."""
TMP_AGE = 7 * 24 * 3600.0
"""Seconds that a temporary file is kept after its last change."""


class PathAccess(IntEnum):
    """What may be done with a path, the stricter the higher."""

    CHANGE = 0
    READ = 1
    HIDDEN = 2


class PathRule(Struct, frozen=True, order=True):
    path: str
    sight: PathAccess


class FilesystemPolicy(Struct, frozen=True, kw_only=True):
    """The rules of a profile. `hidden` may hold patterns; `shown` lies in something hidden.

    `inside` are patterns of what stays hidden where a folder that may be changed lies in
    something hidden.
    `guarded` is read-only wherever the reach would let it be changed; a name that does not
    begin with a slash is meant below each writable folder; without any, nothing is guarded.
    `tmp` is the folder that takes the place of `/tmp`. `lent` is shown, and may be changed by
    those whose reach names it; `to_readers` is shown only to those who may change nothing, and
    `own` says what that is for a principal.

    `person` is the home of the user. Should it be writable, then that means what is in it by
    now and has no hidden name: no file of a shell, no key, no program can be put there.

    With `unix_sockets` a process may use those that it sees, where a wall can hide some at all.
    """

    tmp: str
    hidden: tuple[str, ...] = ()
    inside: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()
    guarded: tuple[str, ...] = GUARDED
    lent: tuple[str, ...] = ()
    to_readers: tuple[str, ...] = ()
    own: Callable[[str], Sequence[str]] = lambda principal: ()
    person: str = ""
    unix_sockets: bool = False


def policy_for(view: FilesystemPolicy, principal: str) -> FilesystemPolicy:
    """As a principal sees it: who is not the owner has a folder for temporary files alone."""
    own = tuple(view.own(principal))
    return structs.replace(view, tmp=tmp_for(view.tmp, principal), to_readers=own)


def tmp_for(owners: str, principal: str) -> str:
    mark = principal_digest(principal)
    return f"{owners}-{mark}" if mark else owners


def path_rules(view: FilesystemPolicy, reach: ProcessPermissions) -> list[PathRule]:
    """What exists of it now, by real paths, parents before what lies in them."""
    found: dict[str, PathAccess] = {}
    for path, sight in _requested_rules(view, reach):
        found[path] = max(sight, found.get(path, sight))
    return _without_redundant(
        parents_first([PathRule(path, sight) for path, sight in found.items()])
    )


def existing_shown_paths(view: FilesystemPolicy) -> list[str]:
    """The real paths of what is always shown, as far as it exists."""
    return [path for name in view.shown for path in _matching_paths(name)]


def parents_first(some: list[PathRule]) -> list[PathRule]:
    """Folders before what lies in them."""
    return sorted(some, key=lambda rule: rule.path.split("/"))


def is_hidden(path: str, found: list[PathRule]) -> bool:
    """Whether a real path lies in something hidden; what is hidden itself is empty, but there."""
    around = [rule for rule in found if is_within(path, rule.path)]
    return bool(around) and around[-1].sight is PathAccess.HIDDEN and around[-1].path != path


def home_secrets(home: Path) -> tuple[str, ...]:
    return tuple(f"{home}/{name}" for name in HOME_SECRETS)


def private_paths(home: Path, *, root: bool) -> tuple[str, ...]:
    """What a user with this home shows to nobody unasked."""
    return (*home_secrets(home), *(ROOT_SECRETS if root else ()))


def hidden_paths(home: Path, *, root: bool) -> tuple[str, ...]:
    """Everything that is hidden from the commands of a user with this home."""
    return (*SOCKET_FOLDERS, *private_paths(home, root=root), *(CONTAINER_STORES if root else ()))


def startup_files(home: Path) -> tuple[str, ...]:
    return tuple(f"{home}/{name}" for name in STARTUP_FILES)


def make_tmp_folder(folder: str) -> None:
    """The folder for temporary files, for nobody else. Raises `SandboxError`."""
    try:
        Path(folder).mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise SandboxError(
            f"the sandbox has no folder for temporary files: {folder}: {error.strerror}",
            hint="It needs room in the cache of the home.",
        ) from error


def prune_all_tmp_folders(owners: str, now: datetime) -> None:
    """In the owner's folder for temporary files, and in those of all others."""
    folder, _, name = owners.rpartition("/")
    for path in (owners, *_matching_paths(f"{folder}/{name}-*")):
        prune_tmp_folder(path, now)


def prune_tmp_folder(folder: str, now: datetime) -> None:
    """Take away what nobody touched for long; what cannot be taken away stays."""
    import shutil  # noqa: PLC0415 - slow to load, seldom needed

    oldest = now.timestamp() - TMP_AGE
    try:
        entries = [*Path(folder).iterdir()]
    except OSError:
        return
    for entry in entries:
        with suppress(OSError):
            if entry.lstat().st_mtime < oldest:
                if entry.is_dir() and not entry.is_symlink():
                    shutil.rmtree(entry, ignore_errors=True)
                else:
                    entry.unlink()


def is_folder(path: str) -> bool:
    """Not one of those that we may not look at."""
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)  # noqa: PTH116 no path object for a question
    except OSError:
        return False


def is_within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _requested_rules(
    view: FilesystemPolicy, reach: ProcessPermissions
) -> Iterator[tuple[str, PathAccess]]:
    writable = [os.path.realpath(folder) for folder in reach.writable if is_folder(folder)]
    for folder in writable:
        yield folder, PathAccess.CHANGE
    person = os.path.realpath(view.person) if view.person else ""
    if person and any(is_within(person, folder) for folder in writable):
        yield from _home_rules(person)
    known: dict[str, list[str]] = {}
    hidden = [path for pattern in view.hidden for path in _matching_paths(pattern, known)]
    shown = [*_shown_paths(view, writable, reader=not reach.writable)]
    mounts = Mounts()
    again = _second_mounts(mounts, hidden, [*shown, *writable])
    inner = [one for one in writable if any(is_within(one, path) for path in (*hidden, *again))]
    inside = [pattern for pattern in view.inside if again or _may_match_in(pattern, inner)]
    closed = [path for pattern in inside for path in _matching_paths(pattern, known)]
    again += _second_mounts(mounts, closed, [*shown, *writable]) if again else []
    yield from ((path, PathAccess.HIDDEN) for path in (*hidden, *closed, *again))
    yield from ((path, PathAccess.READ) for path in shown)
    for path in (*_guarded_paths(view, writable), *_not_hidden(reach.read_only, writable, hidden)):
        if any(is_within(path, folder) for folder in writable):
            yield path, PathAccess.READ


def _second_mounts(mounts: Mounts, paths: list[str], seen: list[str]) -> list[str]:
    """Where hidden paths show a second time, through another mount."""

    def is_open(path: str) -> bool:
        return any(is_within(path, one) for one in seen)

    return [name for path in paths for name in mounts.second_names(path, is_open)]


def _shown_paths(view: FilesystemPolicy, writable: list[str], *, reader: bool) -> Iterator[str]:
    for name in (*view.shown, *(view.to_readers if reader else ())):
        yield from _matching_paths(name)
    for name in view.lent:
        yield from (path for path in _matching_paths(name) if path not in writable)


def _home_rules(person: str) -> Iterator[tuple[str, PathAccess]]:
    yield person, PathAccess.READ
    try:
        with os.scandir(person) as entries:
            seen = [entry for entry in entries if not entry.name.startswith(".")]
    except OSError:
        return
    seen.sort(key=lambda entry: (not entry.is_dir(follow_symlinks=False), entry.name))
    for entry in seen[:MAX_HOME_ENTRIES]:
        ordinary = entry.is_dir(follow_symlinks=False) or entry.is_file(follow_symlinks=False)
        if ordinary and entry.name != "bin":
            yield entry.path, PathAccess.CHANGE


def _guarded_paths(view: FilesystemPolicy, writable: list[str]) -> Iterator[str]:
    """Names, no patterns: a command chooses what its folders are called."""
    for name in view.guarded:
        for path in (name,) if name.startswith("/") else _in_each(writable, name):
            yield from _existing(path)


def _not_hidden(paths: Sequence[str], writable: list[str], hidden: list[str]) -> Iterator[str]:
    """What lies in something hidden needs no rule, which would only show it."""
    for path in paths:
        around = max((len(one) for one in writable if is_within(path, one)), default=0)
        if not any(is_within(path, one) and len(one) > around for one in hidden):
            yield path


def _without_redundant(sorted_rules: list[PathRule]) -> list[PathRule]:
    """Without those that only repeat what the rule around them says already."""
    kept: list[PathRule] = []
    around = [PathRule("/", PathAccess.READ)]
    for rule in sorted_rules:
        while not is_within(rule.path, around[-1].path):
            around.pop()
        if rule.sight != around[-1].sight:
            kept.append(rule)
            around.append(rule)
    return kept


def _in_each(folders: list[str], name: str) -> list[str]:
    return [f"{folder}/{name}" for folder in folders]


def _may_match_in(pattern: str, folders: list[str]) -> bool:
    """Whether anything that it means can lie in one of the folders."""
    begin = pattern.partition("*")[0]
    return any(begin.startswith(f"{one}/") or f"{one}/".startswith(begin) for one in folders)


def _matching_paths(pattern: str, known: dict[str, list[str]] | None = None) -> list[str]:
    """A link is followed: what counts is where the thing itself lies.

    Any part of the path may have a `*` in it; `known` are the names in folders that were listed.
    """
    if "*" not in pattern:
        return _existing(pattern)
    known = {} if known is None else known
    folder, _, name = pattern.rpartition("/")
    folders = _matching_paths(folder, known) if "*" in folder else [folder]
    paths = (path for one in folders for path in _matching_names(one, name, known))
    return [real for path in paths for real in _existing(path)]


def _existing(path: str) -> list[str]:
    return [os.path.realpath(path)] if os.access(path, os.F_OK) else []


def _matching_names(folder: str, name: str, known: dict[str, list[str]]) -> list[str]:
    if "*" not in name:
        return [f"{folder}/{name}"]
    if folder not in known:
        try:
            known[folder] = os.listdir(folder or "/")  # noqa: PTH208 names are enough
        except OSError:
            known[folder] = []
    return [f"{folder}/{one}" for one in fnmatch.filter(known[folder], name)]
