"""`make bench`: every number of ours in one run, each beside what it may be."""

import sys

from bench import processes, store, turns
from bench.report import show


def main() -> int:
    verdicts = [show(number) for part in (processes, turns) for number in part.measure()]
    store.main()
    return 0 if all(verdicts) else 1


sys.exit(main())
