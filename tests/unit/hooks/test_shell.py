"""Shell hooks: asked before a call, notified after it, run only with consent."""

import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec import Raw

from hermes.app.build import App, AppOptions, open_app
from hermes.config.env import Env
from hermes.config.home import Home
from hermes.hooks.shell import (
    HookConsents,
    hook_seal,
    matches_tool,
    parse_answer,
)
from hermes.kit.clock import SystemClock
from hermes.ports.approvals import ApprovalRequest, Decision, Isolation
from hermes.ports.turn import Emit, TurnHooks
from hermes.runtimes.codex.plugin import HookedApprovals
from hermes.schema.events import Event, Outcome
from hermes.schema.scope import Scope
from support.cases import cases

SCOPE = Scope("default", "s1", "r1", "/", source="cli")
ARGS = Raw(b'{"command": "rm -rf x"}')
NOTES = """
import json, os, sys
payload = json.load(sys.stdin)
with open({notes!r}, "a") as file:
    file.write(json.dumps([payload, sorted(os.environ), os.getcwd()]) + "\\n")
print({says!r})
sys.exit({code})
"""


class Bench:
    """A home with programs of its owner's."""

    def __init__(self, path: Path) -> None:
        self.home = Home(root=path, path=path)
        self.notes = path / "notes"
        self._lines: list[str] = []

    def program(self, name: str, says: str = "", code: int = 0) -> str:
        file = self.home.path / f"{name}.py"
        file.write_text(NOTES.format(notes=str(self.notes), says=says, code=code))
        return f"{sys.executable} {file}"

    def hook(self, event: str, command: str, **options: object) -> None:
        one = json.dumps({"command": command, **options})
        self._lines.append(f"  {event}: [{one}]\n")

    def accept(self, *given: tuple[str, str]) -> None:
        HookConsents(self.home.shell_hooks).grant(given, SystemClock().now())

    def stood(self) -> list[str]:
        return [json.loads(line)[2] for line in self.notes.read_text().splitlines()]

    def inputs(self) -> list[dict[str, object]]:
        if not self.notes.exists():
            return []
        return [json.loads(line)[0] for line in self.notes.read_text().splitlines()]

    @asynccontextmanager
    async def opened(self, **env: str) -> AsyncGenerator[tuple[App, TurnHooks]]:
        self.home.config.write_text("hooks:\n" + "".join(self._lines))
        variables = Env({"HOME": str(self.home.path), "PATH": "/usr/bin:/bin", **env})
        choices = AppOptions(workspace=str(self.home.path))
        async with open_app(self.home, variables, choices) as app:
            assert app.planner.hooks is not None
            yield app, app.planner.hooks


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


async def test_without_hooks_there_are_none(tmp_path: Path) -> None:
    home, env = Home(root=tmp_path, path=tmp_path), Env({"HOME": str(tmp_path), "PATH": "/bin"})
    async with open_app(home, env, AppOptions(workspace=str(tmp_path))) as app:
        assert app.planner.hooks is None


async def test_hook_blocks_with_its_reason(bench: Bench) -> None:
    guard = bench.program("guard", '{"decision": "block", "reason": "Not on Sundays."}')
    bench.hook("pre_tool_call", guard, matcher="terminal|patch")
    bench.accept(("pre_tool_call", guard))
    async with bench.opened(OPENAI_API_KEY="sk-secret-value-123456") as (app, watch):
        assert app.warnings == []
        assert await watch.before_tool(SCOPE, "terminal", ARGS) == "Not run: Not on Sundays."
        assert await watch.before_tool(SCOPE, "read_file", ARGS) == ""
    (inputs,) = bench.inputs()
    assert inputs == {
        "hook_event_name": "pre_tool_call",
        "tool_name": "terminal",
        "tool_input": {"command": "rm -rf x"},
        "session_id": "s1",
        "cwd": "/",
        "extra": {"run": "r1", "source": "cli"},
    }
    assert "OPENAI_API_KEY" not in bench.notes.read_text()
    # The agent may write where it works, and programs load what lies beside them.
    assert bench.stood() == [str(bench.home.path)]


async def test_unaccepted_hook_is_not_run_and_blocks(bench: Bench) -> None:
    guard = bench.program("guard")
    bench.hook("pre_tool_call", guard)
    async with bench.opened() as (app, watch):
        why = await watch.before_tool(SCOPE, "terminal", ARGS)
        assert why.startswith("Not run: the hook ")
        assert "hermes hooks accept" in why
        assert "hermes hooks accept" in app.warnings[0]
        assert bench.inputs() == []
        bench.accept(("pre_tool_call", guard))
        assert await watch.before_tool(SCOPE, "terminal", ARGS) == ""
        assert len(bench.inputs()) == 1
        # What was accepted is the program as it was.
        bench.program("guard", '{"action": "block"}')
        assert "in its current form" in await watch.before_tool(SCOPE, "terminal", ARGS)
        assert len(bench.inputs()) == 1


