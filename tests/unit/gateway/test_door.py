"""The door as a chat meets it: who comes in, as whom, with which commands, in which session."""

from pathlib import Path

import pytest
from msgspec import structs

from hermes.gateway.access import AccessControl, GroupRules, PlatformRules, SessionKeyRules
from hermes.gateway.authorization import AccessRules
from hermes.gateway.messages import Admitted, Rejected
from hermes.gateway.pairing import PairedUser, Pairing
from hermes.gateway.roles import CommandAccess
from hermes.ports.channel import Inbound, InboundDetails
from hermes.schema.messages import Text, Trust
from hermes.schema.scope import Address, Role
from hermes.session.keys import ChatId
from hermes.testing.clock import FakeClock

pytestmark = pytest.mark.anyio

HERE = ChatId(space="work", platform="chat", kind="dm", chat="c")
COMMANDS = ("help", "new", "restart", "stop", "whoami")


def said(
    sender: str = "1", *, channel: str = "chat", about: InboundDetails | None = None
) -> Inbound:
    return Inbound(
        "k", Address(channel, "c"), sender, (Text("hi"),), about=about or InboundDetails()
    )


class Hall:
    def __init__(self, folder: Path, keys: SessionKeyRules | None = None, **rules: object) -> None:
        self.pairing = Pairing(folder, FakeClock())
        platform = PlatformRules(**rules)  # type: ignore[arg-type]
        keys = keys or SessionKeyRules()
        keys = structs.replace(keys, space="work")
        self.door = AccessControl("work", {"chat": platform}, self.pairing, COMMANDS, keys)


async def test_nobody_comes_in_unless_something_lets_them(tmp_path: Path) -> None:
    assert await Hall(tmp_path).door(said()) == Rejected()
    assert await Hall(tmp_path).door(said(channel="elsewhere")) == Rejected()


async def test_an_owner_is_the_owner(tmp_path: Path) -> None:
    access = AccessRules(users=frozenset({"1"}), owners=frozenset({"1"}))
    assert await Hall(tmp_path, access=access).door(said()) == Admitted(
        key="agent:work:chat:dm:c",
        place=HERE,
        principal="owner",
        trust=Trust.OWNER,
        role=Role.OWNER,
    )


async def test_a_member_is_somebody_else_with_commands_of_their_own(tmp_path: Path) -> None:
    gated = CommandAccess(gated=True, permitted=frozenset({"new"}))
    hall = Hall(tmp_path, access=AccessRules(users=frozenset({"1"})), direct_commands=gated)
    assert await hall.door(said()) == Admitted(
        key="agent:work:chat:dm:c",
        place=HERE,
        principal="chat:1",
        trust=Trust.GUEST,
        role=Role.MEMBER,
        commands=frozenset({"new", "help", "whoami", "stop"}),
    )
    shared = await hall.door(said(about=InboundDetails(chat_type="group")))
    assert isinstance(shared, Admitted)
    assert shared.stops_others
    gates = {"direct_commands": gated, "group_commands": CommandAccess(gated=True)}
    everybodys = Hall(
        tmp_path,
        SessionKeyRules(per_user_in_groups=False),
        access=AccessRules(users=frozenset({"1"})),
        **gates,
    )
    shared = await everybodys.door(said(about=InboundDetails(chat_type="group")))
    assert isinstance(shared, Admitted)
    assert shared.commands == {"help", "whoami", "stop"}
    assert not shared.stops_others


async def test_an_administrator_need_not_be_listed_twice(tmp_path: Path) -> None:
    access = AccessRules(
        users=frozenset({"2"}), owners=frozenset({"1", "*"}), group_owners=frozenset({"3"})
    )
    hall = Hall(tmp_path, access=access)
    admitted = await hall.door(said())
    assert isinstance(admitted, Admitted)
    assert admitted.role is Role.OWNER
    group = InboundDetails(chat_type="group")
    assert isinstance(await hall.door(said("3", about=group)), Admitted)
    # The one who is named for groups is a stranger elsewhere, and so is whoever is not named.
    assert await hall.door(said("3")) == Rejected()
    assert await hall.door(said("1", about=group)) == Rejected()
    denied = structs.replace(access, denied=frozenset({"1"}))
    assert await Hall(tmp_path, access=denied).door(said()) == Rejected()


