"""`make walk`: the functions and stack frames on the way of a message through the program."""

import ast
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection
from itertools import groupby
from pathlib import Path

from msgspec import Struct

from bench.processes import ENV, mock_server
from bench.walk_process import SOURCE

_ARCHITECTURE = Path(__file__).parents[1] / "docs" / "architecture.md"
API_KEY = "walk-0123456789abcdef"
API_PORT = 18642
HOOK_PORT = 18644
_DEADLINE = 60.0
_WATCHED = 2.0
"""Seconds for which the gateway is watched, with a request and without one."""
SETTINGS = "model:\n  default: mock\n  provider: openai\n"
GATEWAY_SETTINGS = f"""\
platforms:
  webhook:
    enabled: true
    extra:
      host: 127.0.0.1
      port: {HOOK_PORT}
      routes:
        walk: {{secret: INSECURE_NO_AUTH, prompt: "hi {{{{text}}}}", deliver: log}}
"""
MOMENTS = {
    "stored": "the request is stored",
    "asked": "the model is asked",
    "printed": "the answer is printed",
    "streamed": "the answer is streamed",
    "sent": "the answer is sent",
}


class Walk(Struct, frozen=True):
    """What one request entered, and our stack at the moments of its way."""

    functions: list[str]
    stacks: dict[str, list[str]]
    background: int = 0
    """Functions that are not listed, because the gateway enters them without a request, too."""

    @property
    def modules(self) -> set[str]:
        return {name.partition(":")[0] for name in self.functions}


def walk_oneshot(env: dict[str, str], folder: Path) -> Walk:
    report = folder / "oneshot.json"
    command = [sys.executable, "-m", "bench.walk_process", str(report), "-", "-z", "hi"]
    subprocess.run(command, env=env, check=True, stdout=subprocess.DEVNULL)
    # The first run also creates the home.
    subprocess.run(command, env=env, check=True, stdout=subprocess.DEVNULL)
    return _read(report)


def walk_gateway(env: dict[str, str], folder: Path) -> Iterator[tuple[str, Walk]]:
    report = folder / "gateway.json"
    with _gateway(env, report) as control:
        time.sleep(5)  # its start is over
        idle = _watch(control, report)
        yield "gateway without requests", idle
        for name, request in (("API", _call_api), ("webhook", _call_webhook)):
            request()  # the first one imports modules
            time.sleep(_WATCHED)
            walk = _watch(control, report, request)
            functions = [one for one in walk.functions if one not in idle.functions]
            yield name, Walk(functions, walk.stacks, len(walk.functions) - len(functions))


def _watch(
    control: Callable[[str], object], report: Path, request: Callable[[], None] | None = None
) -> Walk:
    _send(control, "start", report)
    end = time.monotonic() + _WATCHED
    if request is not None:
        request()
    time.sleep(max(end - time.monotonic(), 0))
    return _send(control, "stop", report)


@contextmanager
def _gateway(env: dict[str, str], report: Path) -> Iterator[Callable[[str], object]]:
    ready, ready_end = os.pipe()
    control_end, control = os.pipe()
    command = [sys.executable, "-m", "bench.walk_process", str(report), str(control_end)]
    command += ["gateway", "run", "--quiet", "--force", "--ready-fd", str(ready_end)]
    inherited = [ready_end, control_end]
    with subprocess.Popen(command, env=env, pass_fds=inherited, stdin=subprocess.DEVNULL) as child:
        os.close(ready_end)
        os.close(control_end)
        with os.fdopen(ready, "rb") as lines:
            if not any(line.startswith(b"READY=1") for line in lines):
                raise SystemExit("the gateway did not start")
        try:
            yield lambda word: os.write(control, f"{word}\n".encode())
        finally:
            child.send_signal(signal.SIGTERM)
            child.wait()
            os.close(control)


