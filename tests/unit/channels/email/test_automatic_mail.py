"""Mail that no person wrote is not answered."""

from datetime import UTC, datetime, timedelta
from email.message import EmailMessage

import pytest

from hermes.channels.email.automatic_mail import LoopGuard, reason_to_ignore

OWN = "hermes@agent.example"
ANN = "ann@people.example"


def reason(headers: dict[str, str], sender: str = "ann@people.example") -> str:
    mail = EmailMessage()
    for name, value in headers.items():
        mail[name] = value
    return reason_to_ignore(mail, sender, OWN)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Auto-Submitted", "auto-replied"),
        ("Auto-Submitted", "auto-generated; owner-email=x"),
        ("Precedence", "Bulk"),
        ("Precedence", "list"),
        ("List-Id", "<talk.example.org>"),
        ("List-Unsubscribe", "<mailto:leave@example.org>"),
        ("X-Autoreply", "yes"),
        ("Return-Path", "<>"),
        ("Content-Type", "multipart/report; report-type=delivery-status"),
        ("X-Loop", "Hermes@agent.example"),
    ],
)
def test_automatic_mail_is_ignored(name: str, value: str) -> None:
    assert reason({name: value})


@pytest.mark.parametrize(
    "sender",
    [OWN, "MAILER-DAEMON@mx.example", "no-reply@shop.example", "noreply+7@x.example",
     "postmaster@mx.example", "do_not_reply@x.example", "bounces+ann=x@list.example"],
)  # fmt: skip
def test_senders_that_take_no_reply_are_ignored(sender: str) -> None:
    assert reason({}, sender)


def test_mail_of_a_person_is_answered() -> None:
    headers = {"Auto-Submitted": "no", "Precedence": "normal", "X-Loop": "other@x.example"}
    assert reason(headers) == ""
    assert reason({}, "norepay@people.example") == ""


def test_mail_that_travelled_too_far_is_ignored() -> None:
    mail = EmailMessage()
    for number in range(51):
        mail["Received"] = f"from a{number}"
    assert reason_to_ignore(mail, "ann@people.example", OWN)


def test_thread_with_too_many_mails_is_a_loop_until_it_slows_down() -> None:
    guard, start = LoopGuard(3), datetime(2026, 1, 1, tzinfo=UTC)
    times = [start + timedelta(seconds=second) for second in range(5)]
    loops = [guard.is_loop(ANN, "a", str(at), at) for at in times]
    assert loops == [False, False, False, True, True]
    assert not guard.is_loop(ANN, "b", "other", times[-1])
    assert not guard.is_loop(ANN, "a", "later", start + timedelta(minutes=11))


def test_sender_with_too_many_threads_is_a_loop() -> None:
    guard, now = LoopGuard(3), datetime(2026, 1, 1, tzinfo=UTC)
    assert [guard.is_loop(ANN, f"t{one}", f"{one}", now) for one in range(10)] == [False] * 9 + [
        True
    ]
    assert not guard.is_loop("bob@people.example", "t0", "bob", now)


def test_mail_that_is_fetched_again_counts_once() -> None:
    guard, now = LoopGuard(3), datetime(2026, 1, 1, tzinfo=UTC)
    assert not any(guard.is_loop(ANN, "a", "same", now) for _ in range(10))
