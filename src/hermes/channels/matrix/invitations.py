"""Decide which invitations are accepted, by the same lists as messages."""

import logging
from collections.abc import Mapping

from msgspec import Struct

from hermes.channels.matrix import MatrixOptions
from hermes.channels.matrix.objects import Event, InvitedRoom, MemberContent
from hermes.kit.json_errors import JSON_ERRORS

log = logging.getLogger(__name__)

ANYBODY = "*"
_YES = frozenset({"1", "true", "yes", "on"})


class Invitation(Struct, frozen=True, kw_only=True):
    inviter: str
    direct: bool = False
    public: bool = False


class InvitationRules(Struct, frozen=True, kw_only=True):
    """Who may invite the agent: listed people, and others to direct chats if they may pair."""

    people: frozenset[str] = frozenset()
    denied: frozenset[str] = frozenset()
    everybody: bool = False
    offers_pairing: bool = False
    rooms: frozenset[str] = frozenset()
    public_rooms: bool = False

    def is_listed(self, user: str) -> bool:
        if user in self.denied or ANYBODY in self.denied:
            return False
        return self.everybody or user in self.people or ANYBODY in self.people

    def accepts(self, room: str, invitation: Invitation) -> bool:
        if invitation.inviter in self.denied or ANYBODY in self.denied:
            return False
        if invitation.direct and not invitation.public:
            return self.is_listed(invitation.inviter) or self.offers_pairing
        if self.rooms and room not in self.rooms:
            return False
        if invitation.public and not self.public_rooms and room not in self.rooms:
            return False
        return self.is_listed(invitation.inviter)


def invitation_rules(options: MatrixOptions, env: Mapping[str, str]) -> InvitationRules:
    """The rules that the settings and the gateway's variables describe."""

    def listed(variable: str) -> frozenset[str]:
        names = (name.strip() for name in env.get(variable, "").split(","))
        # The gateway's lists contain people of all platforms.
        return frozenset(name.removeprefix("matrix:") for name in names if name)

    people = frozenset(
        (*options.allowed_users, *options.allow_from, *options.group_allow_from)
    ) | listed("GATEWAY_ALLOWED_USERS")
    everybody = options.allow_all_users or (
        env.get("GATEWAY_ALLOW_ALL_USERS", "").strip().lower() in _YES
    )
    asks = options.unauthorized_dm_behavior.strip().lower() or "pair"
    return InvitationRules(
        people=people,
        denied=frozenset(options.deny_from)
        | listed("MATRIX_DENIED_USERS")
        | listed("GATEWAY_DENIED_USERS"),
        everybody=everybody,
        offers_pairing=asks == "pair" and not people,
        rooms=frozenset(options.allowed_rooms),
        public_rooms=options.allow_public_rooms,
    )


def read_invitation(invited: InvitedRoom, user: str) -> Invitation | None:
    """Read what the server reports about the room of an invitation."""
    inviter, direct, public = "", False, False
    for event in invited.invite_state.events:
        try:
            if event.kind == "m.room.member" and event.state_key == user:
                inviter, direct = event.sender, event.read(MemberContent).is_direct
            elif event.kind == "m.room.join_rules":
                public = _join_rule(event) == "public"
        except JSON_ERRORS:
            log.info("an invitation is malformed")
    return Invitation(inviter=inviter, direct=direct, public=public) if inviter else None


class _JoinRules(Struct, frozen=True):
    join_rule: str = ""


def _join_rule(event: Event) -> str:
    return event.read(_JoinRules).join_rule
