"""Access control of a profile: admission, role, commands and session key."""

from pathlib import Path

import pytest
from msgspec import structs

from hermes.gateway.access import AccessControl, GroupRules, PlatformRules, SessionKeyRules
from hermes.gateway.authorization import AccessRules
from hermes.gateway.messages import Admitted, Rejected
from hermes.gateway.pairing import PairedUser, Pairing
from hermes.gateway.people import People
from hermes.gateway.roles import CommandAccess
from hermes.ports.channel import Inbound, InboundDetails
from hermes.schema.messages import Text, Trust
from hermes.schema.scope import Address, Role
from hermes.session.keys import ChatId
from hermes.testing.clock import FakeClock

HERE = ChatId(space="work", platform="chat", kind="dm", chat="c")
COMMANDS = ("help", "new", "restart", "stop", "whoami")


def make_message(
    sender: str = "1", *, channel: str = "chat", about: InboundDetails | None = None
) -> Inbound:
    return Inbound(
        "k", Address(channel, "c"), sender, (Text("hi"),), about=about or InboundDetails()
    )


class AccessHarness:
    def __init__(self, folder: Path, keys: SessionKeyRules | None = None, **rules: object) -> None:
        self.pairing = Pairing(folder, FakeClock())
        platform = PlatformRules(**rules)  # type: ignore[arg-type]
        keys = keys or SessionKeyRules()
        keys = structs.replace(keys, namespace="work")
        people = People(folder / "people", FakeClock())
        self.door = AccessControl("work", {"chat": platform}, self.pairing, people, COMMANDS, keys)


async def test_unknown_user_is_rejected(tmp_path: Path) -> None:
    assert await AccessHarness(tmp_path).door.admit(make_message()) == Rejected()
    assert await AccessHarness(tmp_path).door.admit(make_message(channel="elsewhere")) == Rejected()


async def test_owner_is_admitted_as_owner(tmp_path: Path) -> None:
    access = AccessRules(users=frozenset({"1"}), owners=frozenset({"1"}))
    assert await AccessHarness(tmp_path, access=access).door.admit(make_message()) == Admitted(
        key="agent:work:chat:dm:c",
        chat=HERE,
        principal="owner",
        trust=Trust.OWNER,
        role=Role.OWNER,
        ids=("1",),
    )


async def test_member_has_own_principal_and_commands(tmp_path: Path) -> None:
    gated = CommandAccess(gated=True, permitted=frozenset({"new"}))
    harness = AccessHarness(
        tmp_path, access=AccessRules(users=frozenset({"1"})), direct_commands=gated
    )
    assert await harness.door.admit(make_message()) == Admitted(
        key="agent:work:chat:dm:c",
        chat=HERE,
        principal="chat:1",
        trust=Trust.GUEST,
        role=Role.MEMBER,
        commands=frozenset({"new", "help", "whoami", "stop"}),
        ids=("1",),
    )
    shared = await harness.door.admit(make_message(about=InboundDetails(chat_type="group")))
    assert isinstance(shared, Admitted)
    assert shared.may_stop_others
    gates = {"direct_commands": gated, "group_commands": CommandAccess(gated=True)}
    everybodys = AccessHarness(
        tmp_path,
        SessionKeyRules(per_user_in_groups=False),
        access=AccessRules(users=frozenset({"1"})),
        **gates,
    )
    shared = await everybodys.door.admit(make_message(about=InboundDetails(chat_type="group")))
    assert isinstance(shared, Admitted)
    assert shared.commands == {"help", "whoami", "stop"}
    assert not shared.may_stop_others


async def test_commands_follow_the_rules_of_the_account(tmp_path: Path) -> None:
    """A second account of a platform has its own administrators."""
    clock, access = FakeClock(), AccessRules(users=frozenset({"1"}))
    rules = {
        "chat": PlatformRules(access=access),
        "chat/work": PlatformRules(access=access, direct_commands=CommandAccess(gated=True)),
    }
    people = People(tmp_path / "people", clock)
    door = AccessControl("work", rules, Pairing(tmp_path, clock), people, COMMANDS)
    first = await door.admit(make_message())
    second = await door.admit(make_message(channel="chat/work"))
    assert isinstance(first, Admitted)
    assert isinstance(second, Admitted)
    assert first.commands == set(COMMANDS)
    assert second.commands == {"help", "whoami", "stop"}


