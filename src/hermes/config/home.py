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
    "memories",
    "sessions",
    "skills",
    "skins",
    "logs",
    "plans",
    "workspace",
    "cron",
    "home",
)

_OTHER_HOME_HINT = "use another home: export HERMES_HOME=DIRECTORY"

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


class Home(Struct, frozen=True):
    """A profile's directory. `root` is shared by all profiles and is the default one's home."""

    root: Path
    path: Path
    profile: str = DEFAULT_PROFILE

    @property
    def config(self) -> Path:
        return self.path / "config.yaml"

    @property
    def dotenv(self) -> Path:
        return self.path / ".env"

    @property
    def auth(self) -> Path:
        return self.path / "auth.json"

    @property
    def soul(self) -> Path:
        return self.path / "SOUL.md"

    @property
    def memories(self) -> Path:
        return self.path / "memories"

    @property
    def skills(self) -> Path:
        return self.path / "skills"

    @property
    def state_db(self) -> Path:
        return self.path / "state.db"

    @property
    def sessions(self) -> Path:
        return self.path / "sessions"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def cache(self) -> Path:
        return self.path / "cache"

    @property
    def cron(self) -> Path:
        return self.path / "cron"

    @property
    def plugins(self) -> Path:
        return self.path / "plugins"

    @property
    def hooks(self) -> Path:
        return self.path / "hooks"

    @property
    def shell_hooks(self) -> Path:
        """Approved shell hooks."""
        return self.path / "shell-hooks-allowlist.json"

    @property
    def mcp_acting_tools(self) -> Path:
        """Tools of MCP servers that are known to have effects."""
        return self.path / "mcp-acting.json"

    @property
    def gateway(self) -> Path:
        return self.path / "gateway"

    @property
    def gateway_pid(self) -> Path:
        return self.path / "gateway.pid"

    @property
    def gateway_lock(self) -> Path:
        return self.path / "gateway.lock"

    @property
    def gateway_state(self) -> Path:
        return self.path / "gateway_state.json"

    @property
    def channel_directory(self) -> Path:
        return self.path / "channel_directory.json"

    @property
    def webhook_subscriptions(self) -> Path:
        return self.path / "webhook_subscriptions.json"

    @property
    def processes(self) -> Path:
        return self.path / "processes.json"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def sandboxes(self) -> Path:
        return self.path / "sandboxes"

    @property
    def bin(self) -> Path:
        return self.path / "bin"

    @property
    def workspace(self) -> Path:
        return self.path / "workspace"

    @property
    def pairing(self) -> Path:
        """The legacy folder as long as it is not empty."""
        old = self.path / "pairing"
        return old if _has_entries(old) else self.path / "platforms" / "pairing"

    @property
    def kanban_db(self) -> Path:
        """Shared by all profiles."""
        return self.root / "kanban.db"

    @property
    def kanban(self) -> Path:
        """Shared by all profiles."""
        return self.root / "kanban"

    @property
    def profiles(self) -> Path:
        return self.root / "profiles"

    @property
    def active_profile(self) -> Path:
        """File with the name of the active profile."""
        return self.root / "active_profile"


def hermes_root(env: Mapping[str, str]) -> Path:
    """The directory shared by all profiles. Raises `ConfigError` if it is unusable."""
    root, _ = _root_and_profile(env)
    _check_folder(root, "the home of Hermes")
    return root


def resolve_home(env: Mapping[str, str], profile: str | None = None) -> Home:
    """The home to use; creates nothing.

    In this order: the given profile, the one HERMES_HOME points at, the profile of the turn that
    runs this command, the one chosen with `hermes profile use`, the root itself.
    """
    root, implied = hermes_root(env), _root_and_profile(env)[1]
    if profile is not None:
        return profile_home(root, profile)
    if implied is not None:
        return profile_home(root, implied)
    if env.get("HERMES_SESSION_PROFILE") == DEFAULT_PROFILE:
        return profile_home(root, DEFAULT_PROFILE)
    return profile_home(root, active_profile_name(root))


