"""Automatic session resets."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from msgspec import structs

from hermes.config.sections.messaging import SessionReset
from hermes.gateway.chat_sessions import ResetPolicy, ResetReason
from hermes.schema.scope import OWNER
from hermes.schema.sessions import SessionFilter
from hermes.testing.clock import FakeClock
from support.cases import cases
from support.gateway import NO_POLLING, gateway_harness, wait_until

KEY = "agent:main:fake:dm:1"
NOW = datetime(2026, 3, 10, 12, 0, tzinfo=UTC)


@cases(
    ("mode", "hours_ago", "due"),
    [
        ("none", 1000, None),
        ("idle", 23.9, None),
        ("idle", 24, ResetReason.IDLE),
        ("daily", 7.9, None),
        ("daily", 8.1, ResetReason.DAILY),
        ("both", 8.1, ResetReason.DAILY),
        ("both", 24, ResetReason.IDLE),
    ],
)
def test_due(mode: str, hours_ago: float, due: ResetReason | None) -> None:
    policy = ResetPolicy(general=SessionReset(mode=mode), zone=UTC)  # type: ignore[arg-type]
    assert policy.due(KEY, NOW - timedelta(hours=hours_ago), NOW) is due


def test_day_starts_in_the_configured_time_zone() -> None:
    policy = ResetPolicy(general=SessionReset(mode="daily"), zone=ZoneInfo("Asia/Tokyo"))
    # 04:00 there is 19:00 of the previous day here.
    assert policy.due(KEY, NOW.replace(hour=18, day=9), NOW) is ResetReason.DAILY
    assert policy.due(KEY, NOW.replace(hour=20, day=9), NOW) is None


def test_before_the_reset_hour_the_previous_day_counts() -> None:
    policy = ResetPolicy(general=SessionReset(mode="daily", at_hour=13), zone=UTC)
    assert policy.due(KEY, NOW - timedelta(hours=22), NOW) is None
    assert policy.due(KEY, NOW - timedelta(hours=24), NOW) is ResetReason.DAILY


def test_most_specific_rule_wins() -> None:
    policy = ResetPolicy(
        by_type={"dm": SessionReset(mode="idle", idle_minutes=60)},
        by_platform={"other": SessionReset(mode="idle", idle_minutes=30)},
    )
    assert policy.due(KEY, NOW - timedelta(minutes=61), NOW) is ResetReason.IDLE
    assert policy.due("agent:main:other:dm:1", NOW - timedelta(minutes=31), NOW)
    assert policy.due("agent:main:other:group:1", NOW - timedelta(minutes=31), NOW)
    assert policy.due("agent:main:fake:group:1", NOW - timedelta(days=9), NOW) is None
    assert not policy.is_enabled("agent:main:fake:group:1")


@cases(
    ("minutes", "length"),
    [(1, "1 minute"), (45, "45 minutes"), (60, "an hour"), (90, "90 minutes"), (120, "2 hours")],
)
def test_idle_notice_text(minutes: int, length: str) -> None:
    policy = ResetPolicy(general=SessionReset(mode="idle", idle_minutes=minutes))
    assert f"there was no message for {length}." in policy.notice(KEY, ResetReason.IDLE)


@pytest.mark.parametrize(("hours", "waits"), [(23.9, True), (24.1, False)])
def test_running_process_keeps_the_session_for_a_while(hours: float, waits: bool) -> None:
    started = [NOW - timedelta(days=9), NOW - timedelta(hours=hours)]
    assert ResetPolicy().keeps_open(KEY, started, NOW) is waits
    own = ResetPolicy(by_platform={"fake": SessionReset(bg_process_max_age_hours=0)})
    assert not own.keeps_open(KEY, started, NOW)


async def test_session_with_running_process_is_not_reset(tmp_path: Path) -> None:
    clock = FakeClock()
    started = [clock.now()]
    policy = ResetPolicy(general=SessionReset(mode="idle", idle_minutes=60))
    rules = structs.replace(NO_POLLING, resets=policy)
    async with gateway_harness(
        tmp_path, rules=rules, clock=clock, running=lambda session: started
    ) as harness:
        await harness.channel.say("one")
        await harness.wait_for_posts("re: one")
        await harness.wait_until_idle()
        await clock.advance(4000)
        await harness.channel.say("two")
        await harness.wait_for_posts("re: one", "re: two")
        await harness.wait_until_idle()
        started.clear()
        await clock.advance(4000)
        await harness.channel.say("three")
        await wait_until(lambda: len(harness.channel.texts_in("1")) == 4)
        assert await harness.texts() == ["three", "re: three"]


async def test_idle_chat_is_reset_with_a_notice(tmp_path: Path) -> None:
    clock = FakeClock()
    policy = ResetPolicy(general=SessionReset(mode="idle", idle_minutes=60))
    rules = structs.replace(NO_POLLING, resets=policy)
    async with gateway_harness(tmp_path, rules=rules, clock=clock) as harness:
        await harness.channel.say("one")
        await harness.wait_for_posts("re: one")
        await harness.wait_until_idle()
        await clock.advance(3500)
        await harness.channel.say("two")
        await harness.wait_for_posts("re: one", "re: two")
        await harness.wait_until_idle()
        await clock.advance(3700)
        await harness.channel.say("three")
        reply = "This is a new session because there was no message for an hour. "
        reply += "Use /resume to go back."
        await harness.wait_for_posts("re: one", "re: two", reply, "re: three")
        assert await harness.texts() == ["three", "re: three"]
        listed = await harness.store.archive_for(OWNER).list(SessionFilter())
        assert [digest.session.end_reason for digest in listed] == ["", "idle"]
