"""Detect an agent that repeats itself: first add a hint to the result, then stop the turn.

Progress is a result not seen before. After a change or a wait, results may differ, so
repetitions are allowed again. Counting goes by steps: several calls of one answer that fail
together count as one failure.
"""

from collections import Counter
from hashlib import blake2b

from msgspec import Struct, structs

from hermes.schema.messages import Result, Text, ToolCall
from hermes.schema.tools import Effect

WAIT_SECONDS = {Effect.READ: 5.0, Effect.WRITE: 5.0, Effect.OUTSIDE: 1.0}
"""A successful call that took this many seconds was waiting for something."""


class GuardLimits(Struct, frozen=True, kw_only=True):
    """Repetitions until a hint and until the turn is stopped."""

    warns: bool = True
    stops: bool = True
    warn_same_failure: int = 2
    warn_tool_failures: int = 3
    warn_no_progress: int = 2
    stop_same_failure: int = 5
    stop_tool_failures: int = 8
    stop_no_progress: int = 5


class LoopGuard:
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
        """Return the result for the model, with a hint if needed; `took` is in seconds."""
        hint = self._judge(call, effect, result, took)
        if not hint or not self._limits.warns:
            return result
        return structs.replace(result, parts=(*result.parts, Text(f"\n[{hint}]")))

    def end_step(self) -> None:
        """Finish the calls of one answer; sets `verdict` if the turn should end."""
        self._failed_steps = 0 if self._went_well else self._failed_steps + 1
        self._idle_steps = 0 if self._progressed else self._idle_steps + 1
        if self._failed_steps >= self._limits.stop_tool_failures:
            self._stop(f"every call of the last {self._failed_steps} steps failed")
        elif self._idle_steps >= self._limits.stop_no_progress:
            self._stop(f"the last {self._idle_steps} steps produced nothing new")
        self._counted.clear()
        self._went_well = self._progressed = False

    def _judge(self, call: ToolCall, effect: Effect, result: Result, took: float) -> str:
        call_key = _digest(call.name.encode(), bytes(call.args))
        result_key = _digest(call_key, *_result_bytes(result))
        if result.failed:
            self._progressed |= self._count(self._repeats, result_key) == 1
            return self._judge_failure(call.name, call_key)
        self._went_well = True
        if took >= WAIT_SECONDS[effect]:
            self._forget()
            self._changes.clear()
            self._progressed = True
            return ""
        return self._judge_success(call.name, effect, call_key, result_key)

    def _judge_success(self, tool: str, effect: Effect, call_key: bytes, result_key: bytes) -> str:
        limits = self._limits
        self._failures[call_key] = self._failures[tool.encode()] = 0
        if effect is not Effect.READ and result_key not in self._changes:
            self._changes.add(result_key)
            self._forget()
            self._progressed = True
        times = self._count(self._repeats, result_key)
        if effect is Effect.OUTSIDE:
            # External state may change by itself, so checking it again still counts as progress.
            self._progressed = True
            return self._judge_repeat(tool, times, limits.stop_tool_failures)
        self._progressed |= effect is Effect.READ and times == 1
        return self._judge_repeat(tool, times, limits.stop_no_progress)

    def _judge_failure(self, tool: str, call_key: bytes) -> str:
        limits = self._limits
        same_failures = self._count(self._failures, call_key)
        tool_failures = self._count(self._failures, tool.encode())
        if same_failures >= limits.stop_same_failure:
            self._stop(f"the same {tool} call failed {same_failures} times")
        elif tool_failures >= limits.stop_tool_failures:
            self._stop(f"{tool} failed {tool_failures} times in a row")
        if same_failures >= limits.warn_same_failure:
            times = f"{same_failures} times"
            return f"This exact call has failed {times}. Change it or try another way."
        if tool_failures >= limits.warn_tool_failures:
            return f"{tool} has failed {tool_failures} times in a row. Think about the cause first."
        return ""

    def _judge_repeat(self, tool: str, times: int, limit: int) -> str:
        if times >= limit:
            self._stop(f"the same {tool} call gave the same result {times} times")
        if times > self._limits.warn_no_progress:
            return (
                f"This call has given the same result {times} times. Use what you have; "
                "if you wait for something, do it inside one call."
            )
        return ""

    def _count(self, counter: Counter[bytes], key: bytes) -> int:
        """The number of steps with this key, including the current one."""
        if key not in self._counted:
            self._counted.add(key)
            counter[key] += 1
        return max(counter[key], 1)

    def _forget(self) -> None:
        """Reset the counters, because later results may differ."""
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
