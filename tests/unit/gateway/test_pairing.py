"""Pairing: codes, limits, lockouts, and files that others write as well."""

import hashlib
import json
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from hermes.gateway.pairing import (
    ALPHABET,
    CODE_LENGTH,
    CODE_LIFETIME,
    LOCKOUT,
    MAX_FAILURES,
    MAX_PENDING,
    PENDING_GRACE,
    REQUEST_INTERVAL,
    PairedUser,
    Pairing,
    PairingCode,
    PairingRefusal,
    PairingRefused,
)
from hermes.kit.errors import ConfigError, UsageError

NOON = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
NOT_A_CODE_OF_ANYBODY = "AAAAAAAA"


class Hand:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.passed = 0.0

    def now(self) -> datetime:
        return NOON + timedelta(seconds=self.passed)


class Desk:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = Hand()
        self.pairing = Pairing(folder, self.clock)

    def ask(self, user: str, platform: str = "telegram", name: str = "") -> str:
        issued = self.pairing.request(platform, user, name)
        assert isinstance(issued, PairingCode), issued
        return issued.code

    def refused(self, user: str, platform: str = "telegram") -> PairingRefused:
        answer = self.pairing.request(platform, user)
        assert isinstance(answer, PairingRefused)
        return answer

    def table(self, name: str) -> dict:
        return json.loads((self.folder / name).read_text())


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "pairing")


def test_a_code_lets_in_the_person_who_was_given_it(desk: Desk) -> None:
    code = desk.ask("1", name="Ann\nof  Arc")
    assert len(code) == CODE_LENGTH
    assert set(code) <= set(ALPHABET)
    assert desk.pairing.approved("telegram") == frozenset()
    grant = desk.pairing.approve("telegram", code)
    assert grant == PairedUser("telegram", "1", "Ann of Arc", NOON)
    assert desk.pairing.approved("telegram") == {"1"}
    assert desk.pairing.grants() == [grant]
    assert desk.pairing.pending() == []
    assert desk.pairing.approved("discord") == frozenset()


def test_a_code_may_be_typed_as_people_type(desk: Desk) -> None:
    code = desk.ask("1").lower()
    assert isinstance(desk.pairing.approve(" Telegram ", f"{code[:4]}-{code[4:]} "), PairedUser)


def test_a_code_works_once_and_on_its_platform_only(desk: Desk) -> None:
    code = desk.ask("1")
    assert isinstance(desk.pairing.approve("discord", code), PairingRefused)
    assert isinstance(desk.pairing.approve("telegram", code), PairedUser)
    assert desk.pairing.approve("telegram", code) == PairingRefused(
        PairingRefusal.UNKNOWN_CODE, tries_left=4
    )


def test_codes_are_not_kept(desk: Desk) -> None:
    codes = [desk.ask(str(number)) for number in range(3)]
    kept = "".join(path.read_text() for path in desk.folder.iterdir())
    assert not any(code in kept for code in codes)
    hashes = {entry["hash"] for entry in desk.table("telegram-pending.json").values()}
    salts = {entry["salt"] for entry in desk.table("telegram-pending.json").values()}
    assert len(hashes) == len(salts) == 3


def test_files_are_for_the_owner_alone(desk: Desk) -> None:
    desk.pairing.approve("telegram", desk.ask("1"))
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in desk.folder.iterdir()}
    assert modes == dict.fromkeys(
        ["telegram-pending.json", "telegram-approved.json", "_rate_limits.json"], 0o600
    )
    assert stat.S_IMODE(desk.folder.stat().st_mode) == 0o700


def test_looking_creates_nothing(desk: Desk) -> None:
    assert desk.pairing.grants() == desk.pairing.pending() == []
    assert desk.pairing.approved("telegram") == frozenset()
    assert not desk.folder.exists()


def test_a_code_lives_for_an_hour(desk: Desk) -> None:
    code = desk.ask("1")
    desk.clock.passed = CODE_LIFETIME
    assert [request.user for request in desk.pairing.pending()] == ["1"]
    desk.clock.passed += 1
    assert desk.pairing.pending() == []
    assert isinstance(desk.pairing.approve("telegram", code), PairingRefused)


