"""The smallest model in a real engine: answers, tool calls, interruption, crashes, exit."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import anyio
import msgspec
import pytest

from hermes.app.build import App, AppOptions, open_app
from hermes.config.env import Env
from hermes.config.home import Home, resolve_home
from hermes.models.embedded.engine import EngineTimeouts, ModelEngine
from hermes.models.embedded.servers import ModelServerPool
from hermes.models.embedded.small_profile import small_profile, small_prompt
from hermes.models.embedded.weights import FOLDER_NAME, ModelFolder, Weights, find_weights
from hermes.plugins.registry import open_shared_plugins
from hermes.ports.model import Model, ModelRequest
from hermes.schema.errors import NotRunning, Unreachable
from hermes.schema.events import Notice, TextDelta
from hermes.schema.messages import Assistant, Stop, Text, User
from hermes.testing.contracts.model import StreamRecord, read_stream
from hermes.tools.catalog import load_specs
from support.cli_process import TEST_TIMEOUT
from support.embedded_engine import embedded_model, running_engine_pool, tiny  # noqa: F401 - a fixture

pytestmark = pytest.mark.timeout(300)

TOOLS = [load_specs()[name] for name in sorted(small_profile().tools)]
HELLO = User("u1", (Text("Which files are here?"),))
LONG = ModelRequest("Tell long stories.", [User("u2", (Text("Tell me a very long story."),))])


def choosing(*more: Assistant | User, output: int = 48) -> ModelRequest:
    return ModelRequest(small_prompt(), [HELLO, *more], TOOLS, max_output=output)


def cpu_of(pid: int) -> int:
    """CPU ticks used so far; -1 if the process is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return -1
    return -1 if fields[0] == "Z" else int(fields[11]) + int(fields[12])


async def wait_until_idle(pid: int) -> None:
    """Wait until the process is idle."""
    with anyio.fail_after(TEST_TIMEOUT):
        before, still = cpu_of(pid), 0
        while still < 5:
            await anyio.sleep(0.1)
            now = cpu_of(pid)
            still = still + 1 if now == before else 0
            before = now


async def until(true: Callable[[], bool]) -> None:
    with anyio.fail_after(TEST_TIMEOUT):
        while not true():  # noqa: ASYNC110 - what another process does sets no event
            await anyio.sleep(0.05)


async def wait_until_gone(pid: int) -> None:
    await until(lambda: cpu_of(pid) < 0)


async def test_model_calls_tools_caches_and_stops(
    tiny: tuple[Weights, ModelFolder],  # noqa: F811
) -> None:
    async with running_engine_pool() as engines:
        engine, model = engines.engine_for(*tiny), embedded_model(engines, *tiny)
        first = await read_stream(model, choosing())
        assert first.chunks[0] == Notice(f"Loading the model {model.name} ...", passing=True)
        answer = first.answer
        if answer.calls and answer.stop is Stop.TOOLS:
            (call,) = answer.calls
            assert call.name in small_profile().tools
            assert not call.broken
            assert isinstance(msgspec.json.decode(call.args), dict)
        else:
            assert answer.text or answer.stop is Stop.LENGTH
        assert 0 < answer.usage.input <= 400
        second = await read_stream(model, choosing(answer, User("u3", (Text("And now?"),))))
        assert not any(isinstance(one, Notice) for one in second.chunks)
        again = second.answer
        assert again.usage.cache_read >= 150

        record = StreamRecord()
        async with model.stream(LONG) as chunks:
            async for chunk in chunks:
                record.chunks.append(chunk)
                if len([one for one in record.chunks if isinstance(one, TextDelta)]) == 3:
                    break
        assert record.text
        await wait_until_idle(engine.pid)
        assert engine.started == 1


async def kill_in_mid_answer(model: Model, engine: ModelEngine) -> None:
    async with model.stream(LONG) as chunks:
        async for chunk in chunks:
            if isinstance(chunk, TextDelta):
                assert engine.pid > 1
                os.kill(engine.pid, signal.SIGKILL)
                break
        async for _ in chunks:
            pass


