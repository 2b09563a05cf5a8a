"""Links between accounts: what the owner says, what codes prove, and what attackers try."""

from pathlib import Path

import msgspec
import pytest
from msgspec import structs

from hermes.gateway.access import AccessControl, PlatformRules
from hermes.gateway.authorization import AccessRules
from hermes.gateway.messages import Admitted, Rejected
from hermes.gateway.one_time_code import new_code
from hermes.gateway.pairing import Pairing
from hermes.gateway.people import (
    MAX_FAILURES,
    MAX_FAILURES_OF_ALL,
    LinkedAccount,
    People,
    account_of,
    parse_account,
)
from hermes.kit.errors import UsageError
from hermes.ports.channel import Inbound, InboundDetails
from hermes.schema.messages import Text
from hermes.schema.scope import OWNER, Address, Role
from hermes.testing.clock import FakeClock

ANN_HERE, ANN_THERE, EVE = "here:1", "there:a", "there:e"


class Harness:
    """A profile with two platforms, `here` and `there`."""

    def __init__(self, folder: Path, here: AccessRules, there: AccessRules) -> None:
        self.clock = FakeClock()
        self.people = People(folder / "people", self.clock)
        rules = {"here": PlatformRules(access=here), "there": PlatformRules(access=there)}
        pairing = Pairing(folder / "pairing", self.clock)
        self._access = AccessControl("default", rules, pairing, self.people, ("help",))

    async def admit(
        self, account: str, kind: str = "dm", *, bot: bool = False, alt: str = ""
    ) -> Admitted | None:
        channel, _, user = account.partition(":")
        about = InboundDetails(chat_type=kind, bot=bot, mentions=True, user_alt=alt)
        update = Inbound("k", Address(channel, "chat"), user, (Text("hi"),), about=about)
        found = await self._access.admit(update)
        return None if isinstance(found, Rejected) else found

    async def identity(self, account: str, kind: str = "dm") -> tuple[Role, str] | None:
        found = await self.admit(account, kind)
        return None if found is None else (found.role, found.principal)

    def link_by_owner(self, *accounts: str) -> None:
        self.people.link([LinkedAccount(account=one, proof="owner") for one in accounts])

    def link_by_code(self, issuer: str, redeemer: str) -> None:
        code = self.people.issue(issuer, "chat", "")
        self.people.check(redeemer, code)
        self.people.redeem(redeemer, "chat", code)


def ids(*users: str) -> frozenset[str]:
    return frozenset(users)


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    return Harness(tmp_path, AccessRules(users=ids("1")), AccessRules(everybody=True))


async def test_linked_accounts_share_role_and_principal(harness: Harness) -> None:
    assert await harness.identity(ANN_THERE) == (Role.GUEST, ANN_THERE)
    harness.link_by_code(ANN_HERE, ANN_THERE)
    assert await harness.identity(ANN_HERE) == (Role.MEMBER, ANN_HERE)
    assert await harness.identity(ANN_THERE) == (Role.MEMBER, ANN_HERE)
    assert await harness.identity(EVE) == (Role.GUEST, EVE)


async def test_unlinked_account_is_a_person_of_its_own_again(harness: Harness) -> None:
    harness.link_by_code(ANN_HERE, ANN_THERE)
    assert harness.people.unlink(ANN_THERE)
    assert not harness.people.unlink(ANN_THERE)
    assert await harness.identity(ANN_THERE) == (Role.GUEST, ANN_THERE)
    assert harness.people.all() == (), "an account alone is no link"


async def test_link_of_the_owner_gives_the_owners_role(tmp_path: Path) -> None:
    owner = AccessRules(users=ids("1"), owners=ids("1"))
    harness = Harness(tmp_path, owner, AccessRules(users=ids("a")))
    harness.link_by_owner(ANN_HERE, ANN_THERE)
    assert await harness.identity(ANN_THERE) == (Role.OWNER, OWNER)
    assert await harness.identity(ANN_THERE, "group") == (Role.MEMBER, ANN_HERE), (
        "who is owner in direct chats is not therefore owner in groups"
    )


async def test_code_never_gives_the_owners_role(tmp_path: Path) -> None:
    """Also not if the account becomes the owner's later."""
    owner = AccessRules(users=ids("1"), owners=ids("1"))
    harness = Harness(tmp_path, owner, AccessRules(users=ids("e")))
    harness.link_by_code(ANN_HERE, EVE)
    assert await harness.identity(EVE) == (Role.MEMBER, ANN_HERE)
    harness.link_by_owner(ANN_HERE, ANN_THERE)
    assert await harness.identity(EVE) == (Role.MEMBER, ANN_HERE)


