"""Message timestamps for the model, if enabled."""

from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

from msgspec import structs

from hermes.gateway.chat_sessions import ResetPolicy
from hermes.gateway.intake import MessageTimestamps, format_timestamp
from hermes.schema.messages import Media, Text, User
from hermes.testing.clock import FakeClock
from support.gateway import NO_POLLING, gateway_harness

TOKYO = ZoneInfo("Asia/Tokyo")


def test_timestamp_has_day_time_and_zone() -> None:
    moment = datetime(2026, 11, 16, 23, 9, tzinfo=UTC)
    assert format_timestamp(moment.astimezone(TOKYO)) == "[Tue 2026-11-17 08:09 JST]"


def test_image_only_message_gets_a_timestamp() -> None:
    clock = FakeClock()
    picture = Media("d", "image/png")
    words, same = MessageTimestamps(clock, UTC).stamped(User("u", (picture,)), None).parts
    assert (words, same) == (Text(format_timestamp(clock.now().astimezone(UTC))), picture)


async def test_messages_get_timestamps_but_commands_do_not(tmp_path: Path) -> None:
    clock = FakeClock()
    stamp = format_timestamp(clock.now().astimezone(TOKYO))
    rules = structs.replace(NO_POLLING, timestamps=True, resets=ResetPolicy(zone=TOKYO))
    async with gateway_harness(tmp_path, rules=rules, clock=clock) as harness:
        await harness.channel.say("hello")
        await harness.wait_for_posts(f"re: {stamp} hello")
        await harness.channel.say("/title Greetings")
        await harness.wait_until_idle()
        assert await harness.texts() == [f"{stamp} hello", f"re: {stamp} hello"]
