"""`make bench`: every number of ours in one run, each beside what it may be."""

import sys

from bench import api, gateway, processes, recall, spawn, store, tokens, tui, turns, wires
from bench.report import show


def main() -> int:
    parts = (processes, tui, turns, spawn, store, recall, gateway, api, tokens, wires)
    verdicts = [show(number) for part in parts for number in part.measure()]
    return 0 if all(verdicts) else 1


sys.exit(main())
