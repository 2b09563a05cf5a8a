"""Pairing: codes, limits, lockouts, and files that other programs also write."""

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

from hermes.gateway.one_time_code import ALPHABET, CODE_LENGTH
from hermes.gateway.pairing import (
    CODE_LIFETIME,
    LOCKOUT,
    MAX_FAILURES,
    MAX_PENDING,
    PENDING_GRACE,
    REQUEST_INTERVAL,
    PairedUser,
    Pairing,
    PairingCode,
    PairingRejected,
    PairingRejection,
)
from hermes.kit.errors import ConfigError, UsageError
from support.examples import at_most

NOON = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
UNKNOWN_CODE = "AAAAAAAA"
FILES = ["telegram-approved.json", "telegram-pending.json", "_rate_limits.json"]


class ManualClock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.passed = 0.0

    def now(self) -> datetime:
        return NOON + timedelta(seconds=self.passed)


class PairingHarness:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = ManualClock()
        self.pairing = Pairing(folder, self.clock)

    def ask(self, user: str, platform: str = "telegram", name: str = "") -> str:
        issued = self.pairing.request(platform, user, name)
        assert isinstance(issued, PairingCode), issued
        return issued.code

    def rejected(self, user: str, platform: str = "telegram") -> PairingRejected:
        answer = self.pairing.request(platform, user)
        assert isinstance(answer, PairingRejected)
        return answer

    def table(self, name: str) -> dict:
        return json.loads((self.folder / name).read_text())


@pytest.fixture
def harness(tmp_path: Path) -> PairingHarness:
    return PairingHarness(tmp_path / "pairing")


def test_approved_code_admits_its_user(harness: PairingHarness) -> None:
    code = harness.ask("1", name="Ann\nof  Arc")
    assert len(code) == CODE_LENGTH
    assert set(code) <= set(ALPHABET)
    assert harness.pairing.approved("telegram") == frozenset()
    grant = harness.pairing.approve("telegram", code)
    assert grant == PairedUser("telegram", "1", "Ann of Arc", NOON)
    assert harness.pairing.approved("telegram") == {"1"}
    assert harness.pairing.paired_users() == [grant]
    assert harness.pairing.pending() == []
    assert harness.pairing.approved("discord") == frozenset()


def test_code_is_normalized(harness: PairingHarness) -> None:
    code = harness.ask("1").lower()
    assert isinstance(harness.pairing.approve(" Telegram ", f"{code[:4]}-{code[4:]} "), PairedUser)


def test_code_works_once_on_its_platform(harness: PairingHarness) -> None:
    code = harness.ask("1")
    assert isinstance(harness.pairing.approve("discord", code), PairingRejected)
    assert isinstance(harness.pairing.approve("telegram", code), PairedUser)
    used = harness.pairing.approve("telegram", code)
    assert used == PairingRejected(PairingRejection.UNKNOWN_CODE, tries_left=4)


def test_codes_are_not_stored(harness: PairingHarness) -> None:
    codes = [harness.ask(str(number)) for number in range(3)]
    kept = "".join(path.read_text() for path in harness.folder.iterdir())
    assert not any(code in kept for code in codes)
    hashes = {entry["hash"] for entry in harness.table("telegram-pending.json").values()}
    salts = {entry["salt"] for entry in harness.table("telegram-pending.json").values()}
    assert len(hashes) == len(salts) == 3


def test_files_are_private(harness: PairingHarness) -> None:
    harness.pairing.approve("telegram", harness.ask("1"))
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in harness.folder.iterdir()}
    assert modes == dict.fromkeys(FILES, 0o600)
    assert stat.S_IMODE(harness.folder.stat().st_mode) == 0o700


def test_reading_creates_no_files(harness: PairingHarness) -> None:
    assert harness.pairing.paired_users() == harness.pairing.pending() == []
    assert harness.pairing.approved("telegram") == frozenset()
    assert not harness.folder.exists()


def test_code_expires_after_an_hour(harness: PairingHarness) -> None:
    code = harness.ask("1")
    harness.clock.passed = CODE_LIFETIME
    assert [request.user for request in harness.pairing.pending()] == ["1"]
    harness.clock.passed += 1
    assert harness.pairing.pending() == []
    assert isinstance(harness.pairing.approve("telegram", code), PairingRejected)


def test_one_request_per_ten_minutes(harness: PairingHarness) -> None:
    harness.ask("1")
    harness.clock.passed = 400
    wait = REQUEST_INTERVAL - 400
    assert harness.rejected("1") == PairingRejected(PairingRejection.TOO_SOON, wait=wait)
    harness.ask("1", platform="discord")
    harness.clock.passed = REQUEST_INTERVAL
    harness.ask("1")


