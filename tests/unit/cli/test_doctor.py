"""The checks of `hermes doctor` and their fixes."""

import errno
import io
import os
import re
import socket
from argparse import Namespace
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest

from hermes.app.service.lock import own_record, take_lock
from hermes.cli.context import CliContext
from hermes.cli.verbs import doctor
from hermes.cli.verbs.doctor.execution import check_hooks, check_sandbox
from hermes.cli.verbs.doctor.finding import CheckContext, Finding, Grade
from hermes.cli.verbs.doctor.gateway import check_channels, check_gateway, check_unsupported
from hermes.cli.verbs.doctor.home import (
    check_disk,
    check_home,
    check_python,
    read_settings,
    unwritable_finding,
)
from hermes.cli.verbs.doctor.model import check_model
from hermes.cli.verbs.doctor.storage import check_storage
from hermes.config.env import Env
from hermes.config.home import Home, ensure_home
from hermes.ipc.client import SOCKET_NAME
from hermes.kit.clock import SystemClock
from hermes.kit.ids import process_id
from hermes.store.sqlite import open_store

API_KEY = "0123456789abcdef-0123456789"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home", tmp_path / "home")
    ensure_home(made)
    return made


def check_context(home: Home, settings: str = "", **env: str) -> CheckContext:
    home.config.write_text(settings)
    context = CliContext(Env(env), None, (io.StringIO(), io.StringIO(), io.StringIO()))
    found, findings = read_settings(context, home, SystemClock())
    assert found is not None, findings
    return found


def problems(findings: Iterable[Finding]) -> list[Finding]:
    """Warnings and errors; each must have a fix."""
    found = [one for one in findings if one.grade is not Grade.OK]
    assert all(one.fix for one in found)
    return found


def test_old_python_is_an_error() -> None:
    assert check_python((3, 11, 0)).grade is Grade.OK
    old = check_python((3, 9, 2))
    assert old.grade is Grade.ERROR
    assert old.says == "Hermes needs Python 3.11 or newer, but this is Python 3.9.2."


def test_valid_home_has_no_problems(home: Home) -> None:
    assert problems(check_home(home)) == []


def test_missing_home_can_be_created(tmp_path: Path) -> None:
    home = Home(tmp_path / "new", tmp_path / "new")
    (one,) = problems(check_home(home))
    assert one.fix == "hermes setup"
    assert not home.path.exists()
    assert one.repair is not None
    one.repair()
    assert problems(check_home(home)) == []


def test_unwritable_home_is_an_error() -> None:
    path = Path("/proc/hermes")
    (one,) = check_home(Home(path, path))
    assert (one.grade, one.repair) == (Grade.ERROR, None)
    assert "/proc/hermes is not writable" in one.says
    assert "chown" in one.fix


