"""Bell, window title and desktop notification while a question waits."""

from hermes.testing.clock import FakeClock
from hermes.tui.attention import NOTIFY_SECONDS, Attention, notification_sequence


async def test_waiting_question_rings_then_notifies_once_then_restores_the_title() -> None:
    clock, written = FakeClock(), list[str]()
    attention = Attention(written.append, clock, notification_sequence({"TERM": "xterm-kitty"}))
    attention.end()
    attention.check()
    assert written == []
    attention.call("approval needed: rm -rf build; ls\x1b[2J")
    (called,) = written
    assert called.startswith("\a\x1b[22;2t\x1b]2;● hermes: approval needed: rm -rf build, ls")
    assert "\x1b[2J" not in called
    attention.check()
    await clock.advance(NOTIFY_SECONDS)
    attention.check()
    attention.check()
    assert [one[:4] for one in written[1:]] == ["\x1b]9;"]
    attention.end()
    attention.end()
    assert written[2:] == ["\x1b[23;2t"]
    attention.check()
    assert len(written) == 3


def test_terminals_that_know_only_the_other_sequence_get_it() -> None:
    assert notification_sequence({"VTE_VERSION": "7000"}).startswith("\x1b]777;notify;")
    assert notification_sequence({"TERM": "foot"}).startswith("\x1b]777;notify;")