def profile_home(root: Path, profile: str) -> Home:
    """The home of an existing profile. Raises `ConfigError` with the known names."""
    if profile == DEFAULT_PROFILE:
        return Home(root, root)
    if not _NAME.fullmatch(profile):
        raise profile_name_error(profile)
    path = root / "profiles" / profile
    if not path.is_dir():
        from hermes.kit.text import did_you_mean  # noqa: PLC0415 - only needed for mistakes

        names = [DEFAULT_PROFILE, *named_profiles(root)]
        suggestion = did_you_mean(profile, names)
        raise ConfigError(
            f"No profile named {profile!r}; known profiles: {', '.join(names)}",
            hint=suggestion or f"Create it with: hermes profile create {profile}",
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
            f"{path} chooses the profile {name[:64]!r}, which does not exist; known profiles: "
            + ", ".join([DEFAULT_PROFILE, *named_profiles(root)]),
            hint="Choose another one with: hermes profile use NAME",
        )
    return name


def check_new_name(name: str) -> None:
    """Raise `UsageError` if the name is invalid or reserved."""
    if not _NAME.fullmatch(name):
        raise profile_name_error(name)
    if name in RESERVED_NAMES:
        raise UsageError(f"The name {name!r} is reserved", hint="Choose another name.")


def profile_name_error(name: str) -> UsageError:
    return UsageError(
        f"{name!r} is not a valid profile name",
        hint="Use up to 64 lowercase letters, digits, - and _, starting with a letter or digit.",
    )


def ensure_home(home: Home) -> None:
    """Create the files and folders of a first run; existing ones are kept."""
    hint = f"Make it yours, or {_OTHER_HOME_HINT}"
    try:
        home.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in INITIAL_FOLDERS:
            (home.path / name).mkdir(mode=0o700, exist_ok=True)
        _write_if_missing(home.soul, (Path(__file__).parent / "soul.md").read_bytes())
    except OSError as error:
        message = f"{error.filename or home.path} cannot be created: {error.strerror}"
        raise file_error(error, message, hint) from error
    if not os.access(home.path, os.W_OK):
        raise _not_writable(home.path, hint)


def _not_writable(path: Path, hint: str) -> ConfigError:
    """Distinguish a read-only file system, as after a disk error, from missing permissions."""
    if os.statvfs(path).f_flag & os.ST_RDONLY:
        error = OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        return file_error(error, f"{path} cannot be written: {error.strerror}", hint)
    return ConfigError(f"{path} cannot be written by you", hint=hint)


def _write_if_missing(path: Path, data: bytes) -> None:
    # Atomically: on a full disk an empty file would remain and count as the user's own.
    if not path.is_symlink() and not path.exists():
        write_atomic(path, data)


def _root_and_profile(env: Mapping[str, str]) -> tuple[Path, str | None]:
    """The shared root, and the profile when HERMES_HOME points into `<root>/profiles/`."""
    path = _home_from_env(env)
    if path.parent.name == "profiles" and _NAME.fullmatch(path.name):
        return path.parent.parent, path.name
    return path, None


def _home_from_env(env: Mapping[str, str]) -> Path:
    given = env.get("HERMES_HOME", "").strip()
    if not given:
        return user_home(env) / ".hermes"
    if given == "~" or given.startswith("~/"):
        return user_home(env) / given[2:]
    return Path(os.path.abspath(given))  # noqa: PTH100 - drops "..", but follows no link


def user_home(env: Mapping[str, str]) -> Path:
    """The user's home directory according to the environment."""
    given = env.get("HOME", "")
    return Path(given) if given.startswith("/") else Path(pwd.getpwuid(os.getuid()).pw_dir)


def _check_folder(path: Path, what: str) -> None:
    """Raise `ConfigError` if the folder exists but is unusable."""
    hint = f"Make it a directory of yours, or {_OTHER_HOME_HINT}"
    try:
        is_folder = path.is_dir()
        if not is_folder and (path.is_symlink() or path.exists()):
            raise ConfigError(f"{path}, {what}, is not a directory", hint=hint)
    except OSError as error:
        message = f"{path}, {what}, cannot be used: {error.strerror}"
        raise file_error(error, message, hint) from error
    if is_folder and not os.access(path, os.R_OK | os.X_OK):
        raise ConfigError(f"{path}, {what}, cannot be read by you", hint=hint)


def _has_entries(path: Path) -> bool:
    try:
        with os.scandir(path) as entries:
            return any(True for _ in entries)
    except OSError:
        return False