def test_full_disk_is_not_reported_as_permission_problem(home: Home) -> None:
    full = unwritable_finding(home.path, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    assert "No space left" in full.says
    assert full.fix.startswith("Free some disk space")


def test_read_only_disk_is_not_reported_as_permission_problem(home: Home) -> None:
    one = unwritable_finding(home.path, OSError(errno.EROFS, os.strerror(errno.EROFS)))
    assert "Read-only file system" in one.says
    assert "chown" not in one.fix
    assert "export HERMES_HOME=" in one.fix


@pytest.mark.parametrize(
    ("free", "grade"), [(10**6, Grade.ERROR), (5 * 10**8, Grade.WARNING), (10**11, Grade.OK)]
)
def test_free_disk_space_is_graded(home: Home, free: int, grade: Grade) -> None:
    assert check_disk(home, free).grade is grade


def test_readable_key_files_are_made_private(home: Home) -> None:
    home.dotenv.write_text("X=1\n")
    home.auth.write_text("{}")
    home.dotenv.chmod(0o644)
    home.auth.chmod(0o640)
    home.path.chmod(0o755)
    found = problems(check_home(home))
    assert [one.fix for one in found] == [
        f"chmod 700 {home.path}",
        f"chmod 600 {home.dotenv}",
        f"chmod 600 {home.auth}",
    ]
    for one in found:
        assert one.repair is not None
        one.repair()
    assert problems(check_home(home)) == []
    assert home.dotenv.stat().st_mode & 0o777 == 0o600


async def test_hooks_that_cannot_run_are_reported(home: Home) -> None:
    assert await check_hooks(check_context(home)) == []
    guard = home.path / "guard"
    guard.touch(mode=0o600)
    settings = f"hooks_auto_accept: true\nhooks: {{pre_tool_call: [{{command: {guard}}}]}}\n"
    (one,) = problems(await check_hooks(check_context(home, settings)))
    assert f"chmod +x {guard}" in one.says
    guard.chmod(0o700)
    assert problems(await check_hooks(check_context(home, settings))) == []


def test_missing_folders_are_created(home: Home) -> None:
    (home.path / "logs").rmdir()
    (one,) = problems(check_home(home))
    assert "logs" in one.says
    assert one.repair is not None
    one.repair()
    assert home.logs.is_dir()


@pytest.mark.parametrize(
    ("settings", "dotenv", "grade"),
    [
        ("agent:\n  max_turns: many\n", "", Grade.ERROR),
        ("agent: [\n", "", Grade.ERROR),
        ("agnet:\n  max_turns: 3\n", "", Grade.WARNING),
        ("", "this is no assignment\n", Grade.ERROR),
    ],
)
def test_settings_are_graded(home: Home, settings: str, dotenv: str, grade: Grade) -> None:
    home.config.write_text(settings)
    home.dotenv.write_text(dotenv)
    context = CliContext(Env({}), None, (io.StringIO(), io.StringIO(), io.StringIO()))
    found, findings = read_settings(context, home, SystemClock())
    (one,) = problems(findings)
    assert one.grade is grade
    typed = r"hermes config (edit|set|unset) ?\S*$|: \$\{EDITOR:-vi\} /\S+$"
    assert re.search(typed, one.fix), one.fix
    assert (found is None) == (grade is Grade.ERROR)


@pytest.mark.parametrize(
    ("settings", "command"),
    [
        ("display:\n  tmestamps: true\n", "hermes config unset display.tmestamps"),
        ("'a b': 1\n", "hermes config unset 'a b'"),
        ("MY_API_KEY: 1\n", "hermes config edit"),
        ("worktree: true\n", "hermes config unset worktree"),
    ],
)
def test_unused_setting_is_reported_with_unset_command(
    home: Home, settings: str, command: str
) -> None:
    home.config.write_text(settings)
    context = CliContext(Env({}), None, (io.StringIO(), io.StringIO(), io.StringIO()))
    (one,) = problems(read_settings(context, home, SystemClock())[1])
    assert one.fix.endswith(f": {command}")


@pytest.mark.parametrize(
    ("settings", "left_out"),
    [
        ("agent: [\n", "Not checked until the settings can be read: model, sandbox, database"),
        ("", "Not checked until the home is writable: sandbox, database."),
    ],
)
def test_skipped_checks_are_listed(home: Home, settings: str, left_out: str) -> None:
    home.config.write_text(settings)
    broken = home if settings else Home(Path("/proc/hermes"), Path("/proc/hermes"))
    env = Env({"HERMES_HOME": str(broken.path)})
    context = CliContext(env, None, (io.StringIO(), out := io.StringIO(), io.StringIO()))
    assert doctor.run(Namespace(fix=False, json=False), context) == 1
    assert f"skipped  unchecked  {left_out}" in out.getvalue()
    assert "fine" not in out.getvalue()


async def test_invalid_database_is_reported(home: Home) -> None:
    assert problems(await check_storage(check_context(home))) == []
    home.database.write_bytes(b"this is no database at all" * 1000)
    (one,) = problems(await check_storage(check_context(home)))
    assert (one.check, one.grade) == ("database", Grade.ERROR)


async def test_skills_are_checked_without_a_database(home: Home) -> None:
    (home.skills / "broken").mkdir()
    (home.skills / "broken" / "SKILL.md").write_text("no head at all")
    (one,) = problems(await check_storage(check_context(home)))
    assert one.check == "skills"
    assert not home.database.exists()


async def test_invalid_memory_and_skills_are_reported(home: Home) -> None:
    async with open_store(home.database, SystemClock()):
        pass
    assert problems(await check_storage(check_context(home))) == []
    (home.memories / "MEMORY.md").write_text("x" * 100_000)
    broken = home.skills / "broken"
    broken.mkdir()
    (broken / "SKILL.md").write_text("no head at all")
    found = problems(await check_storage(check_context(home)))
    assert [one.check for one in found] == ["memory", "skills"]
    assert "over its limit" in found[0].says
    assert str(broken) in found[1].says


async def test_stale_gateway_files_are_removed(home: Home) -> None:
    assert problems(check_gateway(home)) == []
    host, boot, _ = process_id().split("/", 2)
    dead = msgspec.structs.replace(
        own_record(home, SystemClock().now()), pid=2**22 + 1, holder=f"{host}/{boot}/{2**22 + 1}/1"
    )
    for path in (home.gateway_lock, home.gateway_pid):
        path.write_bytes(msgspec.json.encode(dead))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(home.path / SOCKET_NAME))
    found = problems(check_gateway(home))
    assert [one.fix for one in found] == [
        f"rm {home.gateway_lock}", f"rm {home.gateway_pid}", f"rm {home.path / SOCKET_NAME}",
    ]  # fmt: skip
    for one in found:
        assert one.repair is not None
        one.repair()
    assert problems(check_gateway(home)) == []
    assert not home.gateway_lock.exists()


