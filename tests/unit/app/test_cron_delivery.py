"""What the result of a job carries to a bot chat."""

from pathlib import Path

import msgspec
import pytest

from hermes.app.build import AppOptions, open_app
from hermes.app.cron_delivery import OutboxDelivery
from hermes.config.env import Env
from hermes.config.home import Home
from hermes.cron.bot_chat import DeliveredResult
from hermes.ports.jobs import Fire, FireState, Job, JobPolicy, Schedule, ScheduleKind
from hermes.ports.store import EnqueueItem


@pytest.mark.parametrize(
    ("toolsets", "tools"), [(None, None), (("todo",), ("todo",)), (("removed",), ())]
)
async def test_result_carries_the_limits_of_its_job(
    tmp_path: Path, toolsets: tuple[str, ...] | None, tools: tuple[str, ...] | None
) -> None:
    home = Home(root=tmp_path, path=tmp_path)
    home.config.write_text("model: {default: m, base_url: 'http://127.0.0.1:1/v1'}\n")
    async with open_app(home, Env({"HOME": str(tmp_path)}), AppOptions(workspace="/")) as app:
        job = Job(
            id="j",
            name="mails",
            schedule=Schedule(kind=ScheduleKind.INTERVAL),
            deliver="bot-chat",
            enabled_toolsets=toolsets,
            policy=JobPolicy(spend_cap=0.5),
        )
        fire = Fire(job="j", at=app.clock.now(), state=FireState.RUNNING)
        (row,) = OutboxDelivery(app).plan(job, fire, "42").writes
    assert isinstance(row, EnqueueItem)
    found = msgspec.json.decode(row.item.body, type=DeliveredResult)
    assert found == DeliveredResult("default", "mails", "42", tools, 0.5)
