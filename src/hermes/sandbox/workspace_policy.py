"""Paths that the commands of an agent with a sandbox of its own must not read or write."""

from collections.abc import Mapping
from pathlib import Path

from hermes.config.home import Home, user_home
from hermes.ports.plugins import WorkspacePolicy
from hermes.sandbox.filesystem_policy import HOME_SECRETS
from hermes.sandbox.git_config_paths import owner_git_config
from hermes.sandbox.git_guard import GitGuard


def workspace_policy(home: Home, env: Mapping[str, str], workspace: str) -> WorkspacePolicy:
    return WorkspacePolicy(
        closed=blocked_paths(home, env, workspace), read_only=git_executed_paths(env, workspace)
    )


def git_executed_paths(env: Mapping[str, str], workspace: str) -> list[str]:
    """Paths that its commands must not write, because the owner's git would execute them."""
    owner = owner_git_config(env, str(user_home(env)))
    return sorted(GitGuard([workspace], can_protect=True, owner=owner).read_only)


def blocked_paths(home: Home, env: Mapping[str, str], workspace: str) -> list[str]:
    """Paths that its commands must not read: this home and the user's keys.

    Parents of the working directory stay open, but their other content is blocked.
    """
    user = user_home(env)
    secrets = [path for name in HOME_SECRETS for path in user.glob(name)]
    folder = Path(workspace).resolve()
    blocked: set[str] = set()
    pending = [home.root, *secrets]
    while pending:
        path = pending.pop()
        if folder == path.resolve():
            continue
        if folder.is_relative_to(path.resolve()):
            pending += path.iterdir()
        elif path.exists():
            blocked.add(str(path))
    return sorted(blocked)
