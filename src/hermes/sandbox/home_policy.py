"""Define what commands and tools see of the agent's homes and of this machine."""

import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from hermes.config.env import Env
from hermes.config.home import Home, user_home
from hermes.config.sections.execution import Terminal
from hermes.ports.protected_paths import ProtectedPaths, principal_folder
from hermes.schema.scope import OWNER

if TYPE_CHECKING:
    from hermes.sandbox.filesystem_policy import FilesystemPolicy

VISIBLE_IN_HOME = ("bin", "home", "plans", "skill-bundles", "skills", "skins")
"""The only parts of the home that commands and tools see: no settings, secrets, databases,
sessions, logs or sockets, nor other people's data, which is in the cache."""
BOARD_FILES = ("kanban/attachments", "kanban/boards/*/attachments")
"""The files of the boards' tasks, below the folder that all profiles share; only the owner's
agents work on tasks, and see them."""
WORKSPACE = "workspace"
"""Also visible, and writable for commands that work there."""

BLOCKED_IN_HOME = (
    ".env*", "auth.json", "config.yaml", "SOUL.md", "*.db", "*.db-*", "*.db.*",
    "cron", "hooks", "memories", "plugins", "pairing", "platforms", "active_profile",
    "shell-hooks-allowlist.json", "mcp-acting.json",
    "mcp-tokens", "backups", "*.bak", "logs", "sessions", "checkpoints", "whatsapp",
    "webhook_subscriptions.json", "callback.key", "local-model", "cache", "dashboard",
)  # fmt: skip
"""What tools and commands may never read or change in a home, even if a workspace lies in it:
these files decide where keys are sent, which programs run, and which content is trusted."""
INSTRUCTION_FOLDERS = ("skills", "skill-bundles")
"""Folders with instructions for the agent: writing there needs approval."""


def filesystem_policy(home: Home, env: Env, terminal: Terminal) -> "FilesystemPolicy":
    """Return what a profile's commands see of this machine."""
    from hermes.sandbox.filesystem_policy import (  # noqa: PLC0415 - loaded on first use
        GUARDED,
        VISIBLE_IN_RUN,
        FilesystemPolicy,
        hidden_paths,
        startup_files,
    )

    person = user_home(env)
    root = os.geteuid() == 0
    hidden = [str(home.root), *hidden_paths(person, root=root)]
    if agent := env.get("SSH_AUTH_SOCK"):
        hidden.append(agent)
    installation = (sys.prefix, sys.base_prefix, str(Path(__file__).parents[2]))
    shown = [*VISIBLE_IN_RUN, *(str(home.path / name) for name in VISIBLE_IN_HOME), *installation]
    board_files = tuple(str(home.root / name) for name in BOARD_FILES)
    return FilesystemPolicy(
        tmp=str(tmp_root(home)),
        hidden=tuple(hidden),
        always_hidden=tuple(map(str, _blocked_in_homes(_resolved_home(home)))),
        shown=tuple(shown),
        shown_for=lambda principal: board_files if principal == OWNER else (),
        guarded=(*GUARDED, *startup_files(person), *map(str, instruction_folders(home))),
        writable_on_request=(str(home.path / WORKSPACE),),
        reader_paths_for=lambda principal: [*map(str, _own_in_cache(home, principal))],
        user_home=str(person),
        unix_sockets=terminal.unix_sockets,
    )


def protected_paths(home: Home) -> ProtectedPaths:
    """The same rules for tools that open files: all profiles, except what the principal may see.

    By pattern rather than by existing files, since profiles may be created at any time.
    """
    blocked = [home.root, *_blocked_in_homes(home), *_blocked_in(home.path)]
    return ProtectedPaths(blocked, partial(_visible_paths, _resolved_home(home)))


def _visible_paths(home: Home, principal: str) -> list[Path]:
    visible = (home.path / name for name in (*VISIBLE_IN_HOME, WORKSPACE))
    patterns = BOARD_FILES if principal == OWNER else ()
    files = (path for pattern in patterns for path in home.root.glob(pattern))
    return [*visible, *files, *_own_in_cache(home, principal)]


def _own_in_cache(home: Home, principal: str) -> list[Path]:
    """The principal's own command output and `/tmp`; received files only for the owner.

    Received files are stored once, regardless of the sender.
    """
    from hermes.sandbox.filesystem_policy import tmp_for  # noqa: PLC0415 - loaded by file tools anyway

    output = home.cache / "output"
    own = [principal_folder(output, principal), principal_folder(output / "processes", principal)]
    received = [home.cache / "blobs"] if principal == OWNER else []
    return [*own, Path(tmp_for(str(tmp_root(home)), principal)), *received]


def _resolved_home(home: Home) -> Home:
    return Home(home.root.resolve(), home.path.resolve(), home.profile)


def instruction_folders(home: Home) -> list[Path]:
    return [home.path / name for name in INSTRUCTION_FOLDERS]


def _blocked_in_homes(home: Home) -> list[Path]:
    """A workspace may lie in any profile's folder, even a future one."""
    return [*_blocked_in(home.root), *_blocked_in(home.profiles / "*")]


def _blocked_in(folder: Path) -> list[Path]:
    return [folder / name for name in BLOCKED_IN_HOME]


def tmp_root(home: Home) -> Path:
    return home.cache / "sandbox" / "tmp"