def test_one_request_in_ten_minutes(desk: Desk) -> None:
    desk.ask("1")
    desk.clock.passed = 400
    assert desk.refused("1") == PairingRefused(PairingRefusal.TOO_SOON, wait=REQUEST_INTERVAL - 400)
    desk.ask("1", platform="discord")
    desk.clock.passed = REQUEST_INTERVAL
    desk.ask("1")


def test_a_new_code_takes_the_place_of_the_old_one(desk: Desk) -> None:
    old = desk.ask("1")
    desk.clock.passed = REQUEST_INTERVAL
    new = desk.ask("1")
    assert len(desk.pairing.pending()) == 1
    assert isinstance(desk.pairing.approve("telegram", old), PairingRefused)
    assert isinstance(desk.pairing.approve("telegram", new), PairedUser)


def test_three_may_wait_on_a_platform(desk: Desk) -> None:
    for number in range(MAX_PENDING):
        desk.ask(str(number))
        desk.clock.passed += 10
    assert desk.refused("9") == PairingRefused(
        PairingRefusal.TOO_MANY_PENDING, wait=PENDING_GRACE - 30
    )
    desk.ask("9", platform="discord")
    desk.clock.passed = PENDING_GRACE
    assert desk.refused("9").why is PairingRefusal.TOO_MANY_PENDING
    desk.clock.passed = PENDING_GRACE + 1
    desk.ask("9")
    assert {request.user for request in desk.pairing.pending("telegram")} == {"1", "2", "9"}


def test_three_who_ask_again_and_again_do_not_keep_others_out(desk: Desk) -> None:
    for number in range(MAX_PENDING):
        desk.ask(str(number))
    first = {request.user: request.asked_at for request in desk.pairing.pending()}
    for _ in range(2):
        desk.clock.passed += REQUEST_INTERVAL
        codes = [desk.ask(str(number)) for number in range(MAX_PENDING)]
        assert {request.user: request.asked_at for request in desk.pairing.pending()} == first
    desk.clock.passed += 1
    desk.ask("9")
    waiting = {request.user for request in desk.pairing.pending()}
    assert len(waiting) == MAX_PENDING
    assert "9" in waiting
    desk.clock.passed += CODE_LIFETIME - 1
    assert isinstance(desk.pairing.approve("telegram", codes[-1]), PairedUser)


def test_who_waits_may_ask_again_where_no_other_may(desk: Desk) -> None:
    for number in range(MAX_PENDING):
        desk.ask(str(number))
    desk.clock.passed = REQUEST_INTERVAL
    assert desk.refused("9").why is PairingRefusal.TOO_MANY_PENDING
    code = desk.ask("1")
    assert len(desk.pairing.pending()) == MAX_PENDING
    assert desk.pairing.approve("telegram", code) == PairedUser(
        "telegram", "1", "", desk.clock.now()
    )


def test_who_was_let_in_needs_no_code(desk: Desk) -> None:
    desk.pairing.approve("telegram", desk.ask("1"))
    assert desk.refused("1") == PairingRefused(PairingRefusal.PAIRED)


def test_five_wrong_codes_lock_everything_for_an_hour(desk: Desk) -> None:
    code = desk.ask("1")
    answers = [desk.pairing.approve("telegram", NOT_A_CODE_OF_ANYBODY) for _ in range(5)]
    assert [answer.tries_left for answer in answers] == [4, 3, 2, 1, 0]
    assert desk.pairing.approve("telegram", code) == PairingRefused(
        PairingRefusal.LOCKED, wait=LOCKOUT
    )
    assert desk.refused("2") == PairingRefused(PairingRefusal.LOCKED, wait=LOCKOUT)
    assert isinstance(desk.pairing.approve("discord", desk.ask("1", "discord")), PairedUser)
    desk.clock.passed = LOCKOUT
    assert isinstance(desk.pairing.approve("telegram", desk.ask("2")), PairedUser)


def test_a_right_code_forgives_the_wrong_ones(desk: Desk) -> None:
    for number in range(3):
        for _ in range(MAX_FAILURES - 1):
            desk.pairing.approve("telegram", NOT_A_CODE_OF_ANYBODY)
        assert isinstance(desk.pairing.approve("telegram", desk.ask(str(number))), PairedUser)


