"""Errors for addresses that a server cannot listen on."""

import errno
import os

from hermes.kit.errors import ConfigError

ADDRESS_IN_USE = "another program is already listening there"
_LAST_PORT = 65535


def listen_error(platform: str, host: str, port: int, error: OSError) -> ConfigError:
    """Used by servers and by `doctor`."""
    what = f"{platform} cannot listen at {host}:{port}: "
    setting = f"hermes config set platforms.{platform}.extra"
    if error.errno != errno.EADDRINUSE:
        # The event loop's message repeats the address.
        why = os.strerror(error.errno) if error.errno else str(error)
        return ConfigError(what + why, hint=f"Use another address: {setting}.host 127.0.0.1")
    other = port + 1 if port < _LAST_PORT else port - 1
    return ConfigError(
        what + ADDRESS_IN_USE,
        hint=f"Stop that program, or use another port: {setting}.port {other}",
    )
