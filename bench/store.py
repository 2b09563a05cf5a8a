"""Measure the store."""

import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path

import anyio

from bench.report import Number, show
from hermes.kit.clock import SystemClock
from hermes.ports.store import AppendMessage, OpenSession, Write
from hermes.schema.messages import Assistant, Message, Result, Stop, Text, User
from hermes.schema.scope import OWNER
from hermes.schema.sessions import Session, SessionFilter
from hermes.store.sqlite import SqliteStore, open_store

ROWS = 200_000
BATCH = 1_000
SESSIONS = 500
WRITERS = 64
SINGLES = 8_000
QUERIES = 600
AT = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
CJK = "我们明天去東京出差请帮忙查看日志文件今日は良い天気ですね会議資料を準備してください한국어검색"


class Prose:
    """Random text with few common and many rare words, code, numbers and CJK."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)  # noqa: S311 - sample text, not a secret
        syllables = [a + b for a in "bcdfghklmnprstvw" for b in ("a", "e", "i", "o", "u", "an")]
        self.words = sorted(
            {"".join(self._chance.choices(syllables, k=k)) for k in (1, 2, 2, 3, 3, 4) * 6_000}
        )
        self._chance.shuffle(self.words)
        self._weights = list(accumulate(1 / (rank + 3) for rank in range(len(self.words))))

    def words_of(self, count: int) -> list[str]:
        return self._chance.choices(self.words, cum_weights=self._weights, k=count)

    def text(self) -> str:
        said = " ".join(self.words_of(self._chance.choice((4, 8, 15, 25, 40, 80))))
        match self._chance.randrange(10):
            case 0:
                return "".join(self._chance.choices(CJK, k=self._chance.randrange(5, 60)))
            case 1:
                name = "_".join(self.words_of(3))
                return f"{said}\ndef {name}(x: int) -> str:\n    return load('/srv/{name}.py', x)"
            case 2:
                return f"{said} (#{self._chance.randrange(10**6)}) café naïve"
            case _:
                return said.capitalize() + "."

    def message(self, number: int) -> Message:
        text = (Text(self.text()),)
        match number % 4:
            case 0:
                return User(f"m{number}", text)
            case 3:
                return Result(f"m{number}", "c", text)
            case _:
                return Assistant(f"m{number}", text, Stop.END)

    def query(self, number: int) -> str:
        rare = self._chance.choice(self.words)
        common, other = self.words_of(2)
        start = self._chance.randrange(len(CJK) - 3)
        kinds = (
            common,
            rare,
            f"{common} {other}",
            f'"{common} {other}"',
            f"{rare[:4]}*",
            rare[1:5],
            f"{rare[1:5]} {common}",
            CJK[start : start + 1 + number % 3],
            f"{common}_{other}",
            f"{rare} {common} nowhere",
        )
        return kinds[number % len(kinds)]


def batches(prose: Prose) -> Iterator[list[Write]]:
    for start in range(0, ROWS, BATCH):
        yield [
            AppendMessage(f"s{number % SESSIONS}", "run", prose.message(number), AT)
            for number in range(start, start + BATCH)
        ]


async def bulk(store: SqliteStore, prose: Prose) -> Number:
    """Use two writers, so that one batch waits while another is written."""
    ready = list(batches(prose))
    await store.commit(*(OpenSession(_session(number)) for number in range(SESSIONS)))
    began = time.perf_counter()

    async def write(share: Sequence[list[Write]]) -> None:
        for batch in share:
            await store.commit(*batch)

    async with anyio.create_task_group() as group:
        group.start_soon(write, ready[::2])
        group.start_soon(write, ready[1::2])
    rate = ROWS / (time.perf_counter() - began)
    return at_least("batched appends", rate, "rows/s", 50_000)


async def catching_up(store: SqliteStore) -> Number:
    began = time.perf_counter()
    while (await store.maintenance.index_state()).missing:
        await store.archive_for(OWNER).search("anything")
    return measured("indexing for search", ROWS / (time.perf_counter() - began), "rows/s")


async def singles(store: SqliteStore, prose: Prose) -> list[Number]:
    waits: list[float] = []

    async def write(writer: int) -> None:
        for number in range(SINGLES // WRITERS):
            began = time.perf_counter()
            await store.commit(AppendMessage(f"s{writer}", "run", prose.message(number), AT))
            waits.append(time.perf_counter() - began)

    began = time.perf_counter()
    async with anyio.create_task_group() as group:
        for writer in range(WRITERS):
            group.start_soon(write, writer)
    rate = len(waits) / (time.perf_counter() - began)
    return [
        at_least(f"durable single appends, {WRITERS} writers", rate, "rows/s", 2_000),
        measured("  p95 of one", _p95(waits) * 1e3, "ms"),
    ]


async def alone(store: SqliteStore, prose: Prose) -> Number:
    began = time.perf_counter()
    for number in range(500):
        await store.commit(AppendMessage("s0", "run", prose.message(number), AT))
    return measured(
        "durable single appends, 1 writer", 500 / (time.perf_counter() - began), "rows/s"
    )


async def searches(store: SqliteStore, prose: Prose) -> list[Number]:
    archive = store.archive_for(OWNER)
    await archive.search("warm up")
    waits: list[float] = []
    slowest: dict[int, list[float]] = {}
    hits = 0
    for number in range(QUERIES):
        query = prose.query(number)
        began = time.perf_counter()
        hits += len((await archive.search(query)).hits) > 0
        waits.append(time.perf_counter() - began)
        slowest.setdefault(number % 10, []).append(waits[-1])
    kinds = (
        *("word", "rare word", "two words", "phrase", "prefix"),
        *("substring", "substring and word", "CJK", "code", "no match"),
    )
    return [
        at_most(f"search over {ROWS:,} messages, p95", _p95(waits) * 1e3, "ms", 20),
        measured("  median", sorted(waits)[len(waits) // 2] * 1e3, "ms"),
        *(
            measured(f"  p95 of {kinds[k]}", _p95(v) * 1e3, "ms")
            for k, v in sorted(slowest.items())
        ),
        measured("  queries with results", 100 * hits / QUERIES, "%"),
    ]


async def listings(store: SqliteStore) -> list[Number]:
    archive = store.archive_for(OWNER)
    waits: list[float] = []
    for number in range(200):
        began = time.perf_counter()
        await archive.list(SessionFilter(), limit=50, offset=number % 400)
        waits.append(time.perf_counter() - began)
    began = time.perf_counter()
    count = len(await archive.messages("s0"))
    each = (time.perf_counter() - began) / count * 1e6
    return [
        measured("listing 50 sessions, p95", _p95(waits) * 1e3, "ms"),
        measured("reading a transcript, per message", each, "us"),
    ]


async def _measure(folder: Path) -> list[Number]:
    prose = Prose(7)
    async with open_store(folder / "hermes.db", SystemClock()) as store:
        lines = [await bulk(store, prose), await catching_up(store)]
        lines += await searches(store, prose)
        lines += await singles(store, prose)
        lines.append(await alone(store, prose))
        lines += await listings(store)
        stats = await store.maintenance.stats()
        lines.append(measured("database size", stats.size / 1e6, "MB"))
        wrong = await store.maintenance.integrity()
        lines.append(at_most("integrity errors", len(wrong), "", 0))
    return lines


def measure() -> Iterator[Number]:
    with tempfile.TemporaryDirectory() as folder:
        yield from anyio.run(_measure, Path(folder))


def main() -> int:
    """Return the number of missed limits."""
    return sum(not show(number) for number in measure())


def measured(name: str, value: float, unit: str) -> Number:
    return Number(name=name, value=value, unit=unit)


def at_least(name: str, value: float, unit: str, bar: float) -> Number:
    return Number(name=name, value=value, unit=unit, bar=bar, sense="least")


def at_most(name: str, value: float, unit: str, bar: float) -> Number:
    return Number(name=name, value=value, unit=unit, bar=bar)


def _session(number: int) -> Session:
    return Session(id=f"s{number}", started_at=AT, system="You are helpful. " * 200)


def _p95(waits: Sequence[float]) -> float:
    return sorted(waits)[int(len(waits) * 0.95)]


if __name__ == "__main__":
    sys.exit(main())