def test_new_code_replaces_the_old_one(harness: PairingHarness) -> None:
    old = harness.ask("1")
    harness.clock.passed = REQUEST_INTERVAL
    new = harness.ask("1")
    assert len(harness.pairing.pending()) == 1
    assert isinstance(harness.pairing.approve("telegram", old), PairingRejected)
    assert isinstance(harness.pairing.approve("telegram", new), PairedUser)


def test_three_requests_may_be_pending(harness: PairingHarness) -> None:
    for number in range(MAX_PENDING):
        harness.ask(str(number))
        harness.clock.passed += 10
    wait = PENDING_GRACE - 30
    assert harness.rejected("9") == PairingRejected(PairingRejection.TOO_MANY_PENDING, wait=wait)
    harness.ask("9", platform="discord")
    harness.clock.passed = PENDING_GRACE
    assert harness.rejected("9").reason is PairingRejection.TOO_MANY_PENDING
    harness.clock.passed = PENDING_GRACE + 1
    harness.ask("9")
    assert {request.user for request in harness.pairing.pending("telegram")} == {"1", "2", "9"}


def test_repeated_requests_do_not_block_others(harness: PairingHarness) -> None:
    for number in range(MAX_PENDING):
        harness.ask(str(number))
    first = {request.user: request.asked_at for request in harness.pairing.pending()}
    for _ in range(2):
        harness.clock.passed += REQUEST_INTERVAL
        codes = [harness.ask(str(number)) for number in range(MAX_PENDING)]
        assert {request.user: request.asked_at for request in harness.pairing.pending()} == first
    harness.clock.passed += 1
    harness.ask("9")
    waiting = {request.user for request in harness.pairing.pending()}
    assert len(waiting) == MAX_PENDING
    assert "9" in waiting
    harness.clock.passed += CODE_LIFETIME - 1
    assert isinstance(harness.pairing.approve("telegram", codes[-1]), PairedUser)


def test_pending_user_can_request_again_when_full(harness: PairingHarness) -> None:
    for number in range(MAX_PENDING):
        harness.ask(str(number))
    harness.clock.passed = REQUEST_INTERVAL
    assert harness.rejected("9").reason is PairingRejection.TOO_MANY_PENDING
    code = harness.ask("1")
    assert len(harness.pairing.pending()) == MAX_PENDING
    paired = PairedUser("telegram", "1", "", harness.clock.now())
    assert harness.pairing.approve("telegram", code) == paired


def test_paired_user_gets_no_code(harness: PairingHarness) -> None:
    harness.pairing.approve("telegram", harness.ask("1"))
    assert harness.rejected("1") == PairingRejected(PairingRejection.PAIRED)


def test_five_wrong_codes_lock_for_an_hour(harness: PairingHarness) -> None:
    code = harness.ask("1")
    answers = [harness.pairing.approve("telegram", UNKNOWN_CODE) for _ in range(5)]
    assert [answer.tries_left for answer in answers] == [4, 3, 2, 1, 0]
    locked = PairingRejected(PairingRejection.LOCKED, wait=LOCKOUT)
    assert harness.pairing.approve("telegram", code) == harness.rejected("2") == locked
    assert isinstance(harness.pairing.approve("discord", harness.ask("1", "discord")), PairedUser)
    harness.clock.passed = LOCKOUT
    assert isinstance(harness.pairing.approve("telegram", harness.ask("2")), PairedUser)


def test_right_code_resets_the_failures(harness: PairingHarness) -> None:
    for number in range(3):
        for _ in range(MAX_FAILURES - 1):
            harness.pairing.approve("telegram", UNKNOWN_CODE)
        assert isinstance(harness.pairing.approve("telegram", harness.ask(str(number))), PairedUser)


@pytest.mark.parametrize("code", ["", "ABC", "ABCDEFGHJ", "ABCDEFG0", "ABCDEFGI", "ABCDEFG\u00df"])
def test_malformed_code_is_not_counted(harness: PairingHarness, code: str) -> None:
    right = harness.ask("1")
    for _ in range(MAX_FAILURES + 1):
        with pytest.raises(UsageError, match="is not a pairing code"):
            harness.pairing.approve("telegram", code)
    assert isinstance(harness.pairing.approve("telegram", right), PairedUser)


