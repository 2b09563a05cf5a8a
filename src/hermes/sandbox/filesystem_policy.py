"""Decide what a sandboxed process can read and change.

The rules are the same for every backend: everything can be read except what is hidden, nothing
can be changed except what the job's permissions name. The rule for the deeper path wins, and of
two rules for the same path the stricter one.
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
"""Below a user's home: keys, passwords, cookies, histories, and other agents."""

ROOT_SECRETS = (
    "/etc/shadow*", "/etc/gshadow*", "/etc/sudoers", "/etc/sudoers.d", "/etc/ssh/*_key",
    "/etc/ssl/private", "/etc/krb5.keytab", "/etc/NetworkManager/system-connections",
    "/var/spool/cron", "/var/spool/mail", "/var/mail", "/proc/kcore",
)  # fmt: skip
"""Of the machine; only root could read them anyway."""

CONTAINER_STORES = ("/var/lib/docker", "/var/lib/containerd")
"""Like these, but with whole machines inside: too many files to search for second names."""

SOCKET_FOLDERS = (
    "/run", "/var/run", "/var/lib/lxd", "/var/lib/incus", "/var/snap/lxd/common/lxd",
    "/var/lib/libvirt",
)  # fmt: skip
"""Sockets of services that could act for a command: docker, dbus, ssh and gpg agents.

The seccomp filter refuses all Unix sockets; this hides these also where the settings allow
`unix_sockets`.
"""

VISIBLE_IN_RUN = (
    "/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager/resolv.conf",
    "/run/current-system", "/run/wrappers", "/run/opengl-driver", "/run/media", "/run/mount",
)  # fmt: skip

GUARDED = (".husky", ".envrc")
"""In a writable folder: files the owner's git or shell executes without asking.

Repositories are covered by the `read_only` paths of the permissions.
"""

STARTUP_FILES = (
    ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile",
    ".zshrc", ".zshenv", ".zlogout", ".config/zsh", ".oh-my-zsh", ".cargo/bin", "go/bin",
    ".zprofile", ".zlogin", ".inputrc", ".gitconfig", ".config/git", ".config/systemd",
    ".config/autostart", ".config/fish", ".config/environment.d", ".local/bin", "bin",
    ".pam_environment", ".vimrc", ".config/nvim", ".xprofile", ".xsession", ".xinitrc",
    ".tmux.conf", ".pip", ".config/pip", ".condarc",
)  # fmt: skip
"""Below a user's home: files executed at the next login, in case the home is writable."""


MAX_HOME_ENTRIES = 100
"""Maximum number of writable entries in a home; folders come before files."""
TMP_AGE = 7 * 24 * 3600.0
"""Seconds a temporary file is kept after its last change."""


class PathAccess(IntEnum):
    """Access to a path, ordered by strictness."""

    CHANGE = 0
    READ = 1
    HIDDEN = 2


class PathRule(Struct, frozen=True, order=True):
    path: str
    access: PathAccess


class FilesystemPolicy(Struct, frozen=True, kw_only=True):
    """The rules of a profile. `hidden` may contain patterns; `shown` is inside something hidden.

    `inside` are patterns that stay hidden in a writable folder inside something hidden.
    `guarded` is read-only even in writable folders; a relative name is meant below each of them.
    `tmp` replaces `/tmp`. `lent` is shown, and writable for those whose permissions name it.
    `reader_paths` is shown only to those who may change nothing; `reader_paths_for` computes it for
    a principal, as `shown_for` does with what is shown to all of a principal's commands.

    `person` is the home of the user. If it is writable, that only covers its existing entries
    without a leading dot, so that no shell startup file, key or program can be created there.

    With `unix_sockets` a process may use the sockets it sees, where a backend can hide some.
    """

    tmp: str
    hidden: tuple[str, ...] = ()
    always_hidden: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()
    shown_for: Callable[[str], Sequence[str]] = lambda principal: ()
    guarded: tuple[str, ...] = GUARDED
    writable_on_request: tuple[str, ...] = ()
    reader_paths: tuple[str, ...] = ()
    reader_paths_for: Callable[[str], Sequence[str]] = lambda principal: ()
    user_home: str = ""
    unix_sockets: bool = False


def policy_for(policy: FilesystemPolicy, principal: str) -> FilesystemPolicy:
    """The policy of a principal: everyone but the owner has a separate temporary folder."""
    return structs.replace(
        policy,
        tmp=tmp_for(policy.tmp, principal),
        shown=(*policy.shown, *policy.shown_for(principal)),
        reader_paths=tuple(policy.reader_paths_for(principal)),
    )


def tmp_for(owners: str, principal: str) -> str:
    suffix = principal_digest(principal)
    return f"{owners}-{suffix}" if suffix else owners


def path_rules(policy: FilesystemPolicy, reach: ProcessPermissions) -> list[PathRule]:
    """The rules for existing files, by real paths, parents first."""
    found: dict[str, PathAccess] = {}
    for path, sight in _requested_rules(policy, reach):
        found[path] = max(sight, found.get(path, sight))
    return _without_redundant(
        parents_first([PathRule(path, sight) for path, sight in found.items()])
    )


def existing_shown_paths(policy: FilesystemPolicy) -> list[str]:
    """The real paths of what is always shown, as far as they exist."""
    return [path for name in policy.shown for path in _matching_paths(name)]


def parents_first(rules: list[PathRule]) -> list[PathRule]:
    """Sort folders before what they contain."""
    return sorted(rules, key=lambda rule: rule.path.split("/"))