async def test_link_does_not_admit_anyone(tmp_path: Path) -> None:
    harness = Harness(tmp_path, AccessRules(users=ids("1")), AccessRules())
    harness.link_by_owner(ANN_HERE, ANN_THERE)
    assert await harness.identity(ANN_THERE) is None


async def test_denied_account_denies_the_person(tmp_path: Path) -> None:
    denied = AccessRules(users=ids("1"), denied=ids("1"))
    harness = Harness(tmp_path, denied, AccessRules(users=ids("a", "e")))
    harness.link_by_owner(ANN_HERE, ANN_THERE)
    assert await harness.identity(ANN_THERE) is None
    assert await harness.identity(EVE) is not None


async def test_platform_closed_to_everybody_does_not_deny_the_person(tmp_path: Path) -> None:
    """Only a deny list that names the account is about the person."""
    closed = AccessRules(users=ids("1"), owners=ids("1"), denied=ids("*"))
    harness = Harness(tmp_path, closed, AccessRules(users=ids("a")))
    harness.link_by_owner(ANN_HERE, ANN_THERE)
    assert await harness.identity(ANN_THERE) == (Role.MEMBER, ANN_HERE)
    assert await harness.identity(ANN_HERE) is None
    both = Harness(
        tmp_path, AccessRules(users=ids("1"), denied=ids("*", "1")), AccessRules(users=ids("a"))
    )
    assert await both.identity(ANN_THERE) is None


async def test_denial_by_a_further_id_denies_the_person(tmp_path: Path) -> None:
    """The ids are known from what the account sent, also if that was not admitted."""
    there = AccessRules(users=ids("a"))
    before = Harness(tmp_path, AccessRules(users=ids("1")), there)
    before.link_by_owner(ANN_HERE, ANN_THERE)
    denied = Harness(tmp_path, AccessRules(users=ids("1"), denied=ids("555")), there)
    assert await denied.identity(ANN_THERE) is not None, "the id is not known yet"
    assert await denied.admit(ANN_HERE, alt="555") is None
    assert await denied.identity(ANN_THERE) is None
    moved = Harness(tmp_path, AccessRules(users=ids("1"), denied=ids("666")), there)
    assert await moved.admit(ANN_HERE) is not None, "this message shows only the first id"
    assert await denied.identity(ANN_THERE) is None
    assert await moved.admit(ANN_HERE, alt="666") is None
    assert await moved.identity(ANN_THERE) is None
    assert await denied.identity(ANN_THERE) is not None, "the account has another number now"


async def test_code_links_all_ids_of_both_accounts(tmp_path: Path) -> None:
    here, there = AccessRules(users=ids("1")), AccessRules(users=ids("a"))
    harness = Harness(tmp_path, here, there)
    code = harness.people.issue(ANN_HERE, "chat", "", ("1", "555"))
    harness.people.check(ANN_THERE, code)
    harness.people.redeem(ANN_THERE, "chat", code, ("a", "777"))
    for denied, account in (("555", ANN_THERE), ("777", ANN_HERE)):
        rules = (structs.replace(one, denied=ids(denied)) for one in (here, there))
        assert await Harness(tmp_path, *rules).identity(account) is None


async def test_file_without_ids_is_read(harness: Harness, tmp_path: Path) -> None:
    (tmp_path / "people").mkdir()
    accounts = [{"account": one, "proof": "code"} for one in (ANN_HERE, ANN_THERE)]
    stored = msgspec.json.encode({"people": [{"accounts": accounts}]})
    (tmp_path / "people" / "people.json").write_bytes(stored)
    assert await harness.identity(ANN_THERE) == (Role.MEMBER, ANN_HERE)
    assert (tmp_path / "people" / "people.json").read_bytes() == stored, "nothing new to store"


async def test_code_is_confirmed_only_by_the_account_that_checked_it(
    harness: Harness,
) -> None:
    """So that nobody is linked by one line that somebody made them paste."""
    code = harness.people.issue(EVE, "chat", "")
    for checked_by in ("", "there:other"):
        if checked_by:
            harness.people.check(checked_by, code)
        with pytest.raises(UsageError, match="Check first whose code"):
            harness.people.redeem(ANN_HERE, "chat", code)
    assert harness.people.all() == ()
    harness.people.check(ANN_HERE, code)
    harness.people.redeem(ANN_HERE, "chat", code)
    assert len(harness.people.all()) == 1


