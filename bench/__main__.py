"""`make bench`: run all benchmarks and print each number with its limit."""

import sys

from bench import (
    api,
    gateway,
    hands,
    learning,
    processes,
    recall,
    spawn,
    store,
    tokens,
    tui,
    turns,
    wires,
)
from bench.report import show


def main() -> int:
    hosts = (gateway, api, tokens, wires)
    parts = (processes, tui, turns, spawn, hands, store, recall, learning, *hosts)
    verdicts = [show(number) for part in parts for number in part.measure()]
    return 0 if all(verdicts) else 1


sys.exit(main())