def is_hidden(path: str, rules: list[PathRule]) -> bool:
    """Whether a real path is inside something hidden; a hidden folder itself is empty."""
    around = [rule for rule in rules if is_within(path, rule.path)]
    return bool(around) and around[-1].access is PathAccess.HIDDEN and around[-1].path != path


def home_secrets(home: Path) -> tuple[str, ...]:
    return tuple(f"{home}/{name}" for name in HOME_SECRETS)


def private_paths(home: Path, *, root: bool) -> tuple[str, ...]:
    """Return the paths of a user with this home that stay private without approval."""
    return (*home_secrets(home), *(ROOT_SECRETS if root else ()))


def hidden_paths(home: Path, *, root: bool) -> tuple[str, ...]:
    """Everything hidden from the commands of a user with this home."""
    return (*SOCKET_FOLDERS, *private_paths(home, root=root), *(CONTAINER_STORES if root else ()))


def startup_files(home: Path) -> tuple[str, ...]:
    return tuple(f"{home}/{name}" for name in STARTUP_FILES)


def make_tmp_folder(folder: str) -> None:
    """Create the private temporary folder. Raises `SandboxError`."""
    try:
        Path(folder).mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise SandboxError(
            f"the sandbox cannot create its temporary folder {folder}: {error.strerror}",
            hint="Free some space in the cache folder of the home.",
        ) from error


def prune_all_tmp_folders(owners: str, now: datetime) -> None:
    """Prune the owner's temporary folder and those of everyone else."""
    folder, _, name = owners.rpartition("/")
    for path in (owners, *_matching_paths(f"{folder}/{name}-*")):
        prune_tmp_folder(path, now)


def prune_tmp_folder(folder: str, now: datetime) -> None:
    """Delete files that have not changed for long; skip what cannot be deleted."""
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
    """Whether it is a folder that we may access."""
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)  # noqa: PTH116 faster without a path object
    except OSError:
        return False


def is_within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _requested_rules(
    policy: FilesystemPolicy, reach: ProcessPermissions
) -> Iterator[tuple[str, PathAccess]]:
    writable = [os.path.realpath(folder) for folder in reach.writable if is_folder(folder)]
    for folder in writable:
        yield folder, PathAccess.CHANGE
    person = os.path.realpath(policy.user_home) if policy.user_home else ""
    if person and any(is_within(person, folder) for folder in writable):
        yield from _home_rules(person)
    known: dict[str, list[str]] = {}
    hidden = [path for pattern in policy.hidden for path in _matching_paths(pattern, known)]
    shown = [*_shown_paths(policy, writable, reader=not reach.writable)]
    mounts = Mounts()
    again = _second_mounts(mounts, hidden, [*shown, *writable])
    inner = [one for one in writable if any(is_within(one, path) for path in (*hidden, *again))]
    inside = [pattern for pattern in policy.always_hidden if again or _may_match_in(pattern, inner)]
    closed = [path for pattern in inside for path in _matching_paths(pattern, known)]
    again += _second_mounts(mounts, closed, [*shown, *writable]) if again else []
    yield from ((path, PathAccess.HIDDEN) for path in (*hidden, *closed, *again))
    yield from ((path, PathAccess.READ) for path in shown)
    for path in (
        *_guarded_paths(policy, writable),
        *_not_hidden(reach.read_only, writable, hidden),
    ):
        if any(is_within(path, folder) for folder in writable):
            yield path, PathAccess.READ


def _second_mounts(mounts: Mounts, paths: list[str], seen: list[str]) -> list[str]:
    """Other paths under which hidden paths are visible through another mount."""

    def is_open(path: str) -> bool:
        return any(is_within(path, one) for one in seen)

    return [name for path in paths for name in mounts.other_paths(path, is_open)]


def _shown_paths(policy: FilesystemPolicy, writable: list[str], *, reader: bool) -> Iterator[str]:
    for name in (*policy.shown, *(policy.reader_paths if reader else ())):
        yield from _matching_paths(name)
    for name in policy.writable_on_request:
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


def _guarded_paths(policy: FilesystemPolicy, writable: list[str]) -> Iterator[str]:
    """Expand names, not patterns: a command chooses the names of its folders."""
    for name in policy.guarded:
        for path in (name,) if name.startswith("/") else _in_each(writable, name):
            yield from _existing(path)


def _not_hidden(paths: Sequence[str], writable: list[str], hidden: list[str]) -> Iterator[str]:
    """Paths outside hidden folders; a rule inside one would only reveal it."""
    for path in paths:
        around = max((len(one) for one in writable if is_within(path, one)), default=0)
        if not any(is_within(path, one) and len(one) > around for one in hidden):
            yield path


def _without_redundant(sorted_rules: list[PathRule]) -> list[PathRule]:
    """Drop rules that repeat the one around them."""
    kept: list[PathRule] = []
    around = [PathRule("/", PathAccess.READ)]
    for rule in sorted_rules:
        while not is_within(rule.path, around[-1].path):
            around.pop()
        if rule.access != around[-1].access:
            kept.append(rule)
            around.append(rule)
    return kept


def _in_each(folders: list[str], name: str) -> list[str]:
    return [f"{folder}/{name}" for folder in folders]


def _may_match_in(pattern: str, folders: list[str]) -> bool:
    """Whether the pattern can match inside one of the folders."""
    begin = pattern.partition("*")[0]
    return any(
        begin.startswith(f"{folder}/") or f"{folder}/".startswith(begin) for folder in folders
    )


def _matching_paths(pattern: str, known: dict[str, list[str]] | None = None) -> list[str]:
    """Expand a pattern to real paths; links are followed.

    Any part of the path may contain `*`; `known` caches the names in listed folders.
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
