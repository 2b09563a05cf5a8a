"""Fifty chats that stream at once stay within the limits of their platform.

The emulators refuse each call over a documented limit, and the tests count the refusals:

- Telegram, "My bot is hitting limits": "avoid sending more than one message per second" in a chat,
  no "more than 30 messages per second or so", 20 per minute in a group.
- Discord, "Rate Limits": "All bots can make up to 50 requests per second to our API"; limits per
  route are in the headers of responses.
- Slack, "Rate Limits": "chat.postMessage generally allows posting one message per second per
  channel, while also maintaining a workspace-wide limit"; edits (Tier 3) "50+ per minute".
- Mattermost, `RateLimitSettings`: 10 requests per second.
- Matrix: the homeserver answers 429 with `retry_after_ms`; Synapse's `rc_message` is 0.2 per second
  with a burst of 10.

E-mail does not stream: a mail cannot be edited.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from hermes.gateway.gateway import GatewayRules
from hermes.gateway.progress_message import ProgressDisplay, ProgressTiming
from hermes.kit.clock import Clock
from hermes.kit.ids import new_id
from hermes.schema.events import TextDelta
from hermes.schema.messages import Assistant, Stop, Text
from hermes.schema.scope import Address
from hermes.testing.clock import FakeClock
from hermes.testing.scripted_model import ScriptedModel, ScriptStep
from support.gateway import NO_CHECKS, GatewayHarness, gateway_harness
from support.streamed_chats import (
    StreamedChats,
    discord_chats,
    matrix_chats,
    mattermost_chats,
    slack_chats,
    telegram_chats,
)

CHATS = 50
PIECES = 15
STEP = 1.0
BURST = 10
"""Events that may be under way when a homeserver refuses the first one."""
RULES = GatewayRules(
    poll_interval=86_400.0,
    supervisor=NO_CHECKS,
    progress_timing=ProgressTiming(edit=0.8),
    display_on=lambda to: ProgressDisplay(cursor=" ▉"),
)

Opener = Callable[[Path, Clock], AbstractAsyncContextManager[StreamedChats]]


def growing() -> list[ScriptStep]:
    """An answer at reading speed: one piece in a second."""
    pieces = [f"The {number}th piece of the answer. " for number in range(PIECES)]
    steps = [step for piece in pieces for step in (TextDelta(piece), STEP)]
    return [*steps, answer("".join(pieces))]


def answer(text: str) -> Assistant:
    return Assistant(new_id("msg"), (Text(text),), Stop.END)


@asynccontextmanager
async def gateway(
    folder: Path, opened: Opener, clock: FakeClock
) -> AsyncGenerator[tuple[StreamedChats, GatewayHarness]]:
    async with (
        opened(folder, clock) as chats,
        gateway_harness(folder, channel=chats.channel, rules=RULES, clock=clock) as harness,
    ):
        yield chats, harness


def fake_clock() -> FakeClock:
    return FakeClock(together=0.05, busy_in=["HttpClient.call"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("opened", "seconds"),
    [(telegram_chats, 5), (discord_chats, 3), (slack_chats, 20), (mattermost_chats, 8)],
)
async def test_fifty_growing_answers_stay_within_the_limits(
    tmp_path: Path, opened: Opener, seconds: float
) -> None:
    """No call is over the limit; answers outrank the progress of other chats.

    A short answer is there at once while the others grow. These end at the same time and are there
    within `seconds`, as fast as the platform allows.
    """
    clock = fake_clock()
    async with gateway(tmp_path, opened, clock) as (chats, harness):
        scripts = [*(growing() for _ in range(CHATS)), [answer("Yes.")]]
        harness.planner.model = ScriptedModel(*scripts, clock=clock)
        places = [await chats.ask(number) for number in range(CHATS)]
        await clock.advance(PIECES * STEP - 0.7)
        question = await chats.ask(CHATS)
        await clock.advance(0.0)
        assert texts(chats, question) == ["Yes."]
        await clock.advance(0.7)
        assert [to for to in places if not is_growing(chats, to)] == []
        await clock.advance(seconds)
        assert [to for to in places if len(answers(chats, to)) != 1] == []
        assert chats.refused() == 0


@pytest.mark.slow
async def test_limit_that_a_homeserver_does_not_announce_is_learned(tmp_path: Path) -> None:
    """A refusal counts for all rooms; then answers come one by one, and progress pauses."""
    clock = fake_clock()
    async with gateway(tmp_path, matrix_chats, clock) as (chats, harness):
        harness.planner.model = ScriptedModel(*(growing() for _ in range(CHATS)), clock=clock)
        places = [await chats.ask(number) for number in range(CHATS)]
        await clock.advance(PIECES * STEP + 5.1 * CHATS)
        assert [to for to in places if len(answers(chats, to)) != 1] == []
        assert chats.refused() <= BURST


def is_growing(chats: StreamedChats, to: Address) -> bool:
    return any("The 0th piece" in form and form.endswith(" ▉") for form in texts(chats, to))


def texts(chats: StreamedChats, to: Address) -> list[str]:
    return [form for forms in chats.forms(to) for form in forms]


def answers(chats: StreamedChats, to: Address) -> list[str]:
    last = f"The {PIECES - 1}th piece of the answer."
    return [forms[-1] for forms in chats.forms(to) if forms[-1].endswith(last)]
