"""Build the checkpoint service from the settings."""

from hermes.config.env import Env
from hermes.config.home import Home, user_home
from hermes.config.schema import Config
from hermes.kit.clock import Clock
from hermes.ports.checkpoints import Checkpoints
from hermes.ports.sandbox import Sandbox
from hermes.tools.paths import ProtectedPaths, SessionPaths

_MB = 1 << 20


def build_checkpoints(
    home: Home,
    env: Env,
    config: Config,
    sandbox: Sandbox,
    clock: Clock,
    protected: ProtectedPaths,
) -> Checkpoints | None:
    """None if disabled. `sandbox` runs git on this machine."""
    settings = config.checkpoints
    if not settings.enabled:
        return None
    from hermes.tools.checkpoints.git_checkpoints import (  # noqa: PLC0415 - likewise
        CheckpointDeps,
        GitCheckpoints,
        RetentionPolicy,
    )
    from hermes.tools.checkpoints.repository import (  # noqa: PLC0415 - only when needed
        CheckpointLimits,
        find_git,
    )

    user_folder = user_home(env)
    return GitCheckpoints(
        CheckpointDeps(
            sandbox=sandbox,
            git=find_git(env.get("PATH", "")),
            folder=home.checkpoints,
            paths=SessionPaths(user_folder, protected),
            clock=clock,
            home=user_folder,
            retention=RetentionPolicy(
                snapshots=settings.max_snapshots,
                limits=CheckpointLimits(
                    file=settings.max_file_size_mb * _MB, total=settings.max_total_size_mb * _MB
                ),
                days=settings.retention_days,
                prune=settings.auto_prune,
            ),
        )
    )