async def test_new_gateway_keeps_its_lock_file(home: Home) -> None:
    host, boot, _ = process_id().split("/", 2)
    record = own_record(home, SystemClock().now())
    dead = msgspec.structs.replace(record, holder=f"{host}/{boot}/{2**22 + 1}/1")
    home.gateway_lock.write_bytes(msgspec.json.encode(dead))
    (one,) = problems(check_gateway(home))
    lock = take_lock(home, record)
    assert one.repair is not None
    one.repair()
    assert home.gateway_lock.exists()
    assert problems(check_gateway(home)) == []
    lock.release()


def test_port_in_use_is_reported_with_alternative(home: Home) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        variables = {"API_SERVER_ENABLED": "1", "API_SERVER_KEY": API_KEY}
        (one,) = problems(
            check_channels(check_context(home, API_SERVER_PORT=str(port), **variables))
        )
    assert (one.check, one.grade) == ("ports", Grade.ERROR)
    assert f"127.0.0.1:{port}" in one.says
    assert one.fix.endswith(f": hermes config set platforms.api_server.extra.port {port + 1}")
    assert problems(check_channels(check_context(home, API_SERVER_PORT="0", **variables))) == []


@pytest.mark.parametrize(
    ("more", "says"),
    [("", "has no host"), ("  ssh_host: 127.0.0.1\n  ssh_port: 9\n", "could not connect")],
)
async def test_unreachable_ssh_host_is_reported(home: Home, more: str, says: str) -> None:
    found = check_context(home, f"terminal:\n  backend: ssh\n{more}", PATH=os.environ["PATH"])
    (one,) = [one for one in problems(await check_sandbox(found)) if one.check == "sandbox"]
    assert one.grade is Grade.ERROR
    assert says in one.says


def test_unavailable_channel_is_reported(home: Home) -> None:
    (one,) = problems(
        check_unsupported(check_context(home, "platforms:\n  carrier_pigeon:\n    enabled: true\n"))
    )
    assert "carrier_pigeon" in one.says
    assert one.fix == "hermes config set platforms.carrier_pigeon.enabled false"


def test_webhook_routes_sharing_a_secret_are_reported(home: Home) -> None:
    secret, other = "a-secret-of-some-length", "another-secret-of-some-length"
    routes = {"a": {"secret": secret}, "b": {"secret": secret}, "c": {"secret": other}}
    extra = {"port": 0, "routes": routes}
    settings = msgspec.json.encode({"platforms": {"webhook": {"enabled": True, "extra": extra}}})
    (one,) = problems(check_channels(check_context(home, settings.decode())))
    assert one.check == "webhooks"
    assert "The routes a, b share a secret" in one.says
    assert secret not in one.says + one.fix


async def test_codex_needs_no_key_here(home: Home, tmp_path: Path) -> None:
    settings = "model: {openai_runtime: codex_app_server}\n"
    program = tmp_path / "codex"
    (missing,) = await check_model(check_context(home, settings, CODEX_PATH=str(program)))
    assert missing.grade is Grade.ERROR
    assert "CODEX_PATH" in missing.fix
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    (found,) = await check_model(check_context(home, settings, CODEX_PATH=str(program)))
    assert (found.grade, found.says) == (Grade.OK, f"codex runs the turns ({program})")
