"""Decide whether a chat message is admitted, under which session key, role and commands."""

import logging
from collections.abc import Collection, Mapping

from anyio.to_thread import run_sync
from msgspec import Struct, structs

from hermes.gateway.authorization import (
    AccessDecision,
    AccessReason,
    AccessRules,
    Allowed,
    Ignored,
    OfferPairing,
    Sender,
    decide_access,
    principal_of,
    sender_of,
)
from hermes.gateway.messages import Admitted, Rejected
from hermes.gateway.pairing import Pairing, PairingCode
from hermes.gateway.people import LinkedPerson, People, account_of
from hermes.gateway.roles import ALWAYS_ALLOWED, CommandAccess
from hermes.ports.channel import Inbound
from hermes.schema.messages import Trust
from hermes.schema.scope import Role, own_channel, platform_of
from hermes.session.keys import DIRECT_CHAT, ChatId, SessionSource, chat_id_of

log = logging.getLogger(__name__)

STOP = "stop"
"""A user may always stop what they asked for."""


class GroupRules(Struct, frozen=True, kw_only=True):
    """In which group chats the agent listens, and whether it must be mentioned.

    `without_mention` are chats, or topics as `chat:topic`. With `mention_opens`, it also answers
    mentions in chats that are not allowed.
    """

    require_mention: bool = False
    without_mention: frozenset[str] = frozenset()
    allowed_chats: frozenset[str] = frozenset()
    mention_opens: bool = False

    def listens_to(self, source: SessionSource, *, mentioned: bool) -> bool:
        chats = {source.chat_id, source.parent_chat_id or ""}
        if self.allowed_chats and self.allowed_chats.isdisjoint(chats):
            return mentioned and self.mention_opens
        chats.add(f"{source.chat_id}:{source.thread_id or ''}")
        return mentioned or not self.require_mention or not self.without_mention.isdisjoint(chats)


class PlatformRules(Struct, frozen=True, kw_only=True):
    """The access settings of one platform. The defaults admit no one."""

    access: AccessRules = AccessRules()
    direct_commands: CommandAccess = CommandAccess()
    group_commands: CommandAccess = CommandAccess()
    groups: GroupRules = GroupRules()


class SessionKeyRules(Struct, frozen=True, kw_only=True):
    """How session keys are built.

    `namespace` is the profile's name; a profile served alone has none, as in existing homes.
    """

    namespace: str = ""
    per_user_in_groups: bool = True
    per_user_in_threads: bool = False