@pytest.mark.parametrize("code", ["", "ABC", "ABCDEFGHJ", "ABCDEFG0", "ABCDEFGI", "ABCDEFG\u00df"])
def test_what_can_be_no_code_does_not_count_as_a_try(desk: Desk, code: str) -> None:
    right = desk.ask("1")
    for _ in range(MAX_FAILURES + 1):
        with pytest.raises(UsageError, match="is not a pairing code"):
            desk.pairing.approve("telegram", code)
    assert isinstance(desk.pairing.approve("telegram", right), PairedUser)


@pytest.mark.parametrize(
    ("guesses", "pause"), [(2000, 18.0), pytest.param(1_000_000, 0.1, marks=pytest.mark.soak)]
)
def test_guessing_gets_five_tries_an_hour(desk: Desk, guesses: int, pause: float) -> None:
    """At that rate the 32^8 codes outlast any attacker, and each code lives for an hour only."""
    tried = 0
    for guess in range(guesses):
        desk.clock.passed += pause
        if not guess % 200:
            desk.pairing.request("telegram", str(guess))
        code = "".join(ALPHABET[(guess >> shift) % 32] for shift in range(0, 40, 5))
        answer = desk.pairing.approve("telegram", code)
        assert isinstance(answer, PairingRefused)
        tried += answer.why is PairingRefusal.UNKNOWN_CODE
    assert 5 <= tried <= 5 * (guesses * pause / LOCKOUT + 1)
    assert desk.pairing.approved("telegram") == frozenset()


def test_a_grant_can_be_taken_back(desk: Desk) -> None:
    desk.pairing.approve("telegram", desk.ask("1"))
    assert not desk.pairing.revoke("telegram", "2")
    assert not desk.pairing.revoke("discord", "1")
    assert desk.pairing.revoke("telegram", " 1 ")
    assert desk.pairing.approved("telegram") == frozenset()
    assert not desk.pairing.revoke("telegram", "1")


def test_a_phone_is_one_person_in_all_its_forms(desk: Desk) -> None:
    code = desk.ask("15551234567:3@s.whatsapp.net", platform="whatsapp")
    desk.pairing.approve("whatsapp", code)
    assert desk.pairing.approved("whatsapp") == {"15551234567"}
    assert desk.refused("+15551234567", platform="whatsapp").why is PairingRefusal.PAIRED
    assert desk.pairing.revoke("whatsapp", "15551234567@c.us")


def test_all_that_waits_can_be_forgotten(desk: Desk) -> None:
    desk.ask("1")
    desk.ask("2")
    desk.ask("1", platform="discord")
    assert desk.pairing.clear_pending("telegram") == 2
    assert [request.platform for request in desk.pairing.pending()] == ["discord"]
    assert desk.pairing.clear_pending() == 1
    assert desk.pairing.clear_pending() == 0


@pytest.mark.parametrize("platform", ["", "../x", "a/b", "_rate", "a" * 65, "tele gram"])
def test_a_platform_cannot_name_another_file(desk: Desk, platform: str) -> None:
    for call in (
        lambda: desk.pairing.request(platform, "1"),
        lambda: desk.pairing.approve(platform, NOT_A_CODE_OF_ANYBODY),
        lambda: desk.pairing.revoke(platform, "1"),
        lambda: desk.pairing.clear_pending(platform),
        lambda: desk.pairing.grants(platform),
    ):
        with pytest.raises(UsageError, match="is not a platform name"):
            call()


def test_nobody_can_be_paired_without_an_id(desk: Desk) -> None:
    with pytest.raises(ValueError, match="stable id"):
        desk.pairing.request("telegram", "  ")


