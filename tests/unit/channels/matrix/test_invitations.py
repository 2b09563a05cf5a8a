"""Invitations are accepted from the people whose messages are."""

import pytest

from hermes.channels.matrix import MatrixOptions
from hermes.channels.matrix.invitations import Invitation, invitation_rules

ANN, BOB, ROOM = "@ann:example.org", "@bob:example.org", "!room:example.org"
LISTED = MatrixOptions(allowed_users=(ANN,))


@pytest.mark.parametrize(
    ("options", "inviter", "direct", "accepted"),
    [
        (LISTED, ANN, True, True),
        (LISTED, ANN, False, True),
        (LISTED, BOB, True, False),
        (LISTED, BOB, False, False),
        (MatrixOptions(), BOB, True, True),
        (MatrixOptions(), BOB, False, False),
        (MatrixOptions(unauthorized_dm_behavior="ignore"), BOB, True, False),
        (MatrixOptions(allow_all_users=True), BOB, False, True),
        (MatrixOptions(allow_all_users=True, deny_from=(BOB,)), BOB, False, False),
        (MatrixOptions(allowed_users=(ANN,), allowed_rooms=("!other:x",)), ANN, False, False),
        (MatrixOptions(allowed_users=(ANN,), allowed_rooms=("!other:x",)), ANN, True, True),
    ],
)
def test_invitations_follow_the_allow_lists(
    options: MatrixOptions, inviter: str, direct: bool, accepted: bool
) -> None:
    invitation = Invitation(inviter=inviter, direct=direct)
    assert invitation_rules(options, {}).accepts(ROOM, invitation) is accepted


def test_public_rooms_are_joined_only_if_allowed() -> None:
    public = Invitation(inviter=ANN, public=True)
    assert not invitation_rules(LISTED, {}).accepts(ROOM, public)
    allowed = MatrixOptions(allowed_users=(ANN,), allow_public_rooms=True)
    assert invitation_rules(allowed, {}).accepts(ROOM, public)


def test_lists_of_the_gateway_count() -> None:
    rules = invitation_rules(MatrixOptions(), {"GATEWAY_ALLOWED_USERS": f"{ANN}, telegram:1"})
    assert rules.accepts(ROOM, Invitation(inviter=ANN))
    assert not rules.accepts(ROOM, Invitation(inviter=BOB, direct=True))
