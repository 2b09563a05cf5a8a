"""`hermes gateway run`: one process that serves a profile, or all of them, until it is to end."""

import logging
from collections.abc import Mapping, Sequence

import anyio

from hermes.app.channels import sharing
from hermes.config.dotenv import env_of
from hermes.config.env import Env
from hermes.config.home import Home, home_of
from hermes.config.load import load_config
from hermes.config.profiles import profiles_to_serve
from hermes.config.schema import Config
from hermes.daemon.notify import Notifier
from hermes.daemon.options import Ending, RunOptions
from hermes.daemon.service import Service, Tell
from hermes.daemon.tenure import Tenure, hold, noted_failure
from hermes.kit.clock import SystemClock
from hermes.kit.files import TEMPORARY, file_error
from hermes.ports.channel import Manifest
from hermes.schema.errors import HermesError

log = logging.getLogger(__name__)


def run_gateway(
    home: Home,
    env: Env,
    options: RunOptions,
    manifests: Mapping[str, Manifest] | None = None,
    tell: Tell = lambda snapshot: None,
) -> int:
    """Blocks until the end and returns the exit code.

    `manifests` are channels besides those that come with the program; `tell` hears how it goes.
    Raises `ConfigError` when the settings are wrong, `TemporaryError` when
    the machine lacks something now, and `AlreadyRunning`.
    """
    notifier = Notifier(env, options.ready_fd)
    try:
        with noted_failure(home, SystemClock()):
            config = load_config(home, env_of(home.dotenv, env)).config
            homes = homes_to_serve(home, config)
        with hold(home, homes, options, SystemClock()) as tenure:
            service = Service(tenure, env, notifier, manifests or {}, tell)
            try:
                ending = anyio.run(_serve, service, tenure, homes, config)
            except BaseExceptionGroup as errors:
                raise _cause_of(errors) from errors
            return tenure.end(ending, service.signal, service.failure)
    finally:
        notifier.close()


def _cause_of(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """The one error there is, raised on purpose or a temporary one of the system; else all."""
    match errors.exceptions:
        case [BaseExceptionGroup() as inner]:
            return _cause_of(inner)
        case [HermesError() as error]:
            return error
        case [OSError(errno=number) as error] if number in TEMPORARY:
            return file_error(error, f"{error.filename or 'A file'}: {error.strerror}")
        case _:
            return errors


def homes_to_serve(home: Home, config: Config) -> list[Home]:
    """The own one first; with several, only those that `gateway.served_profiles` names, if any."""
    profiles = [name for name, _ in profiles_to_serve(config.multiplexed, home)]
    allowed = config.gateway.served_profiles
    others = [
        home_of(home.root, name)
        for name in profiles
        if name != home.profile and (not allowed or name in allowed)
    ]
    return [home, *others]


async def _serve(service: Service, tenure: Tenure, homes: Sequence[Home], config: Config) -> Ending:
    advice = tenure.count_start(config.gateway)
    if advice.reason:
        log.warning("%s", advice.reason)
    async with sharing() as shared:
        return await service.run(homes, shared, advice, multiplexed=config.multiplexed)