@pytest.mark.parametrize(
    ("guesses", "pause"), [(2000, 18.0), pytest.param(1_000_000, 0.1, marks=pytest.mark.soak)]
)
def test_guessing_is_limited_to_five_tries_per_hour(
    harness: PairingHarness, guesses: int, pause: float
) -> None:
    """At that rate, 32^8 codes outlast any attacker, and each code is valid for an hour only."""
    tried = 0
    for guess in range(guesses):
        harness.clock.passed += pause
        if not guess % 200:
            harness.pairing.request("telegram", str(guess))
        code = "".join(ALPHABET[(guess >> shift) % 32] for shift in range(0, 40, 5))
        answer = harness.pairing.approve("telegram", code)
        assert isinstance(answer, PairingRejected)
        tried += answer.reason is PairingRejection.UNKNOWN_CODE
    assert 5 <= tried <= 5 * (guesses * pause / LOCKOUT + 1)
    assert harness.pairing.approved("telegram") == frozenset()


def test_approval_can_be_revoked(harness: PairingHarness) -> None:
    harness.pairing.approve("telegram", harness.ask("1"))
    assert not harness.pairing.revoke("telegram", "2")
    assert not harness.pairing.revoke("discord", "1")
    assert harness.pairing.revoke("telegram", " 1 ")
    assert harness.pairing.approved("telegram") == frozenset()
    assert not harness.pairing.revoke("telegram", "1")


def test_phone_number_formats_are_one_user(harness: PairingHarness) -> None:
    code = harness.ask("15551234567:3@s.whatsapp.net", platform="whatsapp")
    harness.pairing.approve("whatsapp", code)
    assert harness.pairing.approved("whatsapp") == {"15551234567"}
    assert harness.rejected("+15551234567", platform="whatsapp").reason is PairingRejection.PAIRED
    assert harness.pairing.revoke("whatsapp", "15551234567@c.us")


def test_pending_requests_can_be_cleared(harness: PairingHarness) -> None:
    harness.ask("1")
    harness.ask("2")
    harness.ask("1", platform="discord")
    assert harness.pairing.clear_pending("telegram") == 2
    assert [request.platform for request in harness.pairing.pending()] == ["discord"]
    assert harness.pairing.clear_pending() == 1
    assert harness.pairing.clear_pending() == 0


@pytest.mark.parametrize("platform", ["", "../x", "a/b", "_rate", "a" * 65, "tele gram"])
def test_platform_name_cannot_escape_the_folder(harness: PairingHarness, platform: str) -> None:
    for call in (
        lambda: harness.pairing.request(platform, "1"),
        lambda: harness.pairing.approve(platform, UNKNOWN_CODE),
        lambda: harness.pairing.revoke(platform, "1"),
        lambda: harness.pairing.clear_pending(platform),
        lambda: harness.pairing.paired_users(platform),
    ):
        with pytest.raises(UsageError, match="is not a platform name"):
            call()


def test_pairing_requires_an_id(harness: PairingHarness) -> None:
    with pytest.raises(ValueError, match="stable id"):
        harness.pairing.request("telegram", "  ")


def write_upstream_files(folder: Path, now: float) -> str:
    """Files as upstream writes them, with entries of older and newer formats."""
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
    limits = {"telegram:7": now - 60, "telegram:5": now - 9000, "_other": [1]}
    limits["_failures:telegram"] = 1
    (folder / "telegram-pending.json").write_text(json.dumps(pending))
    (folder / "telegram-approved.json").write_bytes(b"\xef\xbb\xbf" + json.dumps(approved).encode())
    (folder / "_rate_limits.json").write_text(json.dumps(limits))
    return code


def test_upstream_files_are_read_and_unknown_entries_kept(harness: PairingHarness) -> None:
    code = write_upstream_files(harness.folder, NOON.timestamp())
    assert harness.pairing.approved("telegram") == {"1", "2", "3"}
    assert [grant.name for grant in harness.pairing.paired_users()] == ["Ann", "", ""]
    assert [request.user for request in harness.pairing.pending()] == ["7", "8", "9", "10"]
    assert harness.rejected("7").reason is PairingRejection.TOO_SOON

    grant = harness.pairing.approve("telegram", code)
    assert grant == PairedUser("telegram", "7", "Public", NOON)
    assert harness.table("telegram-approved.json")["1"]["note"] == "a friend"
    assert harness.table("telegram-approved.json")["2"] is True
    assert set(harness.table("telegram-pending.json")) == {"QRSTUVWX", "odd", "broken", "future"}
    assert harness.table("_rate_limits.json")["_other"] == [1]


def test_plain_text_code_in_a_file_is_not_accepted(harness: PairingHarness) -> None:
    write_upstream_files(harness.folder, NOON.timestamp())
    assert isinstance(harness.pairing.approve("telegram", "QRSTUVWX"), PairingRejected)


