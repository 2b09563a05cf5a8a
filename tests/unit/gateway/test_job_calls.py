"""A webhook call that names a scheduled job fires that job and starts no turn."""

from pathlib import Path

import msgspec

from hermes.ports.channel import Inbound
from hermes.ports.jobs import JOB_CALLS, SCHEDULED_JOBS, JobCall
from hermes.schema.messages import Text
from hermes.schema.scope import Address
from hermes.testing.clock import wait_until_idle
from support.gateway import gateway_harness


async def test_call_is_stored_once_for_the_scheduler(tmp_path: Path) -> None:
    async with gateway_harness(tmp_path) as one:
        call = Inbound(
            "k1", Address(one.channel.name, "1"), "ann", (Text("built"),), job="daily report"
        )
        with one.bus.listen(SCHEDULED_JOBS) as wakeups:
            await one.channel.type(call)
            await one.channel.type(call)
            assert wakeups.take()
        await wait_until_idle()
        (item,) = await one.store.queues.claim(JOB_CALLS, None, "me", None, 10)
        assert item.topic == "daily report"
        assert msgspec.json.decode(item.body, type=JobCall).text == "built"
        assert one.model.requests == []
