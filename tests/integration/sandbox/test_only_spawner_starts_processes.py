"""Only the spawner starts processes: checked in the code and at run time."""

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import hermes
from hermes.testing.fake_openai import Reply, Script
from hermes.testing.fake_openai.script import Call, Rule
from support.cli_process import TEST_TIMEOUT, FakeModelProcess, fake_model_process
from support.mcp_harness import stdio_server

SOURCE = Path(hermes.__file__).parent
SPAWNER_FILES = {"sandbox/spawner.py", "sandbox/reaper.py", "sandbox/landlock_launcher.py"}
EXCEPTIONS = {
    "app/service/launcher.py": "the gateway itself, which must outlive the command that starts it",
    "app/service/systemd.py": "systemctl, asked for by the owner on the command line",
    "cli/editor.py": "the owner's editor, which needs the owner's own terminal",
    "cli/pager.py": "the owner's pager, which needs the owner's own terminal",
    "cli/shell_escape.py": "commands that the owner types after `!`, and the owner's clipboard",
    "cli/verbs/gateway/foreground.py": "the program becomes the gateway, so no owner is left",
    "web/doctor.py": "hermes doctor, asked for by the owner on the page",
}
TEST_PACKAGES = {"testing"}
"""Parts of the package that only tests and benchmarks run."""

MODULES = {
    "subprocess",
    "pty",
    "multiprocessing",
    "popen2",
    "pexpect",
    "concurrent.futures.process",
}
CALLS = (
    "system", "popen", "fork", "forkpty", "posix_spawn", "posix_spawnp", "startfile", "execv",
    "execve", "execvp", "execvpe", "execl", "execle", "execlp", "execlpe", "spawnl", "spawnle",
    "spawnlp", "spawnlpe", "spawnv", "spawnve", "spawnvp", "spawnvpe",
)  # fmt: skip
ASYNC = {"create_subprocess_exec", "create_subprocess_shell", "subprocess_exec", "open_process",
         "run_process", "ProcessPoolExecutor", "to_process", "stdio_client",
         "StdioServerParameters"}  # fmt: skip


def starts_processes(tree: ast.Module) -> list[str]:
    found: list[str] = []
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                found += [alias.name for alias in names if alias.name in MODULES]
            case ast.ImportFrom(module=str(module), names=names):
                found += [module] if module in MODULES else []
                found += [alias.name for alias in names if alias.name in ASYNC]
                found += [a.name for a in names if module == "os" and a.name in CALLS]
            case ast.Attribute(value=ast.Name(id="os"), attr=attr) if attr in CALLS:
                found.append(f"os.{attr}")
            case ast.Attribute(attr=attr) if attr in ASYNC:
                found.append(attr)
            case _:
                pass
    return found


def test_no_other_module_can_start_a_process():
    found = {
        str(file.relative_to(SOURCE)): names
        for file in sorted(SOURCE.rglob("*.py"))
        if file.relative_to(SOURCE).parts[0] not in TEST_PACKAGES
        and (names := starts_processes(ast.parse(file.read_text())))
    }
    assert {*found} - SPAWNER_FILES - {*EXCEPTIONS} == set(), found


def test_every_exception_is_still_needed():
    for name in EXCEPTIONS:
        assert starts_processes(ast.parse((SOURCE / name).read_text())), name


WATCHER = """
import json, os, sys

EVENTS = {"subprocess.Popen", "os.system", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec",
          "os.spawn", "os.startfile", "pty.spawn"}
SEEN = []

def starter():
    frame = sys._getframe(2)
    while frame is not None:
        name = frame.f_code.co_filename
        if "/hermes/" in name and "/site-packages/" not in name:
            return name.rpartition("/hermes/")[2]
        frame = frame.f_back
    return "other code"

def watch(event, args):
    if event in EVENTS:
        SEEN.append([event, starter()])

sys.addaudithook(watch)
from hermes.cli.main import main

codes = {}
for args in json.loads(sys.argv[1]):
    try:
        codes[" ".join(args)] = main(args)
    except SystemExit as end:
        codes[" ".join(args)] = end.code
print()
print(json.dumps({"seen": SEEN, "codes": codes}))
"""

WORK = Script(
    rules=[
        Rule(
            "work",
            [
                Reply("", [Call("write_file", {"path": "a.py", "content": "print(1)\n"})]),
                Reply("", [Call("terminal", {"command": "python3 a.py; echo from-the-shell"})]),
                Reply("", [Call("search_files", {"pattern": "print"})]),
                Reply(
                    "",
                    [Call("patch", {"path": "a.py", "old_string": "1", "new_string": "2"})],
                ),
                Reply("", [Call("read_file", {"path": "a.py"})]),
                Reply("", [Call("terminal", {"command": "sleep 0.1", "background": True})]),
                Reply("", [Call("mcp__play__add", {"a": 40, "b": 2})]),
                Reply("All done."),
            ],
        )
    ],
    default=Reply("Hi."),
)
VERBS = [
    ["--version"], ["-z", "hi"], ["-z", "please work"], ["sessions", "list"],
    ["config", "get", "model.default"], ["config", "set", "model.default", "mock"],
    ["profile", "list"], ["profile", "create", "other"], ["completion", "bash"],
]  # fmt: skip


@pytest.fixture
def model(tmp_path: Path) -> Iterator[FakeModelProcess]:
    with fake_model_process(tmp_path / "model", WORK) as running:
        yield running


def test_only_the_spawner_starts_processes_at_run_time(model: FakeModelProcess, tmp_path: Path):
    work = tmp_path / "work"
    work.mkdir()
    servers = {
        "mcp_servers": {"play": stdio_server(tmp_path)},
        "mcp_discovery_timeout": TEST_TIMEOUT,
    }
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.yaml").write_text(json.dumps(servers))
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "HERMES_HOME": str(tmp_path / "home"),
        "OPENAI_BASE_URL": model.url,
        "OPENAI_API_KEY": "sk-x",
        "HERMES_INFERENCE_PROVIDER": "openai",
        "HERMES_INFERENCE_MODEL": "mock",
        "HERMES_YOLO_MODE": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", WATCHER, json.dumps(VERBS)], env=env, cwd=work, text=True,
        stdin=subprocess.DEVNULL, capture_output=True, timeout=TEST_TIMEOUT, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert set(result["codes"].values()) <= {0, None}, result
    results = [r["content"] for r in model.requests()[-1]["messages"] if r["role"] == "tool"]
    assert any("from-the-shell" in str(result) for result in results), results
    assert "42" in results
    assert result["seen"], "the shell was used, so the spawner must have started its reaper"
    assert {where for _, where in result["seen"]} == {"sandbox/spawner.py"}, result["seen"]
