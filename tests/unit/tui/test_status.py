"""The status bar keeps the most important parts when space is limited."""

from inline_snapshot import snapshot

from hermes.tui.widgets.status import StatusInfo, format_cost, format_duration, status_line

FACTS = StatusInfo(
    activity="thinking",
    model="openai/gpt-5-mini",
    used_tokens=64_000,
    window=128_000,
    cost=0.1234,
    seconds=75.2,
    sandbox="bubblewrap",
    queued=1,
    more_below=True,
)


def test_least_important_parts_are_dropped_first() -> None:
    shown = [status_line(FACTS, width).plain for width in (99, 70, 40, 20, 6)]
    assert "\n".join(shown) == snapshot("""\
thinking 1:15 · 1 queued · ↓ more below · gpt-5-mini · ████░░░░ 50% · $0.12 · bubblewrap · F1 help
thinking 1:15 · 1 queued · ↓ more below · gpt-5-mini · ████░░░░ 50%
thinking 1:15 · 1 queued · ↓ more below
thinking 1:15
think…\
""")


def test_missing_sandbox_is_shown() -> None:
    assert "no sandbox" in status_line(StatusInfo(model="m"), 80).plain


def test_yolo_background_jobs_and_enter_hint_are_shown() -> None:
    facts = StatusInfo(
        model="m", sandbox="landlock", yolo=True, background_jobs=2, enter_hint="Enter queues"
    )
    assert status_line(facts, 99).plain == (
        "Enter queues · 2 in background · m · landlock · yolo · F1 help"
    )
    assert status_line(facts, 8).plain == "yolo"


def test_durations_and_costs() -> None:
    assert [format_duration(one) for one in (0.4, 59.9, 61, 3700)] == [
        "0 s",
        "59 s",
        "1:01",
        "1:01 h",
    ]
    assert [format_cost(one) for one in (0, 0.0042, 0.5, 12)] == [
        "$0.00",
        "$0.0042",
        "$0.50",
        "$12.00",
    ]
