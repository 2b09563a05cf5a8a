"""Find the home directory of a profile and the files in it."""

import errno
import os
import pwd
import re
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from hermes.kit.errors import ConfigError, UsageError
from hermes.kit.files import file_error, read_regular_file, write_atomic

DEFAULT_PROFILE = "default"
"""The profile whose home is the root itself."""

RESERVED_NAMES = frozenset({"hermes", DEFAULT_PROFILE, "test", "tmp", "root", "sudo"})

INITIAL_FOLDERS = (
    "memories", "sessions", "skills", "skins", "logs", "plans", "workspace", "cron", "home",
)  # fmt: skip

_OTHER_HOME_HINT = "use another home: export HERMES_HOME=DIRECTORY"

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


class _HomePath:
    """A path in the home, or with `shared` in the root of all profiles."""

    def __init__(self, name: str, *, shared: bool = False) -> None:
        self._name = name
        self._shared = shared

    def __get__(self, home: "Home", owner: type["Home"]) -> Path:
        return (home.root if self._shared else home.path) / self._name


class Home(Struct, frozen=True):
    """A profile's directory. `root` is shared by all profiles and is the default one's home."""

    root: Path
    path: Path
    profile: str = DEFAULT_PROFILE

    config = _HomePath("config.yaml")
    dotenv = _HomePath(".env")
    auth = _HomePath("auth.json")
    soul = _HomePath("SOUL.md")
    memories = _HomePath("memories")
    skills = _HomePath("skills")
    database = _HomePath("hermes.db")
    legacy_database = _HomePath("state.db")
    """The public system's file, and ours in version 0.1.0."""
    sessions = _HomePath("sessions")
    logs = _HomePath("logs")
    cache = _HomePath("cache")
    cron = _HomePath("cron")
    plugins = _HomePath("plugins")
    hooks = _HomePath("hooks")
    shell_hooks = _HomePath("shell-hooks-allowlist.json")
    mcp_acting_tools = _HomePath("mcp-acting.json")
    """Tools of MCP servers that are known to have effects."""
    gateway = _HomePath("gateway")
    gateway_pid = _HomePath("gateway.pid")
    gateway_lock = _HomePath("gateway.lock")
    gateway_state = _HomePath("gateway_state.json")
    channel_directory = _HomePath("channel_directory.json")
    webhook_subscriptions = _HomePath("webhook_subscriptions.json")
    processes = _HomePath("processes.json")
    checkpoints = _HomePath("checkpoints")
    sandboxes = _HomePath("sandboxes")
    bin = _HomePath("bin")
    workspace = _HomePath("workspace")
    kanban_db = _HomePath("kanban.db", shared=True)
    kanban = _HomePath("kanban", shared=True)
    profiles = _HomePath("profiles", shared=True)
    active_profile = _HomePath("active_profile", shared=True)
    """File with the name of the active profile."""

    @property
    def has_sessions(self) -> bool:
        """Whether there is a database or what is left of one, perhaps under its former name."""
        files = (self.database, self.legacy_database)
        return any(Path(f"{file}{end}").exists() for file in files for end in ("", "-wal"))

    @property
    def pairing(self) -> Path:
        """The legacy directory as long as it is not empty."""
        old = self.path / "pairing"
        try:
            has_entries = next(old.iterdir(), None) is not None
        except OSError:
            has_entries = False
        return old if has_entries else self.path / "platforms" / "pairing"

    @property
    def people(self) -> Path:
        """The accounts that belong to one person; tools cannot write there."""
        return self.path / "platforms" / "people"


def hermes_root(env: Mapping[str, str]) -> Path:
    """The directory shared by all profiles. Raises `ConfigError` if it is unusable."""
    return _root_and_profile(env)[0]


def resolve_home(env: Mapping[str, str], profile: str | None = None) -> Home:
    """The home to use; creates nothing.

    In this order: the given profile, the one HERMES_HOME points at, the profile of the turn that
    runs this command, the one chosen with `hermes profile use`, the root itself.
    """
    root, implied = _root_and_profile(env)
    chosen = profile if profile is not None else implied
    if chosen is None:
        is_default = env.get("HERMES_SESSION_PROFILE") == DEFAULT_PROFILE
        chosen = DEFAULT_PROFILE if is_default else active_profile_name(root)
    return profile_home(root, chosen)


def profile_home(root: Path, profile: str, *, may_create: bool = True) -> Home:
    """An existing profile's home. Raises `ConfigError` with the known names.

    `may_create`: the hint says how to create it.
    """
    if profile == DEFAULT_PROFILE:
        return Home(root, root)
    if not _NAME.fullmatch(profile):
        raise profile_name_error(profile)
    path = root / "profiles" / profile
    if not path.is_dir():
        from hermes.kit.text import did_you_mean  # noqa: PLC0415 - only needed for mistakes

        names = [DEFAULT_PROFILE, *named_profiles(root)]
        create = f"Create it with: hermes profile create {profile}" if may_create else ""
        raise ConfigError(
            f"Unknown profile: {profile!r}. Known profiles: {', '.join(names)}.",
            hint=did_you_mean(profile, names) or create,
        )
    _check_folder(path, f"the home of profile {profile!r}")
    return Home(root, path, profile)