async def test_bot_has_no_linked_identity(tmp_path: Path) -> None:
    there = AccessRules(users=ids("a"), bots="all")
    harness = Harness(tmp_path, AccessRules(users=ids("1")), there)
    harness.link_by_owner(ANN_HERE, ANN_THERE)
    found = await harness.admit(ANN_THERE, bot=True)
    assert found is not None
    assert found.principal == ANN_THERE


async def test_code_is_valid_once_and_for_ten_minutes(harness: Harness) -> None:
    code = harness.people.issue(ANN_HERE, "chat", "Ann")
    await harness.clock.advance(601)
    with pytest.raises(UsageError, match="wrong, has expired"):
        harness.people.redeem(ANN_THERE, "chat", code)
    code = harness.people.issue(ANN_HERE, "chat", "Ann")
    typed = f" {code[:4].lower()}-{code[4:]} "
    harness.people.check(ANN_THERE, typed)
    found, person = harness.people.redeem(ANN_THERE, "chat", typed)
    assert (found.account, person.names) == (ANN_HERE, [ANN_HERE, ANN_THERE])
    with pytest.raises(UsageError, match="wrong, has expired"):
        harness.people.redeem(EVE, "chat", code)


async def test_newer_code_replaces_an_older_one(harness: Harness) -> None:
    first = harness.people.issue(ANN_HERE, "chat", "")
    harness.people.issue(ANN_HERE, "chat", "")
    with pytest.raises(UsageError, match="wrong, has expired"):
        harness.people.check(ANN_THERE, first)


async def test_own_code_links_nothing(harness: Harness) -> None:
    code = harness.people.issue(ANN_HERE, "chat", "")
    with pytest.raises(UsageError, match="made by this account"):
        harness.people.redeem(ANN_HERE, "chat", code)
    assert harness.people.all() == ()


def guess(people: People, account: str) -> None:
    with pytest.raises(UsageError):
        people.check(account, new_code())


async def test_guessing_locks_the_account(harness: Harness) -> None:
    code = harness.people.issue(ANN_HERE, "chat", "")
    for _ in range(MAX_FAILURES):
        guess(harness.people, EVE)
    with pytest.raises(UsageError, match="too many wrong codes"):
        harness.people.redeem(EVE, "chat", code)
    await harness.clock.advance(3601)
    code = harness.people.issue(ANN_HERE, "chat", "")
    harness.people.check(EVE, code)


async def test_guessing_from_many_accounts_locks_all_of_them(harness: Harness) -> None:
    code = harness.people.issue(ANN_HERE, "chat", "")
    for number in range(MAX_FAILURES_OF_ALL):
        guess(harness.people, f"there:bot{number}")
    with pytest.raises(UsageError, match="too many wrong codes"):
        harness.people.redeem("there:fresh", "chat", code)


async def test_linked_account_is_not_taken_over_with_a_code(harness: Harness) -> None:
    """Whoever has linked accounts cannot merge them with those of another person."""
    harness.link_by_code(ANN_HERE, ANN_THERE)
    harness.link_by_code(EVE, "here:2")
    with pytest.raises(UsageError, match="already linked with others"):
        harness.link_by_code(EVE, ANN_THERE)
    assert [person.names for person in harness.people.all()] == [
        [ANN_HERE, ANN_THERE], [EVE, "here:2"],
    ]  # fmt: skip
    harness.link_by_owner(ANN_HERE, EVE)
    assert len(harness.people.all()) == 1, "the owner may"


async def test_code_is_stored_as_a_hash_in_private_files(harness: Harness, tmp_path: Path) -> None:
    code = harness.people.issue(ANN_HERE, "chat", "")
    harness.link_by_owner(ANN_HERE, ANN_THERE)
    for path in (tmp_path / "people").iterdir():
        assert code not in path.read_text()
        assert path.stat().st_mode & 0o077 == 0


async def test_damaged_file_grants_no_access(harness: Harness, tmp_path: Path) -> None:
    harness.link_by_code(ANN_HERE, ANN_THERE)
    file = tmp_path / "people" / "people.json"
    file.write_text("{")
    assert await harness.identity(ANN_THERE) == (Role.GUEST, ANN_THERE)
    with pytest.raises(Exception, match="damaged"):
        harness.link_by_owner(ANN_HERE, ANN_THERE)
    assert file.read_text() == "{", "it is not overwritten"


async def test_names_of_accounts_have_one_form() -> None:
    assert account_of("telegram@work", " 42 ") == "telegram:42"
    assert parse_account("Telegram:42") == "telegram:42"
    assert parse_account("matrix:@ann:example.org") == account_of("matrix", "@ann:example.org")
    for text in ("telegram", "telegram:", ":42", ""):
        with pytest.raises(UsageError, match="not an account"):
            parse_account(text)
