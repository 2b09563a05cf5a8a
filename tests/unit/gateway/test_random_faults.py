"""The whole gateway under repeated and shuffled updates, restarts and failing sends."""

import random
from pathlib import Path

import anyio
import pytest

from hermes.gateway.chat_runs import ActorRules
from hermes.gateway.delivery import RECOVERED_MARK
from hermes.gateway.delivery_rules import DeliveryRules
from hermes.gateway.gateway import GatewayRules
from hermes.gateway.messages import BusyMode
from hermes.kit.retry import Backoff
from hermes.testing.channel import FakeFaultyChannel, SendFault, check_posts
from hermes.testing.clock import FakeClock
from support.gateway import gateway_harness, make_inbound

CHATS, QUESTIONS, RESTARTS = 8, 6, 3
RULES = GatewayRules(
    actors=ActorRules(busy=BusyMode.QUEUE),
    delivery=DeliveryRules(backoff=Backoff(base=0, cap=0, jitter=0), max_unsure=20, attempts=50),
    progress=False,
)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
async def test_no_message_is_lost_or_repeated_unmarked(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311
    faults = [SendFault.NONE] * 8 + [
        SendFault.REFUSED,
        SendFault.NO_ID,
        SendFault.BREAKS,
        SendFault.LOST_REPLY,
    ]
    channel = FakeFaultyChannel(chance=lambda: chance.choice(faults))
    clock = FakeClock()
    questions: list[tuple[str, str]] = []
    for life in range(RESTARTS):
        async with gateway_harness(tmp_path, channel=channel, rules=RULES, clock=clock) as harness:
            for number in range(QUESTIONS):
                row = [(str(chat), f"{life}.{number}.{chat}") for chat in range(CHATS)]
                chance.shuffle(row)
                questions += row
                again = chance.sample(questions, k=3)
                for chat, text in [*row, *again]:
                    await harness.channel.type(make_inbound(text, text, chat=chat))
            if life == RESTARTS - 1:
                with anyio.fail_after(60):
                    await harness.wait_until_idle()
                assert await harness.open_rows() == []
                assert await harness.store.queues.parked("outbox:fake") == []
                received = {chat: await harness.texts(chat) for chat, _ in questions}
    for chat, texts in received.items():
        wanted = [text for where, text in questions if where == chat]
        assert [text for text in texts if text in wanted] == wanted
    expected = {chat: [f"re: {t}" for c, t in questions if c == chat] for chat, _ in questions}
    answered = {
        chat: [text.removeprefix(RECOVERED_MARK) for text in channel.texts_in(chat)]
        for chat in expected
    }
    for chat, texts in expected.items():
        # A turn interrupted by a restart is answered after a note of the program.
        ends = [text for text in dict.fromkeys(answered[chat]) if "restarted" not in text]
        assert ends == [text for text in texts if text in ends]
        assert len(dict.fromkeys(answered[chat])) == len(texts)
    check_posts(
        {chat: list(dict.fromkeys(texts)) for chat, texts in answered.items()},
        channel.texts_in,
        RECOVERED_MARK,
    )
