"""One identity for several accounts of a person: the links, and the codes that prove them.

A link never admits anybody: each account must be admitted by its own platform's rules.
"""

import hmac
import logging
import os
import secrets
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Struct, field, structs

from hermes.gateway.one_time_code import hash_code, new_code, normalized_code
from hermes.gateway.pairing_files import changing_folder, unusable_file
from hermes.gateway.platform_settings import canonical_id
from hermes.kit.clock import Clock
from hermes.kit.errors import ConfigError, UsageError
from hermes.kit.files import write_atomic
from hermes.schema.scope import own_channel, platform_of

log = logging.getLogger(__name__)

CODE_LIFETIME = 600.0
MAX_CODES = 100
MAX_FAILURES = 5
"""Wrong codes of an account in an hour."""
MAX_FAILURES_OF_ALL = 30
HOUR = 3600.0
MAX_ACCOUNTS = 50

Proof: TypeAlias = Literal["owner", "code"]
"""Who says that the account is the person's: the owner, or a code that both accounts had."""

T = TypeVar("T", bound=Struct)


class LinkedAccount(Struct, frozen=True, kw_only=True):
    """An account, as `channel:user`, with its direct chat and all its ids, if they are known."""

    account: str
    proof: Proof
    chat: str = ""
    ids: tuple[str, ...] = ()

    @property
    def channel(self) -> str:
        return self.account.partition(":")[0]

    @property
    def user(self) -> str:
        return self.account.partition(":")[2]


class LinkedPerson(Struct, frozen=True):
    """The accounts of one person; what the first one has, the others share."""

    accounts: tuple[LinkedAccount, ...]

    @property
    def principal(self) -> str:
        return self.accounts[0].account

    @property
    def names(self) -> list[str]:
        return [one.account for one in self.accounts]

    def find(self, account: str) -> LinkedAccount | None:
        return next((one for one in self.accounts if one.account == account), None)


class _People(Struct, frozen=True):
    people: tuple[LinkedPerson, ...] = ()


class LinkCode(Struct, frozen=True, kw_only=True):
    """A code that waits; its account, what its chat is called, and who was told whose it is."""

    hash: str
    salt: str
    account: str
    chat: str
    name: str
    at: float
    ids: tuple[str, ...] = ()
    checked_by: str = ""


class _Codes(Struct, frozen=True):
    codes: tuple[LinkCode, ...] = ()
    failures: dict[str, list[float]] = field(default_factory=dict[str, list[float]])


def account_of(channel: str, user: str) -> str:
    """The account of a person on a channel, in one form."""
    return f"{own_channel(channel)}:{canonical_id(platform_of(channel), user)}"


def parse_account(text: str) -> str:
    """Raises `UsageError` for what is no account."""
    channel, colon, user = text.strip().partition(":")
    if not colon or not channel.strip() or not user.strip():
        raise UsageError(
            f"{text!r} is not an account",
            hint="Write platform:user, such as telegram:42; /whoami shows the user id.",
        )
    return account_of(channel.strip().lower(), user)


