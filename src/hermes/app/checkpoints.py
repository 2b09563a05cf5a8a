"""The checkpoints of a profile, as its settings want them."""

from hermes.config.env import Env
from hermes.config.home import Home, user_home
from hermes.config.schema import Config
from hermes.kit.clock import Clock
from hermes.ports.checkpoints import Checkpoints
from hermes.ports.sandbox import Sandbox
from hermes.tools.places import Enclosure, Places

_MB = 1 << 20


def checkpoints_of(
    home: Home,
    env: Env,
    config: Config,
    sandbox: Sandbox,
    clock: Clock,
    protected: Enclosure,
) -> Checkpoints | None:
    """None where they are turned off. `sandbox` runs git on this machine."""
    wanted = config.checkpoints
    if not wanted.enabled:
        return None
    from hermes.tools.checkpoints.git import find_git  # noqa: PLC0415 - only who keeps any pays for it
    from hermes.tools.checkpoints.shadow import Keeping, ShadowGit, ShadowParts  # noqa: PLC0415 - likewise
    from hermes.tools.checkpoints.trees import Limits  # noqa: PLC0415 - likewise

    own = user_home(env)
    return ShadowGit(
        ShadowParts(
            sandbox=sandbox,
            git=find_git(env.get("PATH", "")),
            folder=home.checkpoints,
            places=Places(own, protected),
            clock=clock,
            home=own,
            keeping=Keeping(
                snapshots=wanted.max_snapshots,
                limits=Limits(
                    file=wanted.max_file_size_mb * _MB, total=wanted.max_total_size_mb * _MB
                ),
                days=wanted.retention_days,
                prune=wanted.auto_prune,
            ),
        )
    )