async def test_crash_is_reported_and_the_next_request_restarts(
    tiny: tuple[Weights, ModelFolder],  # noqa: F811
) -> None:
    async with running_engine_pool(EngineTimeouts(idle=0.5)) as engines:
        engine, model = engines.engine_for(*tiny), embedded_model(engines, *tiny)
        with pytest.raises(Unreachable) as caught:
            await kill_in_mid_answer(model, engine)
        assert "ended in mid-answer: signal 9" in str(caught.value)
        assert caught.value.retryable
        assert caught.value.hint

        short = ModelRequest("", [HELLO], max_output=2)
        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(read_stream, model, short)
        assert engine.started == 2
        pid = engine.pid
        await until(lambda: not engine.pid)
        await wait_until_gone(pid)


async def test_unloadable_weights_are_reported(
    tiny: tuple[Weights, ModelFolder],  # noqa: F811 - the fixture
    tmp_path: Path,
) -> None:
    weights, place = tiny
    broken = ModelFolder(tmp_path)
    (tmp_path / place.engine_folder.name).symlink_to(place.engine_folder)
    with broken.weights_path(weights).open("wb") as file:
        file.truncate(weights.size)
    async with running_engine_pool() as engines:
        with pytest.raises(Unreachable) as caught:
            await read_stream(embedded_model(engines, weights, broken))
        assert "ended before it was ready" in str(caught.value)
        with pytest.raises(NotRunning) as missing:
            await read_stream(embedded_model(engines, find_weights("qwen2.5-coder-0.5b"), broken))
        assert "hermes setup --local" in missing.value.hint


def home_with(tiny: tuple[Weights, ModelFolder], folder: Path) -> Home:  # noqa: F811
    folder.mkdir()
    (folder / FOLDER_NAME).symlink_to(tiny[1].folder)
    return resolve_home(Env({"HERMES_HOME": str(folder)}))


async def ask_app(app: App, text: str) -> Assistant:
    model = await app.models.find()
    return (await read_stream(model, ModelRequest(text, [HELLO], TOOLS, max_output=8))).answer


async def test_profiles_share_one_child_until_the_last_closes(
    tiny: tuple[Weights, ModelFolder],  # noqa: F811
    tmp_path: Path,
) -> None:
    env = Env({"PATH": os.environ["PATH"]})
    choices = AppOptions(workspace=str(tmp_path), model=tiny[0].name, provider="embedded")
    one, other = (home_with(tiny, tmp_path / name) for name in ("one", "other"))
    ours, theirs = ("Be short. " * 20, "Be friendly. " * 20)
    async with open_shared_plugins() as shared:
        async with open_app(one, env, choices, shared) as first:
            async with open_app(other, env, choices, shared) as second:
                await ask_app(first, ours)
                await ask_app(second, theirs)
                engine = shared.get(ModelServerPool).engines(env).engine_for(*tiny)
                pid = engine.pid
                # Each conversation is processed once, even if others came in between.
                again = [
                    (await ask_app(first, ours)).usage,
                    (await ask_app(second, theirs)).usage,
                ]
                assert all(one.cache_read > one.input // 2 for one in again)
                assert engine.started == 1
            assert engine.pid == pid > 0
        assert not engine.pid
        await wait_until_gone(pid)


OWNER = """
import anyio, sys
sys.path.insert(0, sys.argv[1])
from support.embedded_engine import embedded_model, running_engine_pool, fetch_smallest
from hermes.ports.model import ModelRequest
from hermes.schema.messages import Text, User

async def main(weights, place):
    async with running_engine_pool() as engines:
        asked = ModelRequest("", [User("u", (Text("Tell me a very long story."),))])
        async with embedded_model(engines, weights, place).stream(asked) as chunks:
            async for _ in chunks:
                print(engines.engine_for(weights, place).pid, flush=True)

anyio.run(main, *fetch_smallest())
"""


async def test_child_exits_with_its_owner(tiny: tuple[Weights, ModelFolder]) -> None:  # noqa: F811
    tests = str(Path(__file__).parents[2])
    with subprocess.Popen(  # noqa: ASYNC220 - it must not be ours to end
        [sys.executable, "-c", OWNER, tests], stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        try:
            pid = int(await anyio.to_thread.run_sync(owner.stdout.readline))
        finally:
            owner.kill()
        await wait_until_gone(pid)