class People:
    """The links of one profile; calls block briefly on files."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._folder = folder
        self._clock = clock
        self._state: tuple[int, ...] = ()
        self._by_account: dict[str, LinkedPerson] = {}
        self._fault = ""

    def find(self, account: str) -> LinkedPerson | None:
        """The person with this account; None while the file is unusable, which is logged."""
        try:
            self._refresh()
        except ConfigError as error:
            self._log_fault(error)
            return None
        self._fault = ""
        return self._by_account.get(account)

    def _log_fault(self, error: ConfigError) -> None:
        """Log each fault once, not for every message."""
        if self._fault != str(error):
            self._fault = str(error)
            log.error("Linked accounts count as separate ones: %s", error.sentence)

    def all(self) -> tuple[LinkedPerson, ...]:
        return self._read(self._links, _People).people

    def link(self, accounts: list[LinkedAccount]) -> LinkedPerson:
        """Make the accounts one person. Raises `UsageError` if codes do not suffice for that."""
        with changing_folder(self._folder):
            return self._link(accounts)

    def unlink(self, account: str) -> bool:
        """Take an account from its person; return False if it has none."""
        with changing_folder(self._folder):
            people = self.all()
            kept = [
                LinkedPerson(tuple(one for one in person.accounts if one.account != account))
                for person in people
            ]
            if tuple(kept) == people:
                return False
            # An account alone is no link.
            rest = tuple(person for person in kept if len(person.accounts) > 1)
            self._write(self._links, _People(rest))
        return True

    def remember_ids(self, account: str, ids: tuple[str, ...]) -> None:
        """Store the ids that a platform gives for a linked account; a failure is only logged."""
        try:
            with changing_folder(self._folder):
                people = tuple(_with_ids(person, account, ids) for person in self.all())
                self._write(self._links, _People(people))
        except ConfigError as error:
            log.warning("Cannot store the ids of %s: %s", account, error.sentence)

    def issue(self, account: str, chat: str, name: str, ids: tuple[str, ...] = ()) -> str:
        """A code that proves this account; an earlier one becomes invalid."""
        with changing_folder(self._folder):
            stored = self._stored_codes()
            code, salt = new_code(), secrets.token_bytes(16)
            entry = LinkCode(
                hash=hash_code(code, salt),
                salt=salt.hex(),
                account=account,
                chat=chat,
                name=name,
                at=self._clock.now().timestamp(),
                ids=ids,
            )
            others = [one for one in stored.codes if one.account != account]
            codes = (*others[-MAX_CODES + 1 :], entry)
            self._write(self._codes, structs.replace(stored, codes=codes))
        return code

    def check(self, account: str, code: str) -> LinkCode:
        """Whose code it is. Raises `UsageError` for a wrong one, which counts as a failure."""
        code = normalized_code(code, "link")
        with changing_folder(self._folder):
            found = self._checked(account, code)
            self._replace_code(found, structs.replace(found, checked_by=account))
        return found

    def redeem(
        self, account: str, chat: str, code: str, ids: tuple[str, ...] = ()
    ) -> tuple[LinkCode, LinkedPerson]:
        """Link this account, which has checked the code, with the code's; it is then used up."""
        code = normalized_code(code, "link")
        with changing_folder(self._folder):
            found = self._checked(account, code)
            if found.checked_by != account:
                raise UsageError(
                    "You have not been told whose code this is.",
                    hint="Send /link and the code without yes, and confirm it if both are you.",
                )
            theirs = LinkedAccount(
                account=found.account, proof="code", chat=found.chat, ids=found.ids
            )
            own = LinkedAccount(account=account, proof="code", chat=chat, ids=ids)
            person = self._link([theirs, own])
            self._replace_code(found)
        return found, person

    @property
    def _links(self) -> Path:
        return self._folder / "people.json"

    @property
    def _codes(self) -> Path:
        return self._folder / "codes.json"

    def _link(self, accounts: list[LinkedAccount]) -> LinkedPerson:
        people, names = self.all(), {one.account for one in accounts}
        if len(names) < 2:
            raise UsageError("A link needs two different accounts.")
        theirs = [person for person in people if names & {*person.names}]
        if len(theirs) > 1 and any(one.proof == "code" for one in accounts):
            raise UsageError(
                "Both accounts are linked with others already.",
                hint="Send `/link remove` from one of them first, or ask the owner.",
            )
        merged: dict[str, LinkedAccount] = {}
        for one in (*(one for person in theirs for one in person.accounts), *accounts):
            known = merged.get(one.account)
            merged[one.account] = one if known is None else _stronger(known, one)
        if len(merged) > MAX_ACCOUNTS:
            raise UsageError(f"A person can have {MAX_ACCOUNTS} accounts.")
        linked = LinkedPerson(tuple(merged.values()))
        others = tuple(person for person in people if person not in theirs)
        self._write(self._links, _People((*others, linked)))
        return linked

    def _checked(self, account: str, code: str) -> LinkCode:
        stored, now = self._stored_codes(), self._clock.now().timestamp()
        own = stored.failures.get(account, [])
        if len(own) >= MAX_FAILURES or sum(map(len, stored.failures.values())) >= (
            MAX_FAILURES_OF_ALL
        ):
            raise UsageError("There were too many wrong codes.", hint="Try again in an hour.")
        # Every code is compared, so that timing reveals nothing.
        matching = [one for one in stored.codes if _matches(one, code)]
        if not matching or matching[0].account == account:
            failures = {**stored.failures, account: [*own, now]}
            self._write(self._codes, structs.replace(stored, failures=failures))
            raise UsageError(
                "The code is wrong, expired or your own.",
                hint="Send /link from your other account to get one; it is valid for 10 minutes.",
            )
        return matching[0]

    def _replace_code(self, old: LinkCode, *new: LinkCode) -> None:
        stored = self._stored_codes()
        others = tuple(one for one in stored.codes if one != old)
        self._write(self._codes, structs.replace(stored, codes=(*others, *new)))

    def _stored_codes(self) -> _Codes:
        """Without what has expired."""
        stored, now = self._read(self._codes, _Codes), self._clock.now().timestamp()
        recent = {
            account: [at for at in times if 0 <= now - at < HOUR]
            for account, times in stored.failures.items()
        }
        return _Codes(
            tuple(one for one in stored.codes if 0 <= now - one.at <= CODE_LIFETIME),
            {account: times for account, times in recent.items() if times},
        )

    def _refresh(self) -> None:
        """Read the links again if the file has changed."""
        try:
            found = os.stat(self._links)  # noqa: PTH116 - for each message
            state = (found.st_mtime_ns, found.st_size, found.st_ino)
        except FileNotFoundError:
            state = ()
        except OSError as error:
            raise unusable_file(self._links, error) from error
        if state == self._state:
            return
        people = self.all() if state else ()
        self._by_account = {name: person for person in people for name in person.names}
        self._state = state

    def _read(self, path: Path, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(path.read_bytes(), type=kind)
        except FileNotFoundError:
            return kind()
        except OSError as error:
            raise unusable_file(path, error) from error
        except msgspec.MsgspecError as error:
            raise ConfigError(
                f"{path} is damaged: {error}",
                hint="Repair the file (it was not changed), or rename it and link again.",
            ) from error

    def _write(self, path: Path, value: Struct) -> None:
        data = msgspec.json.format(msgspec.json.encode(value), indent=2)
        try:
            write_atomic(path, data + b"\n", mode=0o600)
        except OSError as error:
            raise unusable_file(path, error) from error


def _matches(one: LinkCode, code: str) -> bool:
    return hmac.compare_digest(hash_code(code, bytes.fromhex(one.salt)), one.hash)


def _stronger(known: LinkedAccount, other: LinkedAccount) -> LinkedAccount:
    """Both describe the same account: the owner's word stays, and a known chat and ids too."""
    proof = known.proof if known.proof == "owner" else other.proof
    chat, ids = other.chat or known.chat, other.ids or known.ids
    return structs.replace(known, proof=proof, chat=chat, ids=ids)


def _with_ids(person: LinkedPerson, account: str, ids: tuple[str, ...]) -> LinkedPerson:
    return LinkedPerson(
        tuple(
            structs.replace(one, ids=ids) if one.account == account else one
            for one in person.accounts
        )
    )
