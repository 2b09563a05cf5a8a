"""Measure the search of past sessions by words and vectors."""

import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import anyio

from bench.report import Number, show
from bench.store import ROWS, Prose, at_most, bulk, measured
from hermes.kit.clock import SystemClock
from hermes.schema.scope import OWNER
from hermes.store.sqlite import SqliteStore, open_store
from hermes.store.vector_search import has_packages

QUERIES = 300


async def building(store: SqliteStore) -> list[Number]:
    """The first recall starts building the vectors and does not wait for them."""
    archive = store.archive_for(OWNER)
    while (await store.maintenance.index_state()).missing:
        await archive.search("warm up")
    began = time.perf_counter()
    await archive.search_by_meaning("something that was said")
    first = time.perf_counter() - began
    while not await store.maintenance.build_vectors():
        pass
    rate = ROWS / (time.perf_counter() - began)
    return [
        measured("first recall, without vectors", first, "s"),
        measured("building vectors, in the background", rate, "messages/s"),
    ]


async def recalls(store: SqliteStore, prose: Prose) -> list[Number]:
    archive = store.archive_for(OWNER)
    began = time.perf_counter()
    await archive.search_by_meaning("warm up")
    loading = time.perf_counter() - began
    waits: list[float] = []
    for number in range(QUERIES):
        query = prose.query(number)
        began = time.perf_counter()
        await archive.search_by_meaning(query)
        waits.append(time.perf_counter() - began)
    waits.sort()
    return [
        measured("loading all vectors, once per process", loading * 1e3, "ms"),
        at_most(f"recall over {ROWS:,} messages, p95", waits[int(QUERIES * 0.95)] * 1e3, "ms", 50),
        measured("  median", waits[QUERIES // 2] * 1e3, "ms"),
    ]


async def _measure(folder: Path) -> list[Number]:
    prose = Prose(7)
    async with open_store(folder / "hermes.db", SystemClock()) as store:
        await bulk(store, prose)
        lines = await building(store) + await recalls(store, prose)
        stats = await store.maintenance.stats()
        lines.append(measured("database size with vectors", stats.size / 1e6, "MB"))
    return lines


def measure() -> Iterator[Number]:
    if not has_packages():
        yield Number(name="recall by meaning", value=0, note="the extra `recall` is not installed")
        return
    with tempfile.TemporaryDirectory() as folder:
        yield from anyio.run(_measure, Path(folder))


def main() -> int:
    """Return the number of missed limits."""
    return sum(not show(number) for number in measure())


if __name__ == "__main__":
    sys.exit(main())
