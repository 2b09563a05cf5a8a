"""Three hundred turns through several compressions: the beginning of each request stays.

How it is measured: requests are the bytes that the wire sends (tools, prompt, messages). Of each
two that follow each other without a compression in between, the later must begin with at least
95 % of the bytes of the earlier one, and over all of them at least 95 % of what is sent was sent
before. Where a compression lies between two, they are counted apart.
"""

import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import anyio
import pytest

from hermes.schema.events import Outcome
from hermes.schema.scope import OWNER
from support.compaction import (
    PRICE_PER_TOKEN,
    TASK,
    CompactionHarness,
    common_prefix,
    is_summary_request,
    long_question,
    long_session,
    request_body,
    request_text,
)

TURNS = 300
PINS = ("The star chart is in /srv/stars.txt.", "Never use the old catalogue.")
CHILD = Path(__file__).with_name("reopening_child.py")


async def pin(harness: CompactionHarness, text: str) -> None:
    session = harness.conversation.session.id
    async with harness.runner.holding(session) as lease:
        await harness.pins.add(session, text, lease.fence)


async def test_three_hundred_turns(tmp_path: Path) -> None:
    async with long_session(tmp_path) as harness:
        assert await harness.submit(long_question(0)) is Outcome.DONE
        for text in PINS:
            await pin(harness, text)
        pinned_from = len(harness.model.asked)
        for number in range(1, TURNS):
            assert await harness.submit(long_question(number)) is Outcome.DONE
            if number == TURNS // 2:
                # The view must be found again: the next turn reads it from the disk.
                await harness.conversation.resume(harness.conversation.session.id)
                async with harness.runner.holding(harness.conversation.session.id):
                    pass
        times = await harness.times()
        assert times >= 4
        assert harness.model.summaries == times
        check_prefixes(harness)
        for request in harness.model.asked[pinned_from:]:
            prompt = request_text(request)
            assert all(text in prompt for text in PINS)
            assert TASK in prompt
        await check_ledger(harness)
        assert await harness.store.archive_for(OWNER).search('"star 17"')
        session = harness.conversation.session.id
        last = request_body(harness.model.asked[-1])
    again = await anyio.to_thread.run_sync(reopened, tmp_path, session)
    # What is cut off is the end of the list of messages: "]}".
    assert again.startswith(last[:-2])


def check_prefixes(harness: CompactionHarness) -> None:
    bodies = [
        request_body(request)
        for request in harness.model.requests
        if not is_summary_request(request)
    ]
    places = [place for place, one in enumerate(harness.model.requests) if is_summary_request(one)]
    # A summary was asked for before the request with this number among the others.
    pressed = {place - number for number, place in enumerate(places)}
    kept = sent = apart = 0
    for number, (before, after) in enumerate(pairwise(bodies), start=1):
        if number in pressed:
            apart += 1
            continue
        same = common_prefix(before, after)
        assert same >= 0.95 * len(before), number
        kept += same
        sent += len(after)
    assert apart == harness.model.summaries
    assert kept / sent >= 0.95


async def check_ledger(harness: CompactionHarness) -> None:
    (use,) = await harness.conversation.usage()
    truth = harness.model.truth
    assert use.usage == truth
    assert use.calls == len(harness.model.requests)
    assert use.cost == pytest.approx((truth.input + truth.output) * PRICE_PER_TOKEN)


def reopened(folder: Path, session: str) -> bytes:
    """The first request of another process that goes on with the session."""
    file = folder / "request.json"
    env = {"PYTHONPATH": str(CHILD.parents[2]), "PATH": "/usr/bin:/bin", "HOME": str(folder)}
    command = [sys.executable, str(CHILD), str(folder), session, str(file)]
    subprocess.run(command, env=env, check=True, timeout=60)
    return file.read_bytes()