async def test_administrator_need_not_be_in_the_allow_list(tmp_path: Path) -> None:
    access = AccessRules(
        users=frozenset({"2"}), owners=frozenset({"1", "*"}), group_owners=frozenset({"3"})
    )
    harness = AccessHarness(tmp_path, access=access)
    admitted = await harness.door.admit(make_message())
    assert isinstance(admitted, Admitted)
    assert admitted.role is Role.OWNER
    group = InboundDetails(chat_type="group")
    assert isinstance(await harness.door.admit(make_message("3", about=group)), Admitted)
    # An admin of groups is unknown elsewhere, and so is anyone not named.
    assert await harness.door.admit(make_message("3")) == Rejected()
    assert await harness.door.admit(make_message("1", about=group)) == Rejected()
    denied = structs.replace(access, denied=frozenset({"1"}))
    assert await AccessHarness(tmp_path, access=denied).door.admit(make_message()) == Rejected()


async def test_webhook_text_is_untrusted(tmp_path: Path) -> None:
    admitted = await AccessHarness(
        tmp_path, access=AccessRules(authenticated_role=Role.GUEST)
    ).door.admit(make_message())
    assert isinstance(admitted, Admitted)
    assert (admitted.trust, admitted.role) == (Trust.DATA, Role.GUEST)


async def test_unknown_user_gets_one_code_and_is_admitted_after_approval(tmp_path: Path) -> None:
    harness = AccessHarness(tmp_path, access=AccessRules(pairing=True))
    assert not await harness.door.admits(make_message()), "asked before files are fetched"
    assert harness.pairing.pending() == []
    turned = await harness.door.admit(make_message())
    assert isinstance(turned, Rejected)
    code = turned.reply.rsplit(" ", 1)[1]
    assert f"hermes -p work pairing approve chat {code}" in turned.reply
    assert await harness.door.admit(make_message()) == Rejected()
    assert isinstance(harness.pairing.approve("chat", code), PairedUser)
    assert await harness.door.admits(make_message())
    admitted = await harness.door.admit(make_message())
    assert isinstance(admitted, Admitted)
    assert admitted.role is Role.MEMBER


async def test_paired_guest_becomes_member(tmp_path: Path) -> None:
    harness = AccessHarness(tmp_path, access=AccessRules(everybody=True, pairing=True))
    before = await harness.door.admit(make_message())
    assert isinstance(before, Admitted)
    issued = harness.pairing.request("chat", "1")
    harness.pairing.approve("chat", issued.code)  # type: ignore[union-attr]
    after = await harness.door.admit(make_message())
    assert isinstance(after, Admitted)
    assert (before.role, after.role) == (Role.GUEST, Role.MEMBER)


@pytest.mark.parametrize(
    ("groups", "about", "accepted"),
    [
        (GroupRules(), InboundDetails(chat_type="group"), True),
        (GroupRules(require_mention=True), InboundDetails(chat_type="group"), False),
        (GroupRules(require_mention=True), InboundDetails(chat_type="group", mentions=True), True),
        (
            GroupRules(require_mention=True, without_mention=frozenset({"c"})),
            InboundDetails(chat_type="group"),
            True,
        ),
        (
            GroupRules(require_mention=True, without_mention=frozenset({"p"})),
            InboundDetails(chat_type="thread", parent_chat="p"),
            True,
        ),
        (
            GroupRules(allowed_chats=frozenset({"other"})),
            InboundDetails(chat_type="group", mentions=True),
            False,
        ),
        (GroupRules(allowed_chats=frozenset({"other"})), InboundDetails(), True),
        (
            GroupRules(allowed_chats=frozenset({"other"}), mention_opens=True),
            InboundDetails(chat_type="group", mentions=True),
            True,
        ),
        (
            GroupRules(allowed_chats=frozenset({"other"}), mention_opens=True),
            InboundDetails(chat_type="group"),
            False,
        ),
    ],
)
async def test_group_rules(
    tmp_path: Path, groups: GroupRules, about: InboundDetails, accepted: bool
) -> None:
    harness = AccessHarness(tmp_path, access=AccessRules(users=frozenset({"1"})), groups=groups)
    message = make_message(about=about)
    assert isinstance(await harness.door.admit(message), Admitted) is accepted
    assert await harness.door.admits(message) is accepted


async def test_routed_message_uses_the_other_profiles_key(tmp_path: Path) -> None:
    harness = AccessHarness(tmp_path, access=AccessRules(users=frozenset({"1"})))
    admitted = await harness.door.admit(make_message(channel="chat@work"), "play")
    assert isinstance(admitted, Admitted)
    assert (admitted.key, admitted.principal) == ("agent:play:chat@work:dm:c", "chat@work:1")


async def test_group_session_is_shared_when_configured(tmp_path: Path) -> None:
    access = AccessRules(users=frozenset({"1", "2"}))
    for per_user, keys in ((True, 2), (False, 1)):
        harness = AccessHarness(
            tmp_path, SessionKeyRules(per_user_in_groups=per_user), access=access
        )
        doors = [
            await harness.door.admit(make_message(who, about=InboundDetails(chat_type="group")))
            for who in "12"
        ]
        assert len({door.key for door in doors if isinstance(door, Admitted)}) == keys
