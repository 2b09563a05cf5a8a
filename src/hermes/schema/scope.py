"""The identity, origin and permissions of a run; always passed explicitly."""

from enum import StrEnum

from msgspec import Struct

OWNER = "owner"
"""The principal of the owner of the home."""


class Role(StrEnum):
    """Owner: administrator. Member: allowed by id. Guest: allowed by a rule for everyone."""

    OWNER = "owner"
    MEMBER = "member"
    GUEST = "guest"


class Address(Struct, frozen=True):
    """A chat, or another target of messages."""

    channel: str
    chat: str
    thread: str | None = None


def principal_digest(principal: str) -> str:
    """A suffix for private file names; empty for the owner."""
    if principal == OWNER:
        return ""
    from hashlib import sha256  # noqa: PLC0415 - not needed to read settings

    return sha256(principal.encode()).hexdigest()[:16]


def own_channel(channel: str) -> str:
    """The channel's name in the profile that owns it: `platform` or `platform/account`."""
    return channel.partition("@")[0]


def platform_of(channel: str) -> str:
    """The platform of a channel, without its account and the profile it is borrowed from."""
    return own_channel(channel).partition("/")[0]


class Requester(Struct, frozen=True, kw_only=True):
    """The author of the message that a run answers, with chat and message ids."""

    user: str = ""
    name: str = ""
    chat_name: str = ""
    message: str = ""


class InheritedLimits(Struct, frozen=True, kw_only=True):
    """Limits of work that runs elsewhere than where a person requested it.

    The rules of their `platform` apply; `tools` are those the person had, None for all that are
    offered there.
    """

    platform: str
    tools: tuple[str, ...] | None = None


class Scope(Struct, frozen=True):
    """One run's identity. `later` says whether something can still be delivered after the turn.

    `source` is the surface or platform of the session, `key` its session key there; `handed_on` is
    another address to which the result is delivered. `attended` means that someone can be asked
    during the run, `yolo` that nothing needs approval. While a person is asked, `call` is the tool
    call that waits, if it had no effect yet and can be repeated. `bounds` are a subagent's limits.
    """

    profile: str
    session: str
    run: str
    workspace: str
    principal: str = OWNER
    address: Address | None = None
    later: bool = True
    role: Role = Role.OWNER
    source: str = ""
    key: str = ""
    asker: Requester = Requester()
    handed_on: Address | None = None
    attended: bool = False
    yolo: bool = False
    call: str = ""
    bounds: InheritedLimits | None = None


def policy_platform(scope: Scope) -> str:
    """The platform whose rules for tools and sandbox apply."""
    if scope.bounds is not None:
        return scope.bounds.platform
    # A session may continue on another platform: the current one counts.
    return platform_of(scope.address.channel) if scope.address else scope.source


HOME_HIDDEN_VARIABLE = "HERMES_HOME_HIDDEN"
"""Set for commands of a turn that cannot see the profile's home."""


def scope_variables(scope: Scope) -> dict[str, str]:
    """The scope as environment variables for child processes and plugins."""
    address, asker = scope.address, scope.asker
    values = {
        "HERMES_SESSION_ID": scope.session,
        "HERMES_SESSION_KEY": scope.key,
        "HERMES_SESSION_PROFILE": scope.profile,
        "HERMES_SESSION_SOURCE": scope.source,
        "HERMES_SESSION_CWD": scope.workspace,
        "HERMES_SESSION_USER_ID": asker.user or scope.principal,
        "HERMES_SESSION_USER_NAME": asker.name,
        "HERMES_SESSION_CHAT_NAME": asker.chat_name,
        "HERMES_SESSION_MESSAGE_ID": asker.message,
        "HERMES_SESSION_PLATFORM": platform_of(address.channel) if address else scope.source,
        "HERMES_SESSION_CHANNEL": address.channel if address and "@" in address.channel else "",
        **_chat_variables("HERMES_SESSION_", address),
    }
    if scope.handed_on is not None:
        values["HERMES_CRON_AUTO_DELIVER_PLATFORM"] = scope.handed_on.channel
        values |= _chat_variables("HERMES_CRON_AUTO_DELIVER_", scope.handed_on)
    return {name: value for name, value in values.items() if value}


def _chat_variables(prefix: str, address: Address | None) -> dict[str, str]:
    if address is None:
        return {}
    return {f"{prefix}CHAT_ID": address.chat, f"{prefix}THREAD_ID": address.thread or ""}
