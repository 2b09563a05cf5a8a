"""Parse user ids, lists and flags from platform settings and environment variables."""

from hermes.config.platforms import FACTS, HOME_CHANNEL, facts_of
from hermes.config.sections import FreeTable
from hermes.config.values import list_entries

WILDCARD = "*"
"""Matches any id."""

_YES = frozenset({"1", "true", "yes", "on"})
_PHONE_SERVERS = ("@s.whatsapp.net", "@c.us")


def platform_variable(platform: str, suffix: str) -> str:
    """Return a platform's environment variable, such as `TELEGRAM_ALLOWED_USERS`."""
    return f"{facts_of(platform).prefix}_{suffix}"


def home_variables(platform: str) -> tuple[str, ...]:
    """Return the variables that may name the home channel, by precedence."""
    facts = facts_of(platform)
    first = f"{facts.home_prefix or facts.prefix}_{facts.home}"
    return tuple(dict.fromkeys((first, platform_variable(platform, HOME_CHANNEL))))


def is_true(text: str) -> bool:
    return text.strip().lower() in _YES


def parse_list(value: object) -> tuple[str, ...]:
    """Parse a YAML list or comma-separated text; a single number is one entry."""
    texts = (str(entry).strip() for entry in list_entries(value) if _can_be_id(entry))
    return tuple(dict.fromkeys(text for text in texts if text))


def _can_be_id(entry: object) -> bool:
    return isinstance(entry, str) or (isinstance(entry, int) and not isinstance(entry, bool))


def ids_of(platform: str, *values: object) -> frozenset[str]:
    return frozenset(
        canonical_id(platform, entry) for value in values for entry in parse_list(value)
    )


def canonical_id(platform: str, user: str) -> str:
    """Return the canonical form of an id, on platforms that have several forms."""
    bare = user.strip()
    facts = FACTS.get(platform)
    match facts.ids if facts is not None else "exact":
        case "exact":
            return bare
        case "lowercase":
            return bare.lower()
        case "phone":
            return _phone_number(bare)


def _phone_number(bare: str) -> str:
    for server in _PHONE_SERVERS:
        if bare.endswith(server):
            return bare.removesuffix(server).partition(":")[0].removeprefix("+")
    return bare.removeprefix("+") if bare[1:].isdecimal() else bare


def lower_text(table: FreeTable, name: str) -> str:
    value = table.get(name)
    return value.strip().lower() if isinstance(value, str) else ""
