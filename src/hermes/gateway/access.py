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
from hermes.session.keys import SessionSource, chat_id_of

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


class _Rights(Struct, frozen=True):
    """What a role may do in one kind of chat; see `Admitted`."""

    trust: Trust
    commands: frozenset[str] | None
    may_stop_others: bool


_NOBODY = PlatformRules()


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
        self._rights: dict[tuple[str, Role, bool, bool], _Rights] = {}

    async def admit(self, inbound: Inbound, namespace: str | None = None) -> Admitted | Rejected:
        """Authorize a message; `namespace` is that of the answering profile, if not this one."""
        source, channel = session_source(inbound), inbound.address.channel
        own, sender = own_channel(channel), sender_of(source, inbound.about)
        rules = self._platforms.get(own, _NOBODY)
        decision = await self._decide(sender, rules)
        if not isinstance(decision, Allowed):
            return await self._turn_away(inbound, sender, rules, decision)
        if not sender.direct and not rules.groups.listens_to(source, mentioned=sender.mentions):
            return Rejected()
        role, person = decision.role, None
        if decision.reason is not AccessReason.AUTHENTICATED:
            person = await self._person(inbound, sender, rules)
        if person is not None:
            linked = await self._linked_role(person, inbound, sender, role)
            if linked is None:
                return Rejected()
            role = linked
        kind = own, role, sender.direct, bool(source.thread_id)
        rights = self._rights.get(kind) or self._rights_of(kind, rules)
        # The same chat id seen by two accounts is two chats, with separate users.
        chat = chat_id_of(
            structs.replace(source, platform=channel),
            group_sessions_per_user=self._keys.per_user_in_groups,
            thread_sessions_per_user=self._keys.per_user_in_threads,
            profile=self._keys.namespace if namespace is None else namespace,
        )
        principal = principal_of(channel, sender, role)
        if person is not None and role is not Role.OWNER:
            principal = person.principal
        return Admitted(
            key=chat.key,
            chat=chat,
            principal=principal,
            trust=rights.trust,
            role=role,
            commands=rights.commands,
            may_stop_others=rights.may_stop_others,
            ids=sender.ids,
        )

    async def _turn_away(
        self,
        inbound: Inbound,
        sender: Sender,
        rules: PlatformRules,
        decision: Ignored | OfferPairing,
    ) -> Rejected:
        if isinstance(decision, OfferPairing):
            return await self._pair(sender, inbound.about.user_name)
        reason = decision.reason
        log.info("%s ignored a message from %s: %s", sender.platform, sender.ids[:1], reason)
        if reason is AccessReason.DENIED:
            # The ids that it is denied by also count for the person's other accounts.
            await self._person(inbound, sender, rules)
        return Rejected()

    async def admits(self, inbound: Inbound) -> bool:
        """Whether the sender is admitted; unlike with `admit`, nothing is offered or stored.

        Deny lists that name another account of the person are left to `admit`.
        """
        source = session_source(inbound)
        sender = sender_of(source, inbound.about)
        rules = self._platforms.get(own_channel(inbound.address.channel), _NOBODY)
        if not isinstance(await self._decide(sender, rules), Allowed):
            return False
        return sender.direct or rules.groups.listens_to(source, mentioned=sender.mentions)

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
            as_sender = Sender(platform=platform_of(other.channel), ids=ids, direct=sender.direct)
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

    def _rights_of(self, kind: tuple[str, Role, bool, bool], rules: PlatformRules) -> _Rights:
        """Return what a role may do in one kind of chat of a channel."""
        _, role, direct, in_thread = kind
        if role is Role.OWNER:
            rights = _Rights(Trust.OWNER, None, may_stop_others=True)
        else:
            keys = self._keys
            own = direct or (keys.per_user_in_threads if in_thread else keys.per_user_in_groups)
            access = rules.direct_commands if direct else rules.group_commands
            names = frozenset(name for name in self._commands if access.may_run(role, name))
            if role is Role.GUEST and not own:
                # In a shared session, commands on "one's own" session would affect everyone.
                names &= ALWAYS_ALLOWED | access.permitted
            # Text from a webhook is data, regardless of who triggered it.
            is_data = rules.access.authenticated_role is Role.GUEST
            trust = Trust.DATA if is_data else Trust.GUEST
            rights = _Rights(trust, names | {STOP}, may_stop_others=own or STOP in names)
        self._rights[kind] = rights
        return rights


_RANKS = (Role.GUEST, Role.MEMBER, Role.OWNER)


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
