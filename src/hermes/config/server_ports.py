"""Port numbers in the settings of platforms and in variables, which have no type of their own."""

from hermes.config.values import KeyPath
from hermes.config.variables import VARIABLES

MAX_PORT = 65535
PORT_VARIABLES = frozenset(name for name in VARIABLES if name.endswith("_PORT"))


def is_port_setting(path: KeyPath) -> bool:
    """Whether it is a setting such as `platforms.api_server.extra.port`."""
    if len(path) != 4 or path[0] != "platforms" or path[2] != "extra":
        return False
    return path[3] == "port" or str(path[3]).endswith("_port")


def is_port(value: object) -> bool:
    """Whether the value is a port, nothing, or a reference to a variable."""
    match value:
        case bool():
            return False
        case int():
            return 0 <= value <= MAX_PORT
        case str():
            text = value.strip()
            number = text.isdecimal() and len(text) <= len(str(MAX_PORT))
            return not text or "${" in text or (number and int(text) <= MAX_PORT)
        case _:
            return value is None
