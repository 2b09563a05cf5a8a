"""Loading the hooks of a home."""

import sys
from pathlib import Path

import anyio.lowlevel
import pytest

from hermes.config.home import Home
from hermes.gateway.hooks import HookBus, HookDecision, HookVerdict
from hermes.hooks.home import find_hooks, open_profile_hooks
from hermes.kit.clock import SystemClock

COUNTS = """
from pathlib import Path

seen = []

def handle(event_type, context):
    seen.append(event_type)
    out = Path(__file__).parent / "out"
    with out.open("a") as file:
        file.write(f"{len(seen)} {event_type} {context.get('chat_id')} {__name__}\\n")
"""


def hook(
    home: Path,
    name: str,
    handler: str = COUNTS,
    manifest: str = "name: x\ndescription: y\nevents: [agent:end]\n",
) -> Path:
    folder = home / "hooks" / name
    folder.mkdir(parents=True)
    (folder / "HOOK.yaml").write_text(manifest)
    (folder / "handler.py").write_text(handler)
    for path in (home / "hooks", folder, *folder.iterdir()):
        path.chmod(0o700 if path.is_dir() else 0o600)
    return folder


def home_at(path: Path) -> Home:
    path.mkdir(parents=True, exist_ok=True)
    return Home(root=path, path=path)


async def warnings_of(path: Path) -> list[str]:
    async with open_profile_hooks(home_at(path), SystemClock()) as bus:
        assert bus.names == []
        return bus.warnings


async def test_hook_is_called(tmp_path: Path) -> None:
    folder = hook(tmp_path, "notes")
    before = list(sys.path)
    async with open_profile_hooks(home_at(tmp_path), SystemClock()) as bus:
        bus.emit("agent:end", {"chat_id": "7"})
        bus.emit("agent:start", {"chat_id": "7"})
    (line,) = (folder / "out").read_text().splitlines()
    count, event, chat, module = line.split()
    assert (count, event, chat) == ("1", "agent:end", "7")
    assert sys.path == before
    assert module not in sys.modules
    assert not (folder / "__pycache__").exists()


async def test_async_hook_can_decide(tmp_path: Path) -> None:
    handler = (
        "import asyncio\n"
        "async def handle(event_type, context):\n"
        "    await asyncio.sleep(0)\n"
        "    return {'decision': 'deny', 'message': context['command']}\n"
    )
    hook(tmp_path, "guard", handler, "events:\n  - command:*\n")
    async with open_profile_hooks(home_at(tmp_path), SystemClock()) as bus:
        decision = await bus.decide("command:new", {"command": "new"})
    assert decision == HookDecision(HookVerdict.DENY, "new")


async def test_profiles_share_no_modules(tmp_path: Path) -> None:
    homes = [tmp_path / "a", tmp_path / "b"]
    folders = [hook(home, "same") for home in homes]

    async def emit_events(bus: HookBus) -> None:
        bus.emit("agent:end", {})
        bus.emit("agent:end", {})
        await anyio.lowlevel.checkpoint()

    async with (
        open_profile_hooks(home_at(homes[0]), SystemClock()) as one,
        open_profile_hooks(home_at(homes[1]), SystemClock()) as other,
    ):
        await emit_events(one)
        await emit_events(other)
    outs = [(folder / "out").read_text().splitlines() for folder in folders]
    assert [[line.split()[0] for line in out] for out in outs] == [["1", "2"], ["1", "2"]]
    assert len({line.split()[3] for out in outs for line in out}) == 2


async def test_home_without_hooks_has_none(tmp_path: Path) -> None:
    assert await warnings_of(tmp_path) == []
    (tmp_path / "hooks").mkdir()
    (tmp_path / "hooks" / "README").write_text("x")
    assert await warnings_of(tmp_path) == []


@pytest.mark.parametrize("what", ["", "HOOK.yaml", "handler.py", ".."])
@pytest.mark.parametrize("mode", [0o020, 0o002])
async def test_hook_writable_by_others_is_refused(tmp_path: Path, what: str, mode: int) -> None:
    folder = hook(tmp_path, "open")
    path = tmp_path / "hooks" if what == ".." else folder / what
    path.chmod(path.stat().st_mode | mode)
    (warning,) = await warnings_of(tmp_path)
    assert f"chmod go-w {path}" in warning
    assert not (folder / "out").exists()


@pytest.mark.parametrize(
    ("handler", "why"),
    [
        ("def handle(:\n", "SyntaxError"),
        ("import nothing_of_that_name\n", "ModuleNotFoundError"),
        ("raise SystemExit(1)\n", "SystemExit"),
        ("handle = 3\n", "no function handle"),
        ("", "no function handle"),
    ],
)
async def test_broken_handler_is_reported(tmp_path: Path, handler: str, why: str) -> None:
    folder = hook(tmp_path, "broken", handler)
    (warning,) = await warnings_of(tmp_path)
    assert warning.startswith(f"hook broken is disabled: {folder / 'handler.py'}: ")
    assert why in warning


@pytest.mark.parametrize(
    ("manifest", "why"),
    [
        ("events: [", "invalid YAML"),
        ("- a\n- b\n", "not a mapping"),
        ("name: x\n", "no known event"),
        ("events: 7\n", "Expected `array`"),
        ("events: ['command:']\n", "no known event"),
    ],
)
async def test_broken_manifest_is_reported(tmp_path: Path, manifest: str, why: str) -> None:
    folder = hook(tmp_path, "broken", manifest=manifest)
    warning = (await warnings_of(tmp_path))[-1]
    assert str(folder / "HOOK.yaml") in warning
    assert why in warning


def test_unknown_event_is_reported_and_others_work(tmp_path: Path) -> None:
    hook(tmp_path, "some", manifest="events: [agent:end, agent:nap, 'command:*', command:new]\n")
    found = find_hooks(tmp_path / "hooks")
    (source,) = found.sources
    assert source.events == ("agent:end", "command:*", "command:new")
    (warning,) = found.warnings
    assert warning.endswith("HOOK.yaml: unknown event agent:nap")


async def test_missing_handler_is_reported(tmp_path: Path) -> None:
    folder = hook(tmp_path, "half")
    (folder / "handler.py").unlink()
    (warning,) = await warnings_of(tmp_path)
    assert str(folder / "handler.py") in warning


def test_hooks_are_sorted_by_name(tmp_path: Path) -> None:
    for name in ("b", "c", "a"):
        hook(tmp_path, name)
    assert [one.name for one in find_hooks(tmp_path / "hooks").sources] == ["a", "b", "c"]
