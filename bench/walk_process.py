"""Run `hermes` under a profiler that records which of its functions a request enters.

    python -m bench.walk_process REPORT CONTROL ARGUMENTS...

`CONTROL` is a file descriptor. A line `start` discards what was recorded; it, `stop` and the end
of the process write the report.
"""

import json
import os
import sys
import threading
from pathlib import Path
from types import CodeType, FrameType

SOURCE = str(Path(__file__).parents[1] / "src" / "hermes") + os.sep
_NOT_FUNCTIONS = frozenset({"<module>", "<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>"})
_CLASS_BODY = 0x02  # CO_NEWLOCALS is set for functions only
POINTS = {
    "stored": ("store/engine.py", "Engine.write"),
    "asked": ("models/endpoint.py", "Endpoint.post"),
    "printed": ("cli/verbs/chat/oneshot.py", "_print_answer"),
    "sent": ("channels/webhook/channel.py", "WebhookChannel.send"),
}
"""The functions at whose first call the stack is recorded."""
_STREAMED = ("web_response.py", "StreamResponse.write")


class Recorder:
    def __init__(self, report: Path) -> None:
        self._report = report
        self._importing = threading.local()
        self.discard()

    def discard(self) -> None:
        self._entered: set[CodeType] = set()
        self._stacks: dict[str, list[str]] = {}

    def profile(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if code.co_name == "_find_and_load" and code.co_filename.startswith("<frozen importlib"):
            depth = getattr(self._importing, "depth", 0)
            self._importing.depth = depth + (event == "call") - (event == "return")
            return
        if event != "call" or code in self._entered or getattr(self._importing, "depth", 0):
            return
        if code.co_filename.startswith(SOURCE):
            if code.co_flags & _CLASS_BODY and code.co_name not in _NOT_FUNCTIONS:
                self._entered.add(code)
                self._record_stack(frame, code)
        elif code.co_qualname == _STREAMED[1] and code.co_filename.endswith(_STREAMED[0]):
            self._stacks.setdefault("streamed", _stack(frame))

    def _record_stack(self, frame: FrameType, code: CodeType) -> None:
        for name, (file, function) in POINTS.items():
            if code.co_qualname == function and code.co_filename == SOURCE + file:
                self._stacks.setdefault(name, _stack(frame))

    def write(self) -> None:
        functions = sorted(map(_name, self._entered.copy()))
        self._report.write_text(json.dumps({"functions": functions, "stacks": self._stacks}))


def _stack(frame: FrameType | None) -> list[str]:
    """Our frames of this task or thread, outermost first, without those of libraries."""
    frames: list[str] = []
    while frame is not None and frame.f_code.co_qualname != "BaseEventLoop._run_once":
        if frame.f_code.co_filename.startswith(SOURCE):
            frames.append(_name(frame.f_code))
        frame = frame.f_back
    return frames[::-1]


def _name(code: CodeType) -> str:
    module = code.co_filename.removeprefix(SOURCE).removesuffix(".py").replace(os.sep, ".")
    return f"{module}:{code.co_qualname}:{code.co_firstlineno}"


def _obey(control: int, recorder: Recorder) -> None:
    with os.fdopen(control) as lines:
        for line in lines:
            if line.strip() == "start":
                recorder.discard()
            recorder.write()


def main() -> int:
    report, control, *words = sys.argv[1:]
    recorder = Recorder(Path(report))
    if control != "-":
        threading.Thread(target=_obey, args=(int(control), recorder), daemon=True).start()
    sys.argv = ["hermes", *words]
    threading.setprofile(recorder.profile)
    sys.setprofile(recorder.profile)
    from hermes.cli.main import main as run  # noqa: PLC0415 - its import is profiled, too

    try:
        return run(words)
    finally:
        sys.setprofile(None)
        if control == "-":
            recorder.write()


if __name__ == "__main__":
    sys.exit(main())
