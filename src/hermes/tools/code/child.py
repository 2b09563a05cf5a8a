"""Runs in the sandbox: one program, with the agent's tools as functions of a module.

Given to a Python of the project's as text, so it stands on the standard library alone and
knows no newer syntax than Python 3.8's. Its standard input brings the program and the results
of calls, its standard output takes calls away, one JSON object a line. What the program and
its own children print goes through pipes and comes out as lines of their own.
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
    """What the tool said when it could not do it."""


class AgentPipe:
    """The way out, kept from the program: its own standard output is a pipe."""

    def __init__(self) -> None:
        self._out = os.dup(1)
        self._lock = threading.Lock()
        self._turn = threading.Lock()

    def tell(self, message: dict[str, object]) -> None:
        view = memoryview(json.dumps(message).encode() + b"\n")
        with self._lock:
            while view:
                view = view[os.write(self._out, view) :]

    def call(self, name: str, given: dict[str, object]) -> object:
        with self._turn:
            self.tell({"call": name, "args": given})
            line = sys.stdin.buffer.readline()
        if not line:
            raise ToolFailed("the agent is gone")
        answer = json.loads(line)
        try:
            # A command that ends with another code than 0 has run: the program judges that itself.
            return json.loads(answer["text"])
        except ValueError:
            if answer["failed"]:
                raise ToolFailed(answer["text"]) from None
            return answer["text"]


def main() -> None:
    wire = AgentPipe()
    readers = [relay_output(1, "out", wire.tell), relay_output(2, "err", wire.tell)]
    given = json.loads(sys.stdin.buffer.readline())
    install_tools(given["tools"], wire)
    code = run_program(given["code"])
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    for fd, reader in ((1, readers[0]), (2, readers[1])):
        os.close(fd)
        reader.join(2.0)
    wire.tell({"end": code})
    os._exit(0)


def relay_output(fd: int, name: str, tell: SendMessage) -> threading.Thread:  # noqa: TID251 no house here
    """Whatever is written to `fd`, by whomever, is told."""
    out, into = os.pipe()
    os.dup2(into, fd, inheritable=True)
    os.close(into)

    def listen() -> None:
        data = os.read(out, 65536)
        while data:
            tell({name: data.decode("utf-8", "replace")})
            data = os.read(out, 65536)

    reader = threading.Thread(target=listen, daemon=True)  # noqa: TID251 no house here
    reader.start()
    return reader


def install_tools(tools: dict[str, list[str]], wire: AgentPipe) -> None:
    """`from hermes_tools import read_file` works, and so do plain calls of the functions."""
    module = types.ModuleType("hermes_tools")

    def make(name: str, names: list[str]) -> Callable[..., object]:
        def function(*args: object, **kwargs: object) -> object:
            if len(args) > len(names):
                raise TypeError("{} takes {}".format(name, ", ".join(names)))
            given = {names[place]: value for place, value in enumerate(args)}
            given.update(kwargs)
            return wire.call(name, given)

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
        exec(compile(code, "<code>", "exec"), space)  # noqa: S102 it is what this is for
    except SystemExit as left:
        if left.code is None or isinstance(left.code, int):
            return left.code or 0
        sys.stderr.write(f"{left.code}\n")
        return 1
    except BaseException:  # noqa: BLE001 the program's own trouble, shown as Python shows it
        kind, error, trace = sys.exc_info()
        traceback.print_exception(kind, error, trace.tb_next if trace else None)
        return 1
    return 0


if __name__ == "__main__":
    main()