def public_files(folder: Path, now: float) -> str:
    """Files as the public system writes them, with some of an older or newer kind among them."""
    code, salt = "ABCDEFGH", bytes(range(16))
    folder.mkdir()
    pending = {
        "00112233aabbccdd": {
            "hash": hashlib.sha256(salt + code.encode()).hexdigest(),
            "salt": salt.hex(),
            "user_id": "7",
            "user_name": "Public",
            "created_at": now - 60,
            "later": {"field": 1},
        },
        "QRSTUVWX": {"user_id": "8", "user_name": "Plain", "created_at": now - 60},
        "odd": "entry",
        "broken": {"hash": "zz", "salt": "not hex", "user_id": "9", "created_at": now},
        "future": {"hash": "00", "salt": "00", "kdf": "argon9", "user_id": "10", "created_at": now},
    }
    approved = {
        "1": {"user_name": "Ann", "approved_at": now - 9000, "note": "a friend"},
        "2": True,
        "3": {"approved_at": 1e300},
    }
    limits = {
        "telegram:7": now - 60,
        "telegram:5": now - 9000,
        "_failures:telegram": 1,
        "_other": [1],
    }
    (folder / "telegram-pending.json").write_text(json.dumps(pending))
    (folder / "telegram-approved.json").write_bytes(b"\xef\xbb\xbf" + json.dumps(approved).encode())
    (folder / "_rate_limits.json").write_text(json.dumps(limits))
    return code


def test_files_of_the_public_system_are_read_and_what_is_unknown_in_them_is_kept(
    desk: Desk,
) -> None:
    code = public_files(desk.folder, NOON.timestamp())
    assert desk.pairing.approved("telegram") == {"1", "2", "3"}
    assert [grant.name for grant in desk.pairing.grants()] == ["Ann", "", ""]
    assert [request.user for request in desk.pairing.pending()] == ["7", "8", "9", "10"]
    assert desk.refused("7").why is PairingRefusal.TOO_SOON

    grant = desk.pairing.approve("telegram", code)
    assert grant == PairedUser("telegram", "7", "Public", NOON)
    assert desk.table("telegram-approved.json")["1"]["note"] == "a friend"
    assert desk.table("telegram-approved.json")["2"] is True
    assert set(desk.table("telegram-pending.json")) == {"QRSTUVWX", "odd", "broken", "future"}
    assert desk.table("_rate_limits.json")["_other"] == [1]


def test_a_code_that_lies_there_in_plain_text_opens_nothing(desk: Desk) -> None:
    public_files(desk.folder, NOON.timestamp())
    assert isinstance(desk.pairing.approve("telegram", "QRSTUVWX"), PairingRefused)


def test_old_requests_are_not_remembered_for_ever(desk: Desk) -> None:
    public_files(desk.folder, NOON.timestamp())
    desk.pairing.clear_pending()
    desk.ask("4")
    assert set(desk.table("_rate_limits.json")) == {
        *("telegram:7", "telegram:4", "_failures:telegram", "_other")
    }


@pytest.mark.parametrize("data", [b"{", b"[]", b"\xff\xfe", b'"x"', b"null"])
@pytest.mark.parametrize(
    "name", ["telegram-approved.json", "telegram-pending.json", "_rate_limits.json"]
)
def test_a_damaged_file_is_told_and_left_alone(desk: Desk, name: str, data: bytes) -> None:
    desk.folder.mkdir()
    (desk.folder / name).write_bytes(data)

    def ask_the_verbs() -> None:
        desk.pairing.approve("telegram", NOT_A_CODE_OF_ANYBODY)
        desk.pairing.grants()

    with pytest.raises(ConfigError, match="is damaged") as caught:
        ask_the_verbs()
    assert "It was not changed" in caught.value.hint
    assert (desk.folder / name).read_bytes() == data


