"""Real gateways that are killed, or share a store, run and deliver each fire once."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from msgspec import structs

from hermes.app.cron import open_job_service
from hermes.config.env import Env
from hermes.config.home import Home
from hermes.cron.job_changes import JobChange
from hermes.cron.operation import CronOperation
from hermes.ports.jobs import Fire, FireState
from support.chat_platform.server import PlatformServer, serve_platform
from support.cli_process import TEST_TIMEOUT
from support.gateway_instances import GatewayInstance
from support.gateway_process import GatewaySpec, single_profile_spec
from support.homes import CHANNEL_NAME
from support.preloaded_gateway import preloaded_instance
from support.shared_store import shared_store

pytestmark = pytest.mark.slow

ACCOUNT = "main"


@asynccontextmanager
async def jobs_of(spec: GatewaySpec) -> AsyncGenerator[CronOperation]:
    """The jobs as another process, such as the command line, uses them."""
    home = Home(Path(spec.home), Path(spec.home))
    async with open_job_service(home, Env({"HERMES_HOME": spec.home})) as operation:
        yield operation


@asynccontextmanager
async def running(spec: GatewaySpec) -> AsyncGenerator[GatewayInstance]:
    async with preloaded_instance(spec) as instance, anyio.create_task_group() as group:
        group.start_soon(instance.watch)
        await instance.wait_ready()
        yield instance
        instance.kill()


async def wait_for(operation: CronOperation, count: int) -> list[Fire]:
    """Wait until so many fires have ended; all fires."""
    with anyio.fail_after(TEST_TIMEOUT):
        while True:
            fires = [*await operation.service.history(None, 100)]
            if sum(not fire.state.is_open for fire in fires) >= count:
                return fires
            await anyio.sleep(0.05)


def answers(server: PlatformServer, chat: str) -> list[str]:
    return [post.text for post in server.platform.posts_in(ACCOUNT, chat)]


@pytest.mark.parametrize("place", ["cron.planned", "cron.running", "cron.ended"])
async def test_killed_gateway_loses_and_repeats_no_fire(tmp_path: Path, place: str) -> None:
    async with serve_platform() as server:
        spec = single_profile_spec(tmp_path, server.url, ACCOUNT)
        change = JobChange(schedule="1s", prompt="q-1", deliver=f"{CHANNEL_NAME}:c1", name="job")
        async with jobs_of(spec) as operation:
            async with running(structs.replace(spec, die_at=place)) as doomed:
                await operation.service.create(change)
                with anyio.fail_after(TEST_TIMEOUT):
                    await doomed.process.wait()
            async with running(spec):
                (fire,) = await wait_for(operation, 1)
                assert fire.state is FireState.COMPLETED, fire
                await server.until(lambda: bool(answers(server, "c1")))
        assert len(answers(server, "c1")) == 1


async def test_two_gateways_on_one_store_share_the_fires(tmp_path: Path) -> None:
    async with shared_store(tmp_path) as both, both.gateway(0), both.gateway(1):
        async with jobs_of(both.specs[0]) as operation:
            for number in range(6):
                await operation.service.create(JobChange(schedule="1s", prompt=f"q-{number}"))
            fires = await wait_for(operation, 6)
            assert [fire.state for fire in fires] == [FireState.COMPLETED] * 6
        questions = [question for question in both.questions if "q-" in question]
        assert len(questions) == len(set(questions)) == 6
