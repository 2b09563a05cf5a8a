"""The checkpoints of a profile, as its settings want them."""

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
    """None where they are turned off. `sandbox` runs git on this machine."""
    wanted = config.checkpoints
    if not wanted.enabled:
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

    own = user_home(env)
    return GitCheckpoints(
        CheckpointDeps(
            sandbox=sandbox,
            git=find_git(env.get("PATH", "")),
            folder=home.checkpoints,
            places=SessionPaths(own, protected),
            clock=clock,
            home=own,
            keeping=RetentionPolicy(
                snapshots=wanted.max_snapshots,
                limits=CheckpointLimits(
                    file=wanted.max_file_size_mb * _MB, total=wanted.max_total_size_mb * _MB
                ),
                days=wanted.retention_days,
                prune=wanted.auto_prune,
            ),
        )
    )