class AccessControl:
    def __init__(
        self,
        profile: str,
        platforms: Mapping[str, PlatformRules],
        pairing: Pairing,
        people: People,
        commands: Collection[str],
        keys: SessionKeyRules | None = None,
    ) -> None:
        """`profile` is used in the pairing hint; session keys use the namespace in `keys`."""
        self._profile = profile
        self._platforms = platforms
        self._pairing = pairing
        self._people = people
        self._commands = commands
        self._keys = keys or SessionKeyRules()
        self._permitted_commands: dict[tuple[str, Role, bool, bool], frozenset[str]] = {}

    async def admit(self, inbound: Inbound, namespace: str | None = None) -> Admitted | Rejected:
        """Authorize a message; `namespace` is that of the answering profile, if not this one."""
        about, rules, sender = inbound.about, self._rules_for(inbound), _sender(inbound)
        match await self._decide(sender, rules):
            case Ignored(reason=reason):
                log.info(
                    "%s ignored a message from %s: %s", sender.platform, sender.ids[:1], reason
                )
                if reason is AccessReason.DENIED:
                    # The ids that it is denied by also count for the person's other accounts.
                    await self._person(inbound, sender, rules)
                return Rejected()
            case OfferPairing():
                return await self._pair(sender, about.user_name)
            case Allowed(role=role):
                return await self._admit_allowed(inbound, sender, rules, role, namespace)

    async def admits(self, inbound: Inbound) -> bool:
        """Whether the sender is admitted; unlike with `admit`, nothing is offered or stored.

        Deny lists that name another account of the person are left to `admit`.
        """
        rules, source = self._rules_for(inbound), session_source(inbound)
        if not isinstance(await self._decide(_sender(inbound), rules), Allowed):
            return False
        return source.chat_type == DIRECT_CHAT or rules.groups.listens_to(
            source, mentioned=inbound.about.mentions
        )

    def _rules_for(self, inbound: Inbound) -> PlatformRules:
        return self._platforms.get(own_channel(inbound.address.channel), PlatformRules())

    async def _admit_allowed(
        self,
        inbound: Inbound,
        sender: Sender,
        rules: PlatformRules,
        role: Role,
        namespace: str | None,
    ) -> Admitted | Rejected:
        """Admit a sender with this role, or with a higher one of a linked account."""
        source = session_source(inbound)
        if source.chat_type != DIRECT_CHAT and not rules.groups.listens_to(
            source, mentioned=inbound.about.mentions
        ):
            return Rejected()
        person = await self._person(inbound, sender, rules)
        if person is not None:
            linked = await self._linked_role(person, inbound, sender, role)
            if linked is None:
                return Rejected()
            role = linked
        # The same chat id seen by two accounts is two chats, with separate users.
        channel = inbound.address.channel
        principal = _principal(structs.replace(sender, platform=channel), role, person)
        chat = self._chat_id(structs.replace(source, platform=channel), namespace)
        own = self._is_own(source)
        commands = self._permitted(role, source, own=own)
        return Admitted(
            key=chat.key,
            chat=chat,
            principal=principal,
            trust=_trust(role, rules),
            role=role,
            commands=commands if commands is None else commands | {STOP},
            may_stop_others=commands is None or STOP in commands or own,
            ids=sender.ids,
        )

    def _chat_id(self, source: SessionSource, namespace: str | None) -> ChatId:
        return chat_id_of(
            source,
            group_sessions_per_user=self._keys.per_user_in_groups,
            thread_sessions_per_user=self._keys.per_user_in_threads,
            profile=self._keys.namespace if namespace is None else namespace,
        )

    @property
    def namespace(self) -> str:
        return self._keys.namespace

    async def _decide(self, sender: Sender, rules: PlatformRules) -> AccessDecision:
        verdict = decide_access(sender, rules.access)
        if isinstance(verdict, Allowed) and verdict.role is not Role.GUEST:
            return verdict
        if isinstance(verdict, Allowed) and verdict.reason is AccessReason.AUTHENTICATED:
            return verdict
        # Read the pairing files only for users not named in the settings.
        paired = await run_sync(self._pairing.approved, sender.platform)
        return decide_access(sender, structs.replace(rules.access, paired=paired))

    async def _person(
        self, inbound: Inbound, sender: Sender, rules: PlatformRules
    ) -> LinkedPerson | None:
        """Return the sender's linked accounts, if the platform guarantees who the sender is.

        Ids that the platform gives for the sender are stored if they are new.
        """
        if not sender.ids or sender.bot or rules.access.authenticated_role is not None:
            return None
        account = account_of(inbound.address.channel, sender.ids[0])
        person = await run_sync(self._people.find, account)
        own = person.find(account) if person is not None else None
        if own is not None and not {*sender.ids} <= {own.user, *own.ids}:
            await run_sync(self._people.remember_ids, account, sender.ids)
        return person

    async def _linked_role(
        self, person: LinkedPerson, inbound: Inbound, sender: Sender, role: Role
    ) -> Role | None:
        """Return the highest role of the person's accounts; None if a deny list names any of them.

        The owner's role is shared only between accounts that the owner linked.
        """
        own = person.find(account_of(inbound.address.channel, sender.ids[0]))
        for other in person.accounts:
            if own is None or other == own or other.channel not in self._platforms:
                continue
            rules, ids = self._platforms[other.channel], other.ids or (other.user,)
            if not rules.access.denied.isdisjoint(ids):
                log.info("%s is denied, so %s is denied too", other.account, own.account)
                return None
            as_sender = Sender(
                platform=platform_of(other.channel), ids=ids, chat_type=sender.chat_type
            )
            verdict = await self._decide(as_sender, rules)
            if isinstance(verdict, Allowed):
                by_owner = own.proof == other.proof == "owner"
                theirs = verdict.role
                if theirs is Role.OWNER and not by_owner:
                    theirs = Role.MEMBER
                role = max(role, theirs, key=_RANKS.index)
        return role

    async def _pair(self, sender: Sender, name: str) -> Rejected:
        issued = await run_sync(self._pairing.request, sender.platform, sender.ids[0], name)
        if not isinstance(issued, PairingCode):
            return Rejected()
        profile = "" if self._profile == "default" else f" -p {self._profile}"
        return Rejected(
            f"I don't know you yet. Your pairing code is {issued.code} (valid for one hour). "
            f"My owner can approve it with: "
            f"hermes{profile} pairing approve {sender.platform} {issued.code}"
        )

    def _permitted(self, role: Role, source: SessionSource, *, own: bool) -> frozenset[str] | None:
        """Return the commands that a role may use; `own`: only the sender uses the session."""
        if role is Role.OWNER:
            return None
        direct = source.chat_type == DIRECT_CHAT
        known = source.platform, role, direct, own
        if known not in self._permitted_commands:
            rules = self._platforms.get(source.platform, PlatformRules())
            access = rules.direct_commands if direct else rules.group_commands
            names = frozenset(name for name in self._commands if access.may_run(role, name))
            if role is Role.GUEST and not own:
                # In a shared session, commands on "one's own" session would affect everyone.
                names &= ALWAYS_ALLOWED | access.permitted
            self._permitted_commands[known] = names
        return self._permitted_commands[known]

    def _is_own(self, source: SessionSource) -> bool:
        keys = self._keys
        if source.chat_type == DIRECT_CHAT:
            return True
        return keys.per_user_in_threads if source.thread_id else keys.per_user_in_groups


_RANKS = (Role.GUEST, Role.MEMBER, Role.OWNER)


def _principal(sender: Sender, role: Role, person: LinkedPerson | None) -> str:
    if person is None or role is Role.OWNER:
        return principal_of(sender, role)
    return person.principal


def _sender(inbound: Inbound) -> Sender:
    about = inbound.about
    return sender_of(
        session_source(inbound),
        roles=about.roles,
        mentions=about.mentions,
        relayed=about.relayed,
    )


def session_source(inbound: Inbound) -> SessionSource:
    """Build the session source that keys and routes are derived from."""
    about, address = inbound.about, inbound.address
    return SessionSource(
        platform=platform_of(address.channel),
        chat_id=address.chat,
        chat_type=about.chat_type,
        chat_name=about.chat_name or None,
        user_id=inbound.sender or None,
        user_name=about.user_name or None,
        thread_id=address.thread,
        chat_topic=about.chat_topic or None,
        user_id_alt=about.user_alt or None,
        chat_id_alt=about.chat_alt or None,
        is_bot=about.bot,
        guild_id=about.guild or None,
        parent_chat_id=about.parent_chat or None,
        message_id=inbound.message,
    )


def _trust(role: Role, rules: PlatformRules) -> Trust:
    if role is Role.OWNER:
        return Trust.OWNER
    # Text from a webhook is data, regardless of who triggered it.
    return Trust.DATA if rules.access.authenticated_role is Role.GUEST else Trust.GUEST
