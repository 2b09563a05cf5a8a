"""Hundreds of hostile commands have no effect outside the sandbox."""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import pytest
from msgspec import structs

from hermes.ports.sandbox import ProcessPermissions, ProcessResult, ProcessSpec, Sandbox
from hermes.sandbox.bubblewrap import Bubblewrap, find_bubblewrap
from hermes.sandbox.filesystem_policy import (
    GUARDED,
    VISIBLE_IN_RUN,
    FilesystemPolicy,
    hidden_paths,
    startup_files,
)
from hermes.sandbox.isolated_sandbox import IsolatedSandbox, IsolationBackend
from hermes.sandbox.landlock import Landlock
from hermes.sandbox.local import LocalSandbox
from hermes.sandbox.spawner import Spawner
from hermes.testing.contracts.sandbox import ProcessTreePipe
from support.hostile_commands import (
    AttackTarget,
    HostileCommand,
    Listeners,
    attack_target,
    batch_script,
    child_environment,
    git_commands,
    hostile_commands,
    in_batches,
)

Attack = tuple[AttackTarget, Listeners, "subprocess.Popen[bytes]"]
BATCH = 30
PARALLEL = 3


@pytest.fixture
def attack() -> Iterator[Attack]:
    with attack_target() as made:
        yield made


def policy(made: AttackTarget) -> FilesystemPolicy:
    return FilesystemPolicy(
        tmp=str(made.private),
        hidden=(str(made.hermes), *hidden_paths(made.home, root=True)),
        shown=(*VISIBLE_IN_RUN, str(made.hermes / "skills")),
        guarded=(*GUARDED, *startup_files(made.home)),
        user_home=str(made.home),
    )


def bubblewrap(made: AttackTarget) -> IsolationBackend:
    program = find_bubblewrap(os.environ["PATH"])
    assert program is not None
    return Bubblewrap(program, policy(made))


def landlock(made: AttackTarget) -> IsolationBackend:
    return Landlock(policy(made))


async def outcomes(
    sandbox: Sandbox, made: AttackTarget, found: list[HostileCommand]
) -> list[tuple[list[HostileCommand], ProcessResult]]:
    """Run the commands in batches, several processes in parallel."""
    limit = anyio.CapacityLimiter(PARALLEL)
    results: list[tuple[list[HostileCommand], ProcessResult]] = []

    async def run(batch: list[HostileCommand]) -> None:
        async with limit:
            results.append((batch, await sandbox.run(job(made, batch_script(batch)))))

    async with anyio.create_task_group() as group:
        for batch in in_batches(found, BATCH):
            group.start_soon(run, batch)
    return results


def job(made: AttackTarget, script: str) -> ProcessSpec:
    return ProcessSpec(
        argv=("bash", "-s"),
        stdin=script.encode(),
        cwd=str(made.workspace),
        env=child_environment(made),
        timeout=90,
        keep=5_000_000,
        permissions=ProcessPermissions(writable=(str(made.workspace),)),
    )


def offending(
    batch: list[HostileCommand], output: bytes, what: Callable[[bytes], bool]
) -> list[str]:
    """The commands whose output shows what must not be visible."""
    parts = output.split(b"\n== ")[1:]
    return [
        batch[int(number)].text
        for number, _, text in (part.partition(b"\n") for part in parts)
        if what(text)
    ]


@pytest.mark.parametrize(("backend", "modes"), [(bubblewrap, True), (landlock, False)])
async def test_hostile_commands_have_no_effect(
    backend: Callable[[AttackTarget], IsolationBackend],
    modes: bool,
    attack: Attack,
    spawner: Spawner,
):
    made, listeners, victim = attack
    found = hostile_commands(made, listeners, victim.pid)
    assert len(found) >= 300
    if backend is bubblewrap:
        found += git_commands(made)
    before, machine = made.state(modes=modes), machine_state()
    sandbox = IsolatedSandbox(spawner, backend(made))
    for batch, done in await outcomes(sandbox, made, found):
        assert not done.timed_out, done.output[-2000:].decode(errors="replace")
        assert done.output.count(b"\n== ") == len(batch)
        assert offending(batch, done.output, made.reveals_secret) == []
        assert offending(batch, done.output, lambda text: b"BREACH" in text) == []
    assert listeners.count_connections() == 0
    assert victim.poll() is None
    assert made.state(modes=modes) == before
    assert machine_state() == machine


BOMB = """
exec 9>"$1"
b() { if [ $1 -gt 0 ]; then b $(($1-1)) & b $(($1-1)) & fi; echo up >&9; sleep 1000; }
b 6
"""


@pytest.mark.parametrize("backend", [bubblewrap, landlock])
async def test_fork_bomb_ends_with_its_command(
    backend: Callable[[AttackTarget], IsolationBackend], attack: Attack, spawner: Spawner
):
    made, _, _ = attack
    witness = ProcessTreePipe(made.workspace / "witness")
    argv = ("bash", "-c", BOMB, "bash", witness.path)
    crowd = structs.replace(job(made, ""), argv=argv, timeout=3)
    done = await IsolatedSandbox(spawner, backend(made)).run(crowd)
    assert done.timed_out
    await witness.wait_ended()
    witness.close()


async def test_commands_are_hostile_without_a_sandbox(attack: Attack, spawner: Spawner):
    """Without a sandbox they succeed, so the test above can fail."""
    made, listeners, victim = attack
    found = [command for command in hostile_commands(made, listeners, victim.pid) if command.local]
    quiet: list[str] = []
    sandbox = LocalSandbox(spawner)
    fresh = AttackTarget(made.base)
    for command in found[:: max(1, len(found) // 40)]:
        AttackTarget(made.base)
        fresh.token = made.token
        for path in fresh.secret_files:
            path.write_text(f"key = {made.token}\n")
        before = made.state(modes=True)
        done = await sandbox.run(job(made, batch_script([command])))
        harm = (
            made.reveals_secret(done.output)
            or listeners.count_connections()
            or made.state(modes=True) != before
        )
        if not harm:
            quiet.append(command.text)
    assert len(quiet) <= 12, quiet


def machine_state() -> dict[str, bytes | list[Path]]:
    """The content of system files and the names in system folders."""
    files = ("/etc/passwd", "/etc/hosts", "/proc/sys/kernel/core_pattern", "/etc/crontab")
    folders = ("/", "/etc", "/etc/cron.d", "/usr/local/bin", "/usr/bin", "/etc/profile.d")
    state: dict[str, bytes | list[Path]] = {
        name: Path(name).read_bytes() for name in files if Path(name).exists()
    }
    return state | {name: sorted(Path(name).iterdir()) for name in folders if Path(name).is_dir()}
