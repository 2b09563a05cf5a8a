"""One identity for several accounts of a person: the links, and the codes that prove them.

A link never admits anyone: each account must be admitted by its own platform's rules.
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
from hermes.kit.json_errors import JSON_ERRORS
from hermes.schema.scope import own_channel, platform_of

log = logging.getLogger(__name__)

CODE_LIFETIME = 600.0
MAX_CODES = 100
MAX_FAILURES = 5
"""Wrong codes per account and hour."""
MAX_FAILURES_OF_ALL = 30
HOUR = 3600.0
MAX_ACCOUNTS = 50

Proof: TypeAlias = Literal["owner", "code"]
"""How the account was linked: by the owner, or by a code that both accounts sent."""

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
    """The accounts of one person; the first one is the principal of all of them."""

    accounts: tuple[LinkedAccount, ...]

    @property
    def principal(self) -> str:
        return self.accounts[0].account

    @property
    def names(self) -> list[str]:
        return [account.account for account in self.accounts]

    def find(self, account: str) -> LinkedAccount | None:
        return next((linked for linked in self.accounts if linked.account == account), None)


class _People(Struct, frozen=True):
    people: tuple[LinkedPerson, ...] = ()


class LinkCode(Struct, frozen=True, kw_only=True):
    """A pending code: its account and chat, and the account that has checked whose code it is."""

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
    """Return a person's account on a channel in its canonical form."""
    return f"{own_channel(channel)}:{canonical_id(platform_of(channel), user)}"


def parse_account(text: str) -> str:
    """Parse `platform:user`. Raises `UsageError` for anything else."""
    channel, colon, user = text.strip().partition(":")
    if not colon or not channel.strip() or not user.strip():
        raise UsageError(
            f"{text!r} is not an account.",
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
        """Return the person with this account, if any; None while the file is unusable (logged)."""
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
            log.error("linked accounts are treated as separate: %s", error.sentence)

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
                LinkedPerson(
                    tuple(linked for linked in person.accounts if linked.account != account)
                )
                for person in people
            ]
            if tuple(kept) == people:
                return False
            # A single account is not a link.
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
        """Issue a code that proves this account; an earlier one becomes invalid."""
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
            others = [link_code for link_code in stored.codes if link_code.account != account]
            codes = (*others[-MAX_CODES + 1 :], entry)
            self._write(self._codes, structs.replace(stored, codes=codes))
        return code

    def check(self, account: str, code: str) -> LinkCode:
        """Return whose code it is. Raises `UsageError` for a wrong one and counts it."""
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
                    "Check first whose code this is.",
                    hint="Send /link and the code without yes.",
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
        people, names = self.all(), {account.account for account in accounts}
        if len(names) < 2:
            raise UsageError("A link needs two different accounts.")
        theirs = [person for person in people if names & {*person.names}]
        if len(theirs) > 1 and any(account.proof == "code" for account in accounts):
            raise UsageError(
                "Both accounts are already linked with others.",
                hint="Send `/link remove` from one of them first, or ask the owner.",
            )
        merged: dict[str, LinkedAccount] = {}
        for account in (*(account for person in theirs for account in person.accounts), *accounts):
            known = merged.get(account.account)
            merged[account.account] = account if known is None else _stronger(known, account)
        if len(merged) > MAX_ACCOUNTS:
            raise UsageError(f"A person can have at most {MAX_ACCOUNTS} accounts.")
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
        matching = [link_code for link_code in stored.codes if _matches(link_code, code)]
        if not matching or matching[0].account == account:
            failures = {**stored.failures, account: [*own, now]}
            self._write(self._codes, structs.replace(stored, failures=failures))
            raise UsageError(
                "The code is wrong, has expired, or was made by this account.",
                hint="Send /link from your other account to get one; it is valid for 10 minutes.",
            )
        return matching[0]

    def _replace_code(self, old: LinkCode, *new: LinkCode) -> None:
        stored = self._stored_codes()
        others = tuple(code for code in stored.codes if code != old)
        self._write(self._codes, structs.replace(stored, codes=(*others, *new)))

    def _stored_codes(self) -> _Codes:
        """Read the codes and failures that have not expired."""
        stored, now = self._read(self._codes, _Codes), self._clock.now().timestamp()
        recent = {
            account: [at for at in times if 0 <= now - at < HOUR]
            for account, times in stored.failures.items()
        }
        return _Codes(
            tuple(code for code in stored.codes if 0 <= now - code.at <= CODE_LIFETIME),
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
        except JSON_ERRORS as error:
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


def _matches(link_code: LinkCode, code: str) -> bool:
    return hmac.compare_digest(hash_code(code, bytes.fromhex(link_code.salt)), link_code.hash)


def _stronger(known: LinkedAccount, other: LinkedAccount) -> LinkedAccount:
    """Merge two records of an account: a proof by the owner, a known chat and known ids stay."""
    proof = known.proof if known.proof == "owner" else other.proof
    chat, ids = other.chat or known.chat, other.ids or known.ids
    return structs.replace(known, proof=proof, chat=chat, ids=ids)


def _with_ids(person: LinkedPerson, account: str, ids: tuple[str, ...]) -> LinkedPerson:
    return LinkedPerson(
        tuple(
            structs.replace(linked, ids=ids) if linked.account == account else linked
            for linked in person.accounts
        )
    )
