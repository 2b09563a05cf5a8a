"""`make bench`: run all benchmarks and print each number with its limit."""

import sys

from bench import (
    api,
    gateway,
    learning,
    processes,
    search,
    spawn,
    store,
    tokens,
    tools,
    tui,
    turns,
    wires,
)
from bench.report import show


def main() -> int:
    hosts = (gateway, api, tokens, wires)
    parts = (processes, tui, turns, spawn, tools, store, search, learning, *hosts)
    verdicts = [show(number) for part in parts for number in part.measure()]
    return 0 if all(verdicts) else 1


sys.exit(main())