async def test_hint_names_the_profile(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    (tmp_path / "profiles" / "work").mkdir(parents=True)
    bench.home = Home(tmp_path, tmp_path / "profiles" / "work", "work")
    bench.hook("pre_tool_call", bench.program("guard"))
    async with bench.opened() as (_, watch):
        why = await watch.before_tool(SCOPE, "terminal", ARGS)
    assert "accept it: hermes -p work hooks accept" in why


async def test_consent_is_for_one_event(bench: Bench) -> None:
    guard = bench.program("guard")
    bench.hook("pre_tool_call", guard)
    bench.accept(("post_tool_call", guard))
    async with bench.opened() as (_, watch):
        assert await watch.before_tool(SCOPE, "terminal", ARGS)


async def test_auto_accept_runs_every_hook(bench: Bench) -> None:
    bench.hook("pre_tool_call", bench.program("guard", '{"action": "block", "message": "No."}'))
    async with bench.opened(HERMES_ACCEPT_HOOKS="1") as (_, watch):
        assert await watch.before_tool(SCOPE, "terminal", ARGS) == "Not run: No."


@pytest.mark.parametrize(
    ("says", "code", "why"),
    [
        ("", 3, "ended with code 3"),
        ('{"decision": "bl', 0, "invalid JSON"),
        ('{"decision": "block"}', 2, "forbids it"),
        ('a warning\n{"decision": "block", "reason": null}', 0, "forbids it"),
        ('[{"decision": "block"}]', 0, "something other"),
        ('{"decision": true}', 0, "unknown decision"),
    ],
)
async def test_hook_with_an_invalid_answer_blocks(
    bench: Bench, says: str, code: int, why: str
) -> None:
    bench.hook("pre_tool_call", bench.program("guard", says, code))
    async with bench.opened(HERMES_ACCEPT_HOOKS="1") as (_, watch):
        assert why in await watch.before_tool(SCOPE, "terminal", ARGS)


@pytest.mark.parametrize(
    ("command", "seconds", "why"),
    [
        ("/nowhere/guard", 60, "could not be run"),
        ("./guard.sh", 60, "absolute path"),
        ("'", 60, "could not be run"),
        ("", 60, "could not be run"),
        ("sleep 600", 0.2, "did not answer within 0.2 s"),
    ],
)
async def test_hook_that_cannot_run_blocks(
    bench: Bench, command: str, seconds: float, why: str
) -> None:
    bench.hook("pre_tool_call", command, timeout=seconds)
    async with bench.opened(HERMES_ACCEPT_HOOKS="1") as (_, watch):
        assert why in await watch.before_tool(SCOPE, "terminal", ARGS)


async def test_no_shell_is_involved(bench: Bench, tmp_path: Path) -> None:
    bench.hook("pre_tool_call", f"echo x > {tmp_path}/made; touch {tmp_path}/made")
    async with bench.opened(HERMES_ACCEPT_HOOKS="1") as (_, watch):
        assert await watch.before_tool(SCOPE, "terminal", ARGS) == ""
    assert not (tmp_path / "made").exists()


async def test_notified_hooks_decide_nothing(bench: Bench) -> None:
    for event in ("post_tool_call", "on_session_start", "on_session_end"):
        bench.hook(event, bench.program(event, '{"decision": "block"}', 1))
    bench.hook("pre_llm_call", bench.program("context", '{"context": "It rains."}'))
    bench.hook("post_api_request", "true")
    async with bench.opened(HERMES_ACCEPT_HOOKS="1") as (app, watch):
        (warning,) = app.warnings
        assert "hooks.post_api_request: unknown event" in warning
        assert await watch.turn_started(SCOPE, "hi", new=True) == "It rains."
        await watch.turn_started(SCOPE, "and?", new=False)
        await watch.after_tool(SCOPE, "terminal", ARGS, "done", failed=False)
        await watch.turn_ended(SCOPE, Outcome.DONE)
    inputs = [(one["hook_event_name"], one["extra"]) for one in bench.inputs()]
    common = {"run": "r1", "source": "cli"}
    assert inputs == [
        ("on_session_start", common),
        ("pre_llm_call", {**common, "user_message": "hi", "is_first_turn": True}),
        ("pre_llm_call", {**common, "user_message": "and?", "is_first_turn": False}),
        ("post_tool_call", {**common, "result": "done", "failed": False}),
        ("on_session_end", {**common, "outcome": "done"}),
    ]


async def test_unaccepted_notified_hook_is_skipped(bench: Bench) -> None:
    bench.hook("pre_llm_call", bench.program("context", '{"context": "It rains."}'))
    async with bench.opened() as (_, watch):
        assert await watch.turn_started(SCOPE, "hi", new=True) == ""
    assert bench.inputs() == []


async def test_consent_file_writable_by_others_is_ignored(bench: Bench) -> None:
    guard = bench.program("guard")
    bench.hook("pre_tool_call", guard)
    bench.accept(("pre_tool_call", guard))
    for mode, text in ((0o666, None), (0o600, "{")):
        bench.home.shell_hooks.chmod(mode)
        if text:
            bench.home.shell_hooks.write_text(text)
        async with bench.opened() as (_, watch):
            assert "shell-hooks-allowlist.json" in await watch.before_tool(SCOPE, "terminal", ARGS)
    assert bench.inputs() == []


def test_older_consent_file_is_valid(tmp_path: Path) -> None:
    file = tmp_path / "list"
    one = {"event": "e", "command": "true", "approved_at": "then", "script_mtime_at_approval": None}
    file.write_text(json.dumps({"approvals": [one]}))
    consents = HookConsents(file)
    assert consents.is_granted("e", "true")
    assert consents.revoke("false") == 0
    assert consents.revoke("") == 1
    assert not consents.is_granted("e", "true")


@cases(
    ("printed", "why"),
    [
        (b'\xef\xbb\xbf{"decision": "block", "reason": "No."}', ""),
        (b'{"Decision": " Block "}', ""),
        (b'{"level": "info"}\n{"decision": "block"}', ""),
        (b'{"decision": "allow"}\n{"action": "deny"}', ""),
        (b'a warning\n\xef\xbb\xbf{"decision": "block"}', ""),
        (b'[{"decision": "block"}]', "something other"),
        (b'"Block"', "something other"),
        (b"block\n", "something other"),
        (b"true", "something other"),
        (b'{"decision": true}', "unknown decision"),
        (b'{"decision": "ask"}', "unknown decision"),
        (b'{"action": ["block"]}', "unknown action"),
        (b'{"permissionDecision": "deny"}', "contains no decision"),
        (b"{'decision': 'block'}", "invalid JSON"),
        (b'guard: {"decision": "block"}', "invalid JSON"),
        (b'a warning\n{\n  "decision": "block"\n}', "invalid JSON"),
        ('{"decision": "block"}'.encode("utf-16"), "UTF-8"),
        (b"\x00\xff\x8e", "UTF-8"),
    ],
)
def test_possible_refusal_blocks_the_call(printed: bytes, why: str) -> None:
    answer = parse_answer(printed)
    assert why in answer.failure
    assert answer.blocks is not bool(why)
    assert answer.blocks is not bool(answer.failure)


@cases(
    "printed",
    [
        b"",
        b"all is well",
        b"[INFO] looked at it\n",
        b"{}",
        b'{"decision": null}',
        b'{"decision": "Allow"}',
        b'a warning\n{"action": "approve", "message": "fine"}',
        b'{"hook_event_name": "pre_tool_call", "tool_input": {"action": "block"}}',
    ],
)
def test_other_output_allows_the_call(printed: bytes) -> None:
    answer = parse_answer(printed)
    assert (answer.failure, answer.blocks) == ("", False)


def test_notified_hook_can_print_any_json() -> None:
    printed = b'{"level": "info"}\n{"context": "It rains."}'
    assert parse_answer(printed, decides=False).fields == {"context": "It rains."}
    assert parse_answer(b'{"level', decides=False).failure


def test_hook_details() -> None:
    assert matches_tool("", "any")
    assert matches_tool("*", "any")
    assert matches_tool("[", "any")
    assert matches_tool("read_.*", "read_file")
    assert not matches_tool("file", "read_file")
    assert hook_seal("'") == "unreadable"


class _Yes:
    async def decide(self, scope: Scope, request: ApprovalRequest, emit: Emit) -> Decision:
        return Decision(allowed=True)

    async def ask_person(self, scope: Scope, text: str, choices: object, emit: Emit) -> str | None:
        return "yes"


async def test_approval_of_another_runtime_passes_the_hooks(bench: Bench) -> None:
    guard = bench.program("guard", '{"decision": "block", "reason": "No."}')
    bench.hook("pre_tool_call", guard, matcher="terminal")

    async def refuse(event: Event) -> None:
        raise AssertionError(event)

    async with bench.opened(HERMES_ACCEPT_HOOKS="1") as (_, watch):
        counsel = HookedApprovals(_Yes(), watch)
        wish = ApprovalRequest(  # noqa: S604 - nothing is started
            tool="terminal", action="ls", reaching=Isolation.BEYOND, shell=True, folder="/"
        )
        assert await counsel.decide(SCOPE, wish, refuse) == Decision(
            allowed=False, why="Not run: No."
        )
        other = ApprovalRequest(tool="patch", action="/x", reaching=Isolation.BEYOND)
        assert (await counsel.decide(SCOPE, other, refuse)).allowed
    assert bench.inputs()[0]["tool_input"] == {"command": "ls", "workdir": "/"}
