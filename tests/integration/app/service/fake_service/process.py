"""A fake gateway process that behaves like a real one towards its service manager."""

import signal
import sys
from collections.abc import Callable

from hermes.app.service.lifecycle import RunOptions
from hermes.app.service.notifier import Notifier
from hermes.app.service.process import hold_gateway
from hermes.app.service.status import Phase, PlatformState, Snapshot
from hermes.config.env import Env
from hermes.config.home import Home
from hermes.config.profiles import profiles_to_serve
from hermes.config.sections.messaging import Gateway, RespawnStorm, RestartLoopGuard
from hermes.kit.clock import SystemClock
from hermes.kit.errors import ConfigError

HEARD = {signal.SIGTERM, signal.SIGINT, signal.SIGUSR1}
ALL_COUNT = Gateway(
    restart_loop_guard=RestartLoopGuard(window_seconds=3600),
    respawn_storm=RespawnStorm(window_seconds=3600),
)
"""All starts of one test count, however slow the machine is."""


def run_gateway(
    home: Home, env: Env, options: RunOptions, *, on_snapshot: Callable[[Snapshot], None]
) -> int:
    """STANDIN selects special behaviour: `fails`, `crashes`, `all` profiles, or `stubborn`."""
    manner = env.get("STANDIN", "")
    signal.pthread_sigmask(signal.SIG_BLOCK, {*HEARD, signal.SIGUSR2})
    notifier = Notifier(env, options.ready_fd)
    profiles = profiles_to_serve(manner == "all", home)
    served = [Home(home.root, path, name) for name, path in profiles]
    with hold_gateway(home, served, options, SystemClock()) as gateway_process:
        advice = gateway_process.count_start(ALL_COUNT)
        notifier.status("connecting telegram")
        if manner == "fails":
            raise ConfigError("telegram has no token", hint="Set TELEGRAM_BOT_TOKEN.")
        if manner == "crashes":
            signal.raise_signal(signal.SIGKILL)
        names = gateway_process.state.snapshot.served_profiles
        platforms = {
            "discord": PlatformState(
                state="retrying", error_code="failed", error_message="no route to host"
            ),
            "telegram": PlatformState(state="connected"),
        }
        running = Snapshot(
            gateway_state=Phase.DEGRADED,
            served_profiles=names,
            platforms=platforms,
            active_agents=int(manner == "stubborn"),
        )
        gateway_process.state.write(running)
        on_snapshot(running)
        # In this order: a caller that saw READY may read the output.
        _say(
            f"ready {gateway_process.previous_ending or 'first'} "
            f"park={advice.park} wait={advice.wait:g}"
        )
        notifier.ready("2 platforms")
        number = signal.sigwait(HEARD)
        notifier.stopping()
        _say(f"heard {number}")
        if manner == "stubborn":
            signal.sigwait({signal.SIGUSR2})
        return gateway_process.end(gateway_process.ending_of_signal(number), number)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
