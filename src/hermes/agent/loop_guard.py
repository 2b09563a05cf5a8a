"""Notice an agent that runs in circles: first a hint in the result, then an end with a reason.

Progress is an observation that was not made before. Once something was changed, or
somebody waited, the world may answer differently, so everything may be tried again.
Counting goes by steps: many calls of one answer that fail together are one failure.
"""

from collections import Counter
from hashlib import blake2b

from msgspec import Struct, structs

from hermes.schema.messages import Result, Text, ToolCall
from hermes.schema.tools import Effect

WAIT_SECONDS = {Effect.READ: 5.0, Effect.WRITE: 5.0, Effect.OUTSIDE: 1.0}
"""After how many seconds a call that went well has waited for something."""


class GuardLimits(Struct, frozen=True, kw_only=True):
    """After how many repetitions to hint, and to stop; `stops` turns the latter on."""

    warns: bool = True
    stops: bool = True
    warn_same_failure: int = 2
    warn_tool_failures: int = 3
    warn_no_progress: int = 2
    stop_same_failure: int = 5
    stop_tool_failures: int = 8
    stop_no_progress: int = 5


class LoopGuard:
    """The memory of one turn."""

    def __init__(self, limits: GuardLimits) -> None:
        self._limits = limits
        self._failures: Counter[bytes] = Counter()
        self._repeats: Counter[bytes] = Counter()
        self._changes: set[bytes] = set()
        self._counted: set[bytes] = set()
        self._went_well = False
        self._progressed = False
        self._failed_steps = 0
        self._idle_steps = 0
        self.verdict = ""

    def observe(self, call: ToolCall, effect: Effect, result: Result, took: float = 0.0) -> Result:
        """The result to give to the model; `took` is how many seconds it was worked on."""
        hint = self._judge(call, effect, result, took)
        if not hint or not self._limits.warns:
            return result
        return structs.replace(result, parts=(*result.parts, Text(f"\n[{hint}]")))

    def end_step(self) -> None:
        """All calls of one answer were observed; `verdict` is set once the turn should end."""
        self._failed_steps = 0 if self._went_well else self._failed_steps + 1
        self._idle_steps = 0 if self._progressed else self._idle_steps + 1
        if self._failed_steps >= self._limits.stop_tool_failures:
            self._stop(f"every call of the last {self._failed_steps} steps failed")
        elif self._idle_steps >= self._limits.stop_no_progress:
            self._stop(f"the last {self._idle_steps} steps brought nothing new")
        self._counted.clear()
        self._went_well = self._progressed = False

    def _judge(self, call: ToolCall, effect: Effect, result: Result, took: float) -> str:
        asked = _digest(call.name.encode(), bytes(call.args))
        seen = _digest(asked, *_result_bytes(result))
        if result.failed:
            self._progressed |= self._count(self._repeats, seen) == 1
            return self._judge_failure(call.name, asked)
        self._went_well = True
        if took >= WAIT_SECONDS[effect]:
            self._forget()
            self._changes.clear()
            self._progressed = True
            return ""
        return self._judge_success(call.name, effect, asked, seen)

    def _judge_success(self, tool: str, effect: Effect, asked: bytes, seen: bytes) -> str:
        limits = self._limits
        self._failures[asked] = self._failures[tool.encode()] = 0
        if effect is Effect.READ:
            times = self._count(self._repeats, seen)
            self._progressed |= times == 1
            return self._judge_repeat(tool, times, limits.stop_no_progress)
        if seen not in self._changes:
            self._changes.add(seen)
            self._forget()
            self._progressed = True
        times = self._count(self._repeats, seen)
        if effect is Effect.WRITE:
            return self._judge_repeat(tool, times, limits.stop_no_progress)
        # What lies outside may change by itself: to look again is not idle, only impatient.
        self._progressed = True
        return self._judge_repeat(tool, times, limits.stop_tool_failures)

    def _judge_failure(self, tool: str, asked: bytes) -> str:
        limits = self._limits
        same = self._count(self._failures, asked)
        of_tool = self._count(self._failures, tool.encode())
        if same >= limits.stop_same_failure:
            self._stop(f"the same {tool} call failed {same} times")
        elif of_tool >= limits.stop_tool_failures:
            self._stop(f"{tool} failed {of_tool} times in a row")
        if same >= limits.warn_same_failure:
            return f"This very call has failed {same} times. Change it or try another way."
        if of_tool >= limits.warn_tool_failures:
            return f"{tool} has failed {of_tool} times in a row. Think about why before going on."
        return ""

    def _judge_repeat(self, tool: str, times: int, patience: int) -> str:
        if times >= patience:
            self._stop(f"the same {tool} call gave the same result {times} times")
        if times > self._limits.warn_no_progress:
            return (
                f"This call has given the same result {times} times. Use what you have; "
                "if you wait for something, do it inside one call."
            )
        return ""

    def _count(self, counter: Counter[bytes], key: bytes) -> int:
        """How many steps have shown this, with the present one."""
        if key not in self._counted:
            self._counted.add(key)
            counter[key] += 1
        return max(counter[key], 1)

    def _forget(self) -> None:
        """The world may answer differently from now on."""
        self._failures.clear()
        self._repeats.clear()
        self._failed_steps = 0

    def _stop(self, reason: str) -> None:
        if self._limits.stops:
            self.verdict = self.verdict or reason


def _result_bytes(result: Result) -> list[bytes]:
    parts = (part.text if isinstance(part, Text) else part.digest for part in result.parts)
    return [b"failed" if result.failed else b"", *(part.encode() for part in parts)]


def _digest(*parts: bytes) -> bytes:
    return blake2b(b"\0".join(parts), digest_size=16).digest()
