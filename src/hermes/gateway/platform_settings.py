"""Reading people and places from settings and variables: their names, lists, ids, yes and no."""

from hermes.config.sections.types import FreeTable
from hermes.config.yaml_values import as_list

WILDCARD = "*"
"""In a list of ids: whoever it may be."""

_PREFIXES = {"qqbot": "QQ", "homeassistant": "HASS", "msgraph_webhook": "MSGRAPH"}
_HOMES = {"email": "HOME_ADDRESS", "matrix": "HOME_ROOM"}
_YES = frozenset({"1", "true", "yes", "on"})
_PHONE_SERVERS = ("@s.whatsapp.net", "@c.us")


def platform_variable(platform: str, suffix: str) -> str:
    """The name of a platform's environment variable, such as `TELEGRAM_ALLOWED_USERS`."""
    prefix = _PREFIXES.get(platform) or platform.upper().replace("-", "_")
    return f"{prefix}_{suffix}"


def home_variables(platform: str) -> tuple[str, ...]:
    """The variables that may name its home channel, the one that wins first."""
    own = _HOMES.get(platform)
    names = (own, "HOME_CHANNEL") if own else ("HOME_CHANNEL",)
    return tuple(platform_variable(platform, name) for name in names)


def is_true(text: str) -> bool:
    return text.strip().lower() in _YES


def parse_list(value: object) -> tuple[str, ...]:
    """The entries of a YAML list, or of a text parted by commas; a single number is one entry."""
    if isinstance(value, str):
        entries: list[object] = [*value.split(",")]
    else:
        entries = as_list(value) or [value]
    texts = (str(entry).strip() for entry in entries if _can_be_id(entry))
    return tuple(dict.fromkeys(text for text in texts if text))


def _can_be_id(entry: object) -> bool:
    return isinstance(entry, str) or (isinstance(entry, int) and not isinstance(entry, bool))


def ids_of(platform: str, *values: object) -> frozenset[str]:
    """All ids of several lists, each in the form in which senders are compared."""
    return frozenset(
        canonical_id(platform, entry) for value in values for entry in parse_list(value)
    )


def canonical_id(platform: str, user: str) -> str:
    """One form for each person, where a platform has several for the same."""
    bare = user.strip()
    if platform == "email":
        return bare.lower()
    if not platform.startswith("whatsapp"):
        return bare
    for server in _PHONE_SERVERS:
        if bare.endswith(server):
            return bare.removesuffix(server).partition(":")[0].removeprefix("+")
    return bare.removeprefix("+") if bare[1:].isdecimal() else bare


def lower_text(table: FreeTable, name: str) -> str:
    """A word of a platform's own settings, in small letters; empty when it is not there."""
    value = table.get(name)
    return value.strip().lower() if isinstance(value, str) else ""