async def test_what_a_machine_sends_is_data(tmp_path: Path) -> None:
    admitted = await Hall(tmp_path, access=AccessRules(vouched=Role.GUEST)).door(said())
    assert isinstance(admitted, Admitted)
    assert (admitted.trust, admitted.role) == (Trust.DATA, Role.GUEST)


async def test_a_stranger_gets_a_code_once_and_is_let_in_by_it(tmp_path: Path) -> None:
    hall = Hall(tmp_path, access=AccessRules(pairing=True))
    turned = await hall.door(said())
    assert isinstance(turned, Rejected)
    code = turned.reply.rsplit(" ", 1)[1]
    assert f"hermes -p work pairing approve chat {code}" in turned.reply
    assert await hall.door(said()) == Rejected()
    assert isinstance(hall.pairing.approve("chat", code), PairedUser)
    admitted = await hall.door(said())
    assert isinstance(admitted, Admitted)
    assert admitted.role is Role.MEMBER


async def test_a_guest_who_was_paired_is_a_member(tmp_path: Path) -> None:
    hall = Hall(tmp_path, access=AccessRules(everybody=True, pairing=True))
    before = await hall.door(said())
    assert isinstance(before, Admitted)
    issued = hall.pairing.request("chat", "1")
    hall.pairing.approve("chat", issued.code)  # type: ignore[union-attr]
    after = await hall.door(said())
    assert isinstance(after, Admitted)
    assert (before.role, after.role) == (Role.GUEST, Role.MEMBER)


@pytest.mark.parametrize(
    ("groups", "about", "heard"),
    [
        (GroupRules(), InboundDetails(chat_type="group"), True),
        (GroupRules(require_mention=True), InboundDetails(chat_type="group"), False),
        (GroupRules(require_mention=True), InboundDetails(chat_type="group", mentions=True), True),
        (
            GroupRules(require_mention=True, free=frozenset({"c"})),
            InboundDetails(chat_type="group"),
            True,
        ),
        (
            GroupRules(require_mention=True, free=frozenset({"p"})),
            InboundDetails(chat_type="thread", parent_chat="p"),
            True,
        ),
        (
            GroupRules(only=frozenset({"other"})),
            InboundDetails(chat_type="group", mentions=True),
            False,
        ),
        (GroupRules(only=frozenset({"other"})), InboundDetails(), True),
    ],
)
async def test_groups(
    tmp_path: Path, groups: GroupRules, about: InboundDetails, heard: bool
) -> None:
    hall = Hall(tmp_path, access=AccessRules(users=frozenset({"1"})), groups=groups)
    assert isinstance(await hall.door(said(about=about)), Admitted) is heard


async def test_a_message_for_another_profile_gets_a_session_there(tmp_path: Path) -> None:
    hall = Hall(tmp_path, access=AccessRules(users=frozenset({"1"})))
    admitted = await hall.door.welcome(said(channel="chat@work"), "play")
    assert isinstance(admitted, Admitted)
    assert (admitted.key, admitted.principal) == ("agent:play:chat@work:dm:c", "chat@work:1")


async def test_people_share_a_group_when_the_settings_say_so(tmp_path: Path) -> None:
    access = AccessRules(users=frozenset({"1", "2"}))
    for per_user, keys in ((True, 2), (False, 1)):
        hall = Hall(tmp_path, SessionKeyRules(per_user_in_groups=per_user), access=access)
        doors = [
            await hall.door(said(who, about=InboundDetails(chat_type="group"))) for who in "12"
        ]
        assert len({door.key for door in doors if isinstance(door, Admitted)}) == keys
