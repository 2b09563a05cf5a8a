"""What a channel is built from in tests."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TypeVar

from hermes.config.sections.messaging import Platform
from hermes.kit.clock import Clock, SystemClock
from hermes.ports.channel import ChannelDeps, Inbound
from hermes.store.blobs import FileBlobs

T = TypeVar("T")
Admits = Callable[[Inbound], Awaitable[bool]]


class SharedStub:
    """For channels that share nothing."""

    async def get_or_open(self, name: str, make: Callable[[], AbstractAsyncContextManager[T]]) -> T:
        raise NotImplementedError(name)


async def admit_all(update: Inbound) -> bool:
    return True


def new_deps(
    platform: str,
    folder: Path,
    *,
    extra: Mapping[str, object],
    env: Mapping[str, str],
    clock: Clock | None = None,
    admits: Admits = admit_all,
) -> ChannelDeps:
    return ChannelDeps(
        name=platform,
        profile="default",
        home=folder,
        settings=Platform(extra=dict(extra)),
        env=env,
        current_env=lambda: env,
        clock=clock or SystemClock(),
        shared=SharedStub(),
        blobs=FileBlobs(folder / "cache" / "blobs"),
        admits=admits,
        commands=(("help", "List commands."), ("new-session", "Start again.")),
    )
