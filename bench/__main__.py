"""`make bench`: run all benchmarks and print each number with its limit."""

import sys
from collections.abc import Sequence

from bench import (
    api,
    board,
    channels,
    gateway,
    jobs,
    learning,
    processes,
    search,
    spawn,
    store,
    streaming,
    tokens,
    tools,
    tui,
    turns,
    web,
    wires,
)
from bench.report import show


def main(names: Sequence[str]) -> int:
    hosts = (gateway, channels, streaming, jobs, api, tokens, wires, web)
    parts = (processes, tui, turns, spawn, tools, store, search, board, learning, *hosts)
    if names:
        parts = tuple(part for part in parts if part.__name__.rpartition(".")[2] in names)
    verdicts = [show(number) for part in parts for number in part.measure()]
    return 0 if all(verdicts) else 1


sys.exit(main(sys.argv[1:]))
