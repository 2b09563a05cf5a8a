"""Print one line per number: the value, its limit, and whether it is met."""

import sys
from typing import Literal

from msgspec import Struct


class Number(Struct, frozen=True, kw_only=True):
    name: str
    value: float
    unit: str = ""
    bar: float | None = None
    sense: Literal["most", "least"] = "most"
    note: str = ""

    @property
    def ok(self) -> bool:
        if self.bar is None:
            return True
        return self.value <= self.bar if self.sense == "most" else self.value >= self.bar


def show(number: Number) -> bool:
    sign = "" if number.bar is None else ("<=" if number.sense == "most" else ">=")
    bar = f"{sign} {number.bar:,g} {number.unit}".rstrip() if sign else ""
    verdict = "" if number.bar is None else ("ok" if number.ok else "MISSED")
    value = f"{number.value:,.3g}" if abs(number.value) < 1000 else f"{number.value:,.0f}"
    row = f"{number.name:<54} {value:>10} {number.unit:<8} {bar:<18} {verdict:<7} {number.note}"
    sys.stdout.write(row.rstrip() + "\n")
    sys.stdout.flush()
    return number.ok
