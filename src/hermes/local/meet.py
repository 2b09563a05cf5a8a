"""Find somebody to talk to: the agent of a running gateway, else one of our own."""

from collections.abc import Generator
from contextlib import contextmanager

from hermes.config.env import Env
from hermes.config.home import Home
from hermes.local.partner import SOCKET, Partner, Start


@contextmanager
def meet(home: Home, env: Env, start: Start) -> Generator[Partner]:
    """What is asked and answered is the same in both cases; only how long it takes is not."""
    reasons: list[str] = []
    if start.anywhere and (home.path / SOCKET).exists():
        from hermes.local.remote import open_remote  # noqa: PLC0415 - of no use without a gateway

        with open_remote(home.path, env, start, reasons.append) as partner:
            if partner is not None:
                yield partner
                return
    from hermes.local.here import open_here  # noqa: PLC0415 - heavy, and often not needed

    notes = tuple(_told(reason) for reason in reasons) if start.person else ()
    with open_here(home, env, start, notes) as partner:
        yield partner


def _told(reason: str) -> str:
    return f"The running gateway is not used here. {reason} To use it: hermes gateway restart"