def _call_api() -> None:
    message = {"role": "user", "content": "hi"}
    body = {"model": "hermes-agent", "stream": True, "messages": [message]}
    _post(API_PORT, "/v1/chat/completions", body, {"Authorization": f"Bearer {API_KEY}"})


def _call_webhook() -> None:
    _post(HOOK_PORT, "/webhooks/walk", {"text": str(time.time_ns())}, {})


def _post(port: int, path: str, body: object, headers: dict[str, str]) -> None:
    connection = HTTPConnection("127.0.0.1", port, timeout=_DEADLINE)
    headers = {"Content-Type": "application/json", **headers}
    connection.request("POST", path, json.dumps(body), headers)
    response = connection.getresponse()
    text = response.read()
    connection.close()
    if response.status >= 300:
        raise SystemExit(f"{path}: {response.status} {text.decode()}")


def _send(control: Callable[[str], object], word: str, report: Path) -> Walk:
    """Send a control line and return the report that answers it."""
    report.unlink(missing_ok=True)
    control(word)
    return _read(report)


def _read(report: Path) -> Walk:
    end = time.monotonic() + _DEADLINE
    while time.monotonic() < end:
        try:
            found = json.loads(report.read_text())
        except (OSError, ValueError):
            time.sleep(0.05)
            continue
        return Walk(found["functions"], found["stacks"])
    raise SystemExit("the profiled process wrote no report")


def show(name: str, walk: Walk) -> None:
    rest = f", and {walk.background} that the gateway enters by itself" if walk.background else ""
    print(f"{name}: {len(walk.functions)} functions in {len(walk.modules)} modules{rest}")
    for moment, title in MOMENTS.items():
        if (stack := walk.stacks.get(moment)) is not None:
            print(f"  when {title}: {len(stack)} frames")
            for frame in stack:
                module, function, _ = frame.split(":")
                place = f"{module}: {function.replace('.<locals>', '')}"
                print(f"    {place:60} {purpose(frame)}".rstrip())


def purpose(frame: str) -> str:
    """What a frame adds, in one line: from the page on the architecture, or its docstring."""
    module, function, line = frame.split(":")
    file = f"{module.replace('.', '/')}.py"
    named = re.escape(file) + r" +" + re.escape(function.replace(".<locals>", ""))
    if found := re.search(rf"^ *{named} {{2,}}(\S.*)$", _ARCHITECTURE.read_text(), re.MULTILINE):
        return found[1]
    for node in ast.walk(ast.parse(Path(SOURCE, file).read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            if first == int(line):
                return (ast.get_docstring(node) or "").partition("\n")[0]
    return ""


def show_functions(walk: Walk) -> None:
    """Print the entered functions by module, to see what a request goes through."""
    for module, names in groupby(walk.functions, lambda name: name.partition(":")[0]):
        found = [name.split(":")[1].replace(".<locals>", "") for name in names]
        print(f"    {module} ({len(found)}): {', '.join(found)}")


def walks() -> Iterator[tuple[str, Walk]]:
    with tempfile.TemporaryDirectory() as name, mock_server() as url:
        folder = Path(name)
        env = ENV | {
            "HERMES_HOME": str(folder / "home"),
            "HOME": str(folder),
            "OPENAI_BASE_URL": url,
            "OPENAI_API_KEY": "walk",
        }
        (folder / "home").mkdir()
        config = folder / "home" / "config.yaml"
        config.write_text(SETTINGS)
        yield "-z hi", walk_oneshot(env, folder)
        config.write_text(SETTINGS + GATEWAY_SETTINGS)
        api = {"ENABLED": "true", "KEY": API_KEY, "PORT": str(API_PORT)}
        env |= {f"API_SERVER_{name}": value for name, value in api.items()}
        yield from walk_gateway(env, folder)


def main(arguments: Sequence[str]) -> int:
    for name, walk in walks():
        show(name, walk)
        if "--functions" in arguments:
            show_functions(walk)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
