"""Three hundred hostile commands behind each wall, judged by their effect and nothing else."""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import pytest
from msgspec import structs

from hermes.ports.sandbox import Finished, Job, Reach, Sandbox
from hermes.sandbox.bubblewrap import Bubblewrap, find_bubblewrap
from hermes.sandbox.door import Door
from hermes.sandbox.landlock import Landlock
from hermes.sandbox.local import LocalSandbox
from hermes.sandbox.view import GUARDED, OPEN_OF_RUN, View, hidden_from, starts_of
from hermes.sandbox.walled import Wall, WalledSandbox
from hermes.testing.contracts.sandbox import Witness
from hostile_commands import (
    Command,
    Ears,
    World,
    batch_script,
    child_environment,
    commands,
    git_commands,
    in_batches,
    world,
)

pytestmark = pytest.mark.anyio
Loose = tuple[World, Ears, "subprocess.Popen[bytes]"]
BATCH = 30
AT_ONCE = 3


@pytest.fixture
def loose() -> Iterator[Loose]:
    with world() as made:
        yield made


def view(made: World) -> View:
    return View(
        tmp=str(made.private),
        hidden=(str(made.hermes), *hidden_from(made.home, root=True)),
        shown=(*OPEN_OF_RUN, str(made.hermes / "skills")),
        guarded=(*GUARDED, *starts_of(made.home)),
        person=str(made.home),
    )


def bubblewrap(made: World) -> Wall:
    program = find_bubblewrap(os.environ["PATH"])
    assert program is not None
    return Bubblewrap(program, view(made))


def landlock(made: World) -> Wall:
    return Landlock(view(made))


async def outcomes(
    sandbox: Sandbox, made: World, found: list[Command]
) -> list[tuple[list[Command], Finished]]:
    """Many commands in each process, several processes side by side."""
    limit = anyio.CapacityLimiter(AT_ONCE)
    results: list[tuple[list[Command], Finished]] = []

    async def run(batch: list[Command]) -> None:
        async with limit:
            results.append((batch, await sandbox.run(job(made, batch_script(batch)))))

    async with anyio.create_task_group() as group:
        for batch in in_batches(found, BATCH):
            group.start_soon(run, batch)
    return results


def job(made: World, script: str) -> Job:
    return Job(
        argv=("bash", "-s"),
        stdin=script.encode(),
        cwd=str(made.workspace),
        env=child_environment(made),
        timeout=90,
        keep=5_000_000,
        reach=Reach(writable=(str(made.workspace),)),
    )


def told(batch: list[Command], output: bytes, what: Callable[[bytes], bool]) -> list[str]:
    """The commands whose part of the output shows what must not be seen."""
    parts = output.split(b"\n== ")[1:]
    return [
        batch[int(number)].text
        for number, _, said in (part.partition(b"\n") for part in parts)
        if what(said)
    ]


@pytest.mark.parametrize(("wall", "modes"), [(bubblewrap, True), (landlock, False)])
async def test_no_hostile_command_gets_anywhere(
    wall: Callable[[World], Wall], modes: bool, loose: Loose, door: Door
):
    made, ears, victim = loose
    found = commands(made, ears, victim.pid)
    assert len(found) >= 300
    if wall is bubblewrap:
        found += git_commands(made)
    before, machine = made.state(modes=modes), machine_state()
    sandbox = WalledSandbox(door, wall(made))
    for batch, done in await outcomes(sandbox, made, found):
        assert not done.timed_out, done.output[-2000:].decode(errors="replace")
        assert done.output.count(b"\n== ") == len(batch)
        assert told(batch, done.output, made.spoken) == []
        assert told(batch, done.output, lambda said: b"BREACH" in said) == []
    assert ears.heard() == 0
    assert victim.poll() is None
    assert made.state(modes=modes) == before
    assert machine_state() == machine


BOMB = """
exec 9>"$1"
b() { if [ $1 -gt 0 ]; then b $(($1-1)) & b $(($1-1)) & fi; echo up >&9; sleep 1000; }
b 6
"""


@pytest.mark.parametrize("wall", [bubblewrap, landlock])
async def test_a_crowd_of_processes_ends_with_its_command(
    wall: Callable[[World], Wall], loose: Loose, door: Door
):
    made, _, _ = loose
    witness = Witness(made.workspace / "witness")
    argv = ("bash", "-c", BOMB, "bash", witness.path)
    crowd = structs.replace(job(made, ""), argv=argv, timeout=3)
    done = await WalledSandbox(door, wall(made)).run(crowd)
    assert done.timed_out
    await witness.silence()
    witness.close()


async def test_the_commands_are_hostile(loose: Loose, door: Door):
    """Without a wall they do what they are for, so the test above can fail."""
    made, ears, victim = loose
    found = [command for command in commands(made, ears, victim.pid) if command.local]
    quiet: list[str] = []
    sandbox = LocalSandbox(door)
    fresh = World(made.base)
    for command in found[:: max(1, len(found) // 40)]:
        World(made.base)
        fresh.token = made.token
        for path in fresh.secret_files:
            path.write_text(f"key = {made.token}\n")
        before = made.state(modes=True)
        done = await sandbox.run(job(made, batch_script([command])))
        harm = made.spoken(done.output) or ears.heard() or made.state(modes=True) != before
        if not harm:
            quiet.append(command.text)
    assert len(quiet) <= 12, quiet


def machine_state() -> dict[str, bytes | list[Path]]:
    """By content, and by the names in the folders that everybody trusts."""
    files = ("/etc/passwd", "/etc/hosts", "/proc/sys/kernel/core_pattern", "/etc/crontab")
    folders = ("/", "/etc", "/etc/cron.d", "/usr/local/bin", "/usr/bin", "/etc/profile.d")
    state: dict[str, bytes | list[Path]] = {
        name: Path(name).read_bytes() for name in files if Path(name).exists()
    }
    return state | {name: sorted(Path(name).iterdir()) for name in folders if Path(name).is_dir()}