def named_profiles(root: Path) -> list[str]:
    """The sorted names of all profiles except the default one."""
    try:
        entries = list(os.scandir(root / "profiles"))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise file_error(error, f"{root / 'profiles'} cannot be read: {error.strerror}") from error
    return sorted(e.name for e in entries if _NAME.fullmatch(e.name) and e.is_dir())


def active_profile_name(root: Path) -> str:
    """The profile chosen with `hermes profile use`."""
    path = root / "active_profile"
    try:
        name = read_regular_file(path).decode(errors="replace").strip()
    except FileNotFoundError:
        return DEFAULT_PROFILE
    except OSError as error:
        raise file_error(error, f"{path} cannot be read: {error.strerror}") from error
    if not name or name == DEFAULT_PROFILE:
        return DEFAULT_PROFILE
    if not _NAME.fullmatch(name) or not (root / "profiles" / name).is_dir():
        raise ConfigError(
            f"{path} chooses the profile {name[:64]!r}, which does not exist. Known profiles: "
            f"{', '.join([DEFAULT_PROFILE, *named_profiles(root)])}.",
            hint="Choose another one with: hermes profile use NAME",
        )
    return name


def check_new_name(name: str) -> None:
    """Raise `UsageError` if the name is invalid or reserved."""
    if not _NAME.fullmatch(name):
        raise profile_name_error(name)
    if name in RESERVED_NAMES:
        raise UsageError(f"The name {name!r} is reserved.", hint="Choose another name.")


def profile_name_error(name: str) -> UsageError:
    return UsageError(
        f"{name!r} is not a valid profile name.",
        hint="Use up to 64 lowercase letters, digits, - and _, starting with a letter or digit.",
    )


def ensure_home(home: Home) -> None:
    """Create the files and directories of a first run; existing ones are kept."""
    hint = f"Make sure that you own it, or {_OTHER_HOME_HINT}"
    try:
        home.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in INITIAL_FOLDERS:
            (home.path / name).mkdir(mode=0o700, exist_ok=True)
        if not home.soul.is_symlink() and not home.soul.exists():
            # Atomically: on a full disk an empty file would remain and count as the user's own.
            write_atomic(home.soul, Path(__file__).with_name("soul.md").read_bytes())
    except OSError as error:
        message = f"{error.filename or home.path} cannot be created: {error.strerror}"
        raise file_error(error, message, hint) from error
    if os.access(home.path, os.W_OK):
        return
    if os.statvfs(home.path).f_flag & os.ST_RDONLY:
        # Read-only after a disk error, which is not a matter of permissions.
        error = OSError(errno.EROFS, os.strerror(errno.EROFS), str(home.path))
        raise file_error(error, f"{home.path} cannot be written: {error.strerror}", hint)
    raise ConfigError(f"{home.path} cannot be written by you.", hint=hint)


def _root_and_profile(env: Mapping[str, str]) -> tuple[Path, str | None]:
    """The shared root, and the profile when HERMES_HOME points into `<root>/profiles/`."""
    folder = env.get("HERMES_HOME", "").strip() or "~/.hermes"
    if folder == "~" or folder.startswith("~/"):
        path = user_home(env) / folder[2:]
    else:
        path = Path(os.path.abspath(folder))  # noqa: PTH100 - drops "..", but follows no link
    profile = None
    if path.parent.name == "profiles" and _NAME.fullmatch(path.name):
        path, profile = path.parent.parent, path.name
    _check_folder(path, "the home of Hermes")
    return path, profile


def user_home(env: Mapping[str, str]) -> Path:
    """The user's home directory according to the environment."""
    folder = env.get("HOME", "")
    return Path(folder) if folder.startswith("/") else Path(pwd.getpwuid(os.getuid()).pw_dir)


def _check_folder(path: Path, what: str) -> None:
    """Raise `ConfigError` if the directory exists but is unusable."""
    hint = f"Make it a directory that you own, or {_OTHER_HOME_HINT}"
    try:
        is_folder = path.is_dir()
        if not is_folder and (path.is_symlink() or path.exists()):
            raise ConfigError(f"{path}, {what}, is not a directory.", hint=hint)
    except OSError as error:
        message = f"{path}, {what}, cannot be used: {error.strerror}"
        raise file_error(error, message, hint) from error
    if is_folder and not os.access(path, os.R_OK | os.X_OK):
        raise ConfigError(f"{path}, {what}, cannot be read by you.", hint=hint)
