from hermes.testing.clock import FakeClock
from hermes.tools.processes.output import NoticeLimit, OutputWatch, WatchAction


def watch(clock: FakeClock, *patterns: str, crowd: NoticeLimit | None = None) -> OutputWatch:
    return OutputWatch(patterns or ("ERROR",), clock, crowd or NoticeLimit(clock))


def test_patterns_are_literal(clock: FakeClock):
    one = watch(clock, "a.c", "ready")
    assert one.matches("abc\nx a.c y\nREADY\nso ready\n") == ["x a.c y", "so ready"]
    assert one.matches("abc") == []


async def test_one_notice_per_window(clock: FakeClock):
    one = watch(clock)
    assert one.judge(1) is WatchAction.NOTIFY
    await clock.advance(14.9)
    assert one.judge(2) is WatchAction.IGNORE
    assert one.left_out == 2
    await clock.advance(0.1)
    assert one.judge(1) is WatchAction.NOTIFY


async def test_three_strikes_in_a_row_end_the_watch(clock: FakeClock):
    one = watch(clock)
    for _ in range(2):
        assert [one.judge(1) for _ in range(5)] == [WatchAction.NOTIFY, *[WatchAction.IGNORE] * 4]
        await clock.advance(15)
    assert one.judge(1) is WatchAction.NOTIFY
    assert one.judge(1) is WatchAction.END
    assert one.patterns == ()


async def test_calm_window_resets_the_strikes(clock: FakeClock):
    one = watch(clock)
    for _ in range(2):
        one.judge(1)
        one.judge(1)
        await clock.advance(15)
    one.judge(1)
    await clock.advance(15)
    assert one.judge(1) is WatchAction.NOTIFY
    assert one.judge(1) is WatchAction.IGNORE


async def test_too_many_notices_silence_all_watches(clock: FakeClock):
    limit = NoticeLimit(clock)
    actions = [watch(clock, crowd=limit).judge(1) for _ in range(20)]
    assert actions == [WatchAction.NOTIFY] * 15 + [WatchAction.IGNORE] * 5
    await clock.advance(29.9)
    assert watch(clock, crowd=limit).judge(1) is WatchAction.IGNORE
    await clock.advance(0.1)
    assert watch(clock, crowd=limit).judge(1) is WatchAction.NOTIFY


async def test_spread_out_notices_are_all_sent(clock: FakeClock):
    limit = NoticeLimit(clock)
    for _ in range(60):
        assert limit.allows()
        await clock.advance(1)
