"""What to say when an address of this machine cannot be listened at."""

import errno
import os

from hermes.kit.errors import ConfigError

ADDRESS_IN_USE = "another program does already"
_LAST_PORT = 65535


def listen_error(platform: str, host: str, port: int, error: OSError) -> ConfigError:
    """The same words for a program that starts and for one that only looks."""
    what = f"{platform} cannot listen at {host}:{port}: "
    setting = f"hermes config set platforms.{platform}.extra"
    if error.errno != errno.EADDRINUSE:
        # What the loop makes of it repeats the address.
        why = os.strerror(error.errno) if error.errno else str(error)
        return ConfigError(what + why, hint=f"Take another address: {setting}.host 127.0.0.1")
    other = port + 1 if port < _LAST_PORT else port - 1
    return ConfigError(
        what + ADDRESS_IN_USE,
        hint=f"End that one, or take another port: {setting}.port {other}",
    )