def test_old_requests_are_removed(harness: PairingHarness) -> None:
    write_upstream_files(harness.folder, NOON.timestamp())
    harness.pairing.clear_pending()
    harness.ask("4")
    assert set(harness.table("_rate_limits.json")) == {
        *("telegram:7", "telegram:4", "_failures:telegram", "_other")
    }


@pytest.mark.parametrize("data", [b"{", b"[]", b"\xff\xfe", b'"x"', b"null"])
@pytest.mark.parametrize("name", FILES)
def test_damaged_file_is_reported_and_not_changed(
    harness: PairingHarness, name: str, data: bytes
) -> None:
    harness.folder.mkdir()
    (harness.folder / name).write_bytes(data)
    with pytest.raises(ConfigError, match="is damaged") as caught:  # noqa: PT012 - one of them does
        harness.pairing.approve("telegram", UNKNOWN_CODE)
        harness.pairing.paired_users()
    assert "it was not changed" in caught.value.hint
    assert (harness.folder / name).read_bytes() == data


@pytest.mark.parametrize("data", [b"{", b"[]", b"\xff\xfe", b"[" * 100_000])
@pytest.mark.parametrize("name", FILES)
def test_damaged_file_rejects_unknown_users_and_is_logged_once(
    harness: PairingHarness, name: str, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    harness.folder.mkdir()
    (harness.folder / name).write_bytes(data)
    for _ in range(3):
        assert harness.pairing.approved("telegram") == frozenset()
        assert harness.rejected("1") == PairingRejected(PairingRejection.UNUSABLE)
    errors = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert len([error for error in errors if "can request pairing codes" in error]) == 1
    paired = [error for error in errors if "are treated as paired" in error]
    assert len(paired) == (name == "telegram-approved.json")
    assert all(name in error for error in errors)
    assert (harness.folder / name).read_bytes() == data


def test_repaired_file_is_used_again(
    harness: PairingHarness, caplog: pytest.LogCaptureFixture
) -> None:
    harness.pairing.approve("telegram", harness.ask("1"))
    file = harness.folder / "telegram-approved.json"
    good = file.read_bytes()
    for count in (1, 2):
        file.write_bytes(b"{")
        assert harness.pairing.approved("telegram") == frozenset()
        assert caplog.text.count("are treated as paired") == count
        file.write_bytes(good)
        assert harness.pairing.approved("telegram") == {"1"}


def test_folder_in_place_of_a_file_is_reported(harness: PairingHarness) -> None:
    (harness.folder / "telegram-approved.json").mkdir(parents=True)
    assert harness.pairing.approved("telegram") == frozenset()
    with pytest.raises(ConfigError, match="cannot be used"):
        harness.pairing.paired_users("telegram")


def test_lone_surrogates_in_name_or_id(harness: PairingHarness) -> None:
    harness.ask("1", name="Ann \ud83d")
    assert [request.name for request in harness.pairing.pending()] == ["Ann ?"]
    assert harness.rejected("\ud83d") == PairingRejected(PairingRejection.UNUSABLE)


class PairingMachine(RuleBasedStateMachine):
    """Any order of operations gives the same result as a simple model of the rules."""

    @initialize()
    def begin(self) -> None:
        self.temporary = TemporaryDirectory()
        self.harness = PairingHarness(Path(self.temporary.name) / "pairing")
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
        return self.harness.clock.passed

    def live(self) -> dict[str, str]:
        return {u: code for u, (code, at) in self.codes.items() if self.now - at <= CODE_LIFETIME}

    @rule(seconds=st.sampled_from([1.0, 599.0, 600.0, 1800.0, 3601.0]))
    def wait(self, seconds: float) -> None:
        self.harness.clock.passed += seconds

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
        answer = self.harness.pairing.request("telegram", user)
        assert isinstance(answer, PairingCode) == may
        if isinstance(answer, PairingCode):
            waiting = {request.user for request in self.harness.pairing.pending()}
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
        code = self.codes.get(user, (UNKNOWN_CODE, 0.0))[0]
        answer = self.harness.pairing.approve("telegram", code)
        if self.now < self.locked_until:
            assert isinstance(answer, PairingRejected)
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
        assert self.harness.pairing.revoke("telegram", user) == (user in self.let_in)
        self.let_in.discard(user)

    @rule()
    def clear(self) -> None:
        self.harness.pairing.clear_pending("telegram")
        self.codes.clear()

    @invariant()
    def state_matches_model(self) -> None:
        if hasattr(self, "harness"):
            assert self.harness.pairing.approved("telegram") == self.let_in
            assert {request.user for request in self.harness.pairing.pending()} == set(self.live())


PairingMachine.TestCase.settings = settings(at_most(15), stateful_step_count=25)
TestPairingMachine = PairingMachine.TestCase
