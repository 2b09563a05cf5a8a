"""Run one Python program in the sandbox, with the agent's tools as functions of a module.

Passed as source text to the project's Python, so it uses only the standard library and the syntax
of Python 3.8. Standard input carries the program and the results of calls, standard output the
calls, one JSON object per line. Output of the program and its children is read from pipes and
sent as messages of its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import traceback
import types
from typing import Callable, Dict  # noqa: UP035 older Pythons run this

SendMessage = Callable[[Dict[str, object]], None]  # noqa: UP006 older Pythons run this


class ToolFailed(Exception):
    """A tool call failed; the message is the tool's."""


class AgentPipe:
    """The connection to the agent, separate from the program's own standard output."""

    def __init__(self) -> None:
        self._out = os.dup(1)
        self._lock = threading.Lock()
        self._turn = threading.Lock()

    def send(self, message: dict[str, object]) -> None:
        view = memoryview(json.dumps(message).encode() + b"\n")
        with self._lock:
            while view:
                view = view[os.write(self._out, view) :]

    def call(self, name: str, arguments: dict[str, object]) -> object:
        with self._turn:
            self.send({"call": name, "args": arguments})
            line = sys.stdin.buffer.readline()
        if not line:
            raise ToolFailed("the agent is no longer running")
        answer = json.loads(line)
        try:
            # A command with a nonzero exit code did run: the program judges that itself.
            return json.loads(answer["text"])
        except ValueError:
            if answer["failed"]:
                raise ToolFailed(answer["text"]) from None
            return answer["text"]


def main() -> None:
    pipe = AgentPipe()
    readers = [relay_output(1, "out", pipe.send), relay_output(2, "err", pipe.send)]
    start = json.loads(sys.stdin.buffer.readline())
    install_tools(start["tools"], pipe)
    code = run_program(start["code"])
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    for fd, reader in ((1, readers[0]), (2, readers[1])):
        os.close(fd)
        reader.join(2.0)
    pipe.send({"end": code})
    os._exit(0)


def relay_output(fd: int, name: str, send: SendMessage) -> threading.Thread:  # noqa: TID251 runs without hermes
    """Send everything written to `fd`, even by child processes, as messages."""
    out, into = os.pipe()
    os.dup2(into, fd, inheritable=True)
    os.close(into)

    def relay() -> None:
        data = os.read(out, 65536)
        while data:
            send({name: data.decode("utf-8", "replace")})
            data = os.read(out, 65536)

    reader = threading.Thread(target=relay, daemon=True)  # noqa: TID251 runs without hermes
    reader.start()
    return reader


def install_tools(tools: dict[str, list[str]], pipe: AgentPipe) -> None:
    """Make the tools importable from `hermes_tools`, and available as plain functions."""
    module = types.ModuleType("hermes_tools")

    def make(name: str, names: list[str]) -> Callable[..., object]:
        def function(*args: object, **kwargs: object) -> object:
            if len(args) > len(names):
                raise TypeError("{} takes {}".format(name, ", ".join(names)))
            arguments = {names[index]: value for index, value in enumerate(args)}
            arguments.update(kwargs)
            return pipe.call(name, arguments)

        function.__name__ = name
        function.__doc__ = "{}({})".format(name, ", ".join(names))
        return function

    vars(module)["ToolFailed"] = ToolFailed
    for name, names in tools.items():
        vars(module)[name] = make(name, names)
    sys.modules["hermes_tools"] = module


def run_program(code: str) -> int:
    space: dict[str, object] = {"__name__": "__main__", "__builtins__": __builtins__}
    tools = vars(sys.modules["hermes_tools"])
    space.update((name, tools[name]) for name in tools if not name.startswith("_"))
    try:
        exec(compile(code, "<code>", "exec"), space)  # noqa: S102 this is its purpose
    except SystemExit as exit_:
        if exit_.code is None or isinstance(exit_.code, int):
            return exit_.code or 0
        sys.stderr.write(f"{exit_.code}\n")
        return 1
    except BaseException:  # noqa: BLE001 the program's own error, shown like Python does
        kind, error, trace = sys.exc_info()
        traceback.print_exception(kind, error, trace.tb_next if trace else None)
        return 1
    return 0


if __name__ == "__main__":
    main()