@pytest.mark.parametrize("data", [b"{", b"[]", b"\xff\xfe", b"[" * 100_000])
@pytest.mark.parametrize(
    "name", ["telegram-approved.json", "telegram-pending.json", "_rate_limits.json"]
)
def test_a_damaged_file_turns_strangers_away_and_is_logged_once(
    desk: Desk, name: str, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    desk.folder.mkdir()
    (desk.folder / name).write_bytes(data)
    for _ in range(3):
        assert desk.pairing.approved("telegram") == frozenset()
        assert desk.refused("1") == PairingRefused(PairingRefusal.UNUSABLE)
    errors = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert len([error for error in errors if "can request pairing codes" in error]) == 1
    paired = [error for error in errors if "are treated as paired" in error]
    assert len(paired) == (name == "telegram-approved.json")
    assert all(name in error for error in errors)
    assert (desk.folder / name).read_bytes() == data


def test_a_file_that_is_repaired_counts_again(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    desk.pairing.approve("telegram", desk.ask("1"))
    file = desk.folder / "telegram-approved.json"
    good = file.read_bytes()
    for count in (1, 2):
        file.write_bytes(b"{")
        assert desk.pairing.approved("telegram") == frozenset()
        assert caplog.text.count("are treated as paired") == count
        file.write_bytes(good)
        assert desk.pairing.approved("telegram") == {"1"}


def test_a_file_that_is_a_folder_is_told(desk: Desk) -> None:
    (desk.folder / "telegram-approved.json").mkdir(parents=True)
    assert desk.pairing.approved("telegram") == frozenset()
    with pytest.raises(ConfigError, match="cannot be used"):
        desk.pairing.grants("telegram")


def test_half_a_character_in_a_name_or_an_id_breaks_nothing(desk: Desk) -> None:
    desk.ask("1", name="Ann \ud83d")
    assert [request.name for request in desk.pairing.pending()] == ["Ann ?"]
    assert desk.refused("\ud83d") == PairingRefused(PairingRefusal.UNUSABLE)


class Doors(RuleBasedStateMachine):
    """Whatever is done in whatever order: as a simple picture of the rules has it."""

    @initialize()
    def begin(self) -> None:
        self.temporary = TemporaryDirectory()
        self.desk = Desk(Path(self.temporary.name) / "pairing")
        self.codes: dict[str, tuple[str, float]] = {}
        self.asked: dict[str, float] = {}
        self.first: dict[str, float] = {}
        self.let_in: set[str] = set()
        self.wrong = 0
        self.locked_until = 0.0

    def teardown(self) -> None:
        if hasattr(self, "temporary"):
            self.temporary.cleanup()

    @property
    def now(self) -> float:
        return self.desk.clock.passed

    def live(self) -> dict[str, str]:
        return {u: code for u, (code, at) in self.codes.items() if self.now - at <= CODE_LIFETIME}

    @rule(seconds=st.sampled_from([1.0, 599.0, 600.0, 1800.0, 3601.0]))
    def wait(self, seconds: float) -> None:
        self.desk.clock.passed += seconds

    @rule(user=st.sampled_from("abcde"))
    def request(self, user: str) -> None:
        others = {other: self.first[other] for other in self.live() if other != user}
        full = len(others) >= MAX_PENDING
        may = (
            self.now >= self.locked_until
            and user not in self.let_in
            and self.now - self.asked.get(user, -1e9) >= REQUEST_INTERVAL
            and not (full and self.now - min(others.values()) <= PENDING_GRACE)
        )
        answer = self.desk.pairing.request("telegram", user)
        assert isinstance(answer, PairingCode) == may
        if isinstance(answer, PairingCode):
            waiting = {request.user for request in self.desk.pairing.pending()}
            displaced = others.keys() - waiting
            assert len(displaced) == full
            for other in displaced:
                assert others[other] == min(others.values())
                del self.codes[other]
            if user not in self.live():
                self.first[user] = self.now
            self.codes[user] = (answer.code, self.now)
            self.asked[user] = self.now

    @rule(user=st.sampled_from("abcde"))
    def approve(self, user: str) -> None:
        code = self.codes.get(user, (NOT_A_CODE_OF_ANYBODY, 0.0))[0]
        answer = self.desk.pairing.approve("telegram", code)
        if self.now < self.locked_until:
            assert isinstance(answer, PairingRefused)
            return
        assert isinstance(answer, PairedUser) == (user in self.live())
        if isinstance(answer, PairedUser):
            self.let_in.add(user)
            del self.codes[user]
            self.wrong = 0
        else:
            self.wrong += 1
        if self.wrong == MAX_FAILURES:
            self.wrong, self.locked_until = 0, self.now + LOCKOUT

    @rule(user=st.sampled_from("abcde"))
    def revoke(self, user: str) -> None:
        assert self.desk.pairing.revoke("telegram", user) == (user in self.let_in)
        self.let_in.discard(user)

    @rule()
    def clear(self) -> None:
        self.desk.pairing.clear_pending("telegram")
        self.codes.clear()

    @invariant()
    def all_is_as_pictured(self) -> None:
        if hasattr(self, "desk"):
            assert self.desk.pairing.approved("telegram") == self.let_in
            assert {request.user for request in self.desk.pairing.pending()} == set(self.live())


Doors.TestCase.settings = settings(max_examples=15, stateful_step_count=25, deadline=None)
TestDoors = Doors.TestCase
